"""How a server's runtime is asked to tell of itself: by switches in the environment it is started with, the same for every trial.

A variant's tags name its runtime. What the environment says already stays in force: a probe adds to a variable, it does not
replace it. This is the only place that does so.

| tag | variable | what it asks for | written to |
|---|---|---|---|
| `jvm` | `JDK_JAVA_OPTIONS` | unified logging of collections and safepoints (JDK 9 and later) | `gc.log` |
| `node` | `NODE_OPTIONS` | a module that is loaded before the server's own code, `node_probe.cjs` | `runtime.jsonl` |
| `go` | `GODEBUG` | a line for each collection on standard error | `server.log` |

`JDK_JAVA_OPTIONS` and not `JAVA_TOOL_OPTIONS`: it is for `java` alone, not for every JVM that a tool starts, and JDK 8, which
does not know `-Xlog` and would not start with it, does not read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from wsbench.monitoring.runtime_logs import go, jvm, node
from wsbench.monitoring.runtime_logs.record import Telemetry
from wsbench.records.errors import UserError

NODE_PROBE = Path(__file__).with_name("node_probe.cjs")
#: By tag; whatever else has a collector is not watched.
UNWATCHED = "no probe tells of this server's runtime"


@dataclass(frozen=True)
class Probe:
    """One runtime's: the variable that it is asked by, what stands between two wishes in it, where the answer comes, and for how
    long the server must live on after what was measured, so that all of it has been written."""

    variable: str
    between: str
    wish: Callable[[Path], str]
    file: str
    settle_s: float = 0.0


PROBES = {
    "jvm": Probe(
        "JDK_JAVA_OPTIONS",
        " ",
        lambda folder: f"'-Xlog:gc*,safepoint:file=\"{folder}/gc.log\":timenanos,level,tags:filecount=0'",
        "gc.log",
    ),
    "node": Probe("NODE_OPTIONS", " ", lambda folder: f'--require "{NODE_PROBE}"', "runtime.jsonl", 0.3),
    "go": Probe("GODEBUG", ",", lambda folder: "gctrace=1", "server.log"),
}


def probe_of(tags: Iterable[str]) -> str | None:
    """The runtime whose probe fits a variant, by its tags."""
    return next((tag for tag in tags if tag in PROBES), None)


def environment(name: str | None, env: dict[str, str], folder: Path) -> dict[str, str]:
    """The environment with the probe's wishes added, which are to write into the folder."""
    if name is None:
        return env
    probe, folder = PROBES[name], folder.resolve()
    wishes = [env[probe.variable]] if env.get(probe.variable) else []
    added = {probe.variable: probe.between.join([*wishes, probe.wish(folder)])}
    if name == "node":
        added["WSBENCH_PROBE"] = str(folder / probe.file)
    return {**env, **added}


def settle_s(name: str | None) -> float:
    return 0.0 if name is None else PROBES[name].settle_s


def is_told(name: str | None, line: str) -> bool:
    """Whether a line of `server.log` is a probe's and not the server's own."""
    return name == "go" and go.is_trace(line)


def read(name: str | None, folder: Path, started_ns: int | None) -> Telemetry | str:
    """What the probe of a trial told, or the reason why there is nothing."""
    if name is None:
        return UNWATCHED
    file = folder / PROBES[name].file
    read_it = {
        "jvm": lambda: jvm.read(file),
        "node": lambda: node.read(file),
        "go": lambda: go.read(file, started_ns),
    }[name]
    try:
        told = read_it()
    except UserError as error:
        return f"the probe of {name}: {error}"
    return f"the probe of {name} left nothing in {file.name}" if told is None else told
