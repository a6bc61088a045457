"""The language of `holds_if`: text in, a tree of frozen values out; CONTRIBUTING.md has it on one page.

A hand-written parser, because a condition stands in the report and is to be read there, and because nothing in a file is ever
executed. It knows no campaign, no server and no metric.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Literal

from wsbench.errors import UserError

Quantifier = Literal["every", "most", "some", "no"]
RESERVED = frozenset(
    (
        *("every", "most", "some", "no", "server", "servers", "others", "cell", "cells", "where", "in", "at"),
        *("and", "or", "not", "true", "false", "highest", "lowest", "falls", "rises", "reaches", "within"),
    )
)
TOKEN = re.compile(r'\s*(?:(\d[\d_]*(?:\.\d+)?)|([A-Za-z_]\w*)|("[^"]*")|(<=|>=|[<>=+\-*/().,:\[\]%]))')


# ---- what a condition is made of -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Filter:
    """`connections < 500`: holds for a cell or a load that has the key with such a value."""

    key: str
    op: str
    value: int | float | str | bool

    def admits(self, values: dict) -> bool:
        found = values.get(self.key)
        if isinstance(found, bool) != isinstance(self.value, bool) or isinstance(found, str) != isinstance(
            self.value, str
        ):
            return False
        if found is None:
            return False
        return {
            "=": found == self.value,
            "<": found < self.value,
            "<=": found <= self.value,
            ">": found > self.value,
            ">=": found >= self.value,
        }[self.op]

    def __str__(self) -> str:
        shown = f"{self.value:,}" if type(self.value) is int else str(self.value).lower()
        return f"{self.key} {self.op} {shown}"


@dataclass(frozen=True)
class Number:
    number: float


@dataclass(frozen=True)
class Reading:
    """`netty.requests_per_s[connections = 10]`: a metric of the server in a role, in one cell."""

    role: str
    metric: str
    where: tuple[Filter, ...]


@dataclass(frozen=True)
class Extreme:
    """`highest(…)` or `lowest(…)` of several values."""

    kind: Literal["highest", "lowest"]
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Arithmetic:
    op: str
    left: Value
    right: Value


@dataclass(frozen=True)
class Compare:
    """`left op right`; a chain `a < b < c` is read as `a < b and b < c`."""

    left: Value
    op: str
    right: Value


@dataclass(frozen=True)
class Within:
    """`within(a, b, 10 %)`: neither is more than that above the other."""

    left: Value
    right: Value
    share: float


@dataclass(frozen=True)
class Trend:
    """`falls(a, connections)`: from each value of the key to the next it does not rise, and the last is below the first."""

    kind: Literal["falls", "rises"]
    value: Value
    key: str


@dataclass(frozen=True)
class Reaches:
    """`reaches(netty, 1_000_000)`: so many connections were open at once."""

    role: str
    connections: int


@dataclass(frozen=True)
class Servers:
    """`every server in (a, b): …`; without `in` all roles of the set."""

    quantifier: Quantifier
    roles: tuple[str, ...]
    body: Condition


@dataclass(frozen=True)
class Cells:
    """`most cells where connections < 500: …`; `at …:` is every cell there."""

    quantifier: Quantifier
    where: tuple[Filter, ...]
    body: Condition


@dataclass(frozen=True)
class Join:
    op: Literal["and", "or"]
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class Not:
    condition: Condition


Value = Number | Reading | Extreme | Arithmetic
Condition = Compare | Within | Trend | Reaches | Servers | Cells | Join | Not


def parts(node) -> Iterator:
    """A node and everything in it."""
    yield node
    for field in fields(node):
        inner = getattr(node, field.name)
        for one in inner if isinstance(inner, tuple) else (inner,):
            if is_dataclass(one):
                yield from parts(one)


def roles(nodes: list) -> set[str]:
    """The roles that are named, without `server` and `others`."""
    named = {node.role for node in nodes if isinstance(node, Reading | Reaches)}
    named |= {role for node in nodes if isinstance(node, Servers) for role in node.roles}
    return named - {"server", "others"}


def keys(nodes: list) -> set[str]:
    """The keys of cells that are named."""
    return {node.key for node in nodes if isinstance(node, Filter | Trend)}


# ---- reading it ----------------------------------------------------------------------------------------------------


def condition(text: str) -> Condition:
    """UserError with the place where it cannot be understood."""
    return _whole(text, Parser.condition)


def value(text: str) -> Value:
    return _whole(text, Parser.sum)


def filters(text: str) -> tuple[Filter, ...]:
    return _whole(text, Parser.filters)


def _whole(text: str, rule):
    parser = Parser(text)
    found = rule(parser)
    if parser.at < len(parser.tokens):
        raise parser.error("the end, 'and' or 'or'")
    return found


class Parser:
    """Recursive descent over tokens; every method reads what its name says."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.tokens: list[tuple[str, int]] = []
        place = 0
        while text[place:].strip():
            found = TOKEN.match(text, place)
            if found is None:
                raise UserError(f"cannot read {text[place:].strip()[:20]!r} in {text!r}")
            self.tokens.append((found.group().strip(), found.start()))
            place = found.end()

    @property
    def next(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def error(self, wanted: str) -> UserError:
        place = self.tokens[self.at][1] if self.at < len(self.tokens) else len(self.text)
        found = repr(self.next) if self.next else "the end"
        return UserError(f"expected {wanted}, found {found} after {self.text[:place].strip()!r}")

    def take(self, *wanted: str) -> str | None:
        if self.next in wanted:
            self.at += 1
            return self.tokens[self.at - 1][0]
        return None

    def must(self, *wanted: str) -> str:
        if (found := self.take(*wanted)) is None:
            raise self.error(" or ".join(map(repr, wanted)))
        return found

    def name(self, what: str) -> str:
        if not self.next.isidentifier():
            raise self.error(what)
        self.at += 1
        return self.tokens[self.at - 1][0]

    def condition(self) -> Condition:
        if self.next in ("every", "most", "some", "no", "at"):
            return self.quantified()
        return self.joined("or", lambda: self.joined("and", self.negated))

    def quantified(self) -> Condition:
        if self.take("at"):
            where = self.filters()
            self.must(":")
            return Cells("every", where, self.condition())
        quantifier = self.must("every", "most", "some", "no")
        if self.must("server", "servers", "cell", "cells").startswith("server"):
            named: list[str] = []
            if self.take("in"):
                self.must("(")
                named.append(self.name("a role"))
                while self.take(","):
                    named.append(self.name("a role"))
                self.must(")")
            self.must(":")
            return Servers(quantifier, tuple(named), self.condition())
        where = self.filters() if self.take("where") else ()
        self.must(":")
        return Cells(quantifier, where, self.condition())

    def joined(self, op: Literal["and", "or"], rule) -> Condition:
        found = [rule()]
        while self.take(op):
            found.append(rule())
        return found[0] if len(found) == 1 else Join(op, tuple(found))

    def negated(self) -> Condition:
        if self.take("not"):
            return Not(self.negated())
        if self.next in ("every", "most", "some", "no", "at"):
            return self.quantified()
        if self.next == "(":
            return self.bracketed()
        return self.predicate()

    def bracketed(self) -> Condition:
        """A bracket opens a condition, or a sum that is compared: the second is tried where the first cannot be read."""
        began = self.at
        try:
            self.must("(")
            found = self.condition()
            self.must(")")
            return found
        except UserError as first:
            furthest, self.at = self.at, began
            try:
                return self.predicate()
            except UserError as second:
                raise (first if furthest > self.at else second) from None

    def predicate(self) -> Condition:
        match self.next:
            case "falls" | "rises":
                kind = self.must("falls", "rises")
                self.must("(")
                value = self.sum()
                self.must(",")
                key = self.name("a swept key")
                self.must(")")
                return Trend(kind, value, key)
            case "reaches":
                self.at += 1
                self.must("(")
                role = self.name("a role")
                self.must(",")
                connections = int(self.number())
                self.must(")")
                return Reaches(role, connections)
            case "within":
                self.at += 1
                self.must("(")
                left = self.sum()
                self.must(",")
                right = self.sum()
                self.must(",")
                share = self.number()
                self.must(")")
                return Within(left, right, share)
        return self.chain()

    def chain(self) -> Condition:
        left, found = self.sum(), []
        while op := self.take("<", "<=", ">", ">=", "="):
            right = self.sum()
            found.append(Compare(left, op, right))
            left = right
        if not found:
            raise self.error("one of < <= > >= =")
        return found[0] if len(found) == 1 else Join("and", tuple(found))

    def sum(self) -> Value:
        found = self.product()
        while op := self.take("+", "-"):
            found = Arithmetic(op, found, self.product())
        return found

    def product(self) -> Value:
        found = self.single()
        while op := self.take("*", "/"):
            found = Arithmetic(op, found, self.single())
        return found

    def single(self) -> Value:
        if self.next[:1].isdigit():
            return Number(self.number())
        if self.take("("):
            found = self.sum()
            self.must(")")
            return found
        if kind := self.take("highest", "lowest"):
            self.must("(")
            values = [self.sum()]
            while self.take(","):
                values.append(self.sum())
            self.must(")")
            return Extreme(kind, tuple(values))
        role = self.name("a value: ROLE.METRIC, a number, highest(…) or lowest(…)")
        self.must(".")
        metric = self.name("a metric")
        where: tuple[Filter, ...] = ()
        if self.take("["):
            where = self.filters()
            self.must("]")
        return Reading(role, metric, where)

    def number(self) -> float:
        if not self.next[:1].isdigit():
            raise self.error("a number")
        self.at += 1
        found = float(self.tokens[self.at - 1][0].replace("_", ""))
        return found / 100 if self.take("%") else found

    def filters(self) -> tuple[Filter, ...]:
        found = [self.filter()]
        while self.take("and"):
            found.append(self.filter())
        return tuple(found)

    def filter(self) -> Filter:
        key = self.name("a swept key")
        op = self.must("=", "<", "<=", ">", ">=")
        if self.next[:1].isdigit():
            number = self.number()
            return Filter(key, op, int(number) if number.is_integer() else number)
        word = self.next[1:-1] if self.next.startswith('"') else self.next
        if not word:
            raise self.error("a value")
        self.at += 1
        return Filter(key, op, {"true": True, "false": False}.get(word, word))
