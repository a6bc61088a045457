"""A claim as it stands in an experiment's file: `[[claim]]` and the `[versions]` that give its roles their servers.

Frozen values, checked when the experiment is read: a condition that cannot be parsed, a role nobody plays and a key that is not
swept are errors of one line. Whether the metrics exist is asked in `evaluate`, which knows them.
"""

from __future__ import annotations

from functools import cached_property

from pydantic import Field

from wsbench.experiments.claims import conditions, language
from wsbench.records.errors import UserError
from wsbench.records.frozen import Frozen

#: Roles of a set of versions: a name that claims use → the server variant that plays it, `server@variant`.
Versions = dict[str, dict[str, str]]


class Claim(Frozen):
    """A published statement. `says` is what was published in one sentence, `published` its figures in words, `means` how words
    like "far ahead" became numbers, `figures` what was printed as a number: a value of the language → that number.

    `needs` is the size of load below which the statement is not about this campaign: `connections >= 1_000_000`; `server_cpus`
    is how many CPUs a server has.
    """

    id: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9-]*$")
    says: str
    published: str = ""
    means: str = ""
    holds_if: str
    needs: str | None = None
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
    """UserError: which claim, what was found, what is allowed."""
    for roles in versions.values():
        for role, name in roles.items():
            if "@" not in name or not role.isidentifier() or role in language.RESERVED:
                raise UserError(
                    f"'versions': {role!r} = {name!r}; give a role (one word) a variant such as 'netty@4.1.19'"
                )
    known = {role for roles in versions.values() for role in roles}
    seen = set()
    for claim in claims:
        if claim.id in seen:
            raise UserError(f"two claims are called {claim.id!r}")
        seen.add(claim.id)
        if not versions:
            raise UserError(f"claim {claim.id!r}: no '[versions.NAME]' says which servers its roles are")
        try:
            nodes = [claim.condition, *(value for value, _ in claim.printed)]
            parts = [part for node in nodes for part in conditions.parts(node)]
            claim.needed  # noqa: B018 - parsed, and an error if it cannot be
        except UserError as error:
            raise UserError(f"claim {claim.id!r}: {error}") from error
        for role in conditions.roles(parts) - known:
            raise UserError(f"claim {claim.id!r}: nobody is {role!r}; there are: {', '.join(sorted(known))}")
        for key in conditions.keys(parts) - set(swept):
            raise UserError(f"claim {claim.id!r}: {key!r} is not swept; swept are: {', '.join(swept) or 'none'}")
