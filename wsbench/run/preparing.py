"""Prepares a campaign's servers on the serving host: builds each variant and checks it against its contract.

In: variants. Out: one row of `servers.json` each, with the reason if the variant is left out. Nothing is measured here.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from wsbench.checks import contract
from wsbench.records.errors import TrialFailed
from wsbench.records.rundir import CheckResult, ServerRow
from wsbench.servers import build
from wsbench.servers.catalogue import Variant


def rows(variants: list[Variant], served: str, cpus: list[int], port: int | None, say: Callable[[str], None]) -> list[ServerRow]:
    """Builds and checks each variant. The row of a variant that cannot run has the reason."""
    for variant in variants:
        if build.obstacle(variant) is None and build.state(variant) != "built":
            say(f"building {variant.name}")
    built = build.build_all(variants, cpus, os.cpu_count() or 1)
    return [_checked(variant, built[variant.name], served, port, say) for variant in variants]


def row_of_built(variant: Variant, served: str, cpus: list[int], port: int | None) -> ServerRow:
    """The row of one variant that must already be built."""
    problem, state = build.obstacle(variant), build.state(variant)
    if problem is None and state != "built":
        since = "not built" if state == "not built" else "changed since it was built"
        problem = f"{since} on the serving host; run `wsbench build {variant.name}` there"
    if problem is not None:
        return left_out(variant, problem)
    return _checked(variant, build.build(variant, cpus), served, port, lambda _: None)


def left_out(variant: Variant, reason: str) -> ServerRow:
    return _row(variant, build.Built(None, None, "skipped"), [], reason)


def _checked(variant: Variant, built: build.Built, served: str, port: int | None, say: Callable[[str], None]) -> ServerRow:
    if built.problem is not None:
        return _row(variant, built, [], built.problem)
    say(f"checking {variant.name}")
    try:
        checks = contract.check(variant, [served], port)
    except TrialFailed as failure:
        return _row(variant, built, [], f"check failed to run: {failure}")
    wrong = [found for found in checks if found.required and not found.passed]
    reason = f"fails {wrong[0].name} ({wrong[0].section}): {wrong[0].detail}" if wrong else None
    return _row(variant, built, checks, reason)


def _row(variant: Variant, built: build.Built, checks: list[CheckResult], skipped: str | None) -> ServerRow:
    manifest, table = variant.manifest, variant.table
    return ServerRow(
        server=variant.server,
        variant=variant.variant,
        language=manifest.language,
        library=manifest.library,
        homepage=manifest.homepage,
        tags=variant.tags,
        transport=variant.transport,
        library_version=table.library_version,
        receipt=built.receipt,
        runtime=built.runtime,
        build=table.build,
        run=table.run,
        env=variant.env,
        departures=variant.departures,
        conformance=checks,
        skipped=skipped,
    )
