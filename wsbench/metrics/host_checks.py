"""Checks of the host: CPU time that the hypervisor, a quota or other programs took from the trial, and packets that were dropped.

The rule that reruns disturbed trials rests on them: what the host did is judged without any result of the trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from wsbench import metrics
from wsbench.metrics import quiet, slices
from wsbench.metrics.findings import Family, Finding, Kind, finding, worst
from wsbench.metrics.limits import beyond
from wsbench.metrics.tracks import TICK_S, MachineTrace, cpu_rounding_s, cpu_s, of_trial, wanted_s
from wsbench.metrics.trial_data import NS_PER_S, TrialData
from wsbench.records.samples import MachineCpu, MachineSample, TurnSample

#: Families that rest on the measured window. Missing CPU time changes neither counts nor memory.
IN_WINDOW: tuple[Family, ...] = ("throughput", "body", "tail", "cpu")
#: A server that uses this share of its CPUs waits for no other one.
ALONE = 0.95
#: Shorter stretches have too few ticks of 10 ms to judge shares of a few per cent.
SHORTEST_S = 1.0
NOT_SHARED = "Use a dedicated machine, or a quieter time of day."
QUIETER = "Stop other programs, or use a quieter machine or time of day."


@dataclass(frozen=True)
class Taken:
    """CPU time that a machine's trial did not get over some stretch, in seconds."""

    seconds: float  # of the stretch
    wanted_s: float  # busy and stolen, over the CPUs of the trial
    stolen_s: float
    throttled_s: float
    quota_cpus: float | None
    foreign_s: float | None  # at least; None if it is unknown which processes belong to the trial
    busiest: str = ""  # the programs that used most of it, in words


def cpu_time(trial: TrialData) -> Iterator[Finding]:
    """CPU time that the trial did not get in the measured window, and while connections were opened."""
    if trial.window is None:
        return
    if trial.slices is not None:
        yield from turns(trial)
        return
    stretches = [(trial.window, _in_window, "")]
    opened = (trial.begins.get("connect"), trial.begins.get("warmup", trial.window[0]))
    if _connects_in_window(trial):
        stretches = [(trial.window, _in_all, "")]
    elif opened[0] is not None and opened[1] - opened[0] >= SHORTEST_S * NS_PER_S:
        stretches.append((opened, _connecting, " while connections were opened"))
    else:
        stretches = [(trial.window, _in_window_and_near, "")]
    if trial.quiet is not None:
        yield from quiet_stretches(trial)
    for name, trace in trial.machines.items():
        for (begin_ns, end_ns), words, when in stretches:
            around = enclosing(trace.samples, begin_ns, end_ns)
            if around is not None:
                of_steal = words if words is _connecting or trial.quiet is None else _by_quiet_stretches(words)
                yield from _judge(name, taken(trace, *around), words, when, of_steal)
            elif words is not _connecting:
                seen = f"{name} was not sampled across the window, so steal and throttling are unknown"
                yield finding("host", "not_sampled", seen, "Run the trial again.", **words("SUSPECT"))


def so_far(trace: MachineTrace) -> Iterator[Finding]:
    """The same of a trial that still runs, from the first sample to the last."""
    yield from _judge("the machine", taken(trace, trace.samples[0], trace.samples[-1]), _in_window, "", _in_window)


def turns(trial: TrialData) -> Iterator[Finding]:
    """A heat whose turns were disturbed. Single turns are left out for all its servers alike, and are no finding. If the user wants
    them to count, their numbers are those of this host as it is."""
    every, left_out = trial.slices, [one.disturbed for one in trial.slices if one.disturbed is not None]
    share = len(left_out) / len(every) if every else 1.0
    if kind := beyond("disturbed_turns", share):
        most = max(set(left_out), key=left_out.count) if left_out else "no slice was recorded"
        became, word = ("counted, as asked", "SUSPECT") if trial.record.as_is else ("left out", kind)
        names = "".join(trace.busiest for trace in trial.machines.values())
        seen = f"{len(left_out)} of {len(every)} turns {became}: {most}{names}"
        yield finding("host", "turns", seen, QUIETER, **_in_window(word))
    lead_s, as_is = trial.plan.slices.lead_s, trial.record.as_is
    kept = [turn for turn in trial.samples_of(TurnSample) if as_is or slices.disturbed_by(turn, lead_s) is None]
    if beyond("turn_steal", stolen := slices.stolen_share(kept)):
        seen = f"the hypervisor took {stolen:.1%} of the CPU time of the turns that count: all rates of the round are too low"
        yield finding("host", "steal", seen, NOT_SHARED, **_in_window("SUSPECT"))


def quiet_stretches(trial: TrialData) -> Iterator[Finding]:
    """How much of the trial the quiet stretches leave out, beyond its limit, and what the hypervisor took in the rest."""
    whole_s = (trial.window[1] - trial.window[0]) / NS_PER_S
    kept = quiet.inside(trial.quiet, trial.window)
    quiet_s = quiet.seconds(kept)
    limit = "disturbed_stretches" if quiet.is_fine(trial.plan) else "disturbed_periods"
    if kind := beyond(limit, 1 - quiet_s / whole_s if whole_s > 0 else 1.0):
        only = "only " if kind == "INVALID" else ""
        seen = f"the hypervisor left the trial undisturbed for {only}{quiet_s:,.4g} s of {whole_s:,.4g} s; the rest is left out"
        yield finding("host", "stretches", seen, NOT_SHARED, throughput=kind, body=kind, tail=kind)
    edges = np.array(kept).reshape(-1, 2)
    for name, trace in trial.machines.items():
        begins, ends = edges[:, 0], edges[:, 1]
        stolen_s, wanted = (
            np.sum(at(trace.samples, ends) - at(trace.samples, begins)) for at in (quiet.stolen_at, quiet.wanted_at)
        )
        share = _stolen_share(stolen_s, wanted)
        if kind := beyond("steal", share):
            seen = f"the hypervisor took {share:.1%} of the CPU time that the trial wanted on {name} in what counts of it"
            yield finding("host", "steal", seen, NOT_SHARED, body=kind, tail=kind)


def _stolen_share(stolen_s: float, wanted_s: float) -> float:
    """A counter of ticks may be wrong by one."""
    return max(0.0, stolen_s - TICK_S) / wanted_s if wanted_s > 0 else 0.0


Words = dict[Family, Kind | None]


def _in_window(kind: Kind) -> Words:
    return dict.fromkeys(IN_WINDOW, kind)


def _in_window_and_near(kind: Kind) -> Words:
    """Connecting was too short to judge by itself. What made the window INVALID may have lengthened it."""
    return _in_window(kind) | {"connect": "SUSPECT" if kind == "INVALID" else None}


def _in_all(kind: Kind) -> Words:
    return _in_window(kind) | _connecting(kind)


def _connecting(kind: Kind) -> Words:
    return {"connect": kind}


def _by_quiet_stretches(words: Callable[[Kind], Words]) -> Callable[[Kind], Words]:
    """Steal in a trial whose times are those of its quiet stretches. At a given rate, it does not change the throughput. Connect
    times are those of the whole trial."""
    return lambda kind: {"throughput": "SUSPECT", "cpu": kind, "connect": words(kind).get("connect")}


def _connects_in_window(trial: TrialData) -> bool:
    plan = trial.plan
    return (
        trial.connection_per_request or plan.stages is not None or getattr(plan.loop, "messages_per_connection", None) is not None
    )


def _judge(
    name: str, found: Taken, words: Callable[[Kind], Words], when: str, of_steal: Callable[[Kind], Words]
) -> Iterator[Finding]:
    share = _stolen_share(found.stolen_s, found.wanted_s)
    if kind := beyond("steal", share):
        seen = f"the hypervisor took {share:.1%} of the CPU time that the trial wanted on {name}{when}"
        yield finding("host", "steal", seen, NOT_SHARED, **of_steal(kind))
    if found.throttled_s > 0:
        quota = "" if found.quota_cpus is None else f" of {found.quota_cpus:.3g} CPUs"
        seen = f"a CPU quota{quota} throttled {name} for {found.throttled_s:.3g} s{when}"
        yield finding("host", "throttled", seen, "Raise the quota or remove it.", **words("INVALID"))
    if found.foreign_s is not None and (kind := beyond("foreign_cpu", found.foreign_s / found.seconds)):
        seen = f"other programs used at least {found.foreign_s / found.seconds:.0%} of a CPU of {name}{when}{found.busiest}"
        # The CPU time of a server is its own account; a rival on its CPU only cools its caches.
        affects = {family: "SUSPECT" if family == "cpu" else word for family, word in words(kind).items()}
        yield finding("host", "foreign_cpu", seen, QUIETER, **affects)


def others(trial: TrialData) -> Iterator[Finding]:
    """Other programs that ran too little to change a rate, and enough to be what the slowest messages waited for."""
    for name, trace in trial.machines.items():
        share = trace.others
        if share is not None and (kind := beyond("others", share)):
            seen = f"other programs used {share:.1%} of a CPU of {name} during the trial{trace.busiest}"
            yield finding("host", "others", seen, QUIETER, tail=kind)


def sampling(trial: TrialData) -> Iterator[Finding]:
    """wsbench is another program too. Servers that take turns are sampled between their slices."""
    if trial.window is None or trial.slices is not None:
        return
    for name, trace in trial.machines.items():
        share = trace.sampling(trial.window)
        if share is not None and (kind := beyond("others", share)):
            seen = f"wsbench itself used {share:.1%} of a CPU of {name}"
            yield finding("host", "sampling", seen, "Measure for longer, or on more CPUs.", tail=kind)


def packets(trial: TrialData) -> Iterator[Finding]:
    """Packets dropped at a CPU's queue. Runs older than this counter are not SUSPECT for lack of it."""
    if dropped := metrics.connections.backlog_drops(trial):
        seen = f"the machine dropped {dropped:,} packets at a CPU's full queue; each came at least 0.2 s late"
        remedy = "Raise net.core.netdev_max_backlog (`wsbench doctor --connections N`)."
        yield finding("host", "backlog", seen, remedy, tail="SUSPECT", connect="SUSPECT")


def crowd(trial: TrialData) -> Iterator[Finding]:
    """Servers that ran at the same time and together left no CPU time, so that one waited for another. A rerun would show the same.

    A message that was lost then may have been lost by the wait.
    """
    if trial.record.heat is None or trial.plan.slices is not None or trial.window is None:
        return
    begin_ns, end_ns = trial.window
    inside = [sample for sample in trial.machine if begin_ns <= sample.t_ns <= end_ns]
    server, cpus = trial.processes("server"), len(trial.record.server_cpus)
    at_ns, used_s = [sample.t_ns for sample in server], [cpu_s(sample) for sample in server]
    full_s = 0.0
    for before, after in pairwise(inside):
        seconds = (after.t_ns - before.t_ns) / NS_PER_S
        own_s = _grown(at_ns, used_s, before.t_ns, after.t_ns) if server else 0.0
        if _servers_full(before, after, cpus) and own_s < ALONE * cpus * seconds:
            full_s += seconds
    kind = beyond("crowd", full_s / ((end_ns - begin_ns) / NS_PER_S))
    ledger = trial.measured
    lost = bool(ledger.failed or ledger.unanswered or ledger.unsent)
    counts: Kind | None = "INVALID" if lost and full_s >= SHORTEST_S else None
    if kind or counts:
        left = "left" if _of_servers(inside) else "may have left"
        seen = f"the servers that ran at the same time {left} no CPU time for {full_s:.3g} s in all"
        yield finding("host", "crowd", seen, "Run fewer servers at once.", counts=counts, body=kind, tail=kind)


def _of_servers(samples: list[MachineSample]) -> bool:
    """Whether the CPUs of the servers were sampled by themselves."""
    return all(sample.server_cpu_s is not None for sample in samples)


def _servers_full(before: MachineSample, after: MachineSample, servers: int) -> bool:
    """Whether the CPUs of the servers were busy all the time. In older runs, whether they can have been: no more was idle than the
    other CPUs of the trial."""
    if _of_servers([before, after]):
        idle = [sample.server_cpu_s.idle + sample.server_cpu_s.iowait for sample in (before, after)]
        return idle[1] - idle[0] <= TICK_S
    spent = _used(before, after)
    every, idle = sum(spent.model_dump().values()), spent.idle + spent.iowait
    seconds = (after.t_ns - before.t_ns) / NS_PER_S
    return idle <= every - servers * seconds + TICK_S


def enclosing(samples: list[MachineSample], begin_ns: int, end_ns: int) -> tuple[MachineSample, MachineSample] | None:
    """The last sample before a stretch and the first one after it. None if it was not sampled at both ends."""
    before = [sample for sample in samples if sample.t_ns <= begin_ns]
    after = [sample for sample in samples if sample.t_ns >= end_ns]
    return (before[-1], after[0]) if before and after else None


def taken(trace: MachineTrace, first: MachineSample, last: MachineSample) -> Taken:
    """The CPU time that the trial did not get between two samples of a machine."""
    used = _used(first, last)
    throttled = 0.0
    if first.throttled_s is not None and last.throttled_s is not None:
        throttled = last.throttled_s - first.throttled_s
    seconds = (last.t_ns - first.t_ns) / NS_PER_S
    return Taken(seconds, wanted_s(used), used.steal, throttled, last.quota_cpus, foreign_s(trace, first, last), trace.busiest)


def foreign_s(trace: MachineTrace, first: MachineSample, last: MachineSample) -> float | None:
    """The least CPU time that processes outside the trial used between two samples, on its CPUs if these were sampled.

    Busy time without interrupts, minus the trees of server, engine and rivals, minus the sampler, minus every rounding. Interrupts
    belong to no process on some kernels, hence the least. The kernel samples busy time at each timer tick, and a load that beats
    with the timer may be busy at all of them. It measures idle time, so busy time is no more than what was not idle. None if a
    process of the trial is unknown or was not sampled, or the stretch is too short.
    """
    begin_ns, end_ns = _within(trace, first.t_ns, last.t_ns)
    if not trace.complete or end_ns - begin_ns < SHORTEST_S * NS_PER_S:
        return None
    at = [sample.t_ns for sample in trace.samples]
    busy = [of_trial(sample, first).user + of_trial(sample, first).system for sample in trace.samples]
    rest = _grown(at, busy, begin_ns, end_ns)
    if first.cpus is not None:
        spent = [of_trial(sample, first) for sample in trace.samples]
        unused = _grown(at, [one.idle + one.iowait + one.steal for one in spent], begin_ns, end_ns)
        rest = min(rest, first.cpus * (end_ns - begin_ns) / NS_PER_S - unused)
    rest -= 4 * TICK_S
    for samples in filter(None, trace.processes.values()):
        cpu = [cpu_s(sample) for sample in samples]
        rest -= _grown([sample.t_ns for sample in samples], cpu, begin_ns, end_ns) + cpu_rounding_s(samples)
    if trace.sampler:
        cost = trace.sampler[-1]
        rest -= cost.cpu_ns / max(1, cost.t_ns - cost.began_ns) * (end_ns - begin_ns) / NS_PER_S
    return max(0.0, rest)


def _within(trace: MachineTrace, begin_ns: int, end_ns: int) -> tuple[int, int]:
    """The part of a stretch between two samples of the engine. The machine and the server are sampled at the same moments, so no
    edge is interpolated over more than milliseconds."""
    inside = [one.t_ns for one in trace.processes.get("engine", []) if begin_ns <= one.t_ns <= end_ns]
    return (inside[0], inside[-1]) if inside else (0, 0)


def _grown(at_ns: list[int], counts: list[float], begin_ns: int, end_ns: int) -> float:
    """Growth of a cumulative quantity between two instants, interpolated; 0 outside its samples."""
    first, last = np.interp([begin_ns, end_ns], at_ns, counts)
    return float(last - first)


def _used(first: MachineSample, last: MachineSample) -> MachineCpu:
    before, after = of_trial(first, last), of_trial(last, first)
    return MachineCpu(**{key: value - getattr(before, key) for key, value in after.model_dump().items()})


def disturbed(trial: TrialData) -> Finding | None:
    """The finding about CPU time that makes numbers INVALID. None if there is none."""
    return next((one for one in cpu_time(trial) if worst(one.affects.values()) == "INVALID"), None)


#: The checks of every machine of the trial.
CHECKS = (cpu_time, others, sampling, packets, crowd)
