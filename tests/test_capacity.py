"""Searches for a capacity, against theory and against a coin, and the promises that they keep."""

import decimal
import itertools
import math
import os
import random
import shlex
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import psutil
import pytest
from conftest import PATIENCE_S, WSBENCH
from kinds import draws
from run_maker import SERVERS, make_run
from test_end_to_end import wait_for
from trial_maker import at_rate, write_trial

from wsbench import metrics
from wsbench.analysis.capacity import answers, promises, search
from wsbench.analysis.capacity.search import Bounds
from wsbench.analysis.reading import load
from wsbench.analysis.stats import crossing
from wsbench.analysis.stats.crossing import Probe
from wsbench.cli import exits, show_capacity
from wsbench.engine import program
from wsbench.experiments import experiment
from wsbench.experiments.experiment import Capacity
from wsbench.host import machine
from wsbench.metrics.findings import Finding, Verdict
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import verdict
from wsbench.records.errors import UserError
from wsbench.records.goals import Searching
from wsbench.records.rundir import Probe as Probing
from wsbench.records.rundir import RunFolder, TrialFolder, TrialOrder, TrialRecord
from wsbench.run import campaign, capacity, duel, request, searching, testbed
from wsbench.servers import catalogue, speaking

TESTS = Path(__file__).parent
WITHIN = 0.05
SERVED_PER_S, BOUND_S = 10_000.0, 0.003


def found_by_search(keeps, start=1000.0, most_probes=200):
    """Probes until the answer is known to 5 %. `keeps`: whether a load keeps the promise, in one probe."""
    bounds, probes = Bounds(WITHIN, start, 1.0, 1e7), []
    while len(probes) < most_probes:
        standing = search.standing(probes, bounds)
        if standing.ended is not None:
            break
        load = search.next_load(probes, bounds)
        probes.append(Probe(load, bool(keeps(load))))
    return search.standing(probes, bounds), probes


def p99_of_a_queue(rate, service_s, chance, seconds=5.0):
    """Response times of one worker by Lindley's recursion, from an empty queue, with Poisson arrivals."""
    gaps = chance.exponential(1 / rate, int(rate * seconds))
    steps = np.cumsum(service_s(len(gaps))[:-1] - gaps[1:])
    waits = np.concatenate([[0.0], steps - np.minimum.accumulate(np.minimum(steps, 0.0))])
    return np.quantile(waits + service_s(len(gaps)), 0.99)


def md1_share_beyond(rate, bound_s, service_s):
    """The share of response times beyond a bound in M/D/1: Crommelin's formula for the wait, in decimal arithmetic."""
    decimal.getcontext().prec = 80  # more digits than the alternating sum loses
    rate, service, wait = Decimal(rate), Decimal(service_s), Decimal(bound_s) - Decimal(service_s)
    delays = [rate * (wait - k * service) for k in range(int(wait / service) + 1)]
    total = sum((-x) ** k / math.factorial(k) * x.exp() for k, x in enumerate(delays))
    return float(1 - (1 - rate * service) * total)


@pytest.mark.parametrize("law", ["mm1", "md1"])
def test_the_answer_is_that_of_theory(law):
    chance = np.random.default_rng(7)
    if law == "mm1":
        theory = SERVED_PER_S - math.log(100) / BOUND_S

        def service(n):
            return chance.exponential(1 / SERVED_PER_S, n)
    else:
        low, high = 0.5 * SERVED_PER_S, 0.999 * SERVED_PER_S
        for _ in range(30):
            theory = (low + high) / 2
            beyond = md1_share_beyond(theory, BOUND_S, 1 / SERVED_PER_S)
            low, high = (theory, high) if beyond < 0.01 else (low, theory)

        def service(n):
            return np.full(n, 1 / SERVED_PER_S)

    found, probes = found_by_search(lambda rate: p99_of_a_queue(rate, service, chance) < BOUND_S)
    assert found.ended == "precision"
    assert found.found.low < theory < found.found.high
    assert found.found.estimate == pytest.approx(theory, rel=WITHIN)
    assert len(probes) < 100


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.05])
def test_the_interval_holds_at_the_moment_that_the_search_ends(spread):
    missed = 0
    for seed in range(draws(25, least=10)):
        chance = random.Random(seed)
        truth = chance.uniform(2_000, 50_000)

        def keeps(load, truth=truth, chance=chance):
            return load <= truth * math.exp(chance.gauss(0, spread))

        found, _ = found_by_search(keeps, most_probes=60)
        missed += not (found.found.low or 0) <= truth <= (found.found.high or math.inf)
    assert missed <= 2


def test_a_coin_shows_nothing():
    """Probes that are kept half of the time at any load show neither end, in 95 % of the searches at least."""
    shown = 0
    for seed in range(draws(60)):
        chance = random.Random(seed)
        probes = [Probe(chance.uniform(900, 1100), chance.random() < 0.5) for _ in range(40)]
        found = crossing.crossing(probes)
        shown += found.low is not None or found.high is not None
    assert shown <= 4


def test_bets_on_a_coin_win_nothing_on_average():
    away = [0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, math.inf]
    ends = [
        crossing.log_evidence([crossing.Bet(1000.0, *bet) for bet in zip(won, away, strict=True)])[-1]
        for won in itertools.product((True, False), repeat=len(away))
    ]
    assert np.exp(ends).mean() == pytest.approx(1.0)


def test_a_bet_far_from_the_estimate_says_more_than_one_near_it():
    def shown(away, won=True):
        return crossing.log_evidence([crossing.Bet(1000.0, won, away)])[-1]

    assert shown(0.0) == pytest.approx(0.0)
    assert 0 < shown(0.05) < shown(0.2) < shown(math.inf) < math.log(2)
    assert 0 > shown(0.05, won=False) > shown(0.2, won=False) > shown(math.inf, won=False)


@pytest.mark.parametrize("seed", range(draws(5, least=2)))
def test_what_probes_have_shown_stays_shown(seed):
    chance = random.Random(seed)
    _, probes = found_by_search(lambda load: load < 5_000 * math.exp(chance.gauss(0, 0.1)), most_probes=80)
    ends = [crossing.crossing(probes[:number]) for number in range(1, len(probes) + 1)]
    lows, highs = [one.low or 0.0 for one in ends], [one.high or math.inf for one in ends]
    assert lows == sorted(lows)
    assert highs == sorted(highs, reverse=True)
    assert 0 < lows[-1] < highs[-1] < math.inf


def test_the_estimate_is_isotonic():
    probes = [Probe(100, True), Probe(100, True), Probe(200, False), Probe(200, True), Probe(400, False), Probe(400, False)]
    assert crossing.crossing(probes).estimate == pytest.approx(200)
    assert crossing.crossing(probes[:2]).estimate is None


def test_loads_are_doubled_then_halved_between_then_placed_on_both_sides():
    _, probes = found_by_search(lambda load: load <= 5_000)
    loads = [one.load for one in probes]
    assert loads[:4] == pytest.approx([1000, 2000, 4000, 8000], rel=0.01)
    assert 4000 < loads[4] < 8000
    assert {load > 5_000 for load in loads[-8:]} == {True, False}
    assert max(abs(load / 5_000 - 1) for load in loads[-8:]) < 2 * WITHIN


def test_the_limits_of_the_load_end_a_search():
    bounds = Bounds(WITHIN, 100.0, 50.0, 200.0)
    always, never = [Probe(200.0, True)] * 9, [Probe(50.0, False)] * 9
    assert search.standing(always, bounds).ended == "most"
    assert search.standing(never, bounds).ended == "least"
    assert search.next_load(always[:3], bounds) == 200.0
    assert search.next_load(never[:3], bounds) == 50.0


def test_up_to_the_limit_of_the_generator_loads_are_halved():
    """A generator that can offer 9,000, and servers that carry 7,000 and 20,000."""
    for truth, said in ((7_000, None), (20_000, "generator")):
        tried = []
        while len(tried) < 80:
            one = answers.Search(ASKED, tuple(tried))
            if one.answers[0].ended is not None:
                break
            load = search.next_load(one.probes(0), one.bounds(0))
            outcome = "generator" if load > 9_000 else "kept" if load <= truth else "broken"
            tried.append(Probed(load, (outcome,)))
        answer = answers.Search(ASKED, tuple(tried)).answers[0]
        assert answer.ended == (said or "precision")
        assert answer.found.low == pytest.approx(min(truth, 9_000), rel=2 * WITHIN)
        assert (answer.found.high is None) == (truth > 9_000)


@dataclass(frozen=True)
class Probed:
    """A probe as a search sees it."""

    load: float
    outcomes: tuple[str, ...]
    purpose: str = "search"
    trial: object = ""


ASKED = answers.Asked(Capacity(promises=["p99 < 10ms"], start=1_000, within=WITHIN), 4.0)


def test_the_last_probes_are_about_the_capacity_that_is_known_now():
    probes = [Probed(load, ("kept" if load <= 2_000 else "broken",)) for load in (1_900, 2_000, 2_050, 2_100) for _ in range(3)]
    last = [Probed(1_000, ("kept",), "half", "near"), Probed(700, ("kept",), "half", "far")]
    last += [Probed(3_000, ("broken",), "recovery", "far"), Probed(2_000, ("broken",), "recovery", "near")]
    found = answers.Search(ASKED, (*probes, *last))
    assert found.capacity == pytest.approx(2_000, rel=0.03)
    assert (found.halves, found.recovery) == (["near"], "near")
    unknown = answers.Search(ASKED, tuple(last))
    assert (unknown.capacity, unknown.half, unknown.halves, unknown.recovery) == (None, None, [], None)


def test_an_experiment_searches_as_long_as_the_command_says():
    asked = request.request("capacity", "a test", searching=Searching(within=0.1, budget_s=60.0))
    assert (asked.experiment.capacity.within, asked.experiment.capacity.budget_s) == (0.1, 60.0)
    assert "searches with budget_s = 60 instead of the experiment's 360" in asked.departures
    promise = "response.p99 < 50ms"
    kept = request.request("capacity", "a test", searching=Searching(promises=[promise]))
    assert kept.experiment.capacity.promises == [promise]
    assert any(text.startswith(f"searches with promises = {promise} instead of") for text in kept.departures)
    with pytest.raises(UserError, match=r"--promise: found 'response\.p99 < 1ms', allowed: 'response\.p99 < 5ms', "):
        request.request("capacity", "a test", searching=Searching(promises=["response.p99 < 1ms"]))
    with pytest.raises(UserError, match="--promise needs an experiment that searches"):
        request.request("quick", "a test", searching=Searching(promises=[promise]))
    with pytest.raises(UserError, match="--within needs an experiment that searches"):
        request.request("quick", "a test", searching=Searching(within=0.1))
    with pytest.raises(UserError, match="--budget needs --until decided, or an experiment"):
        request.request("quick", "a test", searching=Searching(budget_s=60.0))


@pytest.mark.parametrize(
    ("given", "load", "netty_s", "others_s"),
    [(None, 100_000, 10, 2), (None, 16_000, 25, 2), (None, 1_000, 60, 2), (4.0, 1_000, 4, 4)],
)
def test_a_server_on_the_jvm_is_warmed_up_longer_unless_the_user_says_how_long(given, load, netty_s, others_s):
    asked = capacity.Asked(("netty", "node-ws", "reference"), ("p99 < 5ms",), warmup_s=given)
    probe = Probing(purpose="search", load=load, seconds=5.0)
    with capacity.request(asked, "a test") as made:
        warm = {one.server: made.experiment.warming(one.runtime, {}, probe) for one in made.variants}
    assert {name: one.timing.warmup_s for name, one in warm.items()} == {
        "netty": netty_s,
        "node-ws": others_s,
        "reference": others_s,
    }
    for one in warm.values():
        first = one.probing({}, probe).rate[0]
        assert (first.from_per_s, first.for_s) == (load / 2, one.timing.warmup_s)


# ---- promises ------------------------------------------------------------------------------------------------------


class Record:
    outcome, failed_by_server = "ok", False


def judged(text, values, *findings, limit="neither"):
    at_once = {"receive_delay_us_p99": 0.0, "send_lag_us_p99": 0.0}
    return promises.outcome(promises.parse(text), Record(), Verdict(tuple(findings), limit), (at_once | values).get)


def finding(axis, **affects):
    return Finding(axis, "made", "made", "", affects)


def test_a_promise_names_latencies_losses_and_metrics():
    made = promises.parse("response.p99 < 20ms and lost = 0")
    assert [(one.metric, one.operator, one.number) for one in made.conditions] == [
        ("response_us_p99", "<", 20_000.0),
        ("errors", "==", 0.0),
    ]
    assert made.bound_s == 0.02
    assert promises.parse("p99.9 <= 1s").conditions[0].metric == "response_us_p999"
    assert promises.parse("reach >= 0.99").conditions[0].metric == "push_reach"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("p99 20ms", "NAME OP NUMBER"),
        ("respond.p99 < 1ms", "respond.p99"),
        ("p99 < 3MB", "units allowed"),
        ("p99 < 20", "'p99 < 20': p99 is a time; give the unit, such as p99 < 20ms"),
        ("response.p99 > 20ms", "says what holds, such as response.p99 < 20ms"),
        ("", "NAME OP NUMBER"),
    ],
)
def test_a_wrong_promise_is_one_plain_line(text, says):
    with pytest.raises(UserError, match=says):
        promises.parse(text)


def test_lost_messages_took_longer_than_any_bound():
    fast = {"response_us_p99": 100.0, "error_fraction": 0.0}
    assert judged("p99 < 1ms", fast) == "kept"
    assert judged("p99 < 1ms", fast | {"error_fraction": 0.011}) == "broken"
    assert judged("p50 < 1ms", {"response_us_p50": 100.0, "error_fraction": 0.011}) == "kept"


def test_a_disturbed_probe_says_nothing_whichever_way_it_points():
    for value in (100.0, 1e6):
        values = {"response_us_p99": value, "error_fraction": 0.0}
        assert judged("p99 < 1ms", values, finding("host", tail="INVALID")) == "host"
        assert judged("p99 < 1ms", values, finding("engine", tail="INVALID")) == "generator"
    # Whatever is counted of the host: the limit of the load generator is never the server's.
    both = [finding("host", tail="INVALID"), finding("engine", tail="INVALID")]
    as_is = promises.outcome(promises.parse("p99 < 1ms"), Record(), Verdict(tuple(both), "neither"), values.get, as_is=True)
    assert as_is == "generator"
    # A memory that is INVALID is another matter, and a full server makes messages leave late.
    values = {"response_us_p99": 1e6, "error_fraction": 0.0, "send_lag_us_p99": 500.0}
    assert judged("p99 < 1ms", values | {"send_lag_us_p99": 0.0}, finding("host", memory="INVALID")) == "broken"
    assert judged("p99 < 1ms", values, finding("engine", tail="INVALID"), limit="server") == "broken"


def test_a_command_and_a_url_speak_a_session(tmp_path):
    own = tmp_path / "own.toml"
    own.write_text((TESTS / "servers" / "chatty" / "chat.toml").read_text(encoding="utf-8"), encoding="utf-8")
    spoken = duel.Spoken(str(own), {"text": "${content}"})
    chosen = [
        duel.contender(f"{sys.executable} -V", "A", "/talk", spoken=spoken),
        duel.contender("ws://127.0.0.1:9/chat", "B", None, spoken=duel.Spoken("json-rpc", {"method": "echo"})),
    ]
    made = catalogue.read(duel.written(chosen, tmp_path))
    assert {one.name: (list(one.serves), one.roles["rpc"].set) for one in made} == {
        "A@command": (["rpc"], {"text": "${content}"}),
        "B@running": (["rpc"], {"method": "echo"}),
    }
    command, running = (one for one in sorted(made, key=lambda one: one.name))
    assert speaking.file_of(command, "rpc").read_bytes() == own.read_bytes()
    assert (speaking.path_of(command, "rpc"), speaking.path_of(running, "rpc")) == ("/talk", "/chat")
    with pytest.raises(UserError, match="no session 'nope'"):
        duel.contender("ws://127.0.0.1:9/chat", "A", None, spoken=duel.Spoken("nope", {}))


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("send_lag", {"send_lag_us_p99": 90.0}, "kept"),
        ("send_lag", {"send_lag_us_p99": 110.0}, "generator"),
        ("wait", {"engine_wait_percent": 2.0, "engine_wait_us_per_message": 100.0}, "kept"),
        ("wait", {"engine_wait_percent": 2.0, "engine_wait_us_per_message": 200.0}, "generator"),
        ("wait", {"engine_wait_percent": 12.0, "engine_wait_us_per_message": 1.0}, "generator"),
        ("ledger", {"send_lag_us_p99": 1.0}, "generator"),
    ],
)
def test_the_part_of_the_engine_counts_against_the_promised_time(name, values, says):
    """Its share of a time that is far below the bound is large, and changes nothing."""
    because = Finding("engine", name, "made", "", {"tail": "INVALID"})
    assert judged("p99 < 1ms", {"response_us_p99": 500.0, "error_fraction": 0.0} | values, because) == says


@pytest.mark.parametrize("response_us", [700.0, 5_000.0])
@pytest.mark.parametrize(
    ("sent_us", "read_us", "limit", "is_generator"),
    [
        (40.0, 50.0, "neither", False),
        (60.0, 50.0, "neither", True),
        (None, 110.0, "neither", True),
        (60.0, 50.0, "unknown", True),
        (4_000.0, 50.0, "server", False),
        (0.0, 110.0, "server", True),
    ],
)
def test_a_probe_says_nothing_if_the_engine_itself_takes_a_tenth_of_the_promised_time(
    response_us, sent_us, read_us, limit, is_generator
):
    """Whichever side of the bound the time is on. Only a full server, whose replies are read in time, makes messages leave late."""
    values = {"response_us_p99": response_us, "error_fraction": 0.0, "send_lag_us_p99": sent_us, "receive_delay_us_p99": read_us}
    judged_by_server = "kept" if response_us < 1_000 else "broken"
    assert judged("p99 < 1ms", values, limit=limit) == ("generator" if is_generator else judged_by_server)


def test_without_the_delay_of_reading_a_time_is_not_judged():
    values = {"response_us_p99": 100.0, "error_fraction": 0.0, "receive_delay_us_p99": None}
    assert judged("p99 < 1ms", values) == "unknown"
    assert judged("p99 < 1ms", values | {"receive_delay_us_p99": 5.0, "send_lag_us_p99": None}) == "unknown"
    assert judged("lost = 0", values | {"errors": 0}) == "kept"
    assert judged("connect.p99 < 1ms", values | {"connect_us_p99": 100.0}) == "kept"


def test_a_probe_whose_engine_was_full_says_nothing(tmp_path):
    """Of a sleeping engine the CPU time tells, though the rate was met; of one that polls, the messages that did not leave."""

    def outcomes(**more):
        order = TrialOrder(
            number=1, round=1, server="a", variant="b", cell={}, search=Probing(purpose="search", load=20_000, seconds=4)
        )
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        write_trial(folder, at_rate(read_us=5.0, **more), order)
        trial = TrialData(TrialFolder(folder), TrialFolder(folder).record)
        value = metrics.measure(trial).values.get
        asked = map(promises.parse, ("p99 < 1s", "lost = 0"))
        return [promises.outcome(one, trial.record, verdict(trial), value) for one in asked]

    assert outcomes(engine_busy=0.94) == ["kept", "kept"]
    assert outcomes(engine_busy=0.96) == ["generator", "generator"]
    assert outcomes(engine_busy=1.0, busy_poll=True) == ["kept", "kept"]
    assert outcomes(engine_busy=1.0, busy_poll=True, unsent=800)[1] == "generator"
    assert outcomes(engine_busy=0.96, server_busy=0.99, unsent=8_000) == ["generator", "generator"]
    assert outcomes(unsent=8_000, died=64) == ["broken", "broken"], "for connections that are gone nothing can leave"


def test_only_at_least_is_said_where_the_engine_was_full_above():
    probes = [(load, "kept") for load in (1_000, 2_000, 4_000) for _ in range(4)] + [(load, "generator") for load in (8_000,) * 3]
    answer = answers.Search(ASKED, tuple(Probed(load, (outcome,)) for load, outcome in probes)).answers[0]
    assert (answer.found.estimate, answer.found.high) == (None, None)
    assert answer.generator == 8_000


def test_a_server_that_failed_broke_its_promise():
    class Failed(Record):
        outcome, failed_by_server = "failed", True

    assert promises.outcome(promises.parse("p99 < 1ms"), Failed(), Verdict((), "unknown"), {}.get) == "broken"
    assert judged("p99 < 1ms", {"error_fraction": 1.0}, finding("server", throughput="INVALID")) == "broken"
    assert judged("p99 < 1ms", {}) == "unknown"


def test_missing_connections_and_copies_break_a_promise():
    fast = {"response_us_p99": 100.0, "error_fraction": 0.0}
    refused = Finding("server", "refused", "made", "", {})
    assert judged("p99 < 1ms", fast, refused) == "broken"
    assert judged("p99 < 1ms", fast | {"error_fraction": None}) == "unknown"
    assert judged("push.p99 < 1ms", {"push_us_p99": 100.0, "push_reach": 1.0}) == "kept"
    assert judged("push.p99 < 1ms", {"push_us_p99": 100.0, "push_reach": 0.98}) == "broken"
    assert judged("push.p99 < 1ms", {"push_us_p99": 100.0, "push_reach": None}) == "unknown"


# ---- how a search ends ---------------------------------------------------------------------------------------------

AWAY = "the server is away: ws://127.0.0.1:9/echo does not answer: Connection refused"
DIED, UNREADY = "the server ended before it was stopped", "the server ended before it was ready"


@dataclass(frozen=True)
class Ended:
    """A probe as the end of a search sees it."""

    record: TrialRecord


def ended(*reasons, restarted=True):
    """A search whose trials failed for these reasons; None: one did not."""
    usual = {"server": "a", "variant": "b", "cell": {}, "round": 1, "started_unix_s": 1.0, "duration_s": 1.0, "ready_s": 1.0}
    usual |= {"server_cpus": [0], "engine_cpus": [1], "server_exit": None, "log_tail": [], "restarted": restarted}
    outcomes = [("ok" if reason is None else "failed", reason) for reason in reasons]
    records = [TrialRecord(number=at, outcome=of, reason=why, **usual) for at, (of, why) in enumerate(outcomes, 1)]
    return answers.Search(ASKED, tuple(Probed(1_000, ("broken",), trial=Ended(one)) for one in records))


@pytest.mark.parametrize(
    ("search_", "gone"),
    [
        (ended(), None),
        (ended(None, AWAY, restarted=False), AWAY),
        (ended(None, DIED, restarted=False), None),
        (ended(None, UNREADY), None),
        (
            ended(None, "the server ended before it was ready", "the server was not ready within 60 s"),
            "the server was not ready within 60 s",
        ),
        (ended(DIED, DIED, DIED), DIED),
        (ended(None, DIED, DIED, DIED), None),
        (ended(None, *["the machine ran out of memory"] * 3), "the machine ran out of memory"),
        (ended(*["the machine ran out of memory"] * 2), None),
    ],
)
def test_a_search_whose_server_is_gone_ends(search_, gone):
    assert search_.gone == gone


class Watching:
    """A watcher that kills a process as soon as the first trial measures."""

    def __init__(self, process):
        self.process, self.lines = process, []

    def say(self, line):
        self.lines.append(line)

    def trials_begin(self, orders, done, total, left_s):
        pass

    def trial_runs(self, folder):
        if (last := folder.latest()) is not None and last.phase == "measure":
            self.process.kill()

    def trial_ends(self, trial):
        pass


def test_a_search_ends_when_its_server_has_died_and_each_trial_is_measured_once(tmp_path, monkeypatch):
    measured = Counter()
    measure = metrics.measure

    def counted(trial, names=None):
        measured[trial.record.number] += names is None
        return measure(trial, names)

    monkeypatch.setattr(metrics, "measure", counted)
    port = machine.free_port("127.0.0.1", None, os.getpid())
    given = {"HOST": "127.0.0.1", "PORT": str(port), "OWN_PATH": "/ws"}
    server = subprocess.Popen([sys.executable, TESTS / "own_server.py"], env={**os.environ, **given})
    try:
        wait_for(lambda: machine.port_in_use("127.0.0.1", port), "the server")
        url = f"ws://127.0.0.1:{port}/ws"
        asked = capacity.Asked((url,), ("p99 < 1s",), connections=2, probe_s=1.0, warmup_s=0.1, budget_s=600.0, seed=1)
        watching = Watching(server)
        with capacity.request(asked, "a test") as made:
            where = testbed.ThisHost(program.require_binary(), machine.placement())
            run = campaign.begin(made, tmp_path, where, None, watching)
    finally:
        server.kill()
        server.wait()
    found = show_capacity.rows(load(run))
    assert [one["gone"] for one in found] == [
        f"the server is away: {url} does not answer: Connection refused; is the server running?"
    ]
    assert show_capacity.exit_code(found) == exits.NOTHING_USABLE
    assert run.finished_numbers() == {1, 2}
    assert measured == {1: 1, 2: 1}
    assert run.trial(1).plan.busy_poll == where.apart, "no response time includes a wake-up of the engine"
    first = answers.searches(load(run).data, load(run).searched)
    assert next(one.outcomes for each in first.values() for one in each.tried) == ("broken",), "its death is not the engine's"


ONE_SEARCH = """
question = "How many?"
reading = "So many."
servers = ["netty"]
scenario = "echo"
loop = "capacity"
headline = "capacity_per_s"
[capacity]
promises = ["p99 < 1s"]
budget_s = 60
[timing]
measure_s = 4
rounds = 1
"""


def test_the_budget_of_a_search_counts_the_time_between_trials(tmp_path):
    run = make_run(tmp_path / "run", SERVERS[1:2], ({},), 1, experiment=ONE_SEARCH, unfinished=1)
    seconds = iter([0.0, 50.0, 100.0])
    (planned,) = run.order
    searches = searching.Searches(run, experiment.read(run.experiment_toml), lambda line: None, lambda: next(seconds))
    order = [planned.model_copy(update={"search": Probing(purpose="search", load=20_000, seconds=4)})]
    for _ in range(2):
        folder = write_trial(run.path / f"{len(order):04}", at_rate(read_us=5.0), order[-1])
        searches.add(TrialData(folder, folder.record))
        following = searches.following(order)
        order += following
    assert [one.number for one in order] == [1, 2], "each trial lasted 6 s, and 50 s passed from one to the next"
    assert not following


def test_a_search_ends_whose_probe_cannot_be_judged(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", SERVERS[1:2], ({},), 1, experiment=ONE_SEARCH, unfinished=1)
    (planned,) = run.order
    searches = searching.Searches(run, experiment.read(run.experiment_toml), lambda line: None)
    order = [planned.model_copy(update={"search": Probing(purpose="search", load=20_000, seconds=4)})]
    folder = write_trial(run.path / "0001", at_rate(read_us=5.0), order[0])
    searches.add(TrialData(folder, folder.record))
    assert len(searches.following(order)) == 1
    monkeypatch.setattr(searching.answers, "tried", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        searches.add(TrialData(folder, folder.record))
    assert not searches.following(order), "the same probe would be made for ever"


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([{"low": 100.0, "ended": "budget"}, {"low": None, "ended": "gone"}], exits.DONE),
        ([{"low": None, "ended": "least"}], exits.BREACHED),
        ([{"low": None, "ended": "least"}, {"low": None, "ended": "budget"}], exits.NOTHING_USABLE),
        ([{"low": None, "ended": "gone"}], exits.NOTHING_USABLE),
        ([], exits.NOTHING_USABLE),
    ],
)
def test_the_exit_code_of_a_search_says_what_is_known(rows, code):
    assert show_capacity.exit_code(rows) == code


@pytest.mark.system
def test_a_search_that_is_terminated_keeps_its_probes_and_stops_its_server(tmp_path):
    command = shlex.join(["env", "OWN_PATH=/ws", sys.executable, str(TESTS / "own_server.py")])
    typed = ["capacity", command, "--slo", "p99 < 10s", "-c", "2", "--probe", "0.5s", "--warmup", "0.1s", "--path", "/ws"]
    going = subprocess.Popen([*WSBENCH, *typed], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: list(tmp_path.glob("runs/*/0002/events.jsonl")), "a second probe")
    children = psutil.Process(going.pid).children(recursive=True)
    going.terminate()
    _, said = going.communicate(timeout=PATIENCE_S)
    assert going.returncode == exits.TERMINATED, said
    assert "every finished trial is kept; go on with: wsbench run --resume runs/" in said
    assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]
    (run,) = map(RunFolder, tmp_path.glob("runs/*"))
    assert 1 in run.finished_numbers()
