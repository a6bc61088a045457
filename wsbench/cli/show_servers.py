"""Output about servers: the list of variants, and builds in progress."""

from __future__ import annotations

from wsbench.cli import terminal
from wsbench.cli.exits import BREACHED, DONE
from wsbench.host import machine
from wsbench.records.errors import UserError
from wsbench.servers import build, catalogue, runtime
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Running

KINDS = ("built", "was built", build.RUNS_ALREADY, "skipped", "failed")


def list_servers(session: str | None = None) -> None:
    """Every variant with its version report or obstacle, and the selectable JDKs; or those that a session loads."""
    if session is not None:
        _list_speaking(session)
        return
    rows = [
        [
            variant.name + (" (default)" if variant.is_default else ""),
            variant.manifest.language,
            variant.manifest.library,
            " ".join([*variant.serves, *variant.offers]),
            _state(variant),
        ]
        for variant in catalogue.read()
    ]
    terminal.table(None, ["server", "language", "library", "serves", "version report or state"], rows)
    for folder in catalogue.own():
        terminal.say(f"Your own servers: {folder} ({catalogue.VARIABLE})")
    found = ", ".join(f"{one.version} in {one.home}" for one in runtime.jdks()) or "none"
    terminal.say(f"JDKs found: {found}. Append `+jdk17` or `+jdk25+ZGC+heap4g` to a server to choose one.")


def _list_speaking(session: str) -> None:
    """The roles that servers have in a session, with its settings."""
    speaking = [(variant, role, row) for variant in catalogue.read() for role, row in variant.roles.items()]
    if session not in (known := sorted({row.session for _, _, row in speaking})):
        raise UserError(f"no server of the catalogue has the session {session!r}; allowed: {', '.join(known)}")
    rows = [
        [variant.name, role, " ".join(f"{name}={value}" for name, value in row.set.items()), _state(variant)]
        for variant, role, row in speaking
        if row.session == session
    ]
    terminal.table(None, ["server", "role", "settings", "version report or state"], rows)


def _state(variant: Variant) -> str:
    """Its obstacle, its version report, or how it is built; where it runs, if it runs already."""
    if isinstance(variant.table, Running):
        process = "" if variant.table.pid is None else f", process {variant.table.pid}"
        return f"runs already at {variant.table.url}{process}"
    return build.obstacle(variant) or build.last_receipt(variant) or build.state(variant)


def build_servers(variants: list[Variant], jobs: int) -> int:
    """Builds the variants, prints one row each, and returns the exit code."""
    built = build_with_progress(variants, jobs)
    rows = [
        [name, one.did, f"{one.took_s:.1f}" if one.took_s else "", one.receipt or one.problem or ""] for name, one in built.items()
    ]
    terminal.table(None, ["server", "result", "s", "version report or problem"], rows, right={2})
    counts = {did: sum(one.did == did for one in built.values()) for did in KINDS}
    print(", ".join(f"{count} {did}" for did, count in counts.items() if count))
    return BREACHED if counts["failed"] else DONE


def build_with_progress(variants: list[Variant], jobs: int, quiet: bool = False) -> dict[str, build.Built]:
    say = terminal.say

    def tell(now: build.Progress) -> None:
        if quiet:
            return
        left = f", about {terminal.duration(now.left_s)} left" if now.done < now.total else ""
        why = f": {now.built.problem}" if now.built.did == "failed" else ""
        say(f"[{now.done}/{now.total}] {now.variant.name} {now.built.did}{why}{left}")

    return build.build_all(variants, machine.placement().server, jobs, tell)
