"""Claims in an experiment's file: `[[claim]]`, and `[versions]`, which assigns servers to roles.

The values are frozen and checked when the experiment is read. A syntax error, an unassigned role or a key that is not swept gives a
one-line error. `evaluate` checks whether the metrics exist.
"""

from __future__ import annotations

from functools import cached_property

from pydantic import Field

from wsbench.experiments.claims import conditions, language
from wsbench.records.errors import UserError
from wsbench.records.frozen import Frozen

#: Per set of versions: each role that claims use → the server variant that plays it, `server@variant`.
Versions = dict[str, dict[str, str]]


class Claim(Frozen):
    """A published statement: `says` in one sentence, `published` with its figures in words. `means` states how words such as "far
    ahead" became numbers. `figures` maps values of the language to the numbers printed for them.

    `needs` is the minimum size of load for which the claim can be judged, such as `connections >= 1_000_000`. `server_cpus` is the
    number of CPUs of a server.
    """

    id: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9-]*$")
    says: str
    published: str = ""
    means: str = ""
    holds_if: str
    needs: str | None = None
    #: The sets of versions that it is about; empty: all.
    versions: list[str] = []
    figures: dict[str, float] = {}

    @cached_property
    def condition(self) -> conditions.Condition:
        return language.condition(self.holds_if)

    @cached_property
    def needed(self) -> tuple[conditions.Filter, ...]:
        return language.filters(self.needs) if self.needs else ()

    @cached_property
    def printed(self) -> list[tuple[conditions.Value, float]]:
        return [(language.value(text), number) for text, number in self.figures.items()]


def check(claims: list[Claim], versions: Versions, swept: list[str]) -> None:
    """UserError: the claim, what was found, what is allowed."""
    for roles in versions.values():
        for role, name in roles.items():
            if "@" not in name or not role.isidentifier() or role in language.RESERVED:
                raise UserError(f"'versions': {role!r} = {name!r}; assign a variant such as 'netty@4.1.19' to a role (one word)")
    known = {role for roles in versions.values() for role in roles}
    seen = set()
    for claim in claims:
        if claim.id in seen:
            raise UserError(f"two claims have the id {claim.id!r}")
        seen.add(claim.id)
        if not versions:
            raise UserError(f"claim {claim.id!r}: no '[versions.NAME]' assigns servers to its roles")
        try:
            nodes = [claim.condition, *(value for value, _ in claim.printed)]
            parts = [part for node in nodes for part in conditions.parts(node)]
            claim.needed  # noqa: B018 - parsed here so that a syntax error is reported
        except UserError as error:
            raise UserError(f"claim {claim.id!r}: {error}") from error
        for name in set(claim.versions) - set(versions):
            raise UserError(f"claim {claim.id!r}: unknown versions {name!r}; known: {', '.join(versions)}")
        for role in conditions.roles(parts) - known:
            raise UserError(f"claim {claim.id!r}: unknown role {role!r}; known roles: {', '.join(sorted(known))}")
        for key in conditions.keys(parts) - set(swept):
            raise UserError(f"claim {claim.id!r}: {key!r} is not swept; swept keys: {', '.join(swept) or 'none'}")
