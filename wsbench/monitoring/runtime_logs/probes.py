"""Probes: environment variables that make a server's runtime write telemetry, the same for every trial.

A variant's tags name its runtime. A probe appends to a variable and keeps its present value. Only this module sets probe variables.

| tag | variable | effect | output |
|---|---|---|---|
| `jvm` | `JDK_JAVA_OPTIONS` | unified logging of collections and safepoints (JDK 9 and later) | `gc.log` |
| `node` | `NODE_OPTIONS` | a module that is loaded before the server's own code, `node_probe.cjs` | `runtime.jsonl` |
| `go` | `GODEBUG` | a line for each collection on standard error | `server.log` |

`JDK_JAVA_OPTIONS` and not `JAVA_TOOL_OPTIONS`: only `java` reads it, not every JVM that a tool starts. JDK 8 ignores it; with
`-Xlog`, which it does not know, it would not start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from wsbench.monitoring.runtime_logs import go, jvm, node
from wsbench.monitoring.runtime_logs.record import Telemetry
from wsbench.records.errors import UserError

NODE_PROBE = Path(__file__).with_name("node_probe.cjs")
#: By tag. Other runtimes are not observed, even if they have a garbage collector.
UNWATCHED = "wsbench has no probe for this server's runtime"


@dataclass(frozen=True)
class Probe:
    """A runtime's probe: its variable, the separator between options, the option to add and the output file. `settle_s` is how long
    the server must live after the measurement for its output to be complete."""

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
    """The runtime of a variant that has a probe, by its tags. None if there is none."""
    return next((tag for tag in tags if tag in PROBES), None)


def environment(name: str | None, env: dict[str, str], folder: Path) -> dict[str, str]:
    """The environment with the probe's options added. The probe writes to `folder`."""
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
    """Whether a line of `server.log` comes from a probe and not from the server."""
    return name == "go" and go.is_trace(line)


def read(name: str | None, folder: Path, started_ns: int | None) -> Telemetry | str:
    """The telemetry of a trial, or the reason why there is none."""
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
    return f"the probe of {name} wrote nothing to {file.name}" if told is None else told
