"""The roles that a server has in a protocol of its own: the session that loads it, where, and with which settings.

In: a variant and a role of its manifest. Out: what a plan needs. Nothing is started here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from wsbench.records.engine_files import Scenario
from wsbench.records.errors import UserError
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Running, address
from wsbench.sessions import compiling, session_file
from wsbench.sessions.session_file import SessionFile

#: In a setting of a manifest: as many bytes as a message of the experiment has, with a postmark in front.
CONTENT = "${content}"
#: Bytes of a postmark (protocol/README.md).
POSTMARK_BYTES = 52


@dataclass(frozen=True)
class Asked:
    """What a plan asks of a server, and where."""

    scenario: Scenario
    path: str
    subprotocols: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Talk:
    """What a load asks of a role: the bytes of a message's content, connections, and rooms (None: without)."""

    bytes: int
    connections: int
    room_size: int | None = None
    publishers: int | None = None


def asked(variant: Variant, role: str, talk: Talk) -> Asked:
    """The session of a role. UserError if the session, its settings or the load are invalid."""
    settings = settings_of(variant, role, _content(talk.bytes))
    choice = compiling.Choice(settings, room_size=talk.room_size, publishers=talk.publishers)
    made = compiling.compiled(file_of(variant, role), choice, talk.connections)
    return Asked(made, path_of(variant, role), _read(variant, role).subprotocols)


def settings_of(variant: Variant, role: str, content: str = "${postmark}") -> dict[str, str]:
    """The settings of the session, with this content of a message."""
    return {name: value.replace(CONTENT, content) for name, value in variant.roles[role].set.items()}


def file_of(variant: Variant, role: str) -> Path:
    """The session's file: one of wsbench's, or one in the server's folder."""
    name = variant.roles[role].session
    return variant.sources / name if name.endswith(".toml") else session_file.path_of(name)


def path_of(variant: Variant, role: str) -> str:
    """The request target of the handshake: of the role, of a running server's URL, or of the session."""
    of_url = address(variant.table.url).path if isinstance(variant.table, Running) else ""
    return variant.roles[role].path or of_url or _read(variant, role).path


def handshake(variant: Variant, role: str) -> list[tuple[str, str]]:
    """The headers that a handshake needs."""
    offered = _read(variant, role).subprotocols
    return [("Sec-WebSocket-Protocol", ", ".join(offered))] if offered else []


def _read(variant: Variant, role: str) -> SessionFile:
    return session_file.read(file_of(variant, role))


def _content(size: int) -> str:
    if size < POSTMARK_BYTES:
        raise UserError(f"a session's messages begin with a postmark: found {size} bytes, allowed: {POSTMARK_BYTES} and more")
    return f"${{postmark}}${{letters:{size - POSTMARK_BYTES}}}"
