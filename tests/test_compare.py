"""What became better or worse: claimed where it is so, not claimed where it is not, refused where it cannot be said."""

import json
from dataclasses import replace

import pytest
from run_maker import HOSTILE, SERVERS, Server, make_run

from wsbench.analysis import compare
from wsbench.records.errors import UserError

CELLS = ({"connections": 64},)
ROUNDS = 8


def scaled(factor: float, of: str = "netty"):
    """Makes one server so much faster."""
    return lambda trial, order: replace(trial, rate=trial.rate * factor) if order.server == of else trial


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    hostile = Server(f"a|b{HOSTILE}`", rate=4_000)
    make_run(folder / "base", (*SERVERS[:2], hostile), CELLS, ROUNDS, seed=1)
    make_run(folder / "slower", (*SERVERS[:2], hostile), CELLS, ROUNDS, seed=2, change=scaled(0.6))
    make_run(folder / "same", (*SERVERS[:2], hostile), CELLS, ROUNDS, seed=3)
    make_run(folder / "few", SERVERS[:2], CELLS, 2, seed=4, change=scaled(0.8))
    return folder


def compared(runs, base: str, new: str, **options) -> dict[tuple[str, str], compare.Row]:
    sides = (compare.side(str(runs / name)) for name in (base, new))
    found = compare.compare(*sides, options.pop("named", ["messages_per_s", "service_us_p50"]), **options)
    return {(row.server, row.metric): row for row in found.rows}


def test_a_server_that_became_slower_is_worse_and_the_other_is_not(runs):
    rows = compared(runs, "base", "slower")
    worse = rows["netty@4.2", "messages_per_s"]
    assert worse.says == "worse"
    assert worse.decision.low < 0.6 < worse.decision.high
    assert 0.2 < worse.worse_by < 1 / 0.6 - 1, "the nearer end of the interval"
    assert worse.decision.relevant
    assert rows["reference@1.0", "messages_per_s"].says in ("equal", "undecided")
    assert compared(runs, "slower", "base")["netty@4.2", "messages_per_s"].says == "better"


def test_two_runs_of_the_same_thing_do_not_differ(runs):
    assert not {row.says for row in compared(runs, "base", "same").values()} & {"better", "worse", "changed"}


def test_too_few_rounds_say_nothing(runs):
    rows = compared(runs, "base", "few")
    assert {row.says for row in rows.values()} == {"undecided"}
    assert rows["netty@4.2", "messages_per_s"].decision.reason.startswith("3 rounds are needed, there are 2")


def test_the_margin_decides_what_is_relevant(runs):
    assert not compared(runs, "base", "slower", margin=0.5)["netty@4.2", "messages_per_s"].decision.relevant
    assert compared(runs, "base", "slower", margin=0.5)["netty@4.2", "messages_per_s"].margin == 0.5


def test_two_servers_of_one_campaign_are_compared_within_rounds(runs):
    sides = [compare.side(f"{runs / 'base'}:{name}") for name in ("reference@1.0", "netty@4.2")]
    (row,) = compare.compare(*sides, ["messages_per_s"]).rows
    assert row.says == "worse"
    assert row.server == "reference@1.0 → netty@4.2"
    assert len(row.base.values) == len(row.new.values) == ROUNDS
    assert row.decision.low < row.decision.ratio < row.decision.high < 1


def test_the_order_of_servers_is_the_same_or_not(runs, tmp_path):
    make_run(tmp_path / "turned", SERVERS[:2], CELLS, ROUNDS, seed=5, change=scaled(3.0))

    def ordered(base, new):
        found = compare.compare(compare.side(str(base)), compare.side(str(new)), ["messages_per_s"], ordered=True)
        (one,) = found.orders
        return one, compare.reversals(found)

    same, none = ordered(runs / "base", runs / "slower")
    assert (same.pairs, same.alike, same.reversed, same.neither) == (3, 3, (), 0)
    assert not none
    turned, texts = ordered(runs / "base", tmp_path / "turned")
    assert (turned.pairs, turned.alike, turned.reversed) == (1, 0, (("reference@1.0", "netty@4.2"),))
    assert texts == ["messages_per_s: reference@1.0 is ahead of netty@4.2 in the base, and behind it in the new one"]
    few, _ = ordered(runs / "base", runs / "few")
    assert (few.alike, few.base, few.new, few.neither) == (0, 1, 0, 0), "two rounds decide nothing"
    with pytest.raises(UserError, match="an order is one of several servers"):
        compare.compare(compare.side(str(runs / "base")), compare.side(str(runs / "base")), [], ordered=True)


def test_the_same_servers_on_a_slower_day_are_not_worse(runs, tmp_path):
    """Every server lost 15 %, as on the machine of two published campaigns."""
    day = make_run(
        tmp_path / "day", SERVERS[:2], CELLS, ROUNDS, seed=6, change=lambda trial, _: replace(trial, rate=trial.rate * 0.85)
    )
    base, new = compare.side(str(runs / "base")), compare.side(str(day.path))
    found = compare.compare(base, new, ["messages_per_s"])
    assert found.anchor == "reference@1.0"
    assert {row.server: row.says for row in found.rows} == {"reference@1.0": "undecided", "netty@4.2": "undecided"}
    (row,) = (row for row in found.rows if row.server == "netty@4.2")
    assert row.plain == pytest.approx(0.85, abs=0.03)
    assert row.decision.ratio == pytest.approx(1, abs=0.05)
    assert row.decision.high / row.decision.low > 1.2, "two days of one server differ, too"
    assert row.decision.rounds is None, "more rounds do not make days alike"
    assert "÷ reference@1.0" in compare.headers(found)


def test_two_campaigns_without_a_common_anchor_decide_nothing_and_fail_no_gate(wsbench, tmp_path):
    for seed, name in enumerate(("base", "new"), 1):
        make_run(tmp_path / name, (SERVERS[1], Server("go", rate=20_000)), CELLS, ROUNDS, seed=seed, change=scaled(1 / seed))
    base, new = (compare.side(str(tmp_path / name)) for name in ("base", "new"))
    found = compare.compare(base, new, ["messages_per_s"])
    assert {row.says for row in found.rows} == {"undecided"}
    assert found.undecidable.startswith("nothing is decided: two campaigns differ by the machine's day, about 12 %")
    assert sorted(texts[5][:4] for texts in compare.table(found))[0] == "0.50", "the ratio is shown"
    assert "nothing is decided" in compare.markdown(found)
    other = compare.compare(base, new, ["messages_per_s"], anchor="go")
    assert {row.server: row.says for row in other.rows} == {"netty@4.2": "worse", "go@1.0": "undecided"}
    with pytest.raises(UserError, match="--anchor jetty: found no such server, allowed: one of"):
        compare.compare(base, new, [], anchor="jetty")
    done = wsbench("compare", base.text, new.text, "--metric", "messages_per_s", "--fail-if", "5")
    assert done.returncode == 4
    assert "--fail-if: nothing is decided" in done.stderr


def test_an_anchor_of_another_version_is_none(runs, tmp_path):
    other = make_run(tmp_path / "other", SERVERS[:2], CELLS, ROUNDS, seed=7)
    rows = [row.model_copy(update={"library_version": "9"}) if row.server == "reference" else row for row in other.servers]
    other.write_json("servers.json", rows)
    sides = compare.side(str(runs / "base")), compare.side(str(other.path))
    assert compare.compare(*sides, ["messages_per_s"]).anchor is None
    with pytest.raises(UserError, match="its version differs between the campaigns"):
        compare.compare(*sides, [], anchor="reference")


def test_a_margin_of_zero_is_zero(runs):
    assert {row.margin for row in compared(runs, "base", "same", margin=0.0).values()} == {0.0}


def test_other_cells_and_goals_are_named(runs, tmp_path):
    part = make_run(tmp_path / "part", SERVERS[:2], CELLS, ROUNDS, seed=8)
    part.write_json("campaign.json", part.campaign.model_copy(update={"sweep": {"connections": [64]}}))
    found = compare.compare(compare.side(str(runs / "base")), compare.side(str(part.path)), ["messages_per_s"])
    assert found.notes == ["sweep: as the experiment says against {'connections': [64]}"]


def test_another_machine_or_setting_is_refused_with_the_reason(runs, tmp_path):
    other = make_run(tmp_path / "other", SERVERS[:2], CELLS, ROUNDS, experiment='question = "?"\n[load]\nconnections = 5\n')
    machine = other.machine.model_copy(update={"cpu_model": "Another CPU"})
    other.write_json("machine.json", machine)
    with pytest.raises(UserError, match="cpu model: Fictional CPU at 3 GHz against Another CPU") as refused:
        compare.compare(compare.side(str(runs / "base")), compare.side(str(other.path)), [])
    assert "load" in str(refused.value)
    found = compare.compare(compare.side(str(runs / "base")), compare.side(str(other.path)), [], anyway=True)
    assert len(found.differences) >= 2
    assert any("only in the base" in text for text in found.left_out)


def test_cpus_of_one_name_are_different_machines_if_both_records_say_so(runs, tmp_path):
    named = {}
    for name, cpu_id in (("one", "model 143"), ("other", "model 207")):
        made = make_run(tmp_path / name, SERVERS[:2], CELLS, ROUNDS)
        made.write_json("machine.json", made.machine.model_copy(update={"cpu_id": cpu_id}))
        named[name] = compare.side(str(made.path))
    with pytest.raises(UserError, match="cpu id: model 143 against model 207"):
        compare.compare(named["one"], named["other"], [])
    assert not compare.compare(compare.side(str(runs / "base")), named["other"], []).differences, "an older record has none"


def test_another_scale_is_another_setting(runs, tmp_path):
    other = make_run(tmp_path / "small", SERVERS[:2], CELLS, ROUNDS)
    other.write_json("campaign.json", other.campaign.model_copy(update={"scale": 0.1}))
    with pytest.raises(UserError, match=r"scale: 1\.0 against 0\.1"):
        compare.compare(compare.side(str(runs / "base")), compare.side(str(other.path)), [])


def test_what_does_not_exist_is_named(runs):
    with pytest.raises(UserError, match="no server 'undertow'"):
        compare.side(f"{runs / 'base'}:undertow")
    with pytest.raises(UserError, match="not a run directory"):
        compare.side(str(runs))
    with pytest.raises(UserError, match="unknown metric"):
        compared(runs, "base", "same", named=["speed"])
    with pytest.raises(UserError, match="on both sides or on neither"):
        compare.compare(compare.side(str(runs / "base")), compare.side(f"{runs / 'same'}:netty@4.2"), [])


def test_the_command_says_it_three_ways_and_fails_where_it_must(wsbench, runs):
    arguments = ["compare", str(runs / "base"), str(runs / "slower"), "--metric", "messages_per_s"]
    plain = wsbench(*arguments)
    assert plain.returncode == 0, plain.stderr
    assert "worse" in plain.stdout
    assert wsbench(*arguments, "--fail-if", "10").returncode == 3
    assert wsbench(*arguments, "--fail-if", "90%").returncode == 0
    assert wsbench(*arguments, "--fail-if", "much").returncode == 2
    document = json.loads(wsbench(*arguments, "--json").stdout)
    assert [row["server"] for row in document["rows"] if row["says"] == "worse"] == ["netty@4.2"]
    assert not document["orders"], "nobody asked"
    (order,) = json.loads(wsbench(*arguments, "--json", "--orders").stdout)["orders"]
    assert (order["pairs"], order["alike"], order["reversed"]) == (3, 3, [])
    assert "same order" in wsbench(*arguments, "--orders").stdout
    assert "| messages_per_s | 3 | 3 | 0 |" in wsbench(*arguments, "--orders", "--markdown").stdout
    text = wsbench(*arguments, "--markdown").stdout
    assert text.index("| netty@4.2 |") < text.index("<details>")
    assert "<script" not in text
    assert "a\\|b" in text
