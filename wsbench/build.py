"""Building servers: are the tools there, is anything changed, and does the result say which version it is.

What `build` made is remembered by a stamp beside the artefacts: a hash of the server's sources and of its manifest. Nothing
changed, nothing run. Output goes to a log that is kept.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wsbench import runtime
from wsbench.catalogue import Need, Variant
from wsbench.errors import TrialFailed
from wsbench.process import output_of, run_logged
from wsbench.rundir import RuntimeRecord

#: Never part of a server's sources, whatever its manifest says.
MADE = {"build", "target", "node_modules", "bin", "__pycache__"}


@dataclass(frozen=True)
class Built:
    """A variant's build: its receipt and what its runtime says of itself, or in one line why there is no receipt."""

    receipt: str | None
    problem: str | None
    did: str
    runtime: RuntimeRecord | None = None


def log_of(variant: Variant) -> Path:
    return variant.folder / "build" / f"wsbench-{variant.row}.log"


def state(variant: Variant) -> str:
    """`built`, `changed` (since it was built) or `not built`."""
    stamp = _stamp(variant)
    if not stamp.exists() or not all((variant.folder / artefact).exists() for artefact in variant.table.artefacts):
        return "not built"
    return "built" if stamp.read_text() == _fingerprint(variant) else "changed"


def obstacle(variant: Variant) -> str | None:
    """Why it cannot be had here: it is unavailable altogether, or a tool or its JDK is missing."""
    if variant.table.unavailable is not None:
        return f"unavailable: {variant.table.unavailable}"
    return missing_tool(variant) or runtime.obstacle(variant)


def missing_tool(variant: Variant) -> str | None:
    """One line that names the first tool that is missing or too old, and how to install it."""
    for need in variant.needs:
        if (problem := _lacks(tuple(need.run), need.at_least, need.install)) is not None:
            return problem
    return None


@cache
def _lacks(run: tuple[str, ...], at_least: str, install: str) -> str | None:
    need = Need(run=list(run), at_least=at_least, install=install)
    found = tool_version(need.run)
    if found is None:
        return f"needs {need.run[0]} ≥ {at_least}, found none; {install}"
    if _numbers(found) < _numbers(at_least):
        return f"needs {need.run[0]} ≥ {at_least}, found {found}; {install}"
    return None


def tool_version(argv: list[str]) -> str | None:
    """The first thing like a version in what the command prints; None where it cannot be run."""
    output = output_of(argv)
    match = re.search(r"\d+(\.\d+)+|\b\d+\b", output.text) if output.code == 0 else None
    return match.group() if match else None


def build(variant: Variant, cpus: list[int], say: Callable[[str], None] = lambda _: None) -> Built:
    """Builds what is not built or has changed, then asks for the receipt, under the settings and on the CPUs that the server
    will have. Never raises for a server's own problems."""
    if (problem := obstacle(variant)) is not None:
        return Built(None, problem, "skipped")
    did = "was built"
    if state(variant) != "built":
        say(f"building {variant.name}")
        log = log_of(variant)
        log.parent.mkdir(exist_ok=True)
        log.unlink(missing_ok=True)
        for argv in variant.table.build:
            code = run_logged(argv, variant.folder, log, runtime.build_environment(variant))
            if code != 0:
                return Built(None, f"build failed: `{' '.join(argv)}` ended with {code}; see {log}", "failed")
        _stamp(variant).write_text(_fingerprint(variant))
        did = "built"
    return _receipt(variant, cpus, did)


def _receipt(variant: Variant, cpus: list[int], did: str) -> Built:
    command, expected = variant.table.version, variant.table.library_version
    try:
        output = output_of(command, variant.folder, env=runtime.environment(variant), cpus=cpus)
        lines = [line for line in output.text.splitlines() if line.strip()]
        if output.code != 0 or not lines:
            said = runtime.complaint(output.text)
            return Built(None, f"no receipt: `{' '.join(command)}` ended with {output.code}: {said}", "failed")
        if expected not in lines[-1]:
            wrong = f"the receipt {lines[-1]!r} does not contain the manifest's version {expected!r}"
            return Built(None, wrong, "failed")
        return Built(lines[-1].strip(), None, did, runtime.observe(variant, cpus))
    except TrialFailed as failure:
        return Built(None, str(failure), "failed")


def _stamp(variant: Variant) -> Path:
    return variant.folder / "build" / f"wsbench-{variant.row}.stamp"


def _fingerprint(variant: Variant) -> str:
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(variant.folder):
        folders[:] = sorted(set(folders) - MADE)
        for name in sorted(files):
            file = Path(folder, name)
            digest.update(str(file.relative_to(variant.folder)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
