"""From a session file to the engine's table: names become places, and texts become pieces.

In: a `SessionFile`, the user's settings, the columns of the data. Out: a `Session`. Every fault is one line that names file, line
and key, and says what is allowed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from wsbench.records import session_table as table
from wsbench.records.errors import Faults, UserError
from wsbench.records.files import read_text
from wsbench.sessions import session_file
from wsbench.sessions.session_file import FieldTable, Message, RuleTable, StepTable

#: A place in a text. `$${` is a literal `${`.
PLACE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
NUMBERS = ("user", "sequence", "room")
PLACES = "user, sequence, room, identifier, postmark, letters:N, hex:00FF, column:NAME, captured:NAME, or a setting"
#: Settings that use each other.
DEEPEST = 8
#: The kinds of fields, and of what a rule does.
FIELDS = ("json", "digits", "header", "word", "byte", "number", "text")
COUNTS = ("two", "sevens", "digits")
DOES = ("reply", "push", "answer", "ignore", "fail")
FIELD_LIMIT, PATH_LIMIT, RULE_LIMIT, STEP_LIMIT = 16, 8, 64, 16


@dataclass(frozen=True)
class Choice:
    """What the user chose of it. `room_size` None: no rooms. `traced`: every message becomes an event."""

    settings: dict[str, str] = field(default_factory=dict)
    data: Path | None = None
    room_size: int | None = None
    publishers: int | None = None
    traced: bool = False


def compiled(path: Path, choice: Choice, connections: int) -> table.Session:
    """The session of a file for that many connections. UserError, or `Faults` with one line for each fault."""
    return compiled_text(read_text(path, links=True), path, choice, connections)


def compiled_text(text: str, path: Path, choice: Choice, connections: int) -> table.Session:
    """Same as `compiled`, for the text of a file. `path`: its name in faults."""
    made = _Compiler(path, text, choice)
    session = made.session(connections)
    if made.wrong:
        raise Faults(made.wrong)
    return session


class _Fault(Exception):
    """A fault in a part of the file; the part is left out, and the others are still checked."""


class _Compiler:
    def __init__(self, path: Path, text: str, choice: Choice):
        self.path, self.file, self.choice = path, session_file.of_text(text, path), choice
        self.lines = text.splitlines()
        self.wrong: list[str] = []
        file = self.file
        self.fields = list(file.fields)
        self.rules = list(file.rules)
        self.captured = list(dict.fromkeys(name for rule in file.rules.values() for name in rule.capture))
        self.columns = self._columns()
        self.settings = self._settings()
        self.templates: list[list[table.Piece]] = []

    def session(self, connections: int) -> table.Session | None:
        file = self.file
        self._limit("fields", len(self.fields), FIELD_LIMIT)
        self._limit("fields", sum(one.json_ is not None for one in file.fields.values()), PATH_LIMIT, " of kind json")
        self._limit("rules", len(self.rules), RULE_LIMIT)
        self._limit("steps", len(file.setup) + len(file.steps), STEP_LIMIT, " with those of the setup")
        fields = self._each((f"fields.{name}", self._field, one) for name, one in file.fields.items())
        rules = self._each((f"rules.{name}", self._rule, (name, one)) for name, one in file.rules.items())
        setup = self._each((f"setup.{one.name}", self._setup_step, one) for one in file.setup)
        steps = self._each((f"steps.{one.name}", self._step, one) for one in file.steps)
        alive = self._each((f"keepalive.{place}", self._keepalive, one) for place, one in enumerate(file.keepalive))
        rooms = self._rooms(connections)
        if self.wrong:
            return None
        return table.Session(
            opcode=file.messages,
            records=self._records(),
            longest=file.longest,
            fields=fields,
            rules=rules,
            templates=self.templates,
            steps=[*setup, *steps],
            setup=len(setup),
            keepalives=alive,
            data=None if self.choice.data is None else str(self.choice.data.resolve()),
            captured=len(self.captured),
            rooms=rooms,
            traced=self.choice.traced,
        )

    # ---- faults ------------------------------------------------------------------------------------------------------

    def _each(self, parts: Iterable[tuple]) -> list:
        """Every part, without those that have a fault."""
        found = []
        for key, make, part in parts:
            try:
                found.append(make(part))
            except _Fault as fault:
                self._tell(key, str(fault))
        return found

    def _tell(self, key: str, what: str) -> None:
        line = self._line_of(key)
        self.wrong.append(f"{self.path}{f':{line}' if line else ''}: '{key}': {what}")

    def _limit(self, key: str, found: int, most: int, of: str = "") -> None:
        if found > most:
            self._tell(key, f"found {found}{of}, allowed: at most {most}")

    def _line_of(self, key: str) -> int | None:
        """The line of a key: of its table's header, of the key in its parent's table, or of the step that has this name."""
        first, _, name = key.partition(".")
        header = re.compile(rf"\s*\[+\s*{re.escape(first)}\s*(\.\s*{re.escape(name)}\s*)?\]+")
        entry = re.compile(rf"\s*({re.escape(name)}\s*=|name\s*=\s*[\"']{re.escape(name)}[\"'])" if name else rf"\s*{first}\s*=")
        best, inside = None, not name
        for number, line in enumerate(self.lines, 1):
            if found := header.match(line):
                inside = True
                if found[1] or not name:
                    return number
            elif line.lstrip().startswith("["):
                inside = False
            if inside and entry.match(line):
                return number
            if best is None and inside:
                best = number
        return best

    # ---- fields and rules --------------------------------------------------------------------------------------------

    def _field(self, one: FieldTable) -> table.RecordField:
        given = {kind: getattr(one, "json_" if kind == "json" else kind) for kind in FIELDS}
        given = {kind: value for kind, value in given.items() if value is not None}
        if len(given) != 1:
            raise _Fault(f"found {', '.join(given) or 'no kind'}, allowed: exactly one of {', '.join(FIELDS)}")
        ((kind, value),) = given.items()
        if one.after is not None and kind != "word":
            raise _Fault("'after' goes with 'word'")
        match kind:
            case "json":
                return table.JsonField(path=json_path(value))
            case "digits":
                return table.DigitsField(after=value)
            case "header":
                return table.HeaderField(name=value)
            case "word":
                return table.WordField(number=value, after=one.after)
            case "byte":
                return table.ByteField(at=value, mask=one.mask)
            case "number":
                return table.NumberField(at=value)
        return table.TextField(at=value)

    def _rule(self, named: tuple[str, RuleTable]) -> table.Rule:
        name, one = named
        tests: list[table.Test] = [] if one.begins is None else [table.Begins(text=self._set(one.begins))]
        tests += [table.Is(field=self._place_of_field(key), text=self._set(str(text))) for key, text in one.is_.items()]
        tests += [table.Has(field=self._place_of_field(key)) for key in _listed(one.has)]
        tests += [table.Lacks(field=self._place_of_field(key)) for key in _listed(one.lacks)]
        captures = [(self._place_of_field(key), self.captured.index(variable)) for variable, key in one.capture.items()]
        return table.Rule(name=name, when=tests, does=self._action(one), captures=captures)

    def _action(self, one: RuleTable):
        given = [kind for kind in DOES if getattr(one, kind) is not None]
        if len(given) != 1:
            raise _Fault(f"found {', '.join(given) or 'nothing that it does'}, allowed: exactly one of {', '.join(DOES)}")
        if one.marked and given[0] != "reply":
            raise _Fault("'marked' goes with 'reply'")
        if one.more and given[0] not in ("reply", "fail"):
            raise _Fault("'more' goes with 'reply' and 'fail'")
        match given[0]:
            case "reply":
                return table.Reply(by=self._by(one.reply), marked=one.marked, last=not one.more)
            case "push":
                return table.Pushed()
            case "answer":
                return table.Answer(template=self._template(one.answer))
            case "ignore":
                return table.Ignore()
        return table.Fail(by=self._by(one.fail), last=not one.more)

    def _by(self, named) -> int | None:
        return None if named is True else self._place_of_field(named)

    def _place_of_field(self, name: str) -> int:
        return _place(name, self.fields, "field")

    def _records(self) -> table.Records:
        match self.file.records:
            case "message":
                return table.MessageRecords()
            case "packets":
                return table.PacketRecords()
            case session_file.Separated(separated=by, always=always):
                return table.SeparatedRecords(by=by, always=always)
        return table.LineRecords(counted=self.file.records.counted)

    # ---- steps -------------------------------------------------------------------------------------------------------

    def _setup_step(self, one: StepTable) -> table.Step:
        awaited = None if one.await_ is None else self._set(one.await_)
        if awaited == "own":
            raise _Fault("'await' is own, allowed in the setup: a rule, or nothing")
        awaits = table.AwaitNothing() if awaited is None else self._await_rule(awaited)
        if one.send is None and awaited is None:
            raise _Fault("it neither sends nor awaits anything")
        return table.Step(name=one.name, sends=None if one.send is None else self._template(one.send), awaits=awaits)

    def _step(self, one: StepTable) -> table.Step:
        if one.send is None or one.await_ is None:
            raise _Fault(f"'{'send' if one.send is None else 'await'}' is missing")
        awaited = self._set(one.await_)
        if awaited == "own":
            return table.Step(name=one.name, sends=self._template(one.send), awaits=table.AwaitOwn())
        awaits = self._await_rule(awaited)
        if self.file.rules[awaited].reply is None:
            replying = [name for name, rule in self.file.rules.items() if rule.reply is not None]
            raise _Fault(f"'await' is {awaited}, allowed: own, or a rule that replies ({', '.join(replying) or 'none'})")
        return table.Step(name=one.name, sends=self._template(one.send), awaits=awaits)

    def _await_rule(self, name: str) -> table.AwaitRule:
        return table.AwaitRule(rule=_place(name, self.rules, "rule"))

    def _keepalive(self, one: session_file.KeepaliveTable) -> table.Keepalive:
        return table.Keepalive(every_s=one.every_s, template=self._template(one.send))

    def _rooms(self, connections: int) -> table.Rooms | None:
        size = self.choice.room_size
        if size is None:
            return None
        return table.Rooms(count=max(1, connections // size), publishers=self.choice.publishers, own=self.file.own)

    # ---- templates ---------------------------------------------------------------------------------------------------

    def _template(self, message: Message) -> int:
        self.templates.append(self._pieces(message))
        return len(self.templates) - 1

    def _pieces(self, message: Message) -> list[table.Piece]:
        if isinstance(message, str):
            return self._text_pieces(message, DEEPEST)
        found: list[table.Piece] = []
        for part in message:
            if isinstance(part, str):
                found += self._text_pieces(part, DEEPEST)
            else:
                given = {by: inner for by in COUNTS if (inner := getattr(part, by)) is not None}
                if len(given) != 1:
                    raise _Fault(f"found {', '.join(given) or 'no length'}, allowed: exactly one of {', '.join(COUNTS)}")
                ((by, inner),) = given.items()
                found.append(table.GroupPiece(counted=table.Group(by=by, pieces=self._pieces(inner))))
        return found

    def _text_pieces(self, text: str, deepest: int) -> list[table.Piece]:
        if deepest == 0:
            raise _Fault("its settings name each other in a circle")
        found: list[table.Piece] = []
        end = 0
        for place in PLACE.finditer(text):
            if place.start() > end:
                found.append(table.TextPiece(text=text[end : place.start()]))
            end = place.end()
            found += [table.TextPiece(text="${")] if place[1] is None else self._filled(place[1], deepest)
        if end < len(text):
            found.append(table.TextPiece(text=text[end:]))
        return found

    def _filled(self, place: str, deepest: int) -> list[table.Piece]:
        """What stands at `${place}`."""
        kind, colon, value = place.partition(":")
        if place in NUMBERS:
            return [table.NumberPiece(number=place)]
        if place == "identifier":
            return [table.IdentifierPiece()]
        if place == "postmark":
            return [table.PostmarkPiece()]
        if not colon and kind in self.settings:
            return self._text_pieces(self.settings[kind], deepest - 1)
        match kind if colon else "":
            case "letters":
                return [table.LettersPiece(letters=self._count(value))]
            case "hex":
                if len(value) % 2 or not re.fullmatch(r"[0-9a-fA-F]*", value):
                    raise _Fault(f"found '${{{place}}}', allowed: pairs of hexadecimal digits, such as ${{hex:00FF}}")
                return [table.BytesPiece(bytes=value)]
            case "column":
                if self.choice.data is None:
                    raise _Fault(f"'${{{place}}}' needs --data FILE.csv")
                return [table.ColumnPiece(column=_place(value, self.columns, "column"))]
            case "captured":
                return [table.CapturedPiece(captured=_place(value, self.captured, "captured value"))]
        raise _Fault(f"unknown '${{{place}}}', allowed: {PLACES} ({', '.join(self.settings) or 'none here'})")

    def _set(self, text: str) -> str:
        """A text in which only settings have places."""
        pieces = self._text_pieces(text, DEEPEST)
        if not all(isinstance(piece, table.TextPiece) for piece in pieces):
            raise _Fault(f"found {text!r}, allowed: text and settings ({', '.join(self.settings) or 'none here'})")
        return "".join(piece.text for piece in pieces)

    def _count(self, value: str) -> int:
        text = self.settings.get(value, value)
        if not text.isdecimal() or int(text) > self.file.longest:
            raise _Fault(f"found '${{letters:{value}}}', allowed: 0 to {self.file.longest:,}, or a setting with such a number")
        return int(text)

    # ---- what the user gives -----------------------------------------------------------------------------------------

    def _settings(self) -> dict[str, str]:
        given = self.choice.settings
        for name in given:
            if name not in self.file.settings:
                allowed = ", ".join(self.file.settings) or "none in this session"
                raise UserError(f"--set {name}: no such setting; allowed: {allowed}")
        found = {}
        for name, setting in self.file.settings.items():
            value = given.get(name, setting.default)
            if value is None:
                raise UserError(f"this session needs --set {name}=VALUE: {setting.about}")
            found[name] = str(value)
        return found

    def _columns(self) -> list[str]:
        """The names in the first line of the data."""
        if self.choice.data is None:
            return []
        lines = csv.reader(read_text(self.choice.data, links=True).splitlines())
        head = next(lines, [])
        if not head or next(lines, None) is None:
            raise UserError(
                f"--data {self.choice.data}: allowed: a CSV file with names in its first line, and a line for each user"
            )
        return head


def json_path(text: str) -> list[str | int]:
    """`result.items[0]` as keys and indices."""
    parts: list[str | int] = []
    for one in re.finditer(r"\[(\d+)\]|([^.\[\]]+)|(.)", text):
        if one[1] is not None:
            parts.append(int(one[1]))
        elif one[2] is not None:
            parts.append(one[2])
        elif one[3] != ".":
            raise _Fault(f"found json = {text!r}, allowed: keys and indices such as result.items[0].id")
    if not parts or len(parts) > PATH_LIMIT:
        raise _Fault(f"found json = {text!r}, allowed: 1 to {PATH_LIMIT} keys and indices")
    return parts


def _listed(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


def _place(name: str, names: list[str], what: str) -> int:
    if name not in names:
        raise _Fault(f"no {what} {name!r}, allowed: {', '.join(names) or 'none is declared'}")
    return names.index(name)
