"""The engine with hostile servers: whether it ends in time, its memory, the error kinds it reports, and
the effect of one hostile connection on a thousand honest ones.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from contenders import Engine, NoNumber, Setting, events_of
from trial import GRACE_S, HOST, Bench, await_port

from wsbench.engine.histogram import merge, read_log
from wsbench.host import machine
from wsbench.host.process import Server

SERVER = Path(__file__).with_name("hostile_server.py")
#: The deed of each, and the wrapping of connections that it requires.
DEEDS = {
    "pings": ("Pings without end, answers never read", ""),
    "final-blocks": ("final blocks of deflate without end", "deflate"),
    "deflate-bomb": ("a mebibyte that inflates to a gibibyte", "deflate"),
    "huge-length": ("a frame of 2⁶³ bytes", ""),
    "fragments": ("empty fragments without end", ""),
    "head-without-end": ("header lines without end", ""),
    "head-by-drops": ("a head, a byte each 0.1 s", ""),
    "long-close": ("a Close frame with too long a reason", ""),
    "reset": ("RST in the middle of a reply", ""),
    "answers-ahead": ("answers before their questions", ""),
    "tls-rubbish": ("TLS records that are none", "tls"),
    "silence": ("accepts, and says nothing", ""),
}
LIMITS = {"connect_s": 1.0, "reply_s": 1.0, "deadline_s": 3.0}
HONEST = 999
#: The load that one core sustains through a wrapped server in Python.
RATE_PER_S = {"": 5000, "tls": 500, "deflate": 500}
COLUMNS = (
    "the server",
    "alone: ended after, s",
    "outcome, errors",
    "peak MB",
    f"1 among {HONEST + 1:,}: honest answered",
    "peak MB",
    "their p99, µs",
    "× without it",
)


def table(bench: Bench, engine: Engine, seconds: float, repeats: int) -> list[str]:
    lines = [
        f"Limits: connect and reply 1 s, deadline {LIMITS['deadline_s']:g} s. The 1,000 are loaded with 5,000 messages/s for "
        f"{seconds:g} s (500 where wrapped), {repeats} times, each beside a run in which all are honest; median (range).\n",
        f"| {' | '.join(COLUMNS)} |",
        "|---|" + "--:|" * (len(COLUMNS) - 1),
    ]
    for deed, (words, wrapping) in DEEDS.items():
        print(f"hostile: {deed}", file=sys.stderr)
        cells = alone(bench, engine, deed, wrapping), among(bench, engine, deed, wrapping, seconds, repeats)
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return lines


def alone(bench: Bench, engine: Engine, deed: str, wrapping: str) -> str:
    """Two connections to it, in a run that would take a minute."""
    run = bench.run(Setting("echo", 2, 16, wrapping=wrapping), seconds=60.0)
    with hostile(bench, deed, run.port, run.folder):
        took_s, memory_mb, end = carried_out(engine, engine.plan(run) | {"limits": LIMITS}, run.folder)
    # A process that ends at once has exited before its memory can be read.
    return f"{took_s:.1f} | {end['outcome']}: {named(end)} | {f'{memory_mb:.0f}' if memory_mb >= 1 else '–'}"


def among(bench: Bench, engine: Engine, deed: str, wrapping: str, seconds: float, repeats: int) -> str:
    """A thousand connections, one of them to it; and the same with only honest servers."""
    shares, memories, times_us, ratios = [], [], [], []
    for _ in range(repeats):
        try:
            without_ns, all_of_them, _ = neighbours(bench, engine, None, wrapping, seconds)
            p99_ns, answered, memory_mb = neighbours(bench, engine, deed, wrapping, seconds)
        except NoNumber as reason:
            return f"{reason} | | | "
        times_us.append(p99_ns / 1000)
        ratios.append(p99_ns / without_ns)
        shares.append(answered / (all_of_them * HONEST / (HONEST + 1)))
        memories.append(memory_mb)
    ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
    return f"{min(shares):.1%} | {max(memories):.0f} | {statistics.median(times_us):,.0f} | {ratio}"


def neighbours(bench: Bench, engine: Engine, deed: str | None, wrapping: str, seconds: float) -> tuple[float, float, float]:
    """The p99 of response times in ns, the number of answered messages, and the engine's peak memory in MB."""
    run = bench.run(Setting("echo", HONEST + 1, 16, wrapping=wrapping), seconds)
    step = {"from_per_s": RATE_PER_S[wrapping], "to_per_s": RATE_PER_S[wrapping], "for_s": seconds}
    plan = engine.plan(run) | {"loop": {"kind": "open", "arrivals": "poisson", "depth": None, "rate": [step]}}
    honest = plan["target"]["address"]
    with bench.server(run), contextlib.ExitStack() as stack:
        if deed is not None:
            port = machine.free_port(HOST, None, run.port + 1)
            stack.enter_context(hostile(bench, deed, port, run.folder))
            # Connections use the addresses in rotation, so only the first one goes to this address.
            plan["target"] |= {"address": f"{HOST}:{port}", "replicas": [honest] * HONEST}
        _, memory_mb, end = carried_out(engine, plan, run.folder)
    times = merge(read_log(run.folder / "latency.hlog")).get("response")
    if times is None or not times.count:
        raise NoNumber(f"{end['outcome']}: {named(end)}")
    return times.quantile("0.99"), end["measured"]["answered"], memory_mb


@contextlib.contextmanager
def hostile(bench: Bench, deed: str, port: int, folder: Path) -> Iterator[None]:
    env = {"HOST": HOST, "PORT": str(port)}
    command = [sys.executable, str(SERVER), deed]
    with Server(command, folder, env, bench.placement.server[:1], folder / "hostile.log"):
        await_port(port)
        yield


def carried_out(engine: Engine, plan: dict, folder: Path) -> tuple[float, float, dict]:
    """The engine's duration, its peak memory in MB, and its `end`."""
    command = engine.carry_out(plan, folder)
    began = time.monotonic()
    peak_kb = 0
    with (folder / "engine.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            while process.poll() is None:
                if time.monotonic() > began + plan["limits"]["deadline_s"] + GRACE_S:
                    raise NoNumber("it did not end")
                # Not from rusage, which starts with the memory of the forking process.
                with contextlib.suppress(OSError, IndexError):
                    status = Path(f"/proc/{process.pid}/status").read_text()
                    peak_kb = max(peak_kb, int(status.split("VmHWM:")[1].split()[0]))
                time.sleep(0.01)
        finally:
            process.kill()
            process.wait()
    took_s = time.monotonic() - began
    end = events_of(folder)[-1]
    if end["event"] != "end":
        raise NoNumber(f"no `end`: {(folder / 'engine.log').read_text()[-200:]}")
    return took_s, peak_kb / 1024, end


def named(end: dict) -> str:
    return ", ".join(f"`{kind}` {count:,}" for kind, count in end["errors"].items()) or "no error"
