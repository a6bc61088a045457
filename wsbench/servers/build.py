"""Builds servers: checks for the tools, detects changes, and verifies that the result reports its version.

A stamp next to the artefacts records a build: a hash of the server's sources and of the build commands. If nothing has changed,
nothing is run or fetched. Variants with the same build commands share their artefacts. Build output goes to a log, which is kept.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from wsbench.host import toolchains
from wsbench.host.process import output_of, run_logged
from wsbench.records.errors import TrialFailed
from wsbench.records.rundir import Artefacts, RuntimeRecord, ServerRow
from wsbench.servers import runtime, sources
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Need, Running, Started, Unavailable

RUNS_ALREADY = "runs already"


@dataclass(frozen=True)
class Built:
    """Result of a variant's build: its version report (`receipt`) and its runtime, or a one-line reason why there is none.

    `did` is `built`, `was built`, `runs already` (there is nothing to build), `skipped` (not available here) or `failed`.
    """

    receipt: str | None
    problem: str | None
    did: str
    runtime: RuntimeRecord | None = None
    took_s: float = 0.0


def log_of(variant: Variant) -> Path:
    return _beside(variant, "log")


def state(variant: Variant) -> str:
    """`built`, `changed` (since it was built), `not built`, or `runs already`. An unavailable variant is never built."""
    if not isinstance(variant.table, Started):
        return RUNS_ALREADY if isinstance(variant.table, Running) else "not built"
    stamp = _beside(variant, "stamp")
    if not stamp.exists() or not all((variant.folder / artefact).exists() for artefact in variant.table.artefacts):
        return "not built"
    return "built" if stamp.read_text() == _fingerprint(variant) else "changed"


def last_receipt(variant: Variant) -> str | None:
    """The version report from the last build. None if the variant is not built, has changed, or has a chosen runtime."""
    file = variant.folder / "build" / f"wsbench-{variant.variant}.receipt"
    return file.read_text().strip() if file.exists() and state(variant) == "built" else None


def obstacle(variant: Variant) -> str | None:
    """Why the variant cannot run here: it is unavailable in general, or a tool or its JDK is missing. None if it can."""
    if isinstance(variant.table, Unavailable):
        return f"unavailable: {variant.table.unavailable}"
    for key, need in variant.needs.items():
        if (problem := _lacks(variant, key, need)) is not None:
            return problem
    return runtime.obstacle(variant)


def _lacks(variant: Variant, key: str, need: str | Need) -> str | None:
    """One line that names a missing or outdated tool and how to install it. None if the tool suffices."""
    if isinstance(need, str):
        problem = toolchains.lacks(key, need)
        return None if problem is None else f"{problem}; `wsbench build --install {variant.server}` installs it"
    version = toolchains.version_of(tuple(need.run))
    if version is not None and toolchains.numbers(version) >= toolchains.numbers(need.at_least):
        return None
    return f"needs {key} ≥ {need.at_least}, found {version or 'none'}; {need.install}"


def missing(variant: Variant) -> list[tuple[str, str]]:
    """The tools and versions that `toolchains.install` has to provide for this variant."""
    lacking = [one for one in _known(variant).items() if toolchains.lacks(*one) is not None]
    jdk = runtime.missing_jdk(variant)
    return lacking + ([] if jdk is None else [("jdk", str(jdk))])


def _known(variant: Variant) -> dict[str, str]:
    """Its needs that are listed in toolchains.toml."""
    return {key: need for key, need in variant.needs.items() if isinstance(need, str)}


@dataclass(frozen=True)
class Progress:
    """One variant is complete: number done, total, and an estimate of the remaining seconds from the variants so far."""

    variant: Variant
    built: Built
    done: int
    total: int
    left_s: float


def build_all(
    variants: list[Variant], cpus: list[int], jobs: int, tell: Callable[[Progress], None] = lambda _: None
) -> dict[str, Built]:
    """Builds variants that are not built or have changed, `jobs` servers at once, and queries their versions. Returns by name.

    Variants of one server are built one after the other, because they share a folder. A failure does not stop other builds.
    """
    folders: dict[Path, threading.Lock] = {variant.folder: threading.Lock() for variant in variants}
    began, found = time.monotonic(), {}
    pool = ThreadPoolExecutor(jobs)

    def one(variant: Variant) -> Built:
        with folders[variant.folder]:
            return build(variant, cpus)

    try:
        started = {pool.submit(one, variant): variant for variant in _spread(variants)}
        for future in as_completed(started):
            variant = started[future]
            found[variant.name] = future.result()
            left = len(variants) - len(found)
            left_s = (time.monotonic() - began) / len(found) * left
            tell(Progress(variant, found[variant.name], len(found), len(variants), left_s))
    finally:
        pool.shutdown(cancel_futures=True)
    return {variant.name: found[variant.name] for variant in variants}


def _spread(variants: list[Variant]) -> list[Variant]:
    """Interleaves servers, so that workers do not wait for the same folder unnecessarily."""
    turns: dict[Path, int] = {}
    ranked = []
    for variant in variants:
        turns[variant.folder] = turns.get(variant.folder, -1) + 1
        ranked.append((turns[variant.folder], variant))
    return [variant for _, variant in sorted(ranked, key=lambda pair: pair[0])]


def build(variant: Variant, cpus: list[int]) -> Built:
    """Builds the variant if it is not built or has changed. Then queries its version, with the server's settings and CPUs. Never
    raises for problems of the server itself."""
    began = time.monotonic()
    if (problem := obstacle(variant)) is not None:
        return Built(None, problem, "skipped")
    if isinstance(variant.table, Running):
        return Built(None, None, RUNS_ALREADY)
    did = "was built"
    if state(variant) != "built":
        if (problem := _run_commands(variant)) is not None:
            return Built(None, problem, "failed", took_s=time.monotonic() - began)
        did = "built"
    return _receipt(variant, cpus, did, began)


def reported(row: ServerRow) -> Built:
    """The version report that a campaign's row of the variant has."""
    return Built(row.receipt, row.skipped, "was built", row.runtime)


def artefacts(variant: Variant, cpus: list[int], reported: Built | None = None) -> Artefacts | None:
    """What would be started of the variant now; it builds nothing. `reported`: its version report, which else is asked for. None if
    nothing is started, because it runs already."""
    if not isinstance(variant.table, Started):
        return None
    table = variant.table
    said = reported or _receipt(variant, cpus, "was built", time.monotonic())
    return Artefacts(
        sources=sources.digest(variant.folder, repr((table.build, table.run, variant.env))),
        made=sources.digest_of_made([variant.folder / artefact for artefact in table.artefacts]),
        receipt=said.receipt or said.problem,
        runtime=said.runtime and said.runtime.text,
    )


def _run_commands(variant: Variant) -> str | None:
    """The failed command in one line. None if all succeeded."""
    log, stamp = log_of(variant), _beside(variant, "stamp")
    _lay_out(variant)
    log.parent.mkdir(exist_ok=True)
    # From here on the stamp would be wrong, also if the build is interrupted.
    stamp.unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    for argv in variant.table.build:
        code = run_logged(argv, variant.folder, log, _environment(variant))
        if code != 0:
            return f"build failed: `{' '.join(argv)}` exited with code {code}; see {log}"
    stamp.write_text(_fingerprint(variant))
    return None


def _lay_out(variant: Variant) -> None:
    """Copies the sources to the build folder, if it is a separate one. Another process may do the same concurrently."""
    if variant.folder.exists():
        return
    variant.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=variant.folder.parent) as made:
        shutil.copytree(variant.sources, Path(made, "copy"))
        try:
            Path(made, "copy").rename(variant.folder)
        except OSError:
            if not variant.folder.exists():
                raise


def _environment(variant: Variant) -> dict[str, str]:
    """Environment of a build: its JDK, and a PATH that includes the tools."""
    path = toolchains.path(_known(variant))
    jdk = runtime.build_environment(variant)
    if "JAVA_HOME" not in jdk:
        return {"PATH": path}
    return {**jdk, "PATH": f"{jdk['JAVA_HOME']}/bin{os.pathsep}{path}"}


def _receipt(variant: Variant, cpus: list[int], did: str, began: float) -> Built:
    command, expected = variant.table.version, variant.table.library_version

    def failed(problem: str) -> Built:
        return Built(None, problem, "failed", took_s=time.monotonic() - began)

    try:
        output = output_of(command, variant.folder, env=runtime.environment(variant), cpus=cpus)
        lines = [line.strip() for line in output.text.splitlines() if line.strip()]
        if output.code != 0 or not lines:
            said = runtime.complaint(output.text)
            return failed(f"no version report: `{' '.join(command)}` exited with code {output.code}: {said}")
        if expected not in lines[-1]:
            return failed(f"the version report {lines[-1]!r} does not contain the manifest's version {expected!r}")
        seen = runtime.observe(variant, cpus)
    except TrialFailed as failure:
        return failed(str(failure))
    (variant.folder / "build").mkdir(exist_ok=True)
    (variant.folder / "build" / f"wsbench-{variant.variant}.receipt").write_text(lines[-1] + "\n")
    return Built(lines[-1], None, did, seen, time.monotonic() - began)


def _beside(variant: Variant, kind: str) -> Path:
    return variant.folder / "build" / f"wsbench-{variant.builder}.{kind}"


def _fingerprint(variant: Variant) -> str:
    return sources.digest(variant.sources, repr(variant.table.build))
