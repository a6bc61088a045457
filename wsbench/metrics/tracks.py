"""Samples of processes and machines over time: cumulative quantities, and their growth over a span with its largest error."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from wsbench.metrics.spans import NS_PER_S, Span
from wsbench.metrics.unmeasured import Unmeasured
from wsbench.records.samples import MachineCpu, MachineSample, ProcessSample, ProgramsSample, SamplerCost, Tree

#: A program is named if it used this share of a CPU.
NAMED_SHARE = 0.005
TICK_S = 0.01  # of /proc/PID/stat: USER_HZ is 100 on every Linux


@dataclass(frozen=True)
class MachineTrace:
    """The samples of one machine: of the whole, and of every process tree that is known there, by its kind.

    `complete`: these trees are all that the trial ran on this machine, so the rest of its CPU time is foreign. `programs`: what
    used most of that, if it was looked at.
    """

    samples: list[MachineSample]
    processes: dict[Tree, list[ProcessSample]]
    sampler: list[SamplerCost]
    complete: bool
    programs: ProgramsSample | None = None

    @property
    def busiest(self) -> str:
        """Like `busiest`, over all that was sampled."""
        return busiest(self.programs) if self.programs is not None else ""

    @property
    def others(self) -> float | None:
        """CPU time of all other programs, as a share of one CPU, over all that was sampled. None if it is unknown, or if some of it
        may have been used on CPUs that the trial does not use."""
        found = self.programs
        if not self.complete or found is None or found.cpu_s is None or any(one.trial_cpu_s is not None for one in self.samples):
            return None
        return found.cpu_s / max(1, found.t_ns - found.began_ns) * NS_PER_S

    def sampling(self, window: tuple[int, int]) -> float | None:
        """CPU time of wsbench itself over the window, as a share of one CPU. None if it is unknown, if the window is empty, or
        if it may have been used on other CPUs (`others`)."""
        if not self.sampler or window[0] == window[1] or any(one.trial_cpu_s is not None for one in self.samples):
            return None
        at = [self.sampler[0].began_ns, *(one.t_ns for one in self.sampler)]
        used = [0, *(one.cpu_ns for one in self.sampler)]
        begin, end = np.interp(window, at, used)
        return float(end - begin) / (window[1] - window[0])


def busiest(found: ProgramsSample) -> str:
    """` (busiest: backup 9%, cron 2%)` of a CPU; empty if no program stood out."""
    seconds = (found.t_ns - found.began_ns) / NS_PER_S
    shares = [(one.name, one.cpu_s / seconds) for one in found.programs] if seconds > 0 else []
    named = ", ".join(f"{name} {share:.0%}" for name, share in shares if share >= NAMED_SHARE)
    return f" (busiest: {named})" if named else ""


def by_tree(samples: list[ProcessSample]) -> dict[Tree, list[ProcessSample]]:
    """The samples of each kind of process tree, in order."""
    found: dict[Tree, list[ProcessSample]] = {"server": [], "engine": [], "rival": []}
    for sample in samples:
        found[sample.of].append(sample)
    return found


@dataclass(frozen=True)
class Track:
    """Samples of a cumulative quantity: times, and the counts so far."""

    at_ns: list[int]
    counts: list[float]

    @cached_property
    def grown(self) -> list[float]:
        """Growth from each sample to the next."""
        return [after - before for before, after in pairwise(self.counts)]

    @cached_property
    def seconds(self) -> list[float]:
        """Seconds from each sample to the next."""
        return [(until - since) / NS_PER_S for since, until in pairwise(self.at_ns)]

    @cached_property
    def rates(self) -> list[float]:
        """Growth per second; 0 between two samples of the same time."""
        pairs = zip(self.grown, self.seconds, strict=True)
        return [grown / seconds if seconds > 0 else 0.0 for grown, seconds in pairs]


def around(track: Track, span: Span, of: str, where: str | None = None) -> slice:
    """The samples inside a span and one beyond each of its edges. Unmeasured if they do not enclose the span."""
    at = track.at_ns
    if not at or at[0] > span.begin_ns or at[-1] < span.end_ns:
        raise Unmeasured(f"the samples of {of} do not enclose {where or f'the span `{span.name}`'}")
    return slice(bisect_right(at, span.begin_ns) - 1, bisect_left(at, span.end_ns) + 1)


@dataclass(frozen=True)
class Growth:
    """Growth of a cumulative quantity over a span, its largest error, and whether the quantity ever fell."""

    total: float
    error: float
    falls: bool


def growth(track: Track, inside: slice, span: Span, rounding: float) -> Growth:
    """Growth from the samples inside a span and one beyond each of its edges (`inside`), interpolated at both edges.

    If use is steady on either side of an edge, the straight line between the two samples around it is off by at most a quarter of
    their distance times the difference of the two rates. No rate exceeds the highest one seen. The rounding of the source is added.
    """
    at, counts, steps = track.at_ns[inside], track.counts[inside], slice(inside.start, inside.stop - 1)
    total = _between(span.end_ns, at[-2:], counts[-2:]) - _between(span.begin_ns, at[:2], counts[:2])
    seconds = track.seconds[steps]
    edges_s = seconds[0] + seconds[-1] if len(seconds) > 1 else sum(seconds)
    error = edges_s / 4 * max(track.rates[steps], default=0.0) + rounding
    return Growth(total, error, min(track.grown[steps], default=0.0) < -rounding)


def _between(t_ns: int, at: list[int], counts: list[float]) -> float:
    """Linear interpolation between two samples, or the value of the only one."""
    if at[0] == at[-1]:
        return counts[0]
    return counts[0] + (counts[-1] - counts[0]) * (t_ns - at[0]) / (at[-1] - at[0])


def of_trial(sample: MachineSample, like: MachineSample) -> MachineCpu:
    """The CPUs of the trial if they were sampled in both, else the whole machine."""
    return sample.cpu_s if like.trial_cpu_s is None or sample.trial_cpu_s is None else sample.trial_cpu_s


def wanted_s(cpu: MachineCpu) -> float:
    """Cumulative seconds that programs and the kernel used, or that the hypervisor refused them."""
    return cpu.user + cpu.system + cpu.irq + cpu.softirq + cpu.steal


def idle_s(sample: MachineSample) -> float:
    """Cumulative idle seconds of all CPUs, including time waiting for a disk."""
    return sample.cpu_s.idle + sample.cpu_s.iowait


def whole_s(sample: MachineSample) -> float:
    """Cumulative seconds of all CPUs. The kernel samples busy time at timer ticks, so they are the clock's if the number of CPUs is
    known."""
    if sample.cpus is not None and sample.trial_cpu_s is None:
        return sample.cpus * sample.t_ns / NS_PER_S
    return sum(vars(sample.cpu_s).values())


def cpu_s(sample: ProcessSample) -> float:
    """Cumulative CPU seconds, from the scheduler's account if there is one."""
    return sample.cpu_user_s + sample.cpu_system_s if sample.cpu_ns is None else sample.cpu_ns / NS_PER_S


def cpu_rounding_s(samples: list[ProcessSample]) -> float:
    """Largest error of a difference of two samples: user and system ticks of each process, none with the CPU clocks.

    If processes came or went, their CPU time has moved into their parents' ticks.
    """
    processes = [sample.processes for sample in samples]
    exact = all(sample.cpu_ns is not None for sample in samples) and len(set(processes)) == 1
    return 0.0 if exact else 2 * TICK_S * max(processes)
