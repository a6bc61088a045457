"""The output of `wsbench check`: progress, one line per server, a table and all failures; or one JSON document."""

from __future__ import annotations

import json
import time

from wsbench import __version__
from wsbench.checks.contract import Gated
from wsbench.cli.terminal import Redrawn, console, duration, shown, table

COLOUR = {"passes": "green", "fails": "red", "skipped": "yellow"}


class Progress(Redrawn):
    """Progress: a live line on a terminal and one line per server; nothing with --json."""

    def __init__(self, servers: int, quiet: bool) -> None:
        super().__init__()
        self._servers, self._quiet = servers, quiet
        self._began, self._done, self._name = time.monotonic(), 0, ""

    def begin(self, name: str) -> None:
        self._name = name

    def say(self, line: str) -> None:
        self._tell(line)

    def watch(self, tried: str) -> None:
        self._tell(f"{self._name}: {tried}")

    def _tell(self, text: str) -> None:
        if not self._quiet:
            self.show(f"[{self._done + 1}/{self._servers}] {text}{self._left()}")

    def _left(self) -> str:
        """An estimate from the mean duration of the servers so far."""
        if not self._done:
            return ""
        each = (time.monotonic() - self._began) / self._done
        return f" … about {duration(each * (self._servers - self._done))} left"

    def end(self, gated: Gated) -> None:
        self._done += 1
        if self._quiet:
            return
        (held, required), (kept, advisory) = gated.count(required=True), gated.count(required=False)
        found = f"{held}/{required} required, {kept}/{advisory} advisory" if gated.checks else gated.reason
        cases = f"; Autobahn: {gated.cases.text}" if gated.cases else ""
        left = self._left() if self._done < self._servers else ""
        head = f"[{self._done}/{self._servers}] {gated.variant.name}"
        self.clear()
        rest = shown(f"{found}{cases} ({duration(gated.took_s)}){left}")
        console.print(f"{shown(head)}  [{COLOUR[gated.outcome]}]{gated.outcome}[/]  {rest}")


def summary(rows: list[Gated]) -> None:
    """Failures, one line each, and the totals."""
    failures = [
        [gated.variant.name, "REQUIRED" if one.required else "advisory", f"{one.name} ({one.section})", one.detail]
        for gated in rows
        for one in sorted(gated.checks, key=lambda one: not one.required)
        if not one.passed
    ]
    failures += [
        [gated.variant.name, "Autobahn", f"case {case}", outcome]
        for gated in rows
        if gated.cases
        for case, outcome in gated.cases.wrong.items()
    ]
    if failures:
        console.print()
        table(None, ["server", "kind", "failed check", "detail"], failures)
    if len(rows) > 1:
        console.print()
        table(
            None,
            ["server", "result", "required", "advisory", "time", "version report or reason"],
            [_row(one) for one in rows],
        )
    console.print(shown(summary_line(rows)))


def _row(gated: Gated) -> list[str]:
    counts = ["/".join(map(str, gated.count(required=kind))) if gated.checks else "" for kind in (True, False)]
    said = gated.reason or gated.receipt or ""
    return [gated.variant.name, gated.outcome, *counts, duration(gated.took_s), said]


def summary_line(rows: list[Gated]) -> str:
    """How many servers and how many checks passed."""
    outcomes = [f"{sum(one.outcome == kind for one in rows)} {word}" for kind, word in WORDS.items()]
    parts = []
    for kind, word in ((True, "required"), (False, "advisory")):
        held, tried = map(sum, zip(*[one.count(required=kind) for one in rows], strict=True))
        parts.append(f"{held} of {tried} {word}")
    servers = f"{len(rows)} server{'' if len(rows) == 1 else 's'}"
    return f"{servers}: {', '.join(outcomes)}. Checks passed: {', '.join(parts)}."


WORDS = {"passes": "pass", "fails": "fail", "skipped": "cannot run here"}


def document(rows: list[Gated]) -> str:
    """Everything as JSON."""
    return json.dumps({"wsbench": __version__, "servers": [_plain(one) for one in rows]}, indent=1, ensure_ascii=False)


def _plain(gated: Gated) -> dict:
    cases = gated.cases
    return {
        "server": gated.variant.name,
        "outcome": gated.outcome,
        "reason": gated.reason,
        "receipt": gated.receipt,
        "took_s": round(gated.took_s, 1),
        "checks": [one.model_dump() for one in gated.checks],
        "autobahn": cases and {"by": cases.by, "counts": cases.counts, "wrong": cases.wrong, "report": str(cases.report)},
    }
