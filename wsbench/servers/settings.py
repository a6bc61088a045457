"""Runtime settings of a server: JDK, garbage collector, heap, further flags. Values only.

Settings are part of the variant's name, after a `+`: `netty@4.2+jdk25+ZGC+heap4g`. Further flags are not part of a name, so they
apply to a whole experiment. Whether and where this machine has a JDK is determined elsewhere.
"""

from __future__ import annotations

import itertools
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from wsbench.records.errors import UserError
from wsbench.records.frozen import Frozen

#: Runtimes that take settings. Any other server runs as built.
RuntimeName = Literal["jvm", "node"]
Collector = Literal["Serial", "Parallel", "G1", "ZGC", "Shenandoah"]
COLLECTOR_FLAGS: dict[str, str] = {
    "Serial": "-XX:+UseSerialGC",
    "Parallel": "-XX:+UseParallelGC",
    "G1": "-XX:+UseG1GC",
    "ZGC": "-XX:+UseZGC",
    "Shenandoah": "-XX:+UseShenandoahGC",
}
#: Default heap of every JVM server: fixed, so that memory use is comparable.
JVM_HEAP = "1g"
Heap = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}[mg]$")]
#: Settings that each runtime takes.
TAKES: dict[str, frozenset[str]] = {
    "jvm": frozenset({"jdk", "gc", "heap", "jvm_flags"}),
    "node": frozenset({"heap", "node_options"}),
}
CHOSEN_ELSEWHERE = re.compile(
    r"-Xm[sx].*|-XX:(Initial|Max|Min)HeapSize=.*|-XX:(Initial|Max|Min)RAM.*|-XX:[+-]Use\w+GC|--max-old-space-size.*"
)


def _plain(flags: list[str]) -> list[str]:
    """Flags share one environment variable, separated by spaces. Heap and collector have their own keys."""
    for flag in flags:
        if not re.fullmatch(r"-[^\s'\"]+", flag):
            raise ValueError(f"a flag begins with '-' and contains no spaces or quotes, found {flag!r}")
        if CHOSEN_ELSEWHERE.fullmatch(flag):
            raise ValueError(f"found {flag!r}: use the keys 'heap' and 'gc' for heap and collector")
    return flags


Flags = Annotated[list[str], AfterValidator(_plain)]
Jdk = Annotated[int, Field(ge=8, le=99)]


class Settings(Frozen):
    """Settings chosen for one variant. None or empty keeps the variant's own."""

    jdk: Jdk | None = None
    gc: Collector | None = None
    heap: Heap | None = None
    jvm_flags: Flags = []
    node_options: Flags = []

    @property
    def suffix(self) -> str:
        """The part of the variant's name."""
        chosen = [
            *([f"jdk{self.jdk}"] if self.jdk else []),
            *([self.gc] if self.gc else []),
            *([f"heap{self.heap}"] if self.heap else []),
        ]
        return "".join(f"+{one}" for one in chosen)

    @property
    def keys(self) -> set[str]:
        return {name for name in type(self).model_fields if getattr(self, name)}

    def shared_by(self, processes: int) -> Settings:
        """The settings of each of several processes that share the heap equally."""
        if self.heap is None or processes == 1:
            return self
        return self.model_copy(update={"heap": f"{max(1, mebibytes(self.heap) // processes)}m"})

    def taken_by(self, runtime: RuntimeName | None) -> bool:
        return self.keys <= TAKES.get(runtime or "", frozenset())


class RuntimeTable(Frozen):
    """An experiment's `[runtime]`: every combination of `jdk`, `gc` and `heap` makes a variant of each server that takes them.

    The flags apply to every such variant. A server whose runtime takes none of the settings is measured once, unchanged.
    """

    jdk: list[Jdk] = []
    gc: list[Collector] = []
    heap: list[Heap] = []
    jvm_flags: Flags = []
    node_options: Flags = []

    @property
    def keys(self) -> set[str]:
        return {name for name in type(self).model_fields if getattr(self, name)}

    def choices(self, runtime: RuntimeName | None, chosen: Settings) -> list[Settings]:
        """The variants made of one variant. Settings in its name stay in force."""
        takes = TAKES.get(runtime or "", frozenset())
        axes = {
            key: getattr(self, key)
            for key in ("jdk", "gc", "heap")
            if key in takes and getattr(self, key) and getattr(chosen, key) is None
        }
        products = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        return [self.flagged(runtime, chosen.model_copy(update=product)) for product in products]

    def flagged(self, runtime: RuntimeName | None, chosen: Settings) -> Settings:
        takes = TAKES.get(runtime or "", frozenset())
        return chosen.model_copy(update={key: getattr(self, key) for key in ("jvm_flags", "node_options") if key in takes})


def parse(suffix: str) -> Settings:
    """Parses a suffix such as `jdk25+ZGC+heap4g`. UserError for an invalid setting."""
    found: dict[str, int | str] = {}
    for part in suffix.split("+"):
        if match := re.fullmatch(r"jdk([0-9]{1,2})", part):
            key, value = "jdk", int(match.group(1))
        elif part in COLLECTOR_FLAGS:
            key, value = "gc", part
        elif match := re.fullmatch(r"heap([1-9][0-9]{0,5}[mg])", part):
            key, value = "heap", match.group(1)
        else:
            allowed = f"jdk25, {', '.join(COLLECTOR_FLAGS)}, heap4g"
            raise UserError(f"found +{part} after a server's name; allowed, for example: {allowed}")
        if key in found:
            raise UserError(f"found {key} twice in +{suffix}")
        found[key] = value
    return Settings(**found)


def options(runtime: RuntimeName | None, settings: Settings) -> dict[str, str]:
    """The environment variables that pass the settings to the runtime."""
    if runtime == "jvm":
        heap = settings.heap or JVM_HEAP
        collector = [COLLECTOR_FLAGS[settings.gc]] if settings.gc else []
        return {"JAVA_TOOL_OPTIONS": " ".join([f"-Xms{heap}", f"-Xmx{heap}", *collector, *settings.jvm_flags])}
    if runtime == "node":
        heap = [f"--max-old-space-size={mebibytes(settings.heap)}"] if settings.heap else []
        if chosen := [*heap, *settings.node_options]:
            return {"NODE_OPTIONS": " ".join(chosen)}
    return {}


def departures(runtime: RuntimeName | None, settings: Settings) -> list[str]:
    """The overrides of the runtime's defaults that the name does not show, in words."""
    found = []
    if runtime == "jvm":
        heap = settings.heap or JVM_HEAP
        as_usual = "" if settings.heap else ", as for every JVM server, so that memory use is comparable"
        found.append(f"the heap is fixed at {heap[:-1]} {heap[-1].upper()}iB (-Xms{heap} -Xmx{heap}){as_usual}")
    if runtime == "node" and settings.heap:
        found.append(f"the heap may grow to {settings.heap[:-1]} {settings.heap[-1].upper()}iB (--max-old-space-size)")
    if flags := [*settings.jvm_flags, *settings.node_options]:
        found.append(f"run with {' '.join(flags)}")
    return found


def mebibytes(heap: str) -> int:
    return int(heap[:-1]) * (1024 if heap.endswith("g") else 1)
