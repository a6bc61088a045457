"""The syntax tree of a claim's condition: frozen values, parsed by `language` and judged by `evaluate`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Literal

Cell = tuple[tuple[str, object], ...]
Quantifier = Literal["every", "most", "some", "no"]


@dataclass(frozen=True)
class Filter:
    """`connections < 500`: holds for a cell or a load that has such a value of the key.

    `highest connections` (op `highest`) compares cells with each other, so `choose` applies it.
    """

    key: str
    op: str
    value: int | float | str | bool

    def admits(self, values: dict) -> bool:
        found = values.get(self.key)
        if self.op in ("highest", "lowest"):
            return found is not None
        if isinstance(found, bool) != isinstance(self.value, bool) or isinstance(found, str) != isinstance(self.value, str):
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
        if self.op in ("highest", "lowest"):
            return f"{self.op} {self.key}"
        shown = f"{self.value:,}" if type(self.value) is int else str(self.value).lower()
        return f"{self.key} {self.op} {shown}"


@dataclass(frozen=True)
class Number:
    number: float


@dataclass(frozen=True)
class Reading:
    """`netty.requests_per_s[connections = 10]`: a metric of the server that plays a role, in one cell."""

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
    """`left op right`. A chain `a < b < c` means `a < b and b < c`."""

    left: Value
    op: str
    right: Value


@dataclass(frozen=True)
class Within:
    """`within(a, b, 10 %)`: neither value is more than that share above the other."""

    left: Value
    right: Value
    share: float


@dataclass(frozen=True)
class Trend:
    """`falls(a, connections)`: over ascending values of the key it never rises, and the last value is below the first."""

    kind: Literal["falls", "rises"]
    value: Value
    key: str


@dataclass(frozen=True)
class Reaches:
    """`reaches(netty, 1_000_000)`: that many connections were open concurrently."""

    role: str
    connections: int


@dataclass(frozen=True)
class Servers:
    """`every server in (a, b): …`. Without `in`: all roles of the set of versions."""

    quantifier: Quantifier
    roles: tuple[str, ...]
    body: Condition


@dataclass(frozen=True)
class Cells:
    """`most cells where connections < 500: …`. `at …:` means every such cell."""

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


def choose(cells: Iterable[Cell], where: tuple[Filter, ...]) -> list[Cell]:
    """The cells that all filters admit; of those, the ones with the highest or lowest value if a filter asks for it."""
    found = [cell for cell in cells if all(one.admits(dict(cell)) for one in where)]
    for one in where:
        if found and one.op in ("highest", "lowest"):
            best = (max if one.op == "highest" else min)(dict(cell)[one.key] for cell in found)
            found = [cell for cell in found if dict(cell)[one.key] == best]
    return found


Value = Number | Reading | Extreme | Arithmetic
Condition = Compare | Within | Trend | Reaches | Servers | Cells | Join | Not


def parts(node) -> Iterator:
    """A node and all its descendants."""
    yield node
    for field in fields(node):
        inner = getattr(node, field.name)
        for one in inner if isinstance(inner, tuple) else (inner,):
            if is_dataclass(one):
                yield from parts(one)


def roles(nodes: list) -> set[str]:
    """The roles named in the nodes, without `server` and `others`."""
    named = {node.role for node in nodes if isinstance(node, Reading | Reaches)}
    named |= {role for node in nodes if isinstance(node, Servers) for role in node.roles}
    return named - {"server", "others"}


def keys(nodes: list) -> set[str]:
    """The cell keys named in the nodes."""
    return {node.key for node in nodes if isinstance(node, Filter | Trend)}
