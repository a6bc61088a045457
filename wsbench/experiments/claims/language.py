"""The parser for `holds_if`: text in, a tree of frozen values out. CONTRIBUTING.md has the language on one page.

The parser is hand-written, because conditions must be readable in the report and nothing in a file may be executed. It knows no
campaign, no server and no metric.
"""

from __future__ import annotations

import re
from typing import Literal

from wsbench.experiments.claims.conditions import (
    Arithmetic,
    Cells,
    Compare,
    Condition,
    Extreme,
    Filter,
    Join,
    Not,
    Number,
    Reaches,
    Reading,
    Servers,
    Trend,
    Value,
    Within,
)
from wsbench.records.errors import UserError

RESERVED = frozenset(
    (
        *("every", "most", "some", "no", "server", "servers", "others", "cell", "cells", "where", "in", "at"),
        *("and", "or", "not", "true", "false", "highest", "lowest", "falls", "rises", "reaches", "within"),
    )
)
TOKEN = re.compile(r'\s*(?:(\d[\d_]*(?:\.\d+)?)|([A-Za-z_]\w*)|("[^"]*")|(<=|>=|[<>=+\-*/().,:\[\]%]))')


def condition(text: str) -> Condition:
    """Parses a condition. UserError with the position of a syntax error."""
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
    """A recursive descent parser. Each method parses the rule of its name."""

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
        """A parenthesis opens a condition or the arithmetic of a comparison. Tries the condition first."""
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
        if extreme := self.take("highest", "lowest"):
            return Filter(self.name("a swept key"), extreme, True)
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
