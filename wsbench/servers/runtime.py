"""The runtime of a variant on this machine: its JDK, its environment, and the properties that it reports.

JDKs are found by one rule, `jdks`; no path of a particular machine is listed here. The runtime is queried with the server's
environment and CPUs, because a JVM chooses its collector by the CPUs it may use.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from wsbench.host import installation
from wsbench.host.process import output_of
from wsbench.monitoring.sampler import children_of
from wsbench.records.errors import TrialFailed
from wsbench.records.rundir import RuntimeRecord
from wsbench.servers.catalogue import Variant
from wsbench.servers.settings import COLLECTOR_FLAGS

PLACES = ("/usr/lib/jvm/*", "/opt/*", "/usr/local/*", "~/.sdkman/candidates/java/*", "~/.jdks/*")
POLLERS = {"anon_inode:[eventpoll]": "epoll", "anon_inode:[io_uring]": "io_uring"}
#: A line of -XX:+PrintFlagsFinal: type, name, value, kind, origin.
FLAG = r"^\s*\w+ (\w+)\s*:?=\s*(\S*)\s+\{[^}]*\} \{([^}]*)\}"


@dataclass(frozen=True)
class Jdk:
    home: Path
    version: str

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", self.version))

    @property
    def major(self) -> int:
        first, *rest = self.numbers
        return rest[0] if first == 1 and rest else first


def jdks() -> list[Jdk]:
    """All installed JDKs, newest first: $JAVA_HOME, the one of `javac` on the PATH, then the usual places."""
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    if (javac := shutil.which("javac")) is not None:
        homes.append(Path(javac).resolve().parent.parent)
    for place in PLACES:
        pattern = installation.expanded(place)
        homes += [] if pattern is None else sorted(pattern.parent.glob(pattern.name))
    found = {}
    for home in homes:
        version = _version_of(home)
        if version is not None:
            found.setdefault(home.resolve(), Jdk(home.resolve(), version))
    return sorted(found.values(), key=lambda one: one.numbers, reverse=True)


def _version_of(home: Path) -> str | None:
    """Version from the `release` file, which every JDK has."""
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="([^"]*\d[^"]*)"', text, re.MULTILINE)
    return match.group(1) if match and (home / "bin" / "javac").exists() else None


def obstacle(variant: Variant) -> str | None:
    """Why the variant's runtime is not available here. None if it is."""
    asked, least = variant.settings.jdk, variant.jdk
    if asked is not None and least is not None and asked < least:
        return f"needs JDK {least} or newer, but {asked} was chosen"
    if (asked is None and least is None) or _jdk(variant) is not None:
        return None
    here = ", ".join(f"{one.version} in {one.home}" for one in jdks()) or "none"
    return (
        f"needs JDK {asked or f'{least} or newer'}, found {here}; `wsbench build --install {variant.name}` installs it if "
        f"this system offers it; else put it in one of {', '.join(PLACES)}"
    )


def missing_jdk(variant: Variant) -> int | None:
    """The JDK version to install for the variant. None if it is present or no JDK could help."""
    asked, least = variant.settings.jdk, variant.jdk
    wanted = asked or least
    return wanted if wanted is not None and (least or 0) <= wanted and _jdk(variant) is None else None


def environment(variant: Variant) -> dict[str, str]:
    """The environment of the server's process. TrialFailed if its JDK is no longer present."""
    return {**variant.env, **_place_of(variant, _jdk(variant))}


def build_environment(variant: Variant) -> dict[str, str]:
    """The environment of a build. It does not depend on the chosen runtime, nor on which of the variants that share it is built."""
    least = variant.manifest.variants[variant.builder].jdk
    return _place_of(variant, None if least is None else _at_least(least))


def _place_of(variant: Variant, jdk: Jdk | None) -> dict[str, str]:
    if (problem := obstacle(variant)) is not None:
        raise TrialFailed(problem)
    if jdk is None:
        return {}
    return {"JAVA_HOME": str(jdk.home), "PATH": f"{jdk.home / 'bin'}:{os.environ.get('PATH', '')}"}


def _jdk(variant: Variant) -> Jdk | None:
    if variant.settings.jdk is not None:
        return next((one for one in jdks() if one.major == variant.settings.jdk), None)
    return None if variant.jdk is None else _at_least(variant.jdk)


def _at_least(least: int) -> Jdk | None:
    """The newest release of the oldest sufficient JDK line, for which the server was written."""
    lines = [one for one in jdks() if one.major >= least]
    oldest = min((one.major for one in lines), default=None)
    return next((one for one in lines if one.major == oldest), None)


def observe(variant: Variant, cpus: list[int]) -> RuntimeRecord | None:
    """The runtime's own report, with the server's settings and CPUs. None if the server takes no runtime settings."""
    if variant.runtime == "jvm":
        return _observe_jvm(environment(variant), cpus)
    if variant.runtime == "node":
        return _observe_node(environment(variant), cpus)
    return None


def _observe_jvm(env: dict[str, str], cpus: list[int]) -> RuntimeRecord:
    said = output_of(["java", "-XX:+PrintFlagsFinal", "-XshowSettings:properties", "-version"], env=env, cpus=cpus)
    if said.code != 0:
        raise TrialFailed(f"the JVM does not start: {complaint(said.text)}")
    flags = {name: (value, origin) for name, value, origin in re.findall(FLAG, said.text, re.MULTILINE)}
    properties = dict(re.findall(r"^\s+(java\.\S+) = (.*)$", said.text, re.MULTILINE))
    collectors = {name: flags.get(option.removeprefix("-XX:+"), ("", "")) for name, option in COLLECTOR_FLAGS.items()}
    used = [name for name, (value, _) in collectors.items() if value == "true"]
    collector = used[0] if len(used) == 1 else None
    return RuntimeRecord(
        name="java",
        version=properties.get("java.runtime.version"),
        vendor=properties.get("java.vendor"),
        home=properties.get("java.home"),
        collector=collector,
        collector_asked=collector is not None and collectors[collector][1] == "environment",
        heap_bytes=int(flags["MaxHeapSize"][0]) if "MaxHeapSize" in flags else None,
        options=env.get("JAVA_TOOL_OPTIONS", ""),
    )


def _observe_node(env: dict[str, str], cpus: list[int]) -> RuntimeRecord:
    script = "console.log([process.version, process.execPath, require('v8').getHeapStatistics().heap_size_limit].join('\\n'))"
    said = output_of(["node", "-e", script], env=env, cpus=cpus)
    if said.code != 0:
        raise TrialFailed(f"Node does not start: {complaint(said.text)}")
    version, home, heap = said.text.splitlines()[-3:]
    return RuntimeRecord(
        name="node",
        version=version,
        vendor=None,
        home=home,
        collector=None,
        collector_asked=False,
        heap_bytes=int(heap),
        options=env.get("NODE_OPTIONS", ""),
    )


def executable(pid: int) -> str | None:
    """The program that a process runs. None once it has ended."""
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return None


def pollers(pid: int) -> list[str]:
    """Event interfaces that a process tree uses, `epoll` or `io_uring`. Empty if its threads block."""
    held, new = set(), [pid]
    while new:
        for one in new:
            for entry in _listed(Path(f"/proc/{one}/fd")):
                with contextlib.suppress(OSError):
                    held.add(str(entry.readlink()))
        new = [child for one in new for child in children_of(one)]
    return [name for link, name in POLLERS.items() if link in held]


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def complaint(text: str) -> str:
    """The line of a program's output that most likely states the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Picked up ")]
    return lines[0] if lines else "no output"
