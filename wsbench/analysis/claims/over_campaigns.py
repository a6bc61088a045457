"""The claims of many campaigns: each claim by the newest campaign that can decide it.

Campaigns in, verdicts out. `evaluate` judges each campaign; no verdict is made of two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from wsbench.analysis.campaigns import Campaign
from wsbench.analysis.claims.evaluate import evaluate
from wsbench.analysis.claims.outcome import ClaimVerdict
from wsbench.records.errors import UserError

#: Obstacles that a campaign has because of what was run, whatever it showed.
LACKS = ("missing", "failed", "rounds", "scaled")


@dataclass(frozen=True)
class Judged:
    """A claim for one set of versions, and the campaign that it was judged on."""

    found: ClaimVerdict
    campaign: Campaign

    @property
    def lacks(self) -> int:
        """0 if the campaign lacks nothing for the claim, else 1 plus the number of the claim's servers that it does not have."""
        if self.found.obstacle not in LACKS:
            return 0
        return 1 + len(set(self.found.servers.values()) - set(self.campaign.results.names))


def judged(campaigns: list[Campaign]) -> list[Judged]:
    """Each claim, for each set of versions, on the newest campaign that lacks no server, number, rounds or load for it. If each
    lacks something, on the newest of those with the most of its servers. Verdicts have no part in the choice, so that none is
    picked."""
    best: dict[tuple[str, str, str], Judged] = {}
    for one in campaigns:  # the newest first
        try:
            found = evaluate(one.results)
        except UserError:
            continue  # its report says why the claims do not fit it
        for verdict in found:
            key = one.experiment, verdict.id, verdict.versions
            here = Judged(verdict, one)
            if key not in best or here.lacks < best[key].lacks:
                best[key] = here
    return sorted(best.values(), key=lambda one: (_by_number(one.found.id), one.campaign.experiment, one.found.versions))


def _by_number(id_: str) -> tuple[str, int]:
    """H2 comes before H10."""
    letters, digits = re.fullmatch(r"(\D*)(\d*).*", id_, re.DOTALL).groups()
    return letters, int(digits or 0)
