"""The WebSocket messages of an HTTP Archive (HAR), as Chrome's DevTools and mitmproxy write them: `_webSocketMessages` of an entry.

In: the parsed archive. Out: its connections, and a connection's messages with the values of their JSON texts by path. An archive
comes from anywhere: what is used of it has a type, and a part that differs is a UserError that names it.

Socket.IO polls by HTTP first, and continues on a WebSocket: `chosen` then puts what was polled in front, as if the connection had
begun as a WebSocket.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qs, urlencode, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from wsbench.records.errors import UserError
from wsbench.records.frozen import one_line

MESSAGES = "_webSocketMessages"
TEXT, BINARY = 1, 2
#: Engine.IO: its packets in the body of a poll, its packets of the upgrade, and its beginning if the archive lacks the polls.
POLLED_SEPARATOR = "\x1e"
UPGRADE_PACKETS = ("2probe", "3probe", "5", "6")
BEGINNING = [(False, "0{}"), (True, "40"), (False, "40{}")]
#: Depth at which values of a JSON text are compared.
DEEPEST = 4

#: Keys that a path of a session file can name.
WRITABLE = re.compile(r"[^.\[\]]+")

Path = tuple[str | int, ...]


class _Part(BaseModel):
    """A part of an archive. Keys that are not used here are ignored."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class Named(_Part):
    name: str = ""
    value: str = ""


class Body(_Part):
    text: str | None = None


class Request(_Part):
    url: str
    method: str = ""
    headers: list[Named] = []
    post: Annotated[Body | None, Field(alias="postData")] = None

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        urlsplit(url)
        return url


class Response(_Part):
    headers: list[Named] = []
    content: Body | None = None


class Message(_Part):
    type: str = ""
    time: float = 0.0
    opcode: int = TEXT
    data: str = ""


class Entry(_Part):
    """A connection, or a request that polls. `upgraded`: it began with polls."""

    request: Request
    response: Response | None = None
    messages: Annotated[list[Message], Field(alias=MESSAGES)] = []
    upgraded: bool = False

    @property
    def url(self) -> str:
        return self.request.url

    @property
    def subprotocols(self) -> list[str]:
        """Those that the server chose, or those that the browser offered."""
        headers = [*(self.response.headers if self.response else []), *self.request.headers]
        found = [one.value for one in headers if one.name.lower() == "sec-websocket-protocol"]
        return [part for part in map(str.strip, found[0].split(",")) if part] if found else []


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


def archive_of(text: str) -> object:
    """The parsed text of an archive. UserError if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON: {error}") from error


def connections(archive: object) -> list[Entry]:
    """The entries with WebSocket messages, in the order of the archive. UserError if there are none."""
    found = [_entry(place, raw) for place, raw in _entries(archive) if raw.get(MESSAGES)]
    if not found:
        raise UserError(f"no entry has {MESSAGES!r}: record with Chrome (DevTools, Network, Export HAR) or mitmproxy")
    return found


def _entries(archive: object) -> list[tuple[int, dict]]:
    log = archive.get("log") if isinstance(archive, dict) else None
    entries = log.get("entries") if isinstance(log, dict) else None
    if not isinstance(entries, list):
        raise UserError("this is no HTTP Archive: it has no 'log.entries'")
    return [(place, entry) for place, entry in enumerate(entries) if isinstance(entry, dict)]


def _entry(place: int, raw: dict) -> Entry:
    try:
        return Entry.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"log.entries.{place}: {one_line(error)}") from error


def chosen(archive: object, part: str | None) -> Entry:
    """The connection whose URL has this part; without one, the one with the most messages. UserError if no URL has it."""
    every = connections(archive)
    found = every if part is None else [entry for entry in every if part in entry.url]
    if not found:
        urls = ", ".join(dict.fromkeys(entry.url for entry in every))
        raise UserError(f"no WebSocket of this archive has {part!r} in its URL; found: {urls}")
    return _upgraded(archive, max(found, key=lambda entry: len(entry.messages)))


def _upgraded(archive: object, entry: Entry) -> Entry:
    """A connection of Engine.IO as it would be without polls in front; any other as it is."""
    url = urlsplit(entry.url)
    query = parse_qs(url.query)
    if not {"EIO", "sid"} <= query.keys():
        return entry
    session = query.pop("sid")[0]
    query.pop("t", None)
    polled = list(_polled(archive, session)) or BEGINNING
    messages = [one for one in entry.messages if one.data not in UPGRADE_PACKETS]
    begun = entry.messages[0].time
    front = [Message(type="send" if sent else "receive", time=begun, data=text) for sent, text in polled]
    request = entry.request.model_copy(update={"url": url._replace(query=urlencode(query, doseq=True)).geturl()})
    return entry.model_copy(update={"request": request, "messages": front + messages, "upgraded": True})


def _polled(archive: object, session: str) -> Iterator[tuple[bool, str]]:
    """What was polled in this session of Engine.IO, in the order of the archive: whether it was sent, and the packet."""
    for place, raw in _entries(archive):
        request = raw.get("request")
        if not isinstance(request, dict) or "transport=polling" not in str(request.get("url")):
            continue
        entry = _entry(place, raw)
        sent = (entry.request.post and entry.request.post.text) or ""
        content = entry.response.content if entry.response else None
        received = "" if entry.request.method == "POST" else (content and content.text) or ""
        if f"sid={session}" in entry.url or f'"sid":"{session}"' in received:
            for way, body in ((True, sent), (False, received)):
                yield from ((way, packet) for packet in body.split(POLLED_SEPARATOR) if packet and packet not in UPGRADE_PACKETS)


def messages_of(entry: Entry) -> list[Seen]:
    found = []
    for one in entry.messages:
        text = one.data
        if one.opcode == BINARY:
            try:
                text = base64.b64decode(text, validate=True).decode()
            except ValueError as error:  # of base64 or of UTF-8
                raise UserError(
                    "the archive has binary messages: write the session yourself (docs/reference/sessions.md)"
                ) from error
        found.append(Seen(one.type == "send", one.time, text, parsed(text)))
    return found


def parsed(text: str) -> object:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
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
        if isinstance(key, str) and not WRITABLE.fullmatch(key):
            continue
        yield from _leaves(one, (*path, key), strings)


def path_text(path: Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")
