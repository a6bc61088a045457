"""The engine program: the path of its binary, the plan for a load, and the meaning of its exit code.

This module builds plans (contract: protocol/README.md) and reads no results.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path

from wsbench import __version__
from wsbench.host import installation
from wsbench.records import sums
from wsbench.records.engine_files import (
    Closed,
    Connect,
    Deflate,
    Limits,
    Loop,
    Messages,
    Open,
    Plan,
    Scenario,
    Seconds,
    Stage,
    Target,
    Tls,
)
from wsbench.records.errors import TrialFailed, UserError

#: In an open loop: what a server has not answered by then, it was too slow for.
DRAIN_S = 2.0
#: The engine detects a reply that is overdue within this many times the time limit.
DETECTED = 1.25
#: In an open loop, the kernel timestamps what arrives on one connection in this many: how late the engine reads.
STAMPED = 8
CONNECT_S = 10.0
REPLY_S = 10.0
#: Time limit of a trial that ends by a message count.
LONGEST_COUNTED_S = 600.0
CONNECTS_PER_S = 500  # assumed for a slow server
#: Of a server that wsbench has started: its certificate is not verified, which would be the client's work, not the server's.
SEALED = Tls(verify=False)
#: Each message is compressed by itself, which all libraries can, at the client's cheapest level: the server is measured.
DEFLATED = Deflate(client_context_takeover=False, server_context_takeover=False, level=1)


class EngineFailed(TrialFailed):
    """An engine process did not carry out its plan. `code` is its exit code, None if it did not end."""

    def __init__(self, text: str, code: int | None):
        super().__init__(text)
        self.code = code


def binary() -> Path:
    """WSBENCH_ENGINE if set; else the wheel's binary or, in a checkout, the one that `make setup` installs next to Python."""
    beside = Path(sys.executable).parent if installation.IS_CHECKOUT else installation.SHIPPED
    return Path(os.environ.get("WSBENCH_ENGINE") or beside / "wsbench-engine")


def require_binary() -> Path:
    path = binary()
    if not path.exists():
        raise UserError(f"the engine is not built: {path} is missing; run `make setup`")
    return path


def identity(binary: Path) -> str:
    """The version of wsbench and the digest of the engine's binary."""
    return f"{__version__}, sha256 {sums.of_file(binary.resolve())[:16]}"


def plan(
    scenario: Scenario,
    transport: str,
    target: Target,
    connections: int,
    warmup: Seconds | Messages | None,
    measure: Seconds | Messages,
    seed: int,
    cpus: list[int],
    loop: Loop = Closed(),  # noqa: B008 (frozen)
    connect: Connect = Connect(),  # noqa: B008 (frozen)
    stages: list[Stage] | None = None,
    busy_poll: bool = False,
    reply_s: float = REPLY_S,
    connect_s: float = CONNECT_S,
    subprotocols: Sequence[str] = (),
    tick_s: float = 1.0,
    asks: Collection[str] = (),
) -> Plan:
    """A plan for one local engine process, with a worker per CPU but no more workers than connections. `asks`: what the server has
    switched on, `tls` or `deflate`."""
    longest = measure.seconds if isinstance(measure, Seconds) else LONGEST_COUNTED_S
    before = warmup.seconds if isinstance(warmup, Seconds) else 0.0
    draining_s = drain_s(loop, reply_s)
    return Plan(
        scenario=scenario,
        transport=transport,
        target=target,
        loop=loop,
        connections=connections,
        connect=connect,
        stages=stages,
        mask="random",
        tls=SEALED if "tls" in asks else None,
        deflate=DEFLATED if "deflate" in asks else None,
        fragment_bytes=None,
        subprotocols=list(subprotocols),
        warmup=warmup,
        measure=measure,
        drain_s=draining_s,
        tick_s=tick_s,
        limits=Limits(
            connect_s=connect_s,
            reply_s=reply_s,
            deadline_s=before + longest + draining_s + connect_s + connecting_s(connections, connect.per_s) + 15,
        ),
        threads=max(1, min(len(cpus), connections)),
        cpus=cpus,
        busy_poll=busy_poll,
        receive_stamps=STAMPED if isinstance(loop, Open) else None,
        source_addresses=["::" if target.address.startswith("[") else "0.0.0.0"],
        headers=[],
        seed=seed,
        shard=(0, 1),
    )


def drain_s(loop: Loop, reply_s: float) -> float:
    """Seconds that the engine waits, at most, for replies after the measured window. In a closed loop, until each is complete or
    has timed out: the user may not leave earlier, and the limit alone says which replies are lost."""
    return DETECTED * reply_s if isinstance(loop, Closed) else DRAIN_S


def connecting_s(connections: int, per_s: float | None) -> float:
    """Seconds allowed for opening the connections."""
    return connections / min(CONNECTS_PER_S, per_s or CONNECTS_PER_S)


def _advised(panic: str) -> str:
    """What a panic says, with what to do if the system refused a thread."""
    refused = "Resource temporarily unavailable" in panic
    return f"{panic}; raise the limit of processes: `ulimit -u`, or pids.max of the control group" if refused else panic


def check_exit(code: int | None, log: Path) -> None:
    """TrialFailed, with the engine's own message, unless the plan was carried out."""
    if code == 0:
        return
    if code is None:
        raise TrialFailed("the engine did not end by its deadline")
    lines = log.read_text(errors="replace").splitlines()
    words = f"exit code {code}" if code > 0 else f"it was killed by {signal.Signals(-code).name}"
    told = [line for line in lines if line.startswith("wsbench-engine:")]
    panics = [message for place, message in pairwise(lines) if " panicked at " in place]
    said = told[-1] if told else f"{words}: {_advised(panics[0])}" if panics else words
    raise TrialFailed({3: f"this host could not carry out the plan: {said}"}.get(code, f"the engine failed: {said}"))
