"""The gate of a server that speaks a protocol of its own: a short session in each of its roles, carried out by the engine.

A server that does not answer every request, or does not bring every message to every member of its room, is not measured.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

from wsbench.engine import program, shards
from wsbench.records.engine_files import End, Error, Messages, Plan, Target
from wsbench.records.errors import TrialFailed
from wsbench.records.rundir import CheckResult, TrialFolder
from wsbench.servers import speaking
from wsbench.servers.catalogue import Variant

#: Bytes of a message's content, unless the load has others.
CONTENT_BYTES = 128
MESSAGES, CONNECTIONS, ROOM_SIZE = 60, 6, 3


def check(variant: Variant, role: str, address: str, host: str, content_bytes: int | None, cpus: list[int]) -> CheckResult:
    """Carries out the session of this role. `host`: the Host header; `content_bytes` None: the usual number."""
    rooms = ROOM_SIZE if role == "rooms" else None
    asked = speaking.asked(variant, role, speaking.Talk(content_bytes or CONTENT_BYTES, CONNECTIONS, rooms))
    plan = program.plan(
        scenario=asked.scenario,
        transport="websocket",
        target=Target(address=address, replicas=[], host=host, path=asked.path),
        subprotocols=asked.subprotocols,
        connections=CONNECTIONS,
        warmup=None,
        measure=Messages(messages=MESSAGES),
        seed=secrets.randbits(32),
        cpus=cpus,
    )
    wrong = problem(plan, _wrong)
    return CheckResult(
        name=f"{role}_session",
        section=f"session {variant.roles[role].session}",
        required=True,
        passed=wrong is None,
        detail=wrong or "",
    )


def problem(plan: Plan, wrong: Callable[[TrialFolder], str | None]) -> str | None:
    """Carries the plan out. What is wrong with it by this function of what the engine wrote; None if nothing is."""
    with tempfile.TemporaryDirectory(prefix="wsbench-check-") as place:
        folder = TrialFolder(Path(place))
        try:
            with shards.Engines(plan, 1, folder, shards.ThisHost(program.require_binary())) as running:
                running.carry_out(lambda: None)
            return wrong(folder)
        except TrialFailed as failure:
            return str(failure)


def _wrong(folder: TrialFolder) -> str | None:
    """The first thing that went wrong; None if all requests were answered and all copies arrived in order."""
    events = folder.events()
    for event in events:
        if isinstance(event, Error):
            return f"{event.kind}: {event.example}"
    end = next(event for event in events if isinstance(event, End))
    measured, counts = end.measured, end.session
    if measured.answered < measured.sent or not measured.sent:
        return f"{measured.answered} of {measured.sent} requests were answered ({end.outcome})"
    if counts.copies_received != counts.copies_expected:
        return f"{counts.copies_received} of {counts.copies_expected} copies arrived in rooms of {ROOM_SIZE}"
    if counts.copies_misplaced:
        return f"{counts.copies_misplaced} copies reached somebody they were not for: a member of another room, or their publisher"
    if counts.copies_out_of_order:
        return f"{counts.copies_out_of_order} copies arrived out of order"
    return None
