"""`wsbench capacity`: the campaign that searches for the capacity of servers, rows of the catalogue, commands or URLs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wsbench.analysis.capacity import promises
from wsbench.metrics import capacities
from wsbench.records.errors import UserError
from wsbench.run import duel
from wsbench.run import request as request_of

#: The name of the experiment, and so of the campaign's folder.
NAME = "capacity"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#: Before each probe. On the JVM the compiler takes CPU time from a server for longer than two seconds (METHODOLOGY, capacity).
WARMUP_S, WARMUP_JVM_S = 2.0, 10.0


@dataclass(frozen=True)
class Asked:
    """The user's request. `start`: the first load; `each_per_s`: of each connection, where their number is searched for; `spoken`:
    what commands and URLs speak in scenario rpc; `warmup_s`: None for the usual ones; `budget_s`: of each server's search; `as_is`:
    probes that the host disturbed count."""

    targets: tuple[str, ...]
    promises: tuple[str, ...]
    over: str = "rate"
    connections: int = 50
    payload_bytes: int = 128
    scenario: Literal["echo", "push", "rpc"] = "echo"
    spoken: duel.Spoken | None = None
    tls: bool = False
    deflate: bool = False
    each_per_s: float | None = None
    rate_per_s: float | None = None
    arrivals: str = "poisson"
    start: float | None = None
    most: float | None = None
    warmup_s: float | None = None
    probe_s: float = 5.0
    within: float = 0.05
    budget_s: float = 300.0
    as_is: bool = False
    rounds: int = 1
    path: str | None = None
    pid: int | None = None
    seed: int | None = None


@contextlib.contextmanager
def request(asked: Asked, command: str) -> Iterator[request_of.Request]:
    """The campaign. Its files lie in a temporary folder until it has begun. UserError for a bad request."""
    for text in asked.promises:
        promises.parse(text)
    if len(asked.targets) > len(LETTERS):
        raise UserError(f"found {len(asked.targets)} servers, allowed: {len(LETTERS)}; name others in an experiment")
    pid = asked.pid
    if pid is not None and len(asked.targets) > 1:
        raise UserError("--pid goes with a single URL")
    lettered = zip(asked.targets, LETTERS, strict=False)
    chosen = [duel.contender(text, letter, asked.path, pid, asked.spoken) for text, letter in lettered]
    if len({one.name for one in chosen}) < len(chosen):
        raise UserError("a server is named twice; --rounds repeats a search")
    with tempfile.TemporaryDirectory(prefix="wsbench-capacity-") as made:
        own = duel.written(chosen, Path(made))
        file = Path(made, f"{NAME}.toml")
        file.write_text(_experiment(asked, [one.name for one in chosen]), encoding="utf-8")
        yield request_of.request(str(file), command, seed=asked.seed, control=False, own=own)


def _experiment(asked: Asked, names: list[str]) -> str:
    unit = "messages per second" if asked.over == "rate" else "connections"
    head = {
        "question": f"How many {unit} do these servers carry while {' / '.join(asked.promises)}?",
        "reading": "Each probe is a fresh process under one load. The answer is the highest load that keeps a promise more often "
        "than not, with an interval that holds at the moment the search ended.",
        "servers": names,
        "scenario": asked.scenario,
        "loop": "capacity",
        "headline": capacities.name_of(asked.over, 0),
    }
    load = {"connections": asked.connections, "payload_bytes": asked.payload_bytes, "arrivals": asked.arrivals}
    load |= {name: True for name in ("tls", "deflate") if getattr(asked, name)}
    load |= {} if asked.rate_per_s is None else {"rate_per_s": asked.rate_per_s}
    optional = {
        "disturbed": "count" if asked.as_is else None,
        "start": asked.start,
        "most": asked.most,
        "each_per_s": asked.each_per_s,
    }
    table = {"over": asked.over, "promises": list(asked.promises), "within": asked.within, "budget_s": asked.budget_s}
    table |= {key: value for key, value in optional.items() if value is not None}
    warmup = {"warmup_s": WARMUP_S, "warmup_of.jvm": WARMUP_JVM_S} if asked.warmup_s is None else {"warmup_s": asked.warmup_s}
    timing = {**warmup, "measure_s": asked.probe_s, "rounds": asked.rounds}
    parts = [("load", load), ("capacity", table), ("timing", timing)]
    return "\n".join([*duel.toml_lines(head), *(line for name, of in parts for line in (f"[{name}]", *duel.toml_lines(of)))]) + "\n"
