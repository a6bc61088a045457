"""Which server for which load: the columns that experiments declare, the front page, and the page of all claims."""

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from browsing import axe_complaints
from claims_maker import LEVELS, as_paper, claim
from claims_maker import SERVERS as JUDGED
from run_maker import EXPERIMENT, HOSTILE, SERVERS, Server, failed, make_run

from wsbench import metrics
from wsbench.analysis import campaigns, choices
from wsbench.analysis.claims import evaluate
from wsbench.analysis.claims.outcome import Obstacle
from wsbench.analysis.claims.over_campaigns import judged
from wsbench.analysis.reading import load
from wsbench.experiments import experiment
from wsbench.experiments.choice import NEEDS, Choice
from wsbench.records.errors import UserError
from wsbench.records.rundir import RunFolder
from wsbench.report import claimed
from wsbench.report.web.site import write

ROOT = Path(__file__).parents[1]
HOSTILE_SERVER = Server(f"evil\"'{HOSTILE}", rate=3_000)
AT = {"connections": 64}
DECLARED = (
    Choice(need="Large messages", shows="CPU per message", metric="server_cpu_us_per_message", at=AT),
    Choice(need="Many idle connections", shows="messages per second", metric="messages_per_s", at=AT),
    Choice(need="Rooms", shows="copies", metric="pushes_per_s", at=AT),
    Choice(need="Rooms", shows="elsewhere", metric="messages_per_s", at={"connections": 65}),
)


def lose_the_hostile(trial, order):
    return failed("it ended") if order.server == HOSTILE_SERVER.name else trial


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An old campaign, a newer one with another order of the servers, and one of claims."""
    runs = tmp_path_factory.mktemp("choices") / "runs"
    runs.mkdir()
    slower = (SERVERS[0], replace(SERVERS[1], rate=9_000), SERVERS[2], HOSTILE_SERVER)
    made = [
        make_run(runs / "old", SERVERS[:3]),
        make_run(runs / "new", slower, change=lose_the_hostile),
        make_run(runs / "one", (SERVERS[1], replace(SERVERS[1], variant="4.3"))),
        make_run(runs / "claims", JUDGED, LEVELS, 5, change=as_paper, experiment=claim(ALL_FALL)),
    ]
    for number, run in enumerate(made):
        run.write_json("campaign.json", run.campaign.model_copy(update={"created_unix_s": 1.7e9 + 3600 * number}))
    return runs


ALL_FALL = "every server in (netty, jetty): falls(server.requests_per_s, connections)"
BELOW_1000 = """
[[claim]]
id = "X2"
says = "Below 1,000 it is so."
holds_if = "every cell where connections < 1_000: netty.requests_per_s > jetty.requests_per_s"
"""


@pytest.fixture(scope="module")
def columns(folder):
    patch = pytest.MonkeyPatch()
    patch.setattr(choices, "_choices", lambda name: DECLARED)
    found = choices.columns(campaigns.find([folder]))
    yield found
    patch.undo()


@pytest.fixture(scope="module")
def site(folder, columns, tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "out"
    write([folder], out)
    return out


@pytest.mark.system
def test_a_withdrawn_campaign_gives_no_answer_and_says_why(folder, columns, monkeypatch):
    monkeypatch.setattr(choices, "_choices", lambda name: DECLARED)
    (folder / "campaigns.toml").write_text('[[withdrawn]]\ncampaigns = ["new"]\nbecause = "a fault"\n', encoding="utf-8")
    try:
        found = campaigns.find([folder])
    finally:
        (folder / "campaigns.toml").unlink()
    newest = {one.campaign.run.path.name for one in columns if one.choice.need == "Large messages"}
    assert newest == {"new"}
    assert {one.campaign.run.path.name for one in choices.columns(found) if one.choice.need == "Large messages"} == {"old"}
    assert [(why, [one.run.path.name for one in of]) for why, of in choices.withdrawn(found)] == [("a fault", ["new"])]
    assert choices.withdrawn(campaigns.find([folder])) == []


def test_no_campaign_gives_an_answer_while_it_is_unknown_which_are_withdrawn(folder):
    (folder / "campaigns.toml").write_text('[[withdrawn]]\ncampaigns = ["new"]\n', encoding="utf-8")
    try:
        found, broken = campaigns.look([folder])
    finally:
        (folder / "campaigns.toml").unlink()
    assert any("campaigns.toml" in line for line in broken)
    assert found
    assert all("campaigns.toml" in one.withdrawn for one in found)


def test_machines_are_numbered_in_the_order_in_which_they_were_used(columns):
    def on(created_h, **machine):
        campaign, results = columns[0].campaign, columns[0].campaign.results
        other = replace(
            campaign, id=f"runs/{created_h}", record=campaign.record.model_copy(update={"created_unix_s": 3600 * created_h})
        )
        other.__dict__["results"] = replace(results, machine=results.machine.model_copy(update=machine))
        return replace(columns[0], campaign=other)

    xeon = {"cpu_model": "Intel(R) Xeon(R) Processor", "kernel": "6.1"}
    cpus = f"{columns[0].campaign.results.machine.cpus} CPUs"
    campaigns = [on(3, **xeon, cpu_id="model 207"), on(2, cpu_model="AMD EPYC", kernel="6.1"), on(1, **xeon), on(4, **xeon)]
    found = choices._with_machines(campaigns)
    assert [one.machine for one in found] == ["M1", "M2", "M1", "M1"], "an older record has no id"
    assert choices.machines(found) == [
        f"M1: {cpus} (Intel(R) Xeon(R) Processor, model 207), Linux 6.1",
        f"M2: {cpus} (AMD EPYC), Linux 6.1",
    ]
    found = choices._with_machines([*campaigns, on(5, **xeon, cpu_id="model 143")])
    assert [one.machine for one in found] == ["M3", "M2", "M1", "M1", "M4"], "which of two it is cannot be known"
    assert choices.machines(found)[2:] == [
        f"M3: {cpus} (Intel(R) Xeon(R) Processor, model 207), Linux 6.1",
        f"M4: {cpus} (Intel(R) Xeon(R) Processor, model 143), Linux 6.1",
    ]
    many = choices._with_machines([on(hour, cpu_model=f"model {hour}") for hour in range(1, 12)])
    assert [line.split(":")[0] for line in choices.machines(many)] == [f"M{number}" for number in range(1, 12)]
    assert {one.machine for one in columns} == {""}, "one machine needs no name"


def test_a_column_is_of_the_newest_campaign_that_has_it_in_the_order_of_needs(columns):
    found = [one for one in columns if one.campaign.id != "runs/claims"]
    assert [one.choice.shows for one in found] == ["messages per second", "CPU per message"]
    assert {one.campaign.id for one in found} == {"runs/new"}


def test_the_best_is_ranked_and_the_baseline_is_not(columns):
    column = next(one for one in columns if one.choice.shows == "messages per second")
    assert [one.server for one in column.best] == ["ws@8.18"]
    assert column.next.server == "netty@4.2"
    assert column.of("reference@1.0").rank == "reference"
    lost = column.of(f"{HOSTILE_SERVER.name}@1.0")
    assert (lost.value, lost.rank) == (None, "open")
    assert column.compared == len(column.entries) - 2, "without the baseline, and without one that has no number"
    assert column.entries[-1] == lost
    assert column.of("bun@1") is None
    said = next(one for one in choices.answers(columns) if one.column is column)
    assert re.fullmatch(r"ws 1[\d,.]+ \(.*\) messages/s", said.best)
    assert said.next.startswith("netty ")


def test_where_every_server_may_be_the_best_the_answer_is_undecided(columns):
    column = next(one for one in columns if one.choice.shows == "messages per second")
    first, second, *_ = column.entries
    both = replace(column, entries=(replace(first, rank="may be best"), replace(second, rank="may be best")))
    assert re.fullmatch(r"one of 2 \(ws .*\)", choices.answers([both])[0].best)
    equal = replace(column, entries=(first, replace(second, rank="best")))
    assert choices.answers([equal])[0].best.startswith("ws "), "equal servers are both the best"


@pytest.mark.parametrize(("higher", "found"), [(True, ["fast"]), (False, ["slow"])])
def test_who_has_too_few_numbers_but_a_better_mean_may_be_the_best(higher, found):
    entries = [
        choices.Entry(name, value, "", "", "", "VALID", rank, "")
        for name, value, rank in (("best", 100.0, "best"), ("fast", 120.0, "open"), ("slow", 80.0, "open"), ("none", None, "open"))
    ]
    assert [one.server for one in choices._unplaced(entries, ("best",), higher)] == found
    assert choices._unplaced(entries, (), higher) == []


def test_a_winner_of_suspect_trials_is_marked(columns):
    column = next(one for one in columns if one.choice.shows == "messages per second")
    first, *rest = column.entries
    doubted = replace(column, entries=(replace(first, verdict="SUSPECT"), *rest))
    assert choices.answers([doubted])[0].best == f"{choices.answers([column])[0].best} (SUSPECT)"


def test_who_may_be_ahead_by_fewer_than_three_rounds_leaves_it_undecided_and_is_not_the_best(tmp_path, monkeypatch):
    monkeypatch.setattr(choices, "_choices", lambda name: DECLARED[1:2])
    fast = Server("fast", rate=50_000)

    def disturbed(trial, order):
        return replace(trial, steal=0.2) if order.server == "fast" and order.round > 1 else trial

    make_run(tmp_path / "runs" / "few", (*SERVERS[1:3], fast), rounds=4, change=disturbed)
    (said,) = choices.answers(choices.columns(campaigns.find([tmp_path / "runs"])))
    assert said.best == "undecided: fast may be ahead, known from fewer than 3 rounds"
    assert [one.rank for one in said.column.entries if one.server == "fast@1.0"] == ["open"]


def test_where_nothing_is_decided_no_server_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(choices, "_choices", lambda name: DECLARED[1:2])
    make_run(tmp_path / "runs" / "few", SERVERS[1:3], rounds=2)
    (said,) = choices.answers(choices.columns(campaigns.find([tmp_path / "runs"])))
    assert said.best == "undecided: fewer than 3 rounds"
    assert said.next == ""
    first, second = (replace(one, few=False) for one in said.column.entries)
    alone = replace(said.column, entries=(first, replace(second, value=None)))
    assert choices.answers([alone])[0].best.startswith("undecided; measured only: netty ")
    assert (said.column.compared, alone.compared) == (2, 1)


def test_every_declared_column_exists():
    declared = [one for file in experiment.EXPERIMENTS.glob("*.toml") for one in experiment.read(file).choice]
    assert {one.need for one in declared} == set(NEEDS)
    for one in declared:
        assert metrics.METRICS[one.metric].direction != "neither", one


def test_a_column_of_no_cell_is_refused(tmp_path):
    file = tmp_path / "own.toml"
    text = EXPERIMENT.replace("repeats = 3\n", "") + '[[choice]]\nneed = "Rooms"\nshows = "x"\nmetric = "messages_per_s"\n'
    file.write_text(text + "at = { connections = 5 }\n")
    with pytest.raises(UserError, match=r"'choice.at': found \{'connections': 5\}, allowed: a cell of the sweep"):
        experiment.read(file)
    file.write_text(text.replace('"Rooms"', '"rooms"') + "at = { connections = 16 }\n")
    with pytest.raises(UserError, match="need"):
        experiment.read(file)


@pytest.mark.system
def test_a_claim_is_judged_on_the_newest_campaign_that_lacks_nothing_for_it(folder, tmp_path):
    runs, asked = tmp_path / "runs", claim(ALL_FALL, 'needs = "connections >= 1_000"\n') + BELOW_1000
    whole = make_run(runs / "whole", JUDGED, LEVELS, 5, change=as_paper, experiment=asked)
    part = make_run(runs / "part", JUDGED[:1], LEVELS, 5, change=as_paper, experiment=asked)
    short = make_run(runs / "short", JUDGED, LEVELS, 2, change=as_paper, experiment=asked)
    smaller = make_run(runs / "smaller", JUDGED, LEVELS[:2], 5, change=as_paper, experiment=asked)
    for number, run in enumerate((whole, part, short, smaller)):
        run.write_json("campaign.json", run.campaign.model_copy(update={"created_unix_s": 1.7e9 + number}))
    found = judged(campaigns.find([runs]))
    assert [(one.found.id, one.found.versions, one.campaign.id, one.found.verdict) for one in found] == [
        ("X1", "published", "runs/whole", "holds"),
        ("X1", "today", "runs/whole", "holds"),
        ("X2", "published", "runs/smaller", "holds"),
        ("X2", "today", "runs/smaller", "does not hold"),
    ]


def test_a_claim_for_which_each_lacks_something_is_judged_on_the_one_with_the_most_of_its_servers(tmp_path):
    runs, asked = tmp_path / "runs", claim(ALL_FALL)
    short = make_run(runs / "short", JUDGED, LEVELS, 2, change=as_paper, experiment=asked)
    part = make_run(runs / "part", JUDGED[:1], LEVELS, 5, change=as_paper, experiment=asked)
    for number, run in enumerate((short, part)):
        run.write_json("campaign.json", run.campaign.model_copy(update={"created_unix_s": 1.7e9 + number}))
    found = judged(campaigns.find([runs]))
    assert {(one.campaign.id, one.found.verdict) for one in found} == {("runs/short", "undecided")}


@pytest.mark.nightly
def test_the_catalogues_conditions_count_for_every_view_of_a_campaign_that_has_its_claims():
    """K1 got a need for two CPUs after the campaign that is published."""
    run = RunFolder.open(ROOT / "results" / "2026-11-22-tcp-vs-websocket-2013")
    results = load(run)
    by_rule = {(one.id, one.versions): one.verdict for one in evaluate.evaluate(results)}
    own = {(one.id, one.versions): one.verdict for one in evaluate.evaluate(results, results.experiment.source)}
    assert (own["K1", "published"], by_rule["K1", "published"]) == ("does not hold", "undecided")
    assert "K1" in evaluate.put_right(results)
    (row,) = [one for one in claimed.claim_rows(results) if one.id == "K1"]
    assert row.verdicts["published"][0] == "undecided"
    (one,) = [one for one in campaigns.find([run.path.parent]) if one.run.path == run.path]
    assert {(one.found.id, one.found.versions): one.found.verdict for one in judged([one])} == by_rule


def test_an_experiment_of_a_catalogues_name_with_claims_of_its_own_keeps_them(tmp_path):
    run = make_run(tmp_path / "runs" / "own", JUDGED, LEVELS, 5, change=as_paper, experiment=claim(ALL_FALL))
    run.write_json("campaign.json", run.campaign.model_copy(update={"experiment": "hoticn-2018-concurrency"}))
    results = load(run)
    assert [one.id for one in evaluate.evaluate(results)] == ["X1"] * 2
    assert evaluate.put_right(results) == []


def test_claims_of_many_folders_name_what_is_no_campaign(tmp_path, wsbench):
    make_run(tmp_path / "one", JUDGED, LEVELS, 5, change=as_paper, experiment=claim(ALL_FALL))
    (tmp_path / "README.md").write_text("")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "campaign.json").write_text("{}")
    done = wsbench("claims", "README.md", "broken", "one")
    assert done.returncode == 0
    assert "X1" in done.stdout
    assert [line.split(":")[1].strip() for line in done.stderr.splitlines()] == [
        "left out README.md is not a run directory",
        "left out broken/order.json",
    ]
    for words in (["README.md"], ["README.md", "broken"]):
        done = wsbench("claims", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", len(words))


# ---- the pages -------------------------------------------------------------------------------------------------------


def opened(browser, site, page="index.html", **options):
    made = browser.new_context(bypass_csp=True, **options).new_page()
    made.goto((site / page).as_uri())
    return made


def test_the_front_page_answers_before_it_lists(browser, site):
    page = opened(browser, site)
    assert page.locator("h1").inner_text() == "Which WebSocket server for my load?"
    first = page.locator("#answers tbody tr").first
    assert "ws" in first.locator(".best").inner_text()
    assert page.locator("#campaigns tbody tr").count() == 4
    first.get_by_role("link").click()
    assert page.locator("h1").inner_text().startswith("How many small messages")
    page.context.close()


def test_servers_are_sorted_by_a_column_and_filtered(browser, site):
    page = opened(browser, site)
    rows = page.locator("#choose tbody tr")
    page.get_by_role("button", name="messages per second").first.click()
    names = [one.split("\t")[0] for one in rows.all_inner_texts()]
    assert names[:2] == ["reference@1.0", "ws@8.18"]
    assert page.locator("#choose th[aria-sort=descending]").count() == 1
    page.get_by_role("button", name="server", exact=True).click()
    names = [one.split("\t")[0] for one in rows.all_inner_texts()]
    assert names == sorted(names)
    page.get_by_label("name contains").fill("netty 4.2")
    assert rows.locator("visible=true").count() == 1
    assert page.locator("#kept").inner_text() == "1 shown"
    page.context.close()


def test_every_claim_stands_on_one_page_with_its_evidence(browser, site):
    page = opened(browser, site)
    page.get_by_role("link", name="published claims").click()
    assert "2 of 2 verdicts are decided: 2 hold, 0 do not hold" in page.locator("main").inner_text()
    row = page.locator("#claims tbody tr").first
    assert row.inner_text().startswith("X1")
    assert "holds" in row.inner_text()
    row.get_by_role("link").click()
    assert "runs/claims" in page.locator("main").inner_text()
    page.context.close()


def test_an_open_claim_says_what_would_decide_it():
    assert set(claimed.TAKES) == set(get_args(Obstacle))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index.html", "claims.html"])
def test_axe_finds_nothing_and_a_phone_is_never_scrolled_sideways(browser, site, name, scheme):
    page = opened(browser, site, name, color_scheme=scheme)
    assert axe_complaints(page) == []
    page.context.close()
    page = opened(browser, site, name, viewport={"width": 390, "height": 800})
    assert page.title() != "owned"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_screenshot_shows_the_answers(browser, site, scheme, width):
    """The best server's cell is on the first screen and its text can be seen: hidden, the same spot packs to far fewer bytes."""
    page = opened(browser, site, color_scheme=scheme, viewport={"width": width, "height": 900})
    cell = page.locator("#answers .best").first
    box = cell.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert box["y"] + box["height"] <= 900
    shown = page.screenshot(clip=box)
    cell.evaluate("cell => cell.style.visibility = 'hidden'")
    assert len(shown) > 2 * len(page.screenshot(clip=box))
    page.context.close()
