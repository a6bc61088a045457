"""Ladders: the capacity of a process from its rungs, and of servers that are known exactly."""

import math
from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from wsbench.analysis import stats
from wsbench.experiments import experiment
from wsbench.metrics import ladder
from wsbench.metrics.unmeasured import Unmeasured
from wsbench.records.rundir import Slo, TrialOrder
from wsbench.run import climbing

P99 = Slo(text="response.p99 < 20ms", conditions=[("response_us_p99", "<", 20_000.0)])
NOT_LOST = Slo(text="response.p99 < 20ms and lost = 0", conditions=[*P99.conditions, ("errors", "==", 0.0)])


class Times:
    """As much of a histogram as a rung is asked for."""

    def __init__(self, ns):
        self._ns = np.asarray(ns)
        self.count = len(self._ns)

    def quantile(self, q: str) -> float:
        return float(np.quantile(self._ns, float(q), method="inverted_cdf"))

    @property
    def max(self) -> float:
        return float(self._ns.max())


def rung(load, p99_ms, failed=0, lag_ms=0.01, full=False, busy=None, quiet=1.0, behind=0, missing=0) -> ladder.Rung:
    times = {tag: Times([ms * 1e6] * 100) for tag, ms in (("response", p99_ms), ("send_lag", lag_ms), ("receive_delay", 0.01))}
    return ladder.Rung(load, times, 100, failed, engine_busy=busy, server_full=full, quiet=quiet, behind=behind, missing=missing)


def found(*rungs, slo=P99):
    return ladder.capacity(rungs, slo)


def test_the_capacity_is_where_the_curve_crosses_the_bound():
    at = found(rung(2000, 40), rung(1000, 10), rung(500, 5))
    assert at.load == pytest.approx(1000 * 2**0.5)
    assert not at.at_least


def test_a_curve_that_falls_somewhere_is_levelled():
    assert found(rung(1000, 40), rung(2000, 10), rung(4000, 80), rung(500, 5)).load == pytest.approx(1000 * 2, rel=0.5)
    level = found(rung(500, 5), rung(1000, 20.001), rung(2000, 19.999), rung(4000, 40))
    assert level.load == pytest.approx(2000, rel=1e-6)


def test_beyond_its_rates_a_ladder_says_nothing_and_where_to_look_next():
    with pytest.raises(ladder.Above) as above:
        found(rung(1000, 5), rung(2000, 6))
    assert (above.value.load, str(above.value)) == (2000, "the highest load of the ladder, 2,000, was kept")
    with pytest.raises(ladder.Beyond) as below:
        found(rung(1000, 50), rung(2000, 60))
    assert below.value.load == 1000


def test_a_rung_that_the_load_generator_spoiled_breaks_nothing():
    """A tenth of the bound, or a worker without idle time."""
    for spoiled in ({"lag_ms": 2.1}, {"busy": 0.96}):
        limited = found(rung(1000, 5), rung(2000, 40, **spoiled), rung(4000, 90, **spoiled))
        assert limited == (1000, True)
        kept = found(rung(1000, 5), rung(2000, 10, **spoiled), rung(4000, 40))
        assert kept.load > 2000, "although the engine made its times longer, the SLO was kept"
    assert not found(rung(1000, 5), rung(2000, 40, lag_ms=30, full=True)).at_least, "a full server makes messages leave late, too"


def test_what_the_engine_adds_is_known_or_there_is_no_number():
    slow = rung(2000, 40)
    del slow.times["receive_delay"]
    with pytest.raises(Unmeasured, match="how late the engine reads is unknown"):
        found(rung(1000, 5), slow)


def test_a_lost_message_took_longer_than_any_bound():
    assert found(rung(1000, 5), rung(2000, 5, failed=2)).load < 2000
    with pytest.raises(ladder.Above):
        found(rung(1000, 5), rung(2000, 5, failed=1))


def test_every_condition_of_an_slo_holds_up_to_its_capacity():
    rungs = rung(1000, 5), rung(2000, 6, failed=1), rung(4000, 40, failed=1)
    assert found(*rungs, slo=NOT_LOST).load < 2000 < found(*rungs).load
    assert found(rung(1000, 5), rung(2000, 40), slo=NOT_LOST).load < 2000, "nothing was lost, which is no obstacle"


def test_connections_that_are_missing_break_every_slo():
    assert found(rung(1000, 5), rung(2000, 5, missing=1)).load < 2000


def test_the_highest_load_that_is_allowed_is_a_lower_bound():
    rungs = rung(1000, 5), rung(2000, 6)
    assert ladder.capacity(rungs, P99, most=2000) == (2000, True)
    with pytest.raises(ladder.Above):
        ladder.capacity(rungs, P99, most=4000)


def test_times_of_broadcasts_have_no_delay_of_sending():
    copies = Slo(text="push_last.p99 < 20ms", conditions=[("push_last_us_p99", "<", 20_000.0)])
    late = [rung(1000, 5, lag_ms=9), rung(2000, 40, lag_ms=9)]
    for one in late:
        one.times["push_last"] = one.times["response"]
    assert not found(*late, slo=copies).at_least
    assert found(*late).at_least


@pytest.mark.parametrize("spoiled", [{"quiet": 0.4}, {"behind": 11}])
def test_what_the_host_took_or_an_earlier_rung_left_behind_is_left_out(spoiled):
    assert found(rung(1000, 5), rung(2000, 900, **spoiled), rung(3000, 6), rung(4000, 80)).load > 3000


# ---- servers that are known ------------------------------------------------------------------------------------------


def lindley(arrivals, service):
    """Time in a queue of one worker, in the order of arrival."""
    steps = np.concatenate([[0.0], np.cumsum(service[:-1] - np.diff(arrivals))])
    return steps - np.minimum.accumulate(steps) + service


class Queue:
    """A server with one worker, as M/D/1 or M/M/1. `mean_s`: of a message."""

    def __init__(self, kind: str, mean_s: float):
        self.kind, self.mean_s = kind, mean_s

    def times(self, every, speed, draw):
        return lindley(every, self.served(len(every), speed, draw))

    def served(self, count, speed, draw):
        if self.kind == "M/M/1":
            return draw.exponential(self.mean_s * speed, count)
        return np.full(count, self.mean_s * speed)

    def capacity(self, bound_s: float) -> float:
        """By a long simulation, bisected."""
        low, high = 0.05 / self.mean_s, 1 / self.mean_s
        for _ in range(13):
            rate = (low + high) / 2
            draw = np.random.default_rng(3)
            arrivals = np.cumsum(draw.exponential(1 / rate, 600_000))
            kept = np.quantile(lindley(arrivals, self.served(600_000, 1.0, draw)), 0.99) < bound_s
            low, high = (rate, high) if kept else (low, rate)
        return low

    def climb(self, climbed, speed, draw) -> list[ladder.Rung]:
        begins, arrivals, at = [], [], 0.0
        for rate in climbed.rates:
            begins.append(at)
            for per_s, for_s in ((rate, climbed.rung_s), (climbed.relief_per_s, climbed.gap_s)):
                arrivals.append(at + np.sort(draw.random(draw.poisson(per_s * for_s))) * for_s)
                at += for_s
        every = np.concatenate(arrivals)
        times = self.times(every, speed, draw) * 1e9
        place = np.searchsorted([*begins[1:]], every, side="right")
        left = [int(((every < begin) & (every + times / 1e9 > begin)).sum()) for begin in begins]
        own = {tag: Times([10_000.0]) for tag in ("send_lag", "receive_delay")}
        parts = [times[place == number] for number in range(len(begins))]
        return [
            ladder.Rung(rate, {"response": Times(part), **own}, len(part), 0, None, False, 1.0, behind)
            for rate, part, behind in zip(climbed.rates, parts, left, strict=True)
        ]


class Cliff(Queue):
    """Up to its rate a reply takes no time. Beyond, what exceeds it takes 50 ms."""

    def times(self, every, speed, draw):
        taken, tokens, before, rate = np.zeros(len(every)), 0.0, 0.0, 1 / (self.mean_s * speed)
        for place, at in enumerate(every):
            tokens, before = min(0.1 * rate, tokens + (at - before) * rate) - 1, at
            if tokens < 0:
                taken[place], tokens = 0.05, 0.0
        return taken

    def capacity(self, bound_s: float) -> float:
        """Of a rung of three seconds, whose first tenth is free, one message in a hundred may take long."""
        return (1 + 0.1 / 3) / 0.99 / self.mean_s


class Plateau(Queue):
    """Replies take random times, whose p99 is 20 ms at its rate and grows with the cube root of the rate."""

    def times(self, every, speed, draw):
        rate = (np.searchsorted(every, every + 0.05) - np.searchsorted(every, every - 0.05)) / 0.1
        return draw.exponential(0.02 / math.log(100), len(every)) * (rate * self.mean_s * speed) ** (1 / 3)

    def capacity(self, bound_s: float) -> float:
        return 1 / self.mean_s


class Stuck(Queue):
    """From a queue of 100 messages on, each takes four times as long, for ever."""

    def times(self, every, speed, draw):
        free, slow, taken, ends = 0.0, 1.0, np.zeros(len(every)), deque()
        for place, at in enumerate(every):
            while ends and ends[0] <= at:
                ends.popleft()
            slow = 4.0 if len(ends) > 100 else slow
            free = max(free, at) + self.mean_s * speed * slow
            ends.append(free)
            taken[place] = free - at
        return taken

    def capacity(self, bound_s: float) -> float:
        """That of the same server before it is stuck."""
        return Queue("M/D/1", self.mean_s).capacity(bound_s)


def searched(queue, bound_s, rounds, seed, scatter=0.05) -> list[float]:
    """The capacities of a campaign of one server, whose processes differ."""
    text = f"response.p99 < {1000 * bound_s:g}ms"
    of = experiment.read(experiment.path_of("capacity"))
    of = of.model_copy(update={"ladder": of.ladder.model_copy(update={"slos": [text], "start": 100.0})})
    ladders = climbing.Ladders(SimpleNamespace(finished=list), of, seed)
    draw, capacities, number = np.random.default_rng(seed), [], 0
    while len(capacities) < rounds and number < 3 * rounds:
        number += 1
        order = ladders.planned(TrialOrder(number=number, round=number, server="made", variant="up", cell={}))
        rungs = queue.climb(order.ladder, math.exp(draw.normal(0, scatter)), draw)
        ladders.note(order, rungs)
        if not order.ladder.coarse:
            try:
                capacities.append(ladder.capacity(rungs, order.ladder.slos[0]).load)
            except Unmeasured:
                continue
    return capacities


@pytest.mark.parametrize(
    ("queue", "bound_ms"),
    [
        (Queue("M/D/1", 0.0002), 5),
        (Queue("M/D/1", 0.001), 20),
        (Queue("M/M/1", 0.0002), 5),
        (Queue("M/M/1", 0.001), 20),
        (Queue("M/D/1", 0.005), 100),
        (Cliff("cliff", 0.001), 20),
        (Plateau("plateau", 0.001), 20),
        (Stuck("stuck", 0.001), 20),
    ],
    ids=lambda one: f"{one.kind} {one.mean_s}" if isinstance(one, Queue) else None,
)
def test_the_capacity_of_a_known_server_is_found_within_five_percent(queue, bound_ms):
    truth = queue.capacity(bound_ms / 1e3)
    estimate = stats.estimate(searched(queue, bound_ms / 1e3, rounds=12, seed=5))
    assert estimate.repeats == 12
    assert estimate.mean == pytest.approx(truth, rel=0.05)


def test_beyond_what_the_load_generator_carries_the_capacity_is_at_least_that():
    """It sends late from 3,500 a second on; the server carries 4,900."""
    queue = Queue("M/D/1", 0.0002)

    def late(climbed, speed, draw):
        rungs = Queue.climb(queue, climbed, speed, draw)
        return [replace(one, times={**one.times, "send_lag": Times([1e6 * (one.load > 3500)])}) for one in rungs]

    queue.climb = late
    found = searched(queue, 0.005, rounds=8, seed=5, scatter=0.0)
    assert len(found) == 8
    truth = queue.capacity(0.005)
    assert all(3000 < one <= 1.05 * truth for one in found), "what it kept although the generator was late, it kept"


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "mean_ms", "bound_ms"), [("M/D/1", 0.2, 5), ("M/M/1", 1, 20)])
def test_the_interval_holds_in_95_of_100_searches(kind, mean_ms, bound_ms):
    queue = Queue(kind, mean_ms / 1e3)
    truth = queue.capacity(bound_ms / 1e3)
    estimates = [stats.estimate(searched(queue, bound_ms / 1e3, rounds=8, seed=seed)) for seed in range(200)]
    held = sum(one.low <= truth <= one.high for one in estimates)
    assert 180 <= held <= 198, "of 200, at 95 %, with chance and a bias of one or two percent"
