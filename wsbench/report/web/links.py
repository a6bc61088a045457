"""Links between pages: by address if they are served, by file if they are written."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from wsbench.analysis.campaigns import Campaign


@dataclass(frozen=True)
class Links:
    """`up` leads from the page to the top: "/" if pages are served, "../../" or similar if they are files."""

    up: str
    static: bool

    def top(self) -> str:
        return f"{self.up}index.html" if self.static else "/"

    def claims(self) -> str:
        return f"{self.up}claims.html" if self.static else "/claims"

    def asset(self, name: str) -> str:
        return f"{self.up}assets/{name}"

    def campaign(self, one: Campaign) -> str:
        return f"{self.up}campaign/{quote(one.id)}/{'index.html' if self.static else ''}"

    def report(self, one: Campaign) -> str:
        return f"{self.up}campaign/{quote(one.id)}/report.html"

    def download(self, one: Campaign, form: str) -> str:
        return f"{self.up}campaign/{quote(one.id)}/campaign.{form}"

    def overlay(self, experiment: str) -> str:
        return f"{self.up}overlay/{quote(experiment)}{'.html' if self.static else ''}"

    def history(self, experiment: str, metric: str | None = None) -> str:
        """The history page of an experiment, in its default metric or in another."""
        if self.static:
            return f"{self.up}history/{quote(experiment)}{f'.{metric}' if metric else ''}.html"
        return f"{self.up}history/{quote(experiment)}{f'?metric={metric}' if metric else ''}"
