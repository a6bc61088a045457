"""The gate of what a server offers beyond plain WebSocket: a short echo by TLS or with permessage-deflate, carried out by the
engine. The server must have been started with it.
"""

from __future__ import annotations

import secrets

from wsbench.checks import conversation
from wsbench.engine import program
from wsbench.records.engine_files import Echo, End, Error, Messages, Target
from wsbench.records.rundir import CheckResult, TrialFolder
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Offer

#: Long enough that no library leaves a message uncompressed.
MESSAGE_BYTES = 2048
MESSAGES, CONNECTIONS = 60, 6
SECTIONS: dict[Offer, str] = {"tls": "contract: TLS_CERT, TLS_KEY", "deflate": "RFC 7692"}


def check(variant: Variant, offer: Offer, address: str, cpus: list[int]) -> CheckResult:
    plan = program.plan(
        scenario=Echo(opcode="text", bytes=min(MESSAGE_BYTES, variant.limits.message_bytes or MESSAGE_BYTES)),
        transport="websocket",
        target=Target(address=address, replicas=[], host=address, path=variant.paths["echo"]),
        connections=CONNECTIONS,
        warmup=None,
        measure=Messages(messages=MESSAGES),
        seed=secrets.randbits(32),
        cpus=cpus,
        asks=[offer],
    )
    return result(offer, conversation.problem(plan, _wrong))


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
