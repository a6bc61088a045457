"""A session file: how messages are taken apart, what records are, and what is sent. docs/reference/sessions.md explains every key.

Frozen types, read from TOML. Names are not resolved here: `compiling` does that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from wsbench.host.installation import ROOT
from wsbench.records.errors import UserError, nearest
from wsbench.records.frozen import Frozen, read_toml, toml_value

SESSIONS = ROOT / "sessions"
#: Bytes of the longest message and record, unless the file says otherwise.
LONGEST = 1 << 20
#: File names have at most 255 bytes.
LONGEST_NAME = 200

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]


class Counted(Frozen):
    """A message, or a part of one, with its length in front. Exactly one of the keys."""

    two: Message | None = None
    sevens: Message | None = None
    digits: Message | None = None


#: Text with places like `${sequence}`, or parts of which some have their length in front.
Message = str | list[str | Counted]


class Setting(Frozen):
    """What `--set NAME=VALUE` changes. Without a default it must be set."""

    about: str
    default: str | int | None = None


class Separated(Frozen):
    """`always`: the last record of a message ends with the byte too."""

    separated: Annotated[int, Field(ge=0, le=255)]
    always: bool = True


class Lines(Frozen):
    """Lines. One that begins with `counted` ends with the length of what follows it."""

    counted: str


class FieldTable(Frozen):
    """Exactly one of `json`, `digits`, `header`, `word`, `byte`, `number` and `text`."""

    json_: str | None = Field(None, alias="json")
    digits: str | None = None
    header: str | None = None
    word: Annotated[int, Field(ge=0)] | None = None
    after: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    byte: Annotated[int, Field(ge=0)] | None = None
    mask: Annotated[int, Field(ge=0, le=255)] = 255
    number: Annotated[int, Field(ge=0)] | None = None
    text: Annotated[int, Field(ge=0)] | None = None


class RuleTable(Frozen):
    """What a record is if all tests hold (`begins`, `is`, `has`, `lacks`), and exactly one of `reply`, `push`, `answer`, `ignore`
    and `fail`. `reply` and `fail` name the field with the number of the request; `true`: the oldest request, or the connection."""

    begins: str | None = None
    is_: dict[str, str | int] = Field({}, alias="is")
    has: str | list[str] = []
    lacks: str | list[str] = []
    reply: str | Literal[True] | None = None
    #: The reply repeats the request's postmark, if there is one.
    marked: bool = False
    #: Further replies to the same request follow; an error fails it with the last one.
    more: bool = False
    push: Literal[True] | None = None
    answer: Message | None = None
    ignore: Literal[True] | None = None
    fail: str | Literal[True] | None = None
    #: Variable: the field whose value it keeps.
    capture: dict[Name, str] = {}


class StepTable(Frozen):
    """`await`: the rule of the reply; `own`: the push that has this step's postmark; left out in a setup: nothing. It may be a
    setting."""

    name: Name
    send: Message | None = None
    await_: str | None = Field(None, alias="await")


class KeepaliveTable(Frozen):
    every_s: Annotated[float, Field(ge=0.1, le=86_400)]
    send: Message


class SessionFile(Frozen):
    """A session as its file declares it."""

    about: str
    #: The specification of the protocol, if there is one.
    source: str = ""
    messages: Literal["text", "binary"] = "text"
    records: Literal["message", "packets"] | Separated | Lines = "message"
    #: Of the URL, if the user gives none.
    path: str = "/"
    subprotocols: list[str] = []
    longest: Annotated[int, Field(ge=1, le=16 << 20)] = LONGEST
    settings: dict[Name, Setting] = {}
    fields: dict[Name, FieldTable] = {}
    rules: Annotated[dict[Name, RuleTable], Field(min_length=1)]
    setup: list[StepTable] = []
    steps: list[StepTable] = []
    keepalive: list[KeepaliveTable] = []
    #: In rooms: publishers receive their own messages.
    own: bool = True


def path_of(name: str) -> Path:
    """The file of a session, given by name or by a path that ends in .toml."""
    if name.endswith(".toml"):
        return Path(name)
    path = SESSIONS / f"{name}.toml"
    if len(name.encode()) > LONGEST_NAME or not path.exists():
        near = nearest(name, known())
        raise UserError(f"no session {name[:LONGEST_NAME]!r}{near} (see `wsbench list sessions`, or give a path to a .toml file)")
    return path


def known() -> list[str]:
    """The sessions that wsbench has, by name."""
    return sorted(file.stem for file in SESSIONS.glob("*.toml"))


def read(path: Path) -> SessionFile:
    """UserError if the file cannot be read; `Faults`, one line each, if it is invalid."""
    return read_toml(SessionFile, path)


def of_text(text: str, path: Path) -> SessionFile:
    """Same as `read`, for the text of a file. `path`: its name in faults."""
    return toml_value(SessionFile, text, path)
