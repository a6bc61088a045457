"""A duel of two contenders: what each of them is, and the campaign that compares them in slices until decided.

A contender is a server that runs already (a URL), a row of the catalogue, or a command to start. Commands and URLs become manifests
in the campaign's own folder, so resuming and reporting need nothing else. A duel of a contender with itself is an A/A control.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from wsbench import metrics
from wsbench.analysis import slo
from wsbench.host import running
from wsbench.metrics import capacities
from wsbench.records.errors import TrialFailed, UserError
from wsbench.records.goals import Goal
from wsbench.records.rundir import COMMAND, CONTROL, RUNNING, RunFolder
from wsbench.run import request as request_of
from wsbench.servers import catalogue, manifest, serving
from wsbench.sessions import session_file

#: The name of the experiment, and so of the campaign's folder.
NAME = "duel"
RATE, CPU, CAPACITY = "messages_per_s", "server_cpu_us_per_message", "capacity_per_s"
#: Before a ladder of a server on the JVM, whose compiler takes CPU time from it for longer than two seconds.
WARMUP_JVM_S = 10.0
#: The user's session file, next to the manifest.
SESSION = "session.toml"


@dataclass(frozen=True)
class Asked:
    """The user's request. Times in seconds, `margin` as a share. `metrics` empty: throughput and, where known, CPU per message;
    `gated` ones are decided as well, by their `gates`. `slos`: of ladders, where capacities are compared. `pids`: the processes of
    servers that run already, by letter. `as_is`: turns that the host disturbed count."""

    base: str
    new: str
    path: str = "/echo"
    connections: int = 50
    payload_bytes: int = 128
    depth: int = 1
    warmup_s: float = 1.0
    measure_s: float = 1.0
    budget_s: float = 300.0
    margin: float = 0.03
    metrics: tuple[str, ...] = ()
    gated: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    slos: tuple[str, ...] = ()
    pids: tuple[tuple[str, int], ...] = ()
    seed: int | None = None
    as_is: bool = False


@dataclass(frozen=True)
class Spoken:
    """What a command or a URL speaks in place of an echo: a session's name, or its file (.toml), its settings, and the role."""

    session: str
    settings: dict[str, str]
    role: Literal["rpc", "rooms"] = "rpc"

    @property
    def file(self) -> Path | None:
        return Path(self.session) if self.session.endswith(".toml") else None


@dataclass(frozen=True)
class Contender:
    """`text` is what the user wrote, `name` its name in the campaign, `toml` its manifest; None for a row of the catalogue.
    `sampled`: its processes are known. `session`: the user's own session file."""

    text: str
    name: str
    toml: str | None
    sampled: bool = True
    session: Path | None = None


def contender(text: str, letter: str, path: str | None, pid: int | None = None, spoken: Spoken | None = None) -> Contender:
    """`letter` names its folder; `path` None: the contract's, or that of the session. UserError if it is no URL, no row of the
    catalogue and no program."""
    if spoken is not None:
        session_file.read(session_file.path_of(spoken.session))
    file = None if spoken is None else spoken.file
    if "://" in text:
        pid = _found(text) if pid is None else pid
        return Contender(text, f"{letter}@{RUNNING}", _running(text, path, pid, spoken), pid is not None, file)
    if pid is not None:
        raise UserError(f"--pid {letter}={pid}: only a URL has a process that runs already")
    if "/" in text or len(text.split()) > 1:
        return Contender(text, f"{letter}@{COMMAND}", _command(text, path, spoken), session=file)
    rows = catalogue.select([text], catalogue.read())
    if len(rows) != 1:
        raise UserError(f"{text!r}: expected one server; matched {', '.join(row.name for row in rows)}")
    return Contender(text, rows[0].name, None, getattr(rows[0].table, "pid", 0) is not None)


def written(chosen: Iterable[Contender], folder: Path) -> Path | None:
    """Writes the manifests of those that are no rows of the catalogue. The folder of servers; None if there is none."""
    own = folder / "servers"
    for one in chosen:
        if one.toml is not None:
            place = own / one.name.partition("@")[0]
            place.mkdir(parents=True)
            (place / "server.toml").write_text(one.toml, encoding="utf-8")
            if one.session is not None:
                shutil.copyfile(one.session, place / SESSION)
    return own if own.exists() else None


def contenders(asked: Asked) -> tuple[Contender, Contender]:
    """Base and new. If both are the same, the new one is the control of the base."""
    pids = dict(asked.pids)
    base, new = (contender(text, letter, asked.path, pids.get(letter)) for letter, text in (("A", asked.base), ("B", asked.new)))
    if base.name == new.name or (base.toml is not None and base.toml == new.toml):
        new = replace(base, name=base.name + CONTROL)
    return base, new


@contextlib.contextmanager
def request(asked: Asked, command: str) -> Iterator[request_of.Request]:
    """The campaign of a duel. Its files lie in a temporary folder until the campaign has begun. UserError for a bad request."""
    base, new = contenders(asked)
    alone = new.name == base.name + CONTROL
    usual = [RATE, *([CPU] if base.sampled and new.sampled else [])]
    under_each = [capacities.name_of("rate", place) for place in range(len(asked.slos) or 1)]
    named = [name for one in (*asked.metrics, *asked.gated) for name in (under_each if one == "capacity" else [one])]
    compared = list(dict.fromkeys(named if asked.metrics else [*usual, *named]))
    metrics.require(compared, also=["capacity"])
    _require_slos(asked, compared)
    with tempfile.TemporaryDirectory(prefix="wsbench-duel-") as made:
        own = written([base] if alone else [base, new], Path(made))
        file = Path(made, f"{NAME}.toml")
        file.write_text(_experiment(asked, [base.name] if alone else [base.name, new.name]), encoding="utf-8")
        yield request_of.request(
            str(file),
            command,
            seed=asked.seed,
            control=alone,
            until=Goal(budget_s=asked.budget_s, metrics=compared, pair=[base.name, new.name], gates=list(asked.gates)),
            own=own,
        )


def _require_slos(asked: Asked, compared: list[str]) -> None:
    """UserError unless ladders are asked for as a whole: no server is loaded in slices and by ladders in one duel."""
    of_ladders = [one for one in compared if one.startswith(CAPACITY.removesuffix("_per_s"))]
    if of_ladders and not asked.slos:
        raise UserError("--metric capacity needs --slo, such as --slo 'response.p99 < 20ms'")
    if asked.slos and len(of_ladders) < len(compared):
        raise UserError("--slo goes with --metric capacity, and with no other metric")
    if len(asked.slos) > capacities.MOST_SLOS:
        raise UserError(f"found {len(asked.slos)} of --slo, allowed: {capacities.MOST_SLOS}")
    for text in asked.slos:
        slo.parse(text)


def texts(run: RunFolder) -> tuple[str, str]:
    """Both contenders of a campaign in the user's words."""
    rows = {row.name: row for row in run.servers}
    return tuple(rows[name.removesuffix(CONTROL)].title for name in run.campaign.until.pair)


def _running(text: str, path: str | None, pid: int | None, spoken: Spoken | None) -> str:
    try:
        found = manifest.address(text)
    except ValueError as error:
        raise UserError(str(error)) from error
    return _manifest(text, RUNNING, None if found.path else path, {"url": text} | ({} if pid is None else {"pid": pid}), spoken)


def _found(url: str) -> int | None:
    """The process of this machine that serves a loopback URL. None if there is none, or several that are not one tree."""
    with contextlib.suppress(ValueError, TrialFailed):
        at = manifest.address(url)
        if ipaddress.ip_address(host := serving.resolved(at)).is_loopback and len(pids := running.serving(host, at.port)) == 1:
            return pids[0]
    return None


def _command(text: str, path: str | None, spoken: Spoken | None) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"{text!r}: {str(error).lower()}") from error
    program = shutil.which(words[0]) if words else None
    if program is None:
        raise UserError(f"{text!r}: found no program {words[0] if words else ''!r}; it is started without a shell")
    program = str(Path(program).absolute())
    # What an interpreter runs is its first argument.
    script = Path(words[1]).absolute() if len(words) > 1 and Path(words[1]).is_file() else Path(program)
    digest = hashlib.sha256(script.read_bytes()).hexdigest()[:16]
    table = {
        "library_version": digest,
        "build": [],
        # In the user's folder, because the words may name files.
        "run": ["env", "-C", str(Path.cwd()), program, *words[1:]],
        "version": ["sha256sum", str(script)],
    }
    return _manifest(text, COMMAND, path, table, spoken)


def _manifest(text: str, row: str, path: str | None, table: dict, spoken: Spoken | None) -> str:
    """`path` None: that of the URL, of the contract, or of the session."""
    head = {"language": "unknown", "library": text, "default": row}
    if spoken is None:
        served = {"paths": {} if path is None else {"echo": path}}
        head |= {"scenarios": ["echo"]}
    else:
        role = {"session": spoken.session if spoken.file is None else SESSION} | ({} if path is None else {"path": path})
        name = f"sessions.{spoken.role}"
        served = {name: role, f"{name}.set": spoken.settings}
    return toml(head, {**served, f"variants.{row}": table})


def _experiment(asked: Asked, names: list[str]) -> str:
    if asked.slos:
        return _ladders(asked, names)
    head = {
        "question": f"Does {asked.new} differ from {asked.base}?",
        "reading": "Both servers are loaded alternately in short slices, in rounds of fresh processes, until decided.",
        "servers": names,
        "scenario": "echo",
        "loop": "closed",
        "headline": RATE,
        "margin": asked.margin,
        "arrangement": "slices",
    }
    load = {"connections": asked.connections, "payload_bytes": asked.payload_bytes, "depth": asked.depth}
    timing = {"warmup_s": asked.warmup_s, "measure_s": asked.measure_s, "again": 0}
    timing |= {"disturbed": "count"} if asked.as_is else {}
    return toml(head, {"load": load, "timing": timing})


def _ladders(asked: Asked, names: list[str]) -> str:
    head = {
        "question": f"Does {asked.new} carry more or less than {asked.base} while {' / '.join(asked.slos)}?",
        "reading": "In each round a fresh process of both carries a ladder of rates: its capacity is one number a round.",
        "servers": names,
        "scenario": "echo",
        "loop": "ladder",
        "headline": CAPACITY,
        "margin": asked.margin,
    }
    load = {"connections": asked.connections, "payload_bytes": asked.payload_bytes, "arrivals": "poisson"}
    warmup = {"warmup_s": asked.warmup_s, "warmup_of.jvm": max(WARMUP_JVM_S, asked.warmup_s)}
    timing = {**warmup, "measure_s": asked.measure_s, "again": 0} | ({"disturbed": "count"} if asked.as_is else {})
    return toml(head, {"load": load, "ladder": {"slos": list(asked.slos)}, "timing": timing})


def toml(head: dict, tables: dict[str, dict]) -> str:
    """A TOML file. JSON's strings, numbers and lists are TOML's, except for one character."""
    lines = []
    for name, table in {"": head, **tables}.items():
        lines += [f"[{name}]"] if name else []
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f") for key, value in table.items()]
    return "\n".join(lines) + "\n"
