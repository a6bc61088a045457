"""Searches for a capacity, against theory and against a coin, and the promises that they keep."""

import decimal
import itertools
import math
import random
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from wsbench.analysis.capacity import answers, promises, search
from wsbench.analysis.capacity.search import Bounds
from wsbench.analysis.stats import crossing
from wsbench.analysis.stats.crossing import Probe
from wsbench.experiments.experiment import Capacity
from wsbench.metrics.findings import Finding, Verdict
from wsbench.records.errors import UserError
from wsbench.records.goals import Searching
from wsbench.records.rundir import Probe as Probing
from wsbench.run import capacity, duel, request
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
    for seed in range(25):
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
    for seed in range(60):
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


@pytest.mark.parametrize("seed", range(5))
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
    trial: str = ""


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
    return promises.outcome(promises.parse(text), Record(), Verdict(tuple(findings), limit), values.get)


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
    values = {"response_us_p99": 1e6, "error_fraction": 0.0}
    assert judged("p99 < 1ms", values, finding("host", memory="INVALID")) == "broken"
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
        ("send_lag", {"send_lag_us_p99": 400.0}, "kept"),
        ("send_lag", {"send_lag_us_p99": 600.0}, "generator"),
        ("send_lag", {}, "generator"),
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
