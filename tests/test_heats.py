"""Trials that run at the same time: their order, their turns, and a real heat."""

import contextlib
import random
import signal
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest
from conftest import RAN
from judging import trial_of
from test_end_to_end import only_run, outcomes
from trial_maker import Trial

from wsbench import metrics
from wsbench.analysis.blocks import Blocks
from wsbench.experiments import experiment as experiments
from wsbench.metrics import engine_checks, host_checks, slices
from wsbench.metrics import turns as of_turns
from wsbench.metrics.trial_data import TrialData
from wsbench.records import engine_files
from wsbench.records.errors import UserError
from wsbench.records.samples import ProcessSample, TurnSample
from wsbench.run import ordering, turns
from wsbench.run.heat import Conductor, limits_in_turns
from wsbench.servers.manifest import Limits


class Fake:
    def __init__(self, name: str):
        self.server, self.variant, self.name = name, "v", f"{name}@v"
        self.limits = Limits()


@pytest.fixture
def sliced(experiment):
    text = experiment.read_text().replace("measure_s = 0.6", "measure_s = 0.4\nwarmup_s = 0.2\nslice_s = 0.1\nlead_s = 0.05")
    experiment.write_text(text.replace("[load]", 'arrangement = "slices"\n[load]'))
    return experiment


# ---- order ---------------------------------------------------------------------------------------------------------


def test_a_heat_is_a_cell_of_a_round_with_every_server_and_the_control(sliced):
    servers = [Fake("a"), Fake("b")]
    order = ordering.order_of(experiments.read(sliced), servers, 7, servers[0])
    assert [one.number for one in order] == list(range(1, 13))
    heats = ordering.groups(order, order)
    assert [one[0].heat for one in heats] == [one[0].number for one in heats] == [1, 4, 7, 10]
    for heat in heats:
        assert sorted(one.name for one in heat) == ["a@v", "a@v (control)", "b@v"]
        assert len({(one.round, one.cell["connections"]) for one in heat}) == 1


def test_a_disturbed_heat_runs_again_whole_under_new_numbers(sliced):
    order = ordering.order_of(experiments.read(sliced), [Fake("a"), Fake("b")], 7)
    found = [one for one in order if one.heat in (1, 5)]
    random.Random(3).shuffle(found)
    reruns = ordering.again(found, 9)
    assert [one.number for one in reruns] == [9, 10, 11, 12]
    assert {one.again_of for one in reruns} == {1, 2, 5, 6}
    heats = ordering.groups(reruns, reruns)
    assert [len(heat) for heat in heats] == [2, 2]
    for heat in heats:
        assert heat[0].heat == heat[0].number
        assert len({one.cell["connections"] for one in heat}) == 1


def test_a_heat_that_was_interrupted_runs_again_whole(sliced):
    order = ordering.order_of(experiments.read(sliced), [Fake("a"), Fake("b")], 7)
    assert ordering.groups([order[1]], order) == [order[:2]]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('loop     = "closed"', 'loop = "none"'), "steady"),
        (("measure_s = 0.4", ""), "exactly one"),
        (('arrangement = "slices"', 'arrangement = "together"'), "a light load"),
        (("[timing]", "[timing]\napart_s = 1"), "needs arrangement 'together'"),
    ],
)
def test_a_load_that_cannot_be_arranged_so_is_refused(sliced, change, why):
    text = sliced.read_text().replace(*change)
    sliced.write_text(text.replace('scenario = "ping"', 'scenario = "idle"') if '"none"' in text else text)
    with pytest.raises(UserError, match=why):
        experiments.read(sliced)


# ---- turns ---------------------------------------------------------------------------------------------------------


def test_every_contender_has_one_slice_in_every_turn_and_no_two_overlap():
    drawn = turns.drawn(4, 0.5, 1.0, 0.1, 0.02, random.Random(1))
    assert [slot.turn for slot in drawn.slots] == [None] * 4 + [turn for turn in range(10) for _ in range(4)]
    for first in range(0, len(drawn.slots), 4):
        assert {slot.contender for slot in drawn.slots[first : first + 4]} == {0, 1, 2, 3}
    for one, other in pairwise(drawn.slots):
        assert one.end_s < other.start_s
        assert one.start_s < one.open_s < one.close_s < one.end_s
    orders = [tuple(slot.contender for slot in drawn.slots[first : first + 4]) for first in range(4, 44, 4)]
    assert len(set(orders)) > 3
    measured = [slot for slot in drawn.slots if slot.turn is not None]
    assert max(slot.end_s for slot in drawn.slots if slot.turn is None) < drawn.warmup_s < measured[0].start_s
    assert measured[-1].end_s < drawn.ends_s[0] == pytest.approx(drawn.warmup_s + drawn.measure_s(0))
    assert [other - one for one, other in pairwise(drawn.ends_s)] == pytest.approx([0.02] * 3)
    for contender in range(4):
        windows = drawn.slices(contender, frozen=True).windows
        assert sum(close - open_ for open_, close in windows[1:]) == pytest.approx(1.0)


@pytest.mark.parametrize(("as_is", "rest_ms"), [(False, 3), (True, 302)])
def test_a_server_rests_in_the_turns_that_count_and_were_sampled(tmp_path, as_is, rest_ms):
    turns_of = [(None, 0.002), ("stolen", 0.9), (None, None), (None, 0.004)]
    found = [SimpleNamespace(disturbed=why, cpu=SimpleNamespace(rest_s=rest_s)) for why, rest_s in turns_of]
    trial = trial_of(tmp_path / "0001", Trial())
    trial.__dict__.update(slices=found, record=trial.record.model_copy(update={"as_is": as_is}))
    assert of_turns.resting_cpu_ms(trial) == pytest.approx(rest_ms)
    assert of_turns.turns_disturbed(trial) == 1


def test_a_reply_has_as_long_as_four_turns_take_and_a_trial_as_long_as_all():
    few, many = (turns.drawn(contenders, 1.0, 2.0, 0.2, 0.1, random.Random(1)) for contenders in (2, 40))
    limits = engine_files.Limits(connect_s=5, reply_s=10, deadline_s=60)
    assert limits_in_turns(limits, few) == limits.model_copy(update={"deadline_s": 60 + few.ends_s[-1]})
    longer = limits_in_turns(limits, many)
    assert longer.reply_s == pytest.approx(4 * many.turn_s)
    assert many.turn_s == pytest.approx(40 * (0.2 + 0.1), rel=0.05)


def test_after_the_last_turn_each_server_goes_on_when_its_measurement_ends(monkeypatch):
    """The engine takes the time until then for the server's rest: a reply before it would count with a rest that was none."""
    setting = SimpleNamespace(testbed=SimpleNamespace(server_cpus=[0], engine_cpus=[0]))
    contenders = [
        SimpleNamespace(
            number=number,
            freezes=True,
            runs=True,
            samples=None,
            server=SimpleNamespace(look=lambda: None),
            attempt=SimpleNamespace(judged=contextlib.nullcontext, setting=setting),
        )
        for number in range(3)
    ]
    signals = []
    monkeypatch.setattr("wsbench.run.heat._signal", lambda one, which: signals.append((time.monotonic_ns(), one.number, which)))
    drawn = turns.drawn(3, 0.05, 0.04, 0.02, 0.02, random.Random(1))
    begin_ns = time.monotonic_ns()
    Conductor(contenders, drawn, begin_ns, lambda: None).conduct()
    last_turn = begin_ns + round(drawn.slots[-1].end_s * 1e9)
    for number, end_s in enumerate(drawn.ends_s):
        mine = [(at, which) for at, whose, which in signals if whose == number]
        assert len([which for _, which in mine if which == signal.SIGSTOP]) == 1 + 3, "at first, and after three slices"
        last_stop = max(at for at, which in mine if which == signal.SIGSTOP)
        goes_on = min(at for at, which in mine if which == signal.SIGCONT and at > last_stop)
        assert goes_on >= begin_ns + round(end_s * 1e9) > last_turn


# ---- what a turn says ----------------------------------------------------------------------------------------------


def told(**changes) -> TurnSample:
    fine = {"number": 0, "begin_ns": 0, "busy_s": 0.9, "idle_s": 0.1, "steal_s": 0.0, "throttled_s": 0.0, "ours_s": 0.88}
    return TurnSample(t_ns=1_000_000_000, of="turn", **{**fine, "late_s": 0.0, **changes})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"steal_s": 0.05}, None),
        ({"steal_s": 0.2}, "hypervisor"),
        ({"throttled_s": 0.1}, "quota"),
        ({"ours_s": 0.5}, "other programs"),
        ({"ours_s": None}, None),
        ({"late_s": 0.015}, "15 ms late"),
        ({"begin_ns": 900_000_000}, "not sampled"),
    ],
)
def test_a_disturbed_turn_says_why(changes, why):
    found = slices.disturbance(500_000_000, 0.02, [told(**changes)])
    assert found is None if why is None else why in found


@pytest.mark.parametrize(
    ("steal_s", "words"),
    [
        ([0.0, 0.0, 0.0, 0.0], []),
        ([0.03, 0.05, 0.03, 0.5], ["the hypervisor took 3.6% of the CPU time of the turns that count"]),
        ([0.0, 0.0, 0.5, 0.5], ["2 of 4 turns left out: "]),
        ([0.0, 0.5, 0.5, 0.5], ["3 of 4 turns left out: "]),
    ],
)
def test_what_the_turns_of_a_heat_say_about_its_host(steal_s, words):
    turns_ = [told(steal_s=seconds) for seconds in steal_s]
    trial = SimpleNamespace(
        slices=[SimpleNamespace(disturbed=slices.disturbed_by(turn, 0.02)) for turn in turns_],
        plan=SimpleNamespace(slices=SimpleNamespace(lead_s=0.02)),
        samples_of=lambda _: turns_,
        record=SimpleNamespace(as_is=False),
        machines={},
    )
    found = list(host_checks.turns(trial))
    assert len(found) == len(words)
    for one, text in zip(found, words, strict=True):
        assert one.seen.startswith(text)
        kind = "INVALID" if text.startswith("3") else "SUSPECT"
        assert one.affects == dict.fromkeys(("throughput", "body", "tail", "cpu"), kind)


@pytest.mark.parametrize(("first_slice_ms", "words"), [(None, "the last 80 ms"), (10, "the last 70 ms"), (310, None)])
def test_a_worker_that_is_late_before_its_first_slice_is_not_late(monkeypatch, first_slice_ms, words):
    monkeypatch.setattr(metrics.rates, "start_spread_us", lambda trial: 80_000)
    first = None if first_slice_ms is None else [SimpleNamespace(start_ns=10**9 + first_slice_ms * 10**6)]
    found = list(engine_checks._start(SimpleNamespace(slices=first, begins={"measure": 10**9})))
    assert [words in one.seen for one in found] == ([True] if words else [])


def test_the_cpu_time_of_a_slice_and_of_the_rest_after_it():
    def sample(t_ms: float, cpu_ms: float) -> ProcessSample:
        zero = {"processes": 1, "threads": 1, "fds": None, "rss_bytes": 1, "cpu_user_s": 0.0, "cpu_system_s": 0.0}
        return ProcessSample(t_ns=round(t_ms * 1e6), of="server", cpu_ns=round(cpu_ms * 1e6), **zero)

    samples = [sample(100.1, 5), sample(210.1, 94), sample(220.2, 95), sample(400.1, 96), sample(510.2, 178), sample(520.2, 180)]
    ms = 1_000_000
    assert slices.cpu(samples, 100 * ms, 210 * ms, 220 * ms, 400 * ms) == pytest.approx((0.089, 0.090, 0.001))
    late = slices.cpu(samples, 100 * ms, 210 * ms, 230 * ms, 400 * ms)  # nobody looked within two milliseconds
    assert late == (pytest.approx(0.089), None, None)
    assert slices.cpu(samples, 400 * ms, 510 * ms, 520 * ms, None) == (pytest.approx(0.082), pytest.approx(0.084), None)


# ---- a real heat ---------------------------------------------------------------------------------------------------


@pytest.mark.system
def test_a_heat_of_real_servers(wsbench, sliced, tmp_path):
    """A server that takes part twice, and one that crashes in its turn: the others' trials go on."""
    servers = ("--servers", "fragile@steady,fragile@forking,fragile@crashing", "--rounds", "1")
    done = wsbench("run", str(sliced), *servers, "--no-report")
    assert done.returncode in RAN, done.stderr
    run = only_run(tmp_path)
    of = {planned.number: planned.variant for planned in run.order}
    assert {of[number]: outcome for number, outcome in outcomes(run).items()} == {
        "steady": "ok",
        "forking": "ok",
        "crashing": "failed",
    }
    for heat in ordering.groups(run.order, run.order):
        windows = []
        trials = [TrialData(folder := run.trial(one.number), folder.record) for one in heat]
        for trial in trials:
            lead = trial.plan.slices.lead_s
            windows += [(begin - lead, end) for begin, end in trial.plan.slices.windows]
            assert trial.record.heat == heat[0].number
        for one, other in pairwise(sorted(windows)):
            assert one[1] < other[0]
        fine = [trial for trial in trials if trial.record.outcome == "ok"]
        assert len({tuple(trial.samples_of(TurnSample)) for trial in fine}) == 1, "one record of the turns"
        assert len(fine[0].samples_of(TurnSample)) == 4
        for trial in fine:
            assert len(trial.slices) == 4
            assert sum(one.counted for one in trial.slices) == trial.measured.replies_in_window
            assert sum(one.replies for one in trial.slices) >= trial.measured.answered > 0
            kept = trial.kept_slices
            assert trial.counted == sum(one.counted for one in kept)
            assert sum(one.bytes_received for one in trial.slices) == trial.measured.bytes_received
            assert trial.bytes_sent == sum(one.bytes_sent for one in kept), "as many as the seconds they are divided by"
            numbers = metrics.values(trial)
            assert numbers["turns"] - numbers["turns_disturbed"] == len(kept)
            rests = [one.cpu.rest_s for one in kept if one.cpu.rest_s is not None]
            assert (numbers["resting_cpu_ms"] is None) == (not rests)
            assert not rests or 1e3 * min(rests) <= numbers["resting_cpu_ms"] <= 1e3 * max(rests)
            assert bool(trial.histograms) == bool(kept)
            assert trial.record.server_exit is not None
            assert "SIGTERM" in trial.record.server_exit, "a server that rested could still be stopped"


@pytest.mark.nightly
def test_connections_that_come_and_go_take_turns(wsbench, sliced, tmp_path):
    sliced.write_text(sliced.read_text().replace("connections = 4", "connections = 4\nmessages_per_connection = 3"))
    done = wsbench("run", str(sliced), "--servers", "reference,node-ws", "--rounds", "1", "--no-report", "--no-control")
    assert done.returncode in RAN, done.stderr
    run = only_run(tmp_path)
    assert set(outcomes(run).values()) == {"ok"}
    for planned in run.order:
        trial = TrialData(folder := run.trial(planned.number), folder.record)
        assert not trial.end.errors
        assert sum(one.counted for one in trial.slices) == trial.measured.replies_in_window > 0
        connects = sum(one.count for tag, one in trial.recorded.items() if tag == "connect")
        at_edges = len(trial.slices) * planned.cell["connections"]
        assert connects > trial.measured.answered / 3 - at_edges


@pytest.mark.nightly
@pytest.mark.parametrize("apart_s", [0, 0.7])
def test_servers_that_run_together(wsbench, experiment, tmp_path, apart_s):
    text = experiment.read_text().replace('loop     = "closed"', 'loop = "open"').replace("connections = 4", "rate_per_s = 50")
    text = text.replace("[timing]", f"[timing]\napart_s = {apart_s}")
    experiment.write_text(text.replace("[load]", 'arrangement = "together"\n[load]'))
    done = wsbench("run", str(experiment), "--servers", "fragile@steady,fragile@forking", "--rounds", "1", "--no-report")
    assert done.returncode in RAN, done.stderr
    run = only_run(tmp_path)
    assert set(outcomes(run).values()) == {"ok"}
    for heat in ordering.groups(run.order, run.order):
        trials = [TrialData(folder := run.trial(one.number), folder.record) for one in heat]
        first, second = sorted(trial.begins["measure"] for trial in trials)
        assert second - first == round(apart_s * 1e9)
        assert all(trial.slices is None and trial.measured.answered > 0 for trial in trials)


def test_servers_that_do_not_fit_into_memory_run_in_heats_with_one_in_common(sliced):
    servers = [Fake(name) for name in "abcdefg"]
    order = ordering.order_of(experiments.read(sliced), servers, 7, servers[2], most=4)
    heats = ordering.groups(order, order)
    assert len(heats) == 3 * 4
    for heat in heats:
        assert len(heat) <= 4
        assert [one.server for one in heat if one.server == "c" and not one.control] == ["c"], "the anchor"
    first = [one.name for heat in heats[:] for one in heat if one.round == 1 and one.cell["connections"] == 2]
    assert set(first) == {"a@v", "b@v", "c@v", "c@v (control)", "d@v", "e@v", "f@v", "g@v"}
    assert len(first) == 8 + 2
    with pytest.raises(UserError, match="only one of these servers"):
        ordering.order_of(experiments.read(sliced), servers, 7, None, most=1)


def test_a_heat_is_a_block_of_its_own_if_a_round_has_several(sliced):
    servers = [Fake(name) for name in "abcd"]
    order = ordering.order_of(experiments.read(sliced), servers, 7, None, most=3)
    heats = {planned.heat: set() for planned in order}
    for planned in order:
        heats[planned.heat].add(Blocks(order).of(planned))
    assert all(len(blocks) == 1 for blocks in heats.values())
    cells = {(planned.heat, planned.cell["connections"]): planned.round for planned in order}
    for number in (1, 2):
        for connections in (2, 4):
            mine = [heat for (heat, at), round_ in cells.items() if at == connections and round_ == number]
            assert len({min(heats[heat]) for heat in mine}) == len(mine) == 2
    again = ordering.again([planned for planned in order if planned.heat == order[0].heat], len(order) + 1)
    assert {Blocks([*order, *again]).of(planned) for planned in again} == heats[order[0].heat]
    alone = ordering.order_of(experiments.read(sliced), servers, 7)
    assert {Blocks(alone).of(planned) for planned in alone} == {1, 2}
