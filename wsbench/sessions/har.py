"""The WebSocket messages of an HTTP Archive (HAR), as Chrome's DevTools and mitmproxy write them: `_webSocketMessages` of an entry.

In: the parsed archive. Out: its connections, and a connection's messages with the values of their JSON texts by path.

Socket.IO polls by HTTP first, and continues on a WebSocket: `chosen` then puts what was polled in front, as if the connection had
begun as a WebSocket.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qs, urlencode, urlsplit

from wsbench.records.errors import UserError

MESSAGES = "_webSocketMessages"
TEXT, BINARY = 1, 2
#: Set in an entry whose connection began with polls.
UPGRADED = "_upgraded"
#: Engine.IO: its packets in the body of a poll, its packets of the upgrade, and its beginning if the archive lacks the polls.
POLLED_SEPARATOR = "\x1e"
UPGRADE_PACKETS = ("2probe", "3probe", "5", "6")
BEGINNING = [(False, "0{}"), (True, "40"), (False, "40{}")]
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

    def texts(self) -> dict[Path, str]:
        """The strings of its JSON text by path, also behind Socket.IO's digits and event; other text as a whole."""
        digits, body = re.fullmatch(r"(\d*)(.*)", self.text, re.S).groups()
        behind = parsed(body)
        if behind is None:
            return {} if digits or not self.text else {(): self.text}
        return {path: text for path, text in _leaves(behind, strings=True) if not digits or path != (0,)}


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
    return _upgraded(archive, max(found, key=lambda entry: len(entry[MESSAGES])))


def _upgraded(archive: dict, entry: dict) -> dict:
    """A connection of Engine.IO as it would be without polls in front; any other as it is."""
    url = urlsplit(url_of(entry))
    query = parse_qs(url.query)
    if not {"EIO", "sid"} <= query.keys():
        return entry
    session = query.pop("sid")[0]
    query.pop("t", None)
    polled = list(_polled(archive["log"]["entries"], session)) or BEGINNING
    messages = [one for one in entry[MESSAGES] if one.get("data") not in UPGRADE_PACKETS]
    begun = float(entry[MESSAGES][0].get("time", 0))
    front = [{"type": "send" if sent else "receive", "time": begun, "opcode": TEXT, "data": text} for sent, text in polled]
    request = {**entry["request"], "url": url._replace(query=urlencode(query, doseq=True)).geturl()}
    return {**entry, "request": request, MESSAGES: front + messages, UPGRADED: True}


def _polled(entries: list, session: str) -> Iterator[tuple[bool, str]]:
    """What was polled in this session of Engine.IO, in the order of the archive: whether it was sent, and the packet."""
    for entry in entries:
        if not isinstance(entry, dict) or "transport=polling" not in url_of(entry):
            continue
        request, response = entry["request"], entry.get("response") or {}
        sent = str((request.get("postData") or {}).get("text") or "")
        received = "" if request.get("method") == "POST" else str((response.get("content") or {}).get("text") or "")
        if f"sid={session}" in url_of(entry) or f'"sid":"{session}"' in received:
            for way, body in ((True, sent), (False, received)):
                yield from ((way, packet) for packet in body.split(POLLED_SEPARATOR) if packet and packet not in UPGRADE_PACKETS)


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


def _leaves(value: object, path: Path = (), strings: bool = False) -> Iterator[tuple[Path, str]]:
    if len(path) > DEEPEST:
        return
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inside is None:
        if isinstance(value, str) or not strings:
            yield path, value if isinstance(value, str) else json.dumps(value)
        return
    for key, one in inside:
        yield from _leaves(one, (*path, key), strings)


def path_text(path: Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")
