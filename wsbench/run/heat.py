"""A heat: trials of one round and cell that run at the same time, each with its own server, engine and folder.

In slices, all servers are alive and one at a time is loaded (`turns`); the servers that rest are stopped (SIGSTOP), so
that nothing they would do falls on another one; a server that ran already is left running. Together, all servers
are loaded at once for the whole trial, each beginning `apart_s` after the one before. A trial that fails leaves the heat; the
others go on.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wsbench.engine import program, shards
from wsbench.metrics import spans
from wsbench.monitoring import kernel
from wsbench.monitoring.sampler import Sampler
from wsbench.records import contained
from wsbench.records.engine_files import Limits, Plan, Seconds
from wsbench.records.errors import UserError
from wsbench.records.rundir import TrialRecord
from wsbench.records.samples import MachineSample, TurnSample
from wsbench.run import turns
from wsbench.run.testbed import Server
from wsbench.run.trial import Attempt, is_started
from wsbench.run.turns import Slot, Turns

#: All engines know when the first phase begins this long before it does.
AHEAD_NS = 100_000_000
#: How long an engine may wait at a gate for the others to connect.
GATE_S = 1800.0
#: In each turn every connection is silent while the others are loaded, so a reply has at least as long as this many turns take.
REPLY_TURNS = 4


@dataclass
class Contender:
    """One trial of the heat, while its server lives."""

    attempt: Attempt
    server: Server
    samples: Sampler | None = None
    engine: shards.Engines | None = None

    @property
    def runs(self) -> bool:
        return self.attempt.failed is None

    @property
    def freezes(self) -> bool:
        """Whether its server is stopped while it rests. One that ran already belongs to the user, and is never stopped."""
        return is_started(self.attempt.variant)


def carry_out(attempts: list[Attempt], watch: Callable[[], None]) -> list[TrialRecord]:
    """Runs the trials of a heat and writes their records. `watch` is called from time to time, never inside a slice."""
    with contextlib.ExitStack() as stack:
        contenders = []
        for attempt in attempts:
            with attempt.judged():
                # A server that cannot be stopped fails its own trial.
                stack.enter_context(attempt.judged())
                contenders.append(Contender(attempt, stack.enter_context(attempt.serving())))
                watch()
        if contenders:
            try:
                _load(contenders, watch)
            except Exception as error:
                reason = contained.fault("trials that run at the same time", error)
                for one in contenders:
                    one.attempt.failed = one.attempt.failed or reason
        for one in contenders:
            if one.runs:
                with one.attempt.judged():
                    one.attempt.settle(one.server)
    return [attempt.record() for attempt in attempts]


def _load(contenders: list[Contender], watch: Callable[[], None]) -> None:
    setting = contenders[0].attempt.setting
    experiment = setting.experiment
    drawn = None
    if experiment.arrangement == "slices":
        timing, seed = experiment.timing, f"{setting.seed} {contenders[0].attempt.order.heat} turns"
        chance = random.Random(seed)
        drawn = turns.drawn(len(contenders), timing.warmup_s, timing.measure_s, timing.slice_s, timing.lead_s, chance)
    with contextlib.ExitStack() as stack:
        for number, one in enumerate(contenders):
            with one.attempt.judged():
                _connect(one, stack, _plan(one, drawn, number), drawn is None, watch)
        running = [one for one in contenders if one.engine is not None and one.runs]
        for one in running:
            one.samples.run_beside(*(pid for other in running for pid in (*other.samples.server_pids, *other.engine.pids)))
        begin_ns = time.monotonic_ns() + AHEAD_NS
        for number, one in enumerate(running):
            one.engine.open("begin", begin_ns + (_later_ns(one, number) if drawn is None else 0))
        if drawn is not None:
            Conductor(contenders, drawn, begin_ns, watch).conduct()
        for one in running:
            with one.attempt.judged():
                one.engine.await_end(watch)


def _plan(one: Contender, drawn: Turns | None, number: int) -> Plan:
    plan = one.attempt.plan()
    if one.attempt.engines != 1 or one.attempt.setting.testbed.roster:
        raise UserError("servers that take turns or run together need one machine and one engine process each")
    if drawn is None:
        patient = plan.limits.model_copy(update={"deadline_s": plan.limits.deadline_s + _later_ns(one, number) / 1e9})
        return plan.model_copy(update={"gate_s": GATE_S, "limits": patient})
    changed = {
        "gate_s": GATE_S,
        "slices": drawn.slices(number, frozen=one.freezes),
        "warmup": None if drawn.warmup_s is None else Seconds(seconds=drawn.warmup_s),
        "measure": Seconds(seconds=drawn.measure_s(number)),
    }
    limits = limits_in_turns(plan.limits, drawn)
    return plan.model_copy(update={**changed, "limits": limits, "drain_s": program.drain_s(plan.loop, limits.reply_s)})


def _later_ns(one: Contender, number: int) -> int:
    """How long after the first server's load that of the server with this number begins."""
    return round(number * one.attempt.setting.experiment.timing.apart_s * 1e9)


def limits_in_turns(limits: Limits, drawn: Turns) -> Limits:
    """Time limits that hold while the others are loaded."""
    longer_s = max(drawn.ends_s)
    reply_s = max(limits.reply_s, REPLY_TURNS * drawn.turn_s)
    return limits.model_copy(update={"reply_s": reply_s, "deadline_s": limits.deadline_s + longer_s})


def _connect(one: Contender, stack: contextlib.ExitStack, plan: Plan, alone: bool, watch: Callable[[], None]) -> None:
    """Starts the engine and waits until it is connected."""
    testbed, folder = one.attempt.setting.testbed, one.attempt.folder
    one.samples = stack.enter_context(testbed.sampling(one.server, folder.path, alone=alone))
    engine = stack.enter_context(shards.Engines(plan, 1, folder, testbed.engines))
    one.samples.watch_engine(folder.path / "events.jsonl", spans.quiet_s(plan) if alone else 0.0, *engine.pids)
    for gate in ("connect", "begin"):
        engine.reach(gate, watch)
        if gate == "connect":
            engine.open(gate, time.monotonic_ns() + shards.AHEAD_NS)
    one.engine = engine


class Conductor:
    """Carries the turns out on the servers' side: lets each server go on for its slices, and samples at their edges."""

    def __init__(self, contenders: list[Contender], drawn: Turns, begin_ns: int, watch: Callable[[], None]):
        self._contenders, self._drawn, self._begin_ns, self._watch = contenders, drawn, begin_ns, watch
        testbed = contenders[0].attempt.setting.testbed
        self._machine = kernel.Machine([*testbed.server_cpus, *testbed.engine_cpus])
        #: The longest by which a server went on late in this turn.
        self._late_s = 0.0

    def conduct(self) -> None:
        """Returns when every server has gone on after the last turn. They do so also if this ends early."""
        try:
            for one in self._contenders:
                self._stop(one)
            begun = None
            for before, slot in self._slots():
                if before is None or before.turn != slot.turn:
                    begun = self._between(before, begun)
                one = self._contenders[slot.contender]
                self._sleep_until(slot.start_s)
                self._go_on(one)
                self._late_s = max(self._late_s, self._now_s() - slot.start_s)
                self._look(one)
                self._sleep_until(slot.close_s)
                self._look(one)
                self._sleep_until(slot.end_s)
                self._look(one)
                self._stop(one)
            self._between(slot, begun)
            # The engine takes the end of its measurement for the end of its server's rest.
            for one, end_s in zip(self._contenders, self._drawn.ends_s, strict=True):
                self._sleep_until(end_s)
                self._go_on(one)
        finally:
            for one in self._contenders:
                self._go_on(one)
            self._machine.close()

    def _slots(self) -> Iterator[tuple[Slot | None, Slot]]:
        slots = self._drawn.slots
        return zip([None, *slots], slots, strict=False)

    def _between(self, before: Slot | None, begun: tuple | None) -> tuple[MachineSample, int | None]:
        """Between two turns: samples everything, tells the turn that has ended, and lets the caller watch."""
        now = self._whole()
        if before is not None and before.turn is not None:
            told = _turn(before.turn, begun, now, self._late_s)
            for one in self._contenders:
                if one.samples is not None:
                    one.samples.tell(told)
        for one in self._contenders:
            with one.attempt.judged():
                one.server.look()
        self._watch()
        self._late_s = 0.0
        return now

    def _whole(self) -> tuple[MachineSample, int | None]:
        """The machine, and the CPU time in ns of everything that belongs to the heat."""
        used = [one.samples.look(fully=True) for one in self._contenders if one.samples is not None and one.runs]
        machine = self._machine.sample()
        ours = None if None in used else sum(used) + time.process_time_ns()
        return machine, ours

    def _look(self, one: Contender) -> None:
        if one.samples is not None:
            one.samples.look(fully=False)

    def _sleep_until(self, seconds: float) -> None:
        if (left := seconds - self._now_s()) > 0:
            time.sleep(left)

    def _now_s(self) -> float:
        return (time.monotonic_ns() - self._begin_ns) / 1e9

    def _stop(self, one: Contender) -> None:
        if one.freezes:
            _signal(one, signal.SIGSTOP)

    def _go_on(self, one: Contender) -> None:
        if one.freezes:
            _signal(one, signal.SIGCONT)


def _signal(one: Contender, which: signal.Signals) -> None:
    for pid in one.server.pids if one.samples is None else one.samples.server_pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, which)


Whole = tuple[MachineSample, int | None]


def _turn(number: int, begun: Whole, ended: Whole, late_s: float) -> TurnSample:
    (first, ours_first), (last, ours_last) = begun, ended
    before, after = first.trial_cpu_s or first.cpu_s, last.trial_cpu_s or last.cpu_s
    used = {key: value - getattr(before, key) for key, value in vars(after).items()}
    throttled = None if first.throttled_s is None or last.throttled_s is None else last.throttled_s - first.throttled_s
    return TurnSample(
        t_ns=last.t_ns,
        of="turn",
        number=number,
        begin_ns=first.t_ns,
        busy_s=sum(used[key] for key in ("user", "system", "irq", "softirq")),
        steal_s=used["steal"],
        idle_s=used["idle"] + used["iowait"],
        throttled_s=throttled,
        ours_s=None if ours_first is None or ours_last is None else (ours_last - ours_first) / 1e9,
        late_s=late_s,
    )
