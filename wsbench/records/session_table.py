"""A session as the engine carries it out, and what it reports of it: `protocol/README.md`, sections 1 and 2.

Frozen types without behaviour. Numbers that name a field, rule or template are places in its list.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from wsbench.records.frozen import Frozen

# ---- records and their fields ----------------------------------------------------------------------------------------


class MessageRecords(Frozen):
    kind: Literal["message"] = "message"


class SeparatedRecords(Frozen):
    """`always`: the last record of a message ends with `by` too."""

    kind: Literal["separated"] = "separated"
    by: Annotated[int, Field(ge=0, le=255)]
    always: bool


class PacketRecords(Frozen):
    """A byte, a length in one to four bytes of seven bits, and that many bytes (MQTT)."""

    kind: Literal["packets"] = "packets"


class LineRecords(Frozen):
    """Lines. One that begins with `counted` ends with the length of the payload behind it (NATS)."""

    kind: Literal["lines"] = "lines"
    counted: str


Records = Annotated[MessageRecords | SeparatedRecords | PacketRecords | LineRecords, Field(discriminator="kind")]


class JsonField(Frozen):
    kind: Literal["json"] = "json"
    path: list[str | int]


class DigitsField(Frozen):
    kind: Literal["digits"] = "digits"
    after: str


class HeaderField(Frozen):
    kind: Literal["header"] = "header"
    name: str


class WordField(Frozen):
    kind: Literal["word"] = "word"
    number: Annotated[int, Field(ge=0)]
    after: Annotated[str, Field(min_length=1, max_length=1)] | None = None


class ByteField(Frozen):
    kind: Literal["byte"] = "byte"
    at: Annotated[int, Field(ge=0)]
    mask: Annotated[int, Field(ge=0, le=255)] = 255


class NumberField(Frozen):
    kind: Literal["number"] = "number"
    at: Annotated[int, Field(ge=0)]


class TextField(Frozen):
    kind: Literal["text"] = "text"
    at: Annotated[int, Field(ge=0)]


RecordField = Annotated[
    JsonField | DigitsField | HeaderField | WordField | ByteField | NumberField | TextField, Field(discriminator="kind")
]

# ---- rules -----------------------------------------------------------------------------------------------------------


class Begins(Frozen):
    kind: Literal["begins"] = "begins"
    text: str


class Is(Frozen):
    kind: Literal["is"] = "is"
    field: int
    text: str


class Has(Frozen):
    kind: Literal["has"] = "has"
    field: int


class Lacks(Frozen):
    kind: Literal["lacks"] = "lacks"
    field: int


Test = Annotated[Begins | Is | Has | Lacks, Field(discriminator="kind")]


class Reply(Frozen):
    """It answers the request whose number is in field `by`, or else the oldest. `marked`: it repeats that request's postmark, if
    there is one. Not `last`: more replies follow."""

    kind: Literal["reply"] = "reply"
    by: int | None
    marked: bool
    last: bool


class Pushed(Frozen):
    kind: Literal["push"] = "push"


class Answer(Frozen):
    kind: Literal["answer"] = "answer"
    template: int


class Ignore(Frozen):
    kind: Literal["ignore"] = "ignore"


class Fail(Frozen):
    """An error of the request in field `by`, or else of the connection. Not `last`: it fails with its last reply."""

    kind: Literal["fail"] = "fail"
    by: int | None
    last: bool


class Rule(Frozen):
    """`captures`: pairs of a field and a place among the captured values."""

    name: str
    when: list[Test]
    does: Annotated[Reply | Pushed | Answer | Ignore | Fail, Field(discriminator="kind")]
    captures: list[tuple[int, int]]


# ---- templates and steps ---------------------------------------------------------------------------------------------


class TextPiece(Frozen):
    text: str


class BytesPiece(Frozen):
    """Hexadecimal digits."""

    bytes: str


class NumberPiece(Frozen):
    number: Literal["user", "sequence", "room"]


class Nothing(Frozen):
    pass


class IdentifierPiece(Frozen):
    identifier: Nothing = Nothing()


class ColumnPiece(Frozen):
    column: Annotated[int, Field(ge=0)]


class CapturedPiece(Frozen):
    captured: Annotated[int, Field(ge=0)]


class PostmarkPiece(Frozen):
    postmark: Nothing = Nothing()


class LettersPiece(Frozen):
    letters: Annotated[int, Field(ge=0)]


class Group(Frozen):
    by: Literal["two", "sevens", "digits"]
    pieces: list[Piece]


class GroupPiece(Frozen):
    counted: Group


Piece = (
    TextPiece | BytesPiece | NumberPiece | IdentifierPiece | ColumnPiece | CapturedPiece | PostmarkPiece | LettersPiece | GroupPiece
)


class AwaitRule(Frozen):
    kind: Literal["rule"] = "rule"
    rule: int


class AwaitOwn(Frozen):
    kind: Literal["own"] = "own"


class AwaitNothing(Frozen):
    kind: Literal["nothing"] = "nothing"


class Step(Frozen):
    name: str
    sends: int | None
    awaits: Annotated[AwaitRule | AwaitOwn | AwaitNothing, Field(discriminator="kind")]


class Keepalive(Frozen):
    every_s: Annotated[float, Field(ge=0.1, le=86_400)]
    template: int


class Rooms(Frozen):
    """User `u` is in room `u mod count`; the first `publishers` of a room send. `own`: they receive their own messages."""

    count: Annotated[int, Field(ge=1)]
    publishers: Annotated[int, Field(ge=1)] | None
    own: bool


class Session(Frozen):
    """A conversation. The first `setup` steps come once for each connection, the others in turn."""

    kind: Literal["session"] = "session"
    opcode: Literal["text", "binary"]
    records: Records
    longest: Annotated[int, Field(ge=1)]
    fields: list[RecordField]
    rules: list[Rule]
    templates: list[list[Piece]]
    steps: list[Step]
    setup: Annotated[int, Field(ge=0)]
    keepalives: list[Keepalive]
    data: str | None
    captured: Annotated[int, Field(ge=0)]
    rooms: Rooms | None
    traced: bool


# ---- what the engine tells of it ---------------------------------------------------------------------------------------


class Exchange(Frozen):
    """A message that a traced session sent, or a record that it received. `what` is the step or the rule; `content` is base64."""

    event: Literal["exchange"]
    t_ns: int
    connection: int
    sent: bool
    what: str | None
    content: str


class SessionCounts(Frozen):
    """What a session has apart from its requests. Copies are those of messages published in the measured window.

    `copies_expected`: one for every member of the publisher's room; a copy that reached somebody else is `copies_misplaced`.
    `last_unknown`: messages of which it is not known when the last member had them. Zero without rooms. The last two are null in
    runs older than them, whose copies also counted if they came twice, or in another room.
    """

    keepalives: int
    pushes_in_window: int
    copies_expected: int
    copies_received: int
    copies_out_of_order: int
    copies_misplaced: int | None = None
    last_unknown: int | None = None


Group.model_rebuild()
