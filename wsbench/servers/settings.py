"""What can be chosen of the runtime a server is run by: JDK, garbage collector, heap, further flags. Values only.

A choice is part of the variant's name, behind a `+`: `netty@4.2+jdk25+ZGC+heap4g`. Further flags have no place in a name, so
they hold for a whole experiment. Which JDK that is on this machine, and whether there is one, is asked elsewhere.
"""

from __future__ import annotations

import itertools
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from wsbench.records.errors import UserError
from wsbench.records.frozen import Frozen

#: What runs a server and takes settings; anything else is as it was built.
RuntimeName = Literal["jvm", "node"]
Collector = Literal["Serial", "Parallel", "G1", "ZGC", "Shenandoah"]
COLLECTOR_FLAGS: dict[str, str] = {
    "Serial": "-XX:+UseSerialGC",
    "Parallel": "-XX:+UseParallelGC",
    "G1": "-XX:+UseG1GC",
    "ZGC": "-XX:+UseZGC",
    "Shenandoah": "-XX:+UseShenandoahGC",
}
#: The heap of every JVM server that nobody has chosen another for: fixed, so that memory compares.
JVM_HEAP = "1g"
Heap = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}[mg]$")]
#: Which setting which runtime takes.
TAKES: dict[str, frozenset[str]] = {
    "jvm": frozenset({"jdk", "gc", "heap", "jvm_flags"}),
    "node": frozenset({"heap", "node_options"}),
}
CHOSEN_ELSEWHERE = re.compile(
    r"-Xm[sx].*|-XX:(Initial|Max|Min)HeapSize=.*|-XX:(Initial|Max|Min)RAM.*|-XX:[+-]Use\w+GC|--max-old-space-size.*"
)


def _plain(flags: list[str]) -> list[str]:
    """Flags travel in one environment variable, parted by spaces; heap and collector have keys of their own."""
    for flag in flags:
        if not re.fullmatch(r"-[^\s'\"]+", flag):
            raise ValueError(f"a flag begins with '-' and has neither spaces nor quotes, found {flag!r}")
        if CHOSEN_ELSEWHERE.fullmatch(flag):
            raise ValueError(f"found {flag!r}: heap and collector have keys of their own, 'heap' and 'gc'")
    return flags


Flags = Annotated[list[str], AfterValidator(_plain)]
Jdk = Annotated[int, Field(ge=8, le=99)]


class Settings(Frozen):
    """What was chosen for one variant; None is the variant's own."""

    jdk: Jdk | None = None
    gc: Collector | None = None
    heap: Heap | None = None
    jvm_flags: Flags = []
    node_options: Flags = []

    @property
    def suffix(self) -> str:
        """What of it is part of the variant's name."""
        chosen = [
            *([f"jdk{self.jdk}"] if self.jdk else []),
            *([self.gc] if self.gc else []),
            *([f"heap{self.heap}"] if self.heap else []),
        ]
        return "".join(f"+{one}" for one in chosen)

    @property
    def keys(self) -> set[str]:
        return {name for name in type(self).model_fields if getattr(self, name)}

    def taken_by(self, runtime: RuntimeName | None) -> bool:
        return self.keys <= TAKES.get(runtime or "", frozenset())


class RuntimeTable(Frozen):
    """An experiment's `[runtime]`: every combination of `jdk`, `gc` and `heap` makes a variant of each server that takes them.

    The flags are added to every such variant. A server that runs on no JVM, or Node, is measured once, as it is.
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
        """What a variant becomes; what was chosen by its name already stays."""
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
        return chosen.model_copy(
            update={key: getattr(self, key) for key in ("jvm_flags", "node_options") if key in takes}
        )


def parse(suffix: str) -> Settings:
    """`jdk25+ZGC+heap4g` as settings. UserError for what is no choice."""
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
            raise UserError(f"found +{part} behind a server's name; allowed, for example: {allowed}")
        if key in found:
            raise UserError(f"found {key} twice in +{suffix}")
        found[key] = value
    return Settings(**found)


def options(runtime: RuntimeName | None, settings: Settings) -> dict[str, str]:
    """The environment that hands the settings to the runtime."""
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
    """In words, what the settings change of the runtime's own choices and the name does not tell."""
    found = []
    if runtime == "jvm":
        heap = settings.heap or JVM_HEAP
        as_usual = "" if settings.heap else ", as in every JVM row, so that memory compares"
        found.append(f"the heap is fixed at {heap[:-1]} {heap[-1].upper()}iB (-Xms{heap} -Xmx{heap}){as_usual}")
    if runtime == "node" and settings.heap:
        found.append(f"the heap may grow to {settings.heap[:-1]} {settings.heap[-1].upper()}iB (--max-old-space-size)")
    if flags := [*settings.jvm_flags, *settings.node_options]:
        found.append(f"run with {' '.join(flags)}")
    return found


def mebibytes(heap: str) -> int:
    return int(heap[:-1]) * (1024 if heap.endswith("g") else 1)
