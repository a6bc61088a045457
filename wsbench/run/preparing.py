"""Prepares a campaign's servers on the serving host: builds each variant and checks it against its contract.

In: variants, and what the experiment uses of the contract. Out: one row of `servers.json` each, with the reason if the variant is
left out. Nothing is measured here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from wsbench.checks import contract
from wsbench.checks.use import Use
from wsbench.experiments.experiment import Experiment
from wsbench.host import running
from wsbench.records import contained
from wsbench.records.engine_files import NoLoop
from wsbench.records.errors import TrialFailed
from wsbench.records.rundir import CHECK_ENDED, COMMAND, RUNNING, CheckResult, RunningRow, ServerRow
from wsbench.servers import build, serving
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Running, Started

#: Scenarios whose messages have the load's size. Others have a fixed, short form.
SIZED = ("doc", "echo", "rooms", "rpc")


@dataclass(frozen=True)
class Wanted:
    """A variant of a campaign, the scenario that it serves there, and what its cells use of the contract."""

    variant: Variant
    served: str
    use: Use


def use_of(experiment: Experiment, cells: list[dict], own: bool = False) -> Use:
    """What these cells of an experiment use of the contract. `own`: of a server that a user has named for this campaign alone."""
    loads = [experiment.load_of(cell) for cell in cells]
    loops = [load.loop(experiment.loop) for load in loads]
    documents = experiment.scenario == "doc"
    return Use(
        sizes=sorted({load.payload_bytes for load in loads}) if experiment.scenario in SIZED else [],
        opcodes=sorted({load.opcode for load in loads}) if experiment.scenario == "echo" else [],
        connections=max(load.most_connections for load in loads),
        bursts=any(not isinstance(loop, NoLoop) and loop.depth != 1 for loop in loops),
        replaced=any(load.stages is not None or load.messages_per_connection is not None for load in loads),
        persistent=documents and any(load.persistent for load in loads),
        closing=documents and not all(load.persistent for load in loads),
        asks=sorted({one for load in loads for one in load.asks}),
        exchange=own,
    )


def wanted(experiment: Experiment, variant: Variant, own: bool = False) -> Wanted:
    return Wanted(variant, experiment.served, use_of(experiment, cells_of(experiment, variant), own))


def cells_of(experiment: Experiment, variant: Variant) -> list[dict]:
    """The cells of the experiment that the variant can serve."""
    return [cell for cell in experiment.cells() if exceeded(experiment, variant, cell) is None]


def exceeded(experiment: Experiment, variant: Variant, cell: dict) -> str | None:
    """What this cell asks that the variant does not offer, or which of its limits it exceeds, in words. None if it fits."""
    load = experiment.load_of(cell)
    if lacking := [one for one in load.asks if one not in variant.offers]:
        return f"does not offer {' and '.join(lacking)}"
    return variant.limits.exceeded(load.payload_bytes if experiment.scenario in SIZED else 0, load.most_connections)


def cells_left_out(experiment: Experiment, variants: list[Variant]) -> list[str]:
    """One line per variant that cannot serve some of the cells."""
    lines = []
    for variant in variants:
        reasons = [reason for cell in experiment.cells() if (reason := exceeded(experiment, variant, cell)) is not None]
        if 0 < len(reasons) < len(experiment.cells()):
            lines.append(f"{variant.name} is left out of {len(reasons)} of {len(experiment.cells())} cells: it {reasons[0]}")
    return lines


def rows(wanted: list[Wanted], cpus: list[int], port: int | None, say: Callable[[str], None]) -> list[ServerRow]:
    """Builds and checks each variant. The row of a variant that cannot run has the reason."""
    variants = [one.variant for one in wanted]
    for variant in variants:
        if build.obstacle(variant) is None and build.state(variant) in ("changed", "not built") and variant.table.build:
            say(f"building {variant.name}")
    built = build.build_all(variants, cpus, os.cpu_count() or 1)
    return [_checked(one, built[one.variant.name], port, say) for one in wanted]


def row_of_built(wanted: Wanted, cpus: list[int], port: int | None) -> ServerRow:
    """The row of one variant that must already be built."""
    variant = wanted.variant
    problem, state = build.obstacle(variant), build.state(variant)
    if problem is None and state != "built":
        since = "not built" if state == "not built" else "changed since it was built"
        problem = f"{since} on the serving host; run `wsbench build {variant.name}` there"
    if problem is not None:
        return left_out(variant, problem)
    return _checked(wanted, build.build(variant, cpus), port, lambda _: None)


def left_out(variant: Variant, reason: str) -> ServerRow:
    return _row(variant, build.Built(None, None, "skipped"), [], reason)


def _checked(wanted: Wanted, built: build.Built, port: int | None, say: Callable[[str], None]) -> ServerRow:
    variant = wanted.variant
    if built.problem is not None:
        return _row(variant, built, [], built.problem)
    own = f"{variant.manifest.library}{f': it has {serving.READY_S:g} s to answer at $PORT' if variant.variant == COMMAND else ''}"
    say(f"checking {own if variant.variant in (COMMAND, RUNNING) else variant.name}")
    try:
        checks = contract.check(variant, [wanted.served], port, wanted.use)
    except TrialFailed as failure:
        log = contract.log_of(variant, "check")
        said = serving.telling(serving.last_lines(log)) if str(failure).startswith(serving.ENDED) else []
        return _row(variant, built, [], f"{CHECK_ENDED}: {'; it wrote: '.join([str(failure), *said])}")
    except Exception as error:
        return _row(variant, built, [], f"{CHECK_ENDED}: {contained.fault(f'checks of {variant.name}', error)}")
    if isinstance(variant.table, Running):
        pid, url = variant.table.pid, variant.table.url
        unknown = "its process is unknown, so it is not sampled and may use the engine's CPUs; name it with --pid, or `pid`"
        say(f"{url}: {unknown}" if pid is None else f"{url}: {running.name(pid)} (process {pid}) is sampled")
    # A server that has ended fails every check that follows: the cause is told.
    wrong = sorted((one for one in checks if one.required and not one.passed), key=lambda one: one.name != contract.ALIVE)
    reason = f"fails {wrong[0].name} ({wrong[0].section}): {wrong[0].detail}" if wrong else None
    return _row(variant, built, checks, reason)


def _row(variant: Variant, built: build.Built, checks: list[CheckResult], skipped: str | None) -> ServerRow:
    manifest, table = variant.manifest, variant.table
    starts = isinstance(table, Started)
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
        build=table.build if starts else [],
        run=table.run if starts else [],
        env=variant.env,
        departures=variant.departures,
        conformance=checks,
        skipped=skipped,
        running=RunningRow(url=table.url, pid=table.pid) if isinstance(table, Running) else None,
        roles=variant.roles,
    )
