"""`wsbench duel`: what a contender is, what is said, what fails, and real duels of real servers."""

import json
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import PATIENCE_S, WSBENCH
from test_end_to_end import only_run, processes_with, wait_for
from test_own_server import own  # noqa: F401 (a fixture)
from test_until import made

from wsbench.analysis import duel as words
from wsbench.analysis import gates
from wsbench.analysis.reading import load
from wsbench.analysis.stats import Decision
from wsbench.analysis.until import Comparison, Standing
from wsbench.cli import exits, show_duel
from wsbench.cli.show_duel import exit_code
from wsbench.engine import program
from wsbench.experiments import experiment
from wsbench.host import machine
from wsbench.metrics.limits import LIMITS
from wsbench.records.errors import UserError
from wsbench.records.goals import Until
from wsbench.records.rundir import CONTROL
from wsbench.run import campaign, duel, testbed
from wsbench.servers import catalogue, manifest

HERE = Path(__file__).parent
QUIET = [sys.executable, str(HERE / "quiet_machine.py")]
SHORT = ("-c", "4", "--warmup", "100ms", "--measure", "500ms", "--seed", "1")
PAIR = ("reference@1.0", "netty@4.2")


def server(spin_us: int = 0, **more) -> str:
    given = {"OWN_PATH": "/ws", "OWN_SPIN_US": str(spin_us), **more}
    return " ".join(["env", *(f"{name}={value}" for name, value in given.items()), sys.executable, str(HERE / "own_server.py")])


# ---- contenders ----------------------------------------------------------------------------------------------------


def test_a_url_is_a_server_that_runs_already():
    found = duel.contender("ws://127.0.0.1:8080/chat", "B", "/ws", pid=12)
    assert (found.name, found.sampled) == ("B@running", True)
    assert 'url = "ws://127.0.0.1:8080/chat"' in found.toml
    assert "/ws" not in found.toml
    bare = duel.contender("http://localhost:8080", "A", "/ws")
    assert not bare.sampled
    assert 'echo = "/ws"' in bare.toml


def test_a_command_is_a_manifest_that_runs_it_without_a_shell_where_the_user_is(tmp_path):
    text = f'{sys.executable} -c "a \\"b\\" $HOME é"'
    found = duel.contender(text, "A", "/ws")
    (tmp_path / "A").mkdir()
    file = tmp_path / "A" / "server.toml"
    file.write_text(found.toml, encoding="utf-8")
    read = manifest.read(file)
    assert read.library == text
    table = read.variants["command"]
    assert table.run == ["env", "-C", str(Path.cwd()), sys.executable, "-c", 'a "b" $HOME é']
    (variant,) = catalogue.read(tmp_path)
    assert variant.paths["echo"] == "/ws"


def test_a_program_without_words_is_a_command():
    assert f'"{sys.executable}"]' in duel.contender(sys.executable, "A", "/ws").toml


def test_a_word_is_a_row_of_the_catalogue():
    assert duel.contender("netty", "A", "/ws").name.startswith("netty@")
    assert duel.contender("netty@4.1.19", "A", "/ws").name == "netty@4.1.19"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("./nothing-here", "found no program"),
        ("nothing-here --fast", "found no program"),
        ("'open quote", "closing quotation"),
        ("nope", "no server matches"),
        ("netty@*", "expected one server"),
        ("wss://127.0.0.1:1/x", "allowed: ws://"),
    ],
)
def test_what_is_no_contender_is_refused_in_one_line(text, said):
    with pytest.raises(UserError, match=said) as error:
        duel.contender(text, "A", "/ws")
    assert "\n" not in str(error.value)


def test_only_a_url_has_a_process_that_runs_already():
    with pytest.raises(UserError, match="only a URL"):
        duel.contender("netty", "A", "/ws", pid=3)


@pytest.mark.parametrize("text", ["netty", "ws://127.0.0.1:8080/ws", f"{sys.executable} x"])
def test_a_contender_against_itself_is_an_aa_control(text):
    base, new = duel.contenders(duel.Asked(text, text))
    assert new.name == base.name + CONTROL


def test_the_request_is_an_experiment_that_can_be_read(tmp_path):
    asked = duel.Asked("netty", f"{sys.executable} 'é'", connections=7, payload_bytes=9, depth=2, budget_s=60, seed=4)
    with duel.request(asked, "wsbench duel") as made_:
        read = experiment.read(made_.file)
        assert (read.arrangement, read.margin, read.timing.again) == ("slices", 0.03, 0)
        assert (read.load.connections, read.load.payload_bytes, read.load.depth) == (7, 9, 2)
        assert sorted(one.name for one in made_.variants) == sorted(made_.until.pair) == ["B@command", "netty@4.2"]
        assert made_.until.metrics == [duel.RATE, duel.CPU]
        assert made_.departures == []
    urls = duel.Asked("netty", "ws://127.0.0.1:8080/ws", gated=("service_us_p50",))
    with duel.request(urls, "wsbench duel") as made_:
        assert made_.until.metrics == [duel.RATE, "service_us_p50"]


def test_a_duel_of_capacities_decides_under_each_slo():
    asked = duel.Asked("netty", "node-ws", metrics=("capacity",), slos=("p99 < 5ms", "p99 < 50ms"))
    with duel.request(asked, "wsbench duel") as made_:
        assert made_.until.metrics == ["capacity_per_s", "capacity_2_per_s"]
        assert experiment.read(made_.file).ladder.slos == ["p99 < 5ms", "p99 < 50ms"]
    for wrong, says in (({"metrics": ("capacity",)}, "needs --slo"), ({"slos": ("p99 < 5ms",)}, "goes with --metric capacity")):
        with pytest.raises(UserError, match=says), duel.request(duel.Asked("netty", "node-ws", **wrong), "wsbench duel"):
            pass


# ---- gates ---------------------------------------------------------------------------------------------------------


def decision(says, ratio=None, least=0.0, most=math.inf, relevant=False, rounds=None, reason=""):
    return Decision("B", "A", says, ratio, least, most, relevant, reason, lambda: rounds)


WORSE = decision("worse", 0.95, 0.93, 0.965, relevant=True)
SLIGHTLY = decision("worse", 0.98, 0.965, 0.995, reason="not shown to be beyond 3 %")
EQUAL = decision("equal", 0.995, 0.99, 1.0)
OPEN = decision("undecided", 0.96, 0.90, 1.02, rounds=12)
NARROW = decision("undecided", 1.01, 0.98, 1.04)
BETTER = decision("better", 1.10, 1.05, 1.15, relevant=True)
FAILED = decision("worse", reason="lost 3 of 3 rounds by its own fault")
AT_MOST = decision("worse", 0.5, most=0.55, relevant=True, reason="A is a lower bound: the engine was the limit")


@pytest.mark.parametrize(
    ("text", "found", "says"),
    [
        ("messages_per_s < -3 %", WORSE, "breached"),
        ("messages_per_s<-3%", WORSE, "breached"),
        ("messages_per_s < −3%", WORSE, "breached"),
        ("messages_per_s < -10%", WORSE, "held"),
        ("messages_per_s < -0.4%", SLIGHTLY, "breached"),
        ("messages_per_s < -1%", SLIGHTLY, "undecided"),
        ("messages_per_s < -3%", SLIGHTLY, "undecided"),
        ("messages_per_s < -4%", SLIGHTLY, "held"),
        ("messages_per_s < -3%", AT_MOST, "breached"),
        ("messages_per_s < -50%", AT_MOST, "undecided"),
        ("messages_per_s > 3%", AT_MOST, "held"),
        ("messages_per_s < -3%", EQUAL, "held"),
        ("messages_per_s < -3%", OPEN, "undecided"),
        ("messages_per_s < -3%", NARROW, "held"),
        ("messages_per_s < -3%", BETTER, "held"),
        ("messages_per_s > 4%", BETTER, "breached"),
        ("messages_per_s > 5%", BETTER, "undecided"),
        ("messages_per_s > 20%", BETTER, "held"),
        ("messages_per_s > 5%", WORSE, "held"),
        ("messages_per_s < 0%", WORSE, "breached"),
        ("messages_per_s < -3%", FAILED, "breached"),
        ("messages_per_s > 3%", FAILED, "held"),
        ("messages_per_s < -3%", None, "undecided"),
    ],
)
def test_a_gate_is_breached_or_held_only_by_the_whole_interval(text, found, says):
    assert gates.parse(text).judge(found) == says


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("messages_per_s", "allowed: NAME"),
        ("messages_per_s < -3", "allowed: NAME"),
        ("messages_per_s <= -3%", "allowed: NAME"),
        ("messages_per_s < 3%", "without any change"),
        ("messages_per_s > -3%", "without any change"),
        ("messages_per_s < -100%", "nothing falls"),
        ("speed < -3%", "unknown metric"),
    ],
)
def test_another_gate_is_refused(text, said):
    with pytest.raises(UserError, match=said):
        gates.parse(text)


# ---- words ---------------------------------------------------------------------------------------------------------

STANDING = Standing(Until(budget_s=300, planned=40), 8, [6.0] * 8, [])


@pytest.mark.parametrize(
    ("metric", "found", "said"),
    [
        ("messages_per_s", SLIGHTLY, "B carries 2 % fewer messages/s (0.5–3.5 %) after 48 s: not shown to be beyond 3 %"),
        ("messages_per_s", BETTER, "B carries 10 % more messages/s (5–15 %) after 48 s: relevant, beyond 3 %"),
        ("messages_per_s", decision("equal", 1.0, 0.991, 1.012), "messages/s: equal within 3 % (−0.9 to +1.2 %) after 48 s"),
        (
            "messages_per_s",
            decision("undecided", 1.02, 0.99, 1.05, rounds=60),
            "messages/s: undecided (−1 to +5 %) after 48 s: a campaign of 60 rounds (6 min) decides it in 8 of 10 cases",
        ),
        (
            "server_cpu_us_per_message",
            decision("worse", 1.05, 1.04, 1.06, relevant=True),
            "B's server CPU per message is 5 % higher (4–6 %) after 48 s: relevant, beyond 3 %",
        ),
        ("messages_per_s", FAILED, "messages/s: B is worse after 48 s: lost 3 of 3 rounds by its own fault"),
        (
            "messages_per_s",
            decision("undecided", reason="not measured"),
            "messages/s: undecided after 48 s: not measured",
        ),
    ],
)
def test_one_sentence_a_metric(metric, found, said):
    assert words.sentence(Comparison(metric, (), found), STANDING, 0.03) == said


def test_the_result_as_text_markdown_and_json(tmp_path):
    found = words.Duel(load(made(tmp_path / "run", 8, ratio=0.8, pair=PAIR)), "./base|x", "./new")
    gate = gates.parse("messages_per_s < -3 %")
    assert found.sentences[0].startswith("B carries 20 % fewer messages/s (")
    assert exit_code(found, [gate]) == 3
    assert exit_code(found, []) == 0
    text = words.markdown(found, [gate])
    assert "- B carries 20 % fewer" in text
    assert "| messages_per_s |" in text
    assert "breached" in text
    plain = json.loads(json.dumps(words.document(found, [gate]), allow_nan=False))
    assert plain["metrics"][0]["says"] == "worse"
    assert plain["metrics"][0]["low"] < 0.8 < plain["metrics"][0]["high"]
    assert plain["judged"] == [{"text": "messages_per_s < -3 %", "says": "breached"}]


def test_equal_and_undecided_do_not_fail(tmp_path):
    equal = words.Duel(load(made(tmp_path / "run", 30, spread=0.005, pair=PAIR)), "a", "b")
    assert "equal within 3 %" in equal.sentences[0]
    assert exit_code(equal, [gates.parse("messages_per_s < -3 %")]) == 0
    noisy = words.Duel(load(made(tmp_path / "noisy", 4, spread=0.3, ratio=0.9, pair=PAIR)), "a", "b")
    assert "undecided" in noisy.sentences[0]
    assert exit_code(noisy, [gates.parse("messages_per_s < -3 %")]) == 0


# ---- real duels ----------------------------------------------------------------------------------------------------


def fight(folder, *arguments, quiet=True, **options):
    command = [*(QUIET if quiet else WSBENCH), "duel", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, **options)


@pytest.mark.alone
def test_a_much_slower_command_is_decided_and_fails_its_gate(tmp_path):
    gate = "messages_per_s < -20 %"
    done = fight(
        tmp_path,
        server(),
        server(1000),
        "--path",
        "/ws",
        "--budget",
        "40s",
        "--fail-if",
        gate,
        "--json",
        "--metric",
        duel.RATE,
        *SHORT,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["metrics"][0]["metric"], found["metrics"][0]["says"]) == ("messages_per_s", "worse")
    assert found["turns"]["all"] > 0
    run = only_run(tmp_path)
    assert {one.round for one in run.order} == set(range(1, found["rounds"] + 1))
    for folder, record in run.finished():
        assert record.restarted
        assert folder.plan.target.path == "/ws"
        assert folder.plan.slices is not None
    assert not processes_with("own_server.py")


@pytest.mark.alone
def test_a_server_against_itself_is_equal_or_undecided(tmp_path):
    done = fight(tmp_path, "reference", "reference", "--budget", "8s", "--fail-if", "messages_per_s < -3 %", *SHORT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every difference is noise" in done.stdout
    assert {one.control for one in only_run(tmp_path).order} == {True, False}


@pytest.mark.system
def test_urls_are_one_process_each_and_never_stopped(own, tmp_path):  # noqa: F811
    process, port = own
    done = fight(tmp_path, f"ws://127.0.0.1:{port}/chat", "reference", "--budget", "5s", *SHORT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^ws://127.0.0.1:{port}/chat: python\S* \(process {process.pid}\) is sampled$", done.stdout, re.M)
    assert "one process each was compared and not restarted" in done.stdout
    assert process.poll() is None
    assert len(os.sched_getaffinity(process.pid)) == len(os.sched_getaffinity(0))


def disturbed_in_every_turn(tmp_path, monkeypatch, **more):
    """A duel of a server with itself on a host that disturbs every turn; its words after each round are on standard error."""
    monkeypatch.setitem(LIMITS, "foreign_cpu", replace(LIMITS["foreign_cpu"], invalid=-1.0))
    usual = {"path": "/ws", "connections": 2, "warmup_s": 0.1, "measure_s": 0.5, "metrics": (duel.RATE,), "seed": 1}
    with duel.request(duel.Asked(server(), server(), **{**usual, **more}), "a test") as made_:
        where = testbed.ThisHost(program.require_binary(), machine.placement())
        run = campaign.begin(made_, tmp_path, where, None, show_duel.DuelView(quiet=True))
    return words.Duel(load(run), *duel.texts(run))


@pytest.mark.system
def test_a_duel_whose_turns_are_all_disturbed_ends_after_the_first_round_and_says_why(tmp_path, monkeypatch, capsys):
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        found = disturbed_in_every_turn(tmp_path, monkeypatch, budget_s=600.0)
    finally:
        busy.kill()
        busy.wait()
    assert found.standing.rounds == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("round 1:")]
    turns = found.results.turns[1]
    assert f"{turns} of {turns} turns left out: " in line
    assert re.search(r"\(busiest: .*\d%.*\)", line), "the program and its share of a CPU"
    assert "--as-is" in line
    assert exit_code(found, [gates.parse("messages_per_s < -3 %")]) == 4
    assert found.standing.disturbed.replace("%", "") in words.markdown(found, []).partition("<details>")[0].replace("%", "")


@pytest.mark.system
def test_as_is_turns_that_the_host_disturbed_count(tmp_path, monkeypatch):
    found = disturbed_in_every_turn(tmp_path, monkeypatch, budget_s=1.0, as_is=True)
    left_out, turns = found.results.turns
    assert (left_out, found.standing.disturbed) == (turns, None)
    assert all(trial.value("messages_per_s") for trial in found.results.every_trial)
    assert {one.kind for trial in found.results.every_trial for one in trial.verdict.findings if one.name == "turns"} == {"SUSPECT"}
    assert f"{turns} of {turns} turns were disturbed by the host and counted: the result is about this host as it is" in found.notes


@pytest.mark.system
@pytest.mark.parametrize(
    ("contender", "said"),
    [
        ("false --at-once", "the server ended before it was ready, with exit code 1"),
        (server(OWN_DIES="1"), "the server ended before it was ready, with exit code 7; it wrote: the database is away"),
        (server(OWN_PATH="/other"), r"the server was not ready: it answers /echo with status 404; is the path right\?"),
        (server(PORT="0"), r"the server was not ready: it listens at port \d+ and not at \$PORT, \d+"),
    ],
)
def test_a_command_that_serves_nothing_is_one_plain_line(tmp_path, contender, said):
    done = fight(tmp_path, contender, "reference", *SHORT, quiet=False)
    assert done.returncode == 4, "something was started"
    assert re.fullmatch(rf"wsbench: {re.escape(contender)}: {said}\n", done.stderr)
    assert not (tmp_path / "runs").exists()


@pytest.mark.system
@pytest.mark.parametrize(("path", "said"), [("/elsewhere", "answers /elsewhere with status 404; correct the path")])
def test_a_url_that_serves_nothing_is_one_plain_line(own, tmp_path, path, said):  # noqa: F811
    url = f"ws://127.0.0.1:{own[1]}{path}"
    done = fight(tmp_path, url, "reference", *SHORT, quiet=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"wsbench: {url} {said}")
    assert done.stderr.count("\n") == 1


@pytest.mark.system
def test_an_interrupted_duel_leaves_no_process_and_can_be_resumed(tmp_path):
    ours = [f"{server(spin_us)} {tmp_path}" for spin_us in (0, 1000)]
    command = [*QUIET, "duel", *ours, "--path", "/ws", "--budget", "30s", *SHORT]
    going = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: list(tmp_path.glob("runs/*/0003")), "a second round")
    going.send_signal(signal.SIGTERM)
    said, _ = going.communicate(timeout=PATIENCE_S)
    assert going.returncode == exits.TERMINATED, said
    wait_for(lambda: not processes_with(f"own_server.py {tmp_path}"), "the end of its servers")
    run = only_run(tmp_path)
    assert run.finished_numbers() < {one.number for one in run.order}
    command = [*QUIET, "run", "--resume", str(run.path), "--no-report"]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "comparisons decided after" in again.stdout
    assert "A: env OWN_PATH" in again.stdout
    assert run.finished_numbers() == {one.number for one in run.order}
