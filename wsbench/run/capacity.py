"""`wsbench capacity`: the campaign of ladders that finds the capacity of servers, rows of the catalogue, commands or URLs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wsbench.analysis import slo
from wsbench.metrics import capacities
from wsbench.metrics.ladder import timed
from wsbench.records.errors import UserError
from wsbench.records.goals import Goal
from wsbench.run import duel
from wsbench.run import request as request_of

#: The name of the experiment, and so of the campaign's folder.
NAME = "capacity"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#: Before each ladder.
WARMUP_S = 2.0
#: Time for all rounds, for each server.
BUDGET_S = 300.0


@dataclass(frozen=True)
class Asked:
    """The user's request. `start`: the first load; `most`: the highest; `each_per_s`: of each connection, where their number is
    asked for; `spoken`: what commands and URLs speak in place of an echo; `warmup_s`: None for the usual ones; `budget_s`: of all
    rounds, None for five minutes a server; `room_size`: in scenario rooms; `as_is`: what the host disturbed counts."""

    targets: tuple[str, ...]
    slos: tuple[str, ...]
    over: str = "rate"
    connections: int = 50
    payload_bytes: int = 128
    scenario: Literal["echo", "push", "rooms", "rpc"] = "echo"
    spoken: duel.Spoken | None = None
    room_size: int | None = None
    tls: bool = False
    deflate: bool = False
    each_per_s: float | None = None
    start: float | None = None
    most: float | None = None
    warmup_s: float | None = None
    rung_s: float = 1.0
    within: float = 0.1
    budget_s: float | None = None
    as_is: bool = False
    path: str | None = None
    pid: int | None = None
    seed: int | None = None


@contextlib.contextmanager
def request(asked: Asked, command: str) -> Iterator[request_of.Request]:
    """The campaign. Its files lie in a temporary folder until it has begun. UserError for a bad request."""
    found = list(map(slo.parse, asked.slos))
    if len(found) > capacities.MOST_SLOS:
        raise UserError(f"found {len(found)} of --slo, allowed: {capacities.MOST_SLOS}")
    of_copies = timed(found)[0].startswith("push")
    if of_copies != (asked.scenario in ("push", "rooms")):
        meant = "push.p99 or push_last.p99" if asked.scenario in ("push", "rooms") else "response.p99"
        raise UserError(f"--slo: found {asked.slos[0]!r}, allowed for scenario {asked.scenario}: a time such as {meant}")
    if len(asked.targets) > len(LETTERS):
        raise UserError(f"found {len(asked.targets)} servers, allowed: {len(LETTERS)}; name others in an experiment")
    pid = asked.pid
    if pid is not None and len(asked.targets) > 1:
        raise UserError("--pid goes with a single URL")
    lettered = zip(asked.targets, LETTERS, strict=False)
    chosen = [duel.contender(text, letter, asked.path, pid, asked.spoken) for text, letter in lettered]
    if len({one.name for one in chosen}) < len(chosen):
        raise UserError("a server is named twice; every round measures it anew")
    with tempfile.TemporaryDirectory(prefix="wsbench-capacity-") as made:
        own = duel.written(chosen, Path(made))
        file = Path(made, f"{NAME}.toml")
        file.write_text(_experiment(asked, [one.name for one in chosen]), encoding="utf-8")
        names = [capacities.name_of(asked.over, place) for place in range(len(found))]
        until = Goal(budget_s=asked.budget_s or BUDGET_S * len(chosen), metrics=names, within=asked.within)
        yield request_of.request(str(file), command, seed=asked.seed, control=False, own=own, until=until)


def _experiment(asked: Asked, names: list[str]) -> str:
    unit = "messages per second" if asked.over == "rate" else "connections"
    head = {
        "question": f"How many {unit} do these servers carry while {' / '.join(asked.slos)}?",
        "reading": "In each round a fresh process of every server carries a ladder of loads. Where its curve crosses the bound is "
        "the capacity of that process. The answer is the mean of the processes, with its interval.",
        "servers": names,
        "scenario": asked.scenario,
        "loop": "ladder",
        "headline": capacities.name_of(asked.over, 0),
    }
    load = {"connections": asked.connections, "payload_bytes": asked.payload_bytes, "arrivals": "poisson"}
    load |= {name: True for name in ("tls", "deflate") if getattr(asked, name)}
    load |= {} if asked.room_size is None else {"room_size": asked.room_size}
    table = {"slos": list(asked.slos), "over": asked.over}
    optional = {"start": asked.start, "most": asked.most, "each_per_s": asked.each_per_s}
    table |= {key: value for key, value in optional.items() if value is not None}
    warmup = {"warmup_s": WARMUP_S, "warmup_of.jvm": duel.WARMUP_JVM_S} if asked.warmup_s is None else {"warmup_s": asked.warmup_s}
    timing = {**warmup, "measure_s": asked.rung_s, "again": 0} | ({"disturbed": "count"} if asked.as_is else {})
    return duel.toml(head, {"load": load, "ladder": table, "timing": timing})
