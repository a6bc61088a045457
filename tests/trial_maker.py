"""Writes synthetic trials that keep the contract: through the types of rundir, with histograms of the hdrhistogram library.

Every quantity a verdict looks at can be set; left alone they agree with each other (Little's law included).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist

from hdrh.histogram import HdrHistogram

from wsbench.records import engine_files, frozen, rundir, session_table
from wsbench.records import samples as samples_room

HOUR_NS = 3_600_000_000_000
SECOND = 1_000_000_000
START_NS = 1_000 * SECOND
UNIX_NS = 1_795_000_000 * SECOND
WARMUP_S, DRAIN_S = 1.0, 0.1
HOSTILE = "<script>document.title='owned'</script>"


@dataclass(frozen=True)
class Trial:
    """One trial. `rate` is per second; `recorded` is how many latencies the log has (None: the answered)."""

    rate: float = 20_000.0
    connections: int = 64
    window_s: float = 4.0
    scenario: engine_files.Scenario = field(default_factory=lambda: engine_files.Echo(opcode="text", bytes=128))
    by_count: bool = False
    outcome: str = "ok"
    reason: str | None = None
    log_tail: tuple[str, ...] = ()
    engine_outcome: str = "completed"
    established: int | None = None
    failed: int = 0
    unanswered: int = 0
    reply_s: float = DRAIN_S  # until when a reply is not overdue
    lost: int = 0  # messages that the ledger forgets
    recorded: int | None = None
    little: float = 1.0  # messages under way / connections
    sigma: float = 0.35  # width of the latencies, on the log scale
    longest_ns: int | None = None
    engine_busy: float = 0.6
    engine_wait: float | None = 0.002  # share of the window; None: a kernel without schedstat
    wake_ups: int = 40_000
    window_began: bool = True
    server_busy: float = 0.95  # of its CPUs
    server_cpus: tuple[int, ...] = (0,)
    rss_mib: float = 80.0
    steal: float = 0.0  # of the CPU time that was wanted
    bursts: tuple[tuple[float, float], ...] = ()  # at a second of the window, so much steal; replies then take 50 times as long
    tick_s: float = 1.0
    others: float = 0.0  # CPUs used by programs outside the trial
    rival: float = 0.0  # CPUs used by another trial, sampled
    beat: float = 0.0  # CPUs that the timer's ticks find busy beyond those that are
    apart: bool = False  # the CPUs of the trial were sampled on their own, on a machine with as many again, idle
    throttled_s: float | None = None
    sample_s: float = 0.25
    cpu_clock: bool = True  # False: the server's CPU in ticks only
    samples_end_early: bool = False
    loop: engine_files.Loop = field(default_factory=engine_files.Closed)
    unsent: int = 0  # due in the window and never sent
    late: int = 0  # due in the window and sent after it
    lag_us: float | None = None  # mean send lag; None: none is recorded, as in a closed loop
    read_us: float | None = None  # mean receive delay
    under_way: float = 0.0  # at every tick, of an open loop
    unasked: int = 0
    out_of_order: int = 0
    held_up_ns: int = 0
    foreign: int = 0
    died: int = 0  # connections
    busy_poll: bool = False
    broadcasts: tuple[tuple[int, int, int, int], ...] = ()  # expected, received, µs to the first and to the last
    connect_s: float = 0.2
    copies: tuple[int, ...] | None = None  # in rooms: expected, received, out of order, misplaced; messages whose last is unknown


def write_trial(folder: Path, trial: Trial, order: rundir.TrialOrder | None = None) -> rundir.TrialFolder:
    """One trial's folder."""
    order = order or rundir.TrialOrder(number=1, round=1, server="netty", variant="4.2", cell={})
    folder.mkdir(parents=True)
    frozen.write_json(folder / "plan.json", _plan(trial))
    if trial.outcome == "ok":
        events, answered = _events(trial)
        _write_lines(folder / "events.jsonl", events)
        _write_lines(folder / "resources.jsonl", _samples(trial))
        _write_latencies(folder / "latency.hlog", trial, answered)
    (folder / "server.log").write_text("\n".join(trial.log_tail), encoding="utf-8")
    record = rundir.TrialRecord(
        **order.model_dump(),
        outcome=trial.outcome,
        reason=trial.reason,
        started_unix_s=UNIX_NS / SECOND,
        duration_s=trial.window_s + 2,
        ready_s=0.25,
        server_cpus=list(trial.server_cpus),
        engine_cpus=[1],
        server_exit="SIGTERM",
        log_tail=list(trial.log_tail),
    )
    frozen.write_json(folder / "trial.json", record)
    return rundir.TrialFolder(folder)


def at_rate(per_s: float = 20_000.0, **quantities) -> Trial:
    """An open loop in which nothing is wrong: the rate was met, the server has time to spare."""
    rate = [engine_files.Segment(from_per_s=per_s, to_per_s=per_s, for_s=1)]
    loop = engine_files.Open(rate=rate, arrivals=quantities.pop("arrivals", "constant"), depth=quantities.pop("depth", None))
    usual = {"rate": per_s, "loop": loop, "lag_us": 20.0, "under_way": 64.0, "server_busy": 0.5}
    return Trial(**{**usual, **quantities})


def pushing(**quantities) -> Trial:
    """Broadcasts, ten a second, in which nothing is wrong."""
    rate = [engine_files.Segment(from_per_s=10, to_per_s=10, for_s=1)]
    usual = {"scenario": engine_files.Push(), "loop": engine_files.Open(rate=rate), "server_busy": 0.5}
    usual |= {"rate": 640.0, "broadcasts": ((64, 64, 100, 300),) * 40, "little": 0.01}
    return Trial(**{**usual, **quantities})


def failed(reason: str = "the server ended before it was ready") -> Trial:
    return Trial(outcome="failed", reason=reason, log_tail=("listening on 127.0.0.1", f"Error: {HOSTILE}"))


def spoiled(trial: Trial) -> Trial:
    """A trial whose throughput, latencies and CPU use are INVALID: a CPU quota throttled the machine."""
    return replace(trial, throttled_s=0.1)


def _plan(trial: Trial) -> engine_files.Plan:
    messages = max(1, round(trial.rate * trial.window_s))
    doc = trial.scenario.kind == "doc"
    return engine_files.Plan(
        scenario=trial.scenario,
        transport="http" if doc else "websocket",
        target=engine_files.Target(address="127.0.0.1:21000", host="127.0.0.1:21000", path="/doc" if doc else "/echo"),
        loop=trial.loop,
        connections=trial.connections,
        connect=engine_files.Connect(),
        stages=None,
        mask="random",
        tls=None,
        deflate=None,
        fragment_bytes=None,
        subprotocols=[],
        warmup=engine_files.Seconds(seconds=WARMUP_S),
        measure=engine_files.Messages(messages=messages) if trial.by_count else engine_files.Seconds(seconds=trial.window_s),
        drain_s=DRAIN_S,
        tick_s=trial.tick_s,
        limits=engine_files.Limits(connect_s=10, reply_s=trial.reply_s, deadline_s=60),
        threads=1,
        cpus=[1],
        busy_poll=trial.busy_poll,
        receive_stamps=None,
        source_addresses=["127.0.0.1"],
        headers=[],
        seed=1,
        shard=(0, 1),
    )


def _times(trial: Trial) -> dict[str, int]:
    warmup = START_NS + round(trial.connect_s * SECOND)
    measure = warmup + round(WARMUP_S * SECOND)
    drain = measure + round(trial.window_s * SECOND)
    end = drain + round(DRAIN_S * SECOND)
    return {"connect": START_NS, "warmup": warmup, "measure": measure, "drain": drain, "end": end}


def _events(trial: Trial) -> tuple[list, int]:
    at = _times(trial)
    phases = ["connect", "warmup", "measure", "drain"]
    answered = round(trial.rate * trial.window_s) if trial.window_began else 0
    events = [engine_files.Anchor(event="anchor", t_ns=START_NS, unix_ns=UNIX_NS, engine="0.1.0", pid=4242)]
    for phase, following in zip(phases, [*phases[1:], "end"], strict=True):
        # Where every request has its own connection, nothing is connected beforehand.
        if phase != "connect" or not _per_request(trial):
            events.append(engine_files.PhaseBegin(event="phase", t_ns=at[phase], phase=phase))
        events.extend(_tick(trial, at, phase, t_ns) for t_ns in _stops(trial, at[phase], at[following]))
    window_ns = at["drain"] - at["measure"]
    cpu_ns = round(trial.engine_busy * window_ns)
    worker = engine_files.Worker(
        cpu_ns=cpu_ns,
        wait_ns=None if trial.engine_wait is None else round(trial.engine_wait * window_ns),
        wall_ns=window_ns,
        held_up_ns=trial.held_up_ns,
        voluntary_switches=trial.wake_ups,
        involuntary_switches=0,
    )
    established = trial.connections if trial.established is None else trial.established
    measured = engine_files.Measured(
        sent=answered + trial.failed + trial.unanswered + trial.lost,
        answered=answered,
        failed=trial.failed,
        unanswered=trial.unanswered,
        unsent=trial.unsent,
        window_ns=window_ns,
        replies_in_window=answered,
        bytes_sent=answered * 136,
        bytes_received=answered * 130,
    )
    events.extend(_broadcasts(trial, at["measure"]))
    end = engine_files.End(
        event="end",
        t_ns=at["end"],
        outcome=trial.engine_outcome,
        connections=engine_files.ConnectionCounts(asked=trial.connections, established=established, open=established - trial.died),
        measured=measured,
        control=engine_files.Control(
            pings_answered=0,
            fragmented_replies=0,
            reconnects=0,
            out_of_order=trial.out_of_order,
            foreign=trial.foreign,
        ),
        errors={kind: count for kind, count in (("timeout", trial.failed), ("unexpected_reply", trial.unasked)) if count},
        threads=[worker],
        session=None if trial.copies is None else _session(*trial.copies),
    )
    return [*events, end] if trial.window_began else [*_before_the_window(events), _without_window(end)], answered


def _per_request(trial: Trial) -> bool:
    return trial.scenario.kind == "doc" and not trial.scenario.persistent


def _stops(trial: Trial, begin_ns: int, end_ns: int) -> list[int]:
    """The times of the ticks of a phase."""
    step = round(trial.tick_s * SECOND)
    first = begin_ns + step - (begin_ns - START_NS) % step
    return [*range(first, end_ns, step), end_ns]


def _session(
    expected: int, received: int, out_of_order: int, misplaced: int = 0, last_unknown: int = 0
) -> session_table.SessionCounts:
    return session_table.SessionCounts(
        keepalives=0,
        pushes_in_window=received,
        copies_expected=expected,
        copies_received=received,
        copies_out_of_order=out_of_order,
        copies_misplaced=misplaced,
        last_unknown=last_unknown,
    )


def _broadcasts(trial: Trial, began_ns: int) -> list:
    made = []
    for number, (expected, received, first_us, last_us) in enumerate(trial.broadcasts):
        t_ns = began_ns + number * SECOND // 10
        came = {"first_ns": t_ns + first_us * 1000, "last_ns": t_ns + last_us * 1000}
        if not received:
            came = {"first_ns": None, "last_ns": None}
        counts = {"number": number, "expected": expected, "received": received}
        made.append(engine_files.Broadcast(event="broadcast", t_ns=t_ns, **counts, **came))
    return made


def _before_the_window(events: list) -> list:
    return [event for event in events if getattr(event, "phase", "connect") == "connect"]


def _without_window(end: engine_files.End) -> engine_files.End:
    """What the engine writes when it has to end before it begins to measure."""
    worker = end.threads[0].model_copy(update={"cpu_ns": 0, "wait_ns": 0, "wall_ns": 0})
    measured = end.measured.model_copy(update={"window_ns": None, "bytes_sent": 0, "bytes_received": 0})
    return end.model_copy(update={"measured": measured, "threads": [worker]})


def _tick(trial: Trial, at: dict[str, int], phase: str, t_ns: int) -> engine_files.Tick:
    done = round(trial.rate * max(0, min(t_ns, at["drain"]) - at["warmup"]) / SECOND)
    sent = done - (trial.late if t_ns >= at["drain"] else 0)
    under_way = round(trial.under_way) if at["warmup"] < t_ns <= at["drain"] else 0
    running_ns = t_ns - START_NS
    return engine_files.Tick(
        event="tick",
        t_ns=t_ns,
        phase=phase,
        open=trial.connections,
        sent=sent,
        answered=max(0, sent - under_way),
        failed=0,
        bytes_sent=done * 136,
        bytes_received=done * 130,
        cpu_ns=round(trial.engine_busy * running_ns),
        wait_ns=None if trial.engine_wait is None else round(trial.engine_wait * running_ns),
    )


def _samples(trial: Trial) -> list:
    at = _times(trial)
    last = at["drain"] - SECOND // 10 if trial.samples_end_early else at["end"]
    step = round(trial.sample_s * SECOND)
    samples = []
    for t_ns in [*range(START_NS, last, step), last]:
        elapsed = (t_ns - START_NS) / SECOND
        used = elapsed * trial.server_busy * len(trial.server_cpus)
        server = {"of": "server", "processes": 1, "threads": 9, "fds": trial.connections + 12}
        engine = {"of": "engine", "processes": 1, "threads": 2, "fds": None}
        rss = round((trial.rss_mib + elapsed) * 2**20)
        cpu = {"cpu_user_s": _in_ticks(used * 0.7), "cpu_system_s": _in_ticks(used * 0.3)}
        cpu["cpu_ns"] = round(used * SECOND) if trial.cpu_clock else None
        samples.append(samples_room.ProcessSample(t_ns=t_ns, rss_bytes=rss, **server, **cpu))
        samples.append(
            samples_room.ProcessSample(
                t_ns=t_ns, rss_bytes=9 << 20, cpu_user_s=0, cpu_system_s=_in_ticks(elapsed * trial.engine_busy), **engine
            )
        )
        if trial.rival:
            rival = {"of": "rival", "processes": 1, "threads": 1, "fds": None, "cpu_user_s": 0, "cpu_system_s": 0}
            samples.append(
                samples_room.ProcessSample(t_ns=t_ns, rss_bytes=9 << 20, cpu_ns=round(trial.rival * elapsed * SECOND), **rival)
            )
        samples.append(_machine(trial, t_ns, elapsed))
    return samples


def _in_ticks(seconds: float) -> float:
    return math.floor(seconds * 100) / 100


def _machine(trial: Trial, t_ns: int, elapsed: float) -> samples_room.MachineSample:
    cpus = max(2, len(trial.server_cpus) + 1)
    busy = elapsed * (trial.server_busy * len(trial.server_cpus) + trial.engine_busy + trial.others + trial.rival)
    stolen = busy * trial.steal / (1 - trial.steal)
    began_s = (_times(trial)["measure"] - START_NS) / SECOND
    stolen += sum(seconds for at_s, seconds in trial.bursts if elapsed > began_s + at_s + seconds - 1e-6)
    cpu = {
        "user": busy * 0.6,
        "system": busy * 0.4 + trial.beat * elapsed,
        "idle": max(0.0, cpus * elapsed - busy - stolen),
        "steal": stolen,
    }
    throttled = None if trial.throttled_s is None else trial.throttled_s * elapsed
    spent = samples_room.MachineCpu(iowait=0, irq=0, softirq=0, **cpu)
    sample = {"t_ns": t_ns, "of": "machine", "throttled_s": throttled, "cpus": cpus}
    if not trial.apart:
        return samples_room.MachineSample(cpu_s=spent, **sample)
    whole = spent.model_copy(update={"idle": spent.idle + cpus * elapsed})
    return samples_room.MachineSample(cpu_s=whole, trial_cpu_s=spent, **sample)


def _write_latencies(file: Path, trial: Trial, answered: int) -> None:
    """Log-normal latencies whose mean keeps Little's law, spread evenly over the intervals."""
    mean_ns = trial.little * trial.connections / trial.rate * SECOND
    recorded = answered if trial.recorded is None else trial.recorded
    shape = _lognormal(mean_ns, trial.sigma)
    at = _times(trial)
    whole = max(1, math.ceil(trial.window_s))
    spans = [(place, 1.0) for place in range(whole)]
    if trial.tick_s < 1:
        edges = [at["measure"], *_stops(trial, at["measure"], at["drain"])]
        spans = [((begin - START_NS) / SECOND, (end - begin) / SECOND) for begin, end in pairwise(edges)]
        whole = len(spans)
    per_request = _per_request(trial)
    lines = ["#[Histogram log format version 1.3]", f"#[StartTime: {UNIX_NS / SECOND:.3f} (seconds since epoch)]"]
    for place, (begin_s, long_s) in enumerate(spans):
        part = recorded * (place + 1) // whole - recorded * place // whole
        slow = any(_delays(trial, burst, begin_s, long_s) for burst in trial.bursts)
        service = _histogram(tuple(50 * one for one in shape) if slow else shape, part, trial.longest_ns if place == 0 else None)
        tag = "push" if trial.scenario.kind == "push" else "service"
        lines.append(f"Tag={tag},{begin_s:.3f},{long_s:.3f},0.000,{service}")
        if trial.lag_us is not None:
            lag = _histogram(_lognormal(trial.lag_us * 1000, 0.2), part, None)
            lines.append(f"Tag=response,{begin_s:.3f},{long_s:.3f},0.000,{service}")
            lines.append(f"Tag=send_lag,{begin_s:.3f},{long_s:.3f},0.000,{lag}")
        if trial.read_us is not None:
            read = _histogram(_lognormal(trial.read_us * 1000, 0.2), part, None)
            lines.append(f"Tag=receive_delay,{begin_s:.3f},{long_s:.3f},0.000,{read}")
        if per_request:
            lines.append(f"Tag=request,{begin_s:.3f},{long_s:.3f},0.000,{service}")
    lines.append(f"Tag=connect,0.000,1.000,0.000,{_histogram(_lognormal(200_000, 0.2), trial.connections, None)}")
    lines.append(f"Tag=warmup-service,0.000,1.000,0.000,{_histogram((HOUR_NS,), 1, None)}")
    file.write_text("\n".join(lines) + "\n", encoding="ascii")


def _delays(trial: Trial, burst: tuple[float, float], begin_s: float, long_s: float) -> bool:
    """Whether replies of this interval waited for stolen time: until the server, four fifths busy, has caught up."""
    at_s = (_times(trial)["measure"] - START_NS) / SECOND + burst[0]
    return begin_s < at_s + 5 * burst[1] and at_s < begin_s + long_s


PLACES = 200


@cache
def _spread(sigma: float) -> list[float]:
    """Log-normal values whose mean is 1."""
    shape = [math.exp(sigma * NormalDist().inv_cdf((place + 0.5) / PLACES)) for place in range(PLACES)]
    return [value * PLACES / sum(shape) for value in shape]


def _lognormal(mean_ns: float, sigma: float) -> tuple[int, ...]:
    return tuple(max(1, round(value * mean_ns)) for value in _spread(sigma))


@lru_cache(1000)
def _histogram(shape: tuple[int, ...], count: int, longest_ns: int | None) -> str:
    encoder = HdrHistogram(1, HOUR_NS, 3)
    if longest_ns is not None and count:
        encoder.record_value(longest_ns)
        count -= 1
    for place, value in enumerate(shape):
        part = count * (place + 1) // len(shape) - count * place // len(shape)
        if part:
            encoder.record_value(value, part)
    return encoder.encode().decode()


def _write_lines(file: Path, values: list) -> None:
    file.write_text("".join(json.dumps(value.model_dump()) + "\n" for value in values), encoding="utf-8")
