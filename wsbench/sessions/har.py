"""The WebSocket messages of an HTTP Archive (HAR), as Chrome's DevTools and mitmproxy write them: `_webSocketMessages` of an entry.

In: the parsed archive. Out: its connections, and a connection's messages with the values of their JSON texts by path.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass

from wsbench.records.errors import UserError

MESSAGES = "_webSocketMessages"
TEXT, BINARY = 1, 2
#: Depth at which values of a JSON text are compared.
DEEPEST = 4

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Seen:
    """A message as it was recorded. `json` is its parsed text, or None."""

    sent: bool
    at_s: float
    text: str
    json: object

    def values(self) -> dict[Path, str]:
        """The leaves of its JSON text, as text, by path."""
        return dict(_leaves(self.json)) if self.json is not None else {}


def connections(archive: object) -> list[dict]:
    """The entries with WebSocket messages, in the order of the archive. UserError if there are none."""
    entries = archive.get("log", {}).get("entries") if isinstance(archive, dict) else None
    if not isinstance(entries, list):
        raise UserError("this is no HTTP Archive: it has no 'log.entries'")
    found = [entry for entry in entries if isinstance(entry, dict) and entry.get(MESSAGES)]
    if not found:
        raise UserError(f"no entry has {MESSAGES!r}: record with Chrome (DevTools, Network, Export HAR) or mitmproxy")
    return found


def chosen(archive: object, part: str | None) -> dict:
    """The connection whose URL has this part; without one, the one with the most messages. UserError if no URL has it."""
    found = connections(archive)
    if part is not None:
        found = [entry for entry in found if part in url_of(entry)]
        if not found:
            urls = ", ".join(dict.fromkeys(map(url_of, connections(archive))))
            raise UserError(f"no WebSocket of this archive has {part!r} in its URL; found: {urls}")
    return max(found, key=lambda entry: len(entry[MESSAGES]))


def url_of(entry: dict) -> str:
    return str(entry.get("request", {}).get("url", ""))


def messages_of(entry: dict) -> list[Seen]:
    found = []
    for one in entry[MESSAGES]:
        text = str(one.get("data", ""))
        if one.get("opcode", TEXT) == BINARY:
            try:
                text = base64.b64decode(text, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError) as error:
                raise UserError(
                    "the archive has binary messages: write the session yourself (docs/reference/sessions.md)"
                ) from error
        found.append(Seen(one.get("type") == "send", float(one.get("time", 0)), text, parsed(text)))
    return found


def parsed(text: str) -> object:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _leaves(value: object, path: Path = ()) -> Iterator[tuple[Path, str]]:
    if len(path) > DEEPEST:
        return
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inside is None:
        yield path, value if isinstance(value, str) else json.dumps(value)
        return
    for key, one in inside:
        yield from _leaves(one, (*path, key))


def path_text(path: Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")
