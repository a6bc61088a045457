"""A short echo, carried out by the engine: by TLS or with permessage-deflate, as the gate of what a server offers beyond plain
WebSocket, or with the messages of a load. The server must have been started with what is asked for.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection

from wsbench.checks import conversation
from wsbench.checks.use import Use
from wsbench.engine import program
from wsbench.records.engine_files import Echo, End, Error, Messages, Target
from wsbench.records.rundir import CheckResult, TrialFolder
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Offer

#: Long enough that no library leaves a message uncompressed.
MESSAGE_BYTES = 2048
MESSAGES, CONNECTIONS = 60, 6
#: Large messages are fewer, so that they have this many bytes together.
MOST_BYTES = 4 << 20
SECTIONS: dict[Offer, str] = {"tls": "contract: TLS_CERT, TLS_KEY", "deflate": "RFC 7692"}


def check(variant: Variant, offer: Offer, address: str, cpus: list[int]) -> CheckResult:
    size = min(MESSAGE_BYTES, variant.limits.message_bytes or MESSAGE_BYTES)
    return result(offer, _echoed(variant, address, address, Echo(opcode="text", bytes=size), cpus, [offer]))


def exchange(variant: Variant, address: str, host: str, use: Use, cpus: list[int]) -> CheckResult:
    """A few messages as the load has them, and no others. `host`: the Host header."""
    echoes = [Echo(opcode=opcode, bytes=size) for opcode in use.opcodes for size in dict.fromkeys([min(use.sizes), max(use.sizes)])]
    found = (_echoed(variant, address, host, one, cpus, use.asks) for one in echoes)
    wrong = next((one for one in found if one is not None), None)
    return CheckResult(name="echo_exchange", section="the load", required=True, passed=wrong is None, detail=wrong or "")


def _echoed(variant: Variant, address: str, host: str, echo: Echo, cpus: list[int], asks: Collection[Offer]) -> str | None:
    messages = max(1, min(MESSAGES, MOST_BYTES // max(1, echo.bytes)))
    plan = program.plan(
        scenario=echo,
        transport=variant.transport,
        target=Target(address=address, replicas=[], host=host, path=variant.paths["echo"]),
        connections=min(CONNECTIONS, messages),
        warmup=None,
        measure=Messages(messages=messages),
        seed=secrets.randbits(32),
        cpus=cpus,
        asks=asks,
    )
    return conversation.problem(plan, _wrong)


def result(offer: Offer, wrong: str | None) -> CheckResult:
    return CheckResult(name=f"echo_with_{offer}", section=SECTIONS[offer], required=True, passed=wrong is None, detail=wrong or "")


def _wrong(folder: TrialFolder) -> str | None:
    """The first thing that went wrong; None if all messages came back, and smaller than they are if they were to be compressed."""
    events = folder.events()
    for event in events:
        if isinstance(event, Error):
            return f"{event.kind}: {event.example}"
    measured = next(event for event in events if isinstance(event, End)).measured
    if not measured.answered == measured.sent > 0:
        return f"{measured.answered} of {measured.sent} messages came back"
    whole = measured.answered * folder.plan.scenario.bytes
    if folder.plan.deflate is not None and measured.bytes_received >= whole:
        return f"{measured.bytes_received:,} bytes came for {whole:,}: the messages were not compressed"
    return None
