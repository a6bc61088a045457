"""`wsbench load URL`: one run of the engine against any server the user names, kept as a trial's folder.

It refuses to load what is neither this machine nor named as the user's own. It starts no server and samples none.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from wsbench import engine, machine
from wsbench.engine_files import Doc, Echo, Messages, Ping, Plan, Scenario, Seconds, Target
from wsbench.errors import TrialFailed, UserError
from wsbench.frozen import write_json
from wsbench.process import Engine
from wsbench.rundir import TrialFolder, TrialRecord

TRANSPORTS = {"ws": "websocket", "http": "http", "tcp": "tcp"}


@dataclass(frozen=True)
class Request:
    """What the user asked for; `measure` is a time or a number of messages."""

    url: str
    connections: int
    measure: Seconds | Messages
    warmup_s: float
    payload_bytes: int | None
    opcode: str
    ping: bool
    persistent: bool
    mine: list[str]
    threads: int | None


def plan_of(asked: Request) -> Plan:
    """The plan for a request; UserError where the URL, the target or the payload cannot be."""
    url = urlsplit(asked.url)
    if url.scheme not in TRANSPORTS or not url.hostname:
        raise UserError(
            f"{asked.url!r} is no target; allowed: ws://HOST:PORT/PATH, http://HOST:PORT/PATH, tcp://HOST:PORT"
        )
    address = _address(url, asked.mine)
    scenario = _scenario(asked, url)
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    shown = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
    cpus = machine.placement().engine
    made = engine.plan(
        scenario=scenario,
        transport=TRANSPORTS[url.scheme],
        target=Target(address=shown, host=url.netloc.rpartition("@")[2], path=path),
        connections=asked.connections,
        warmup=Seconds(seconds=asked.warmup_s) if asked.warmup_s else None,
        measure=asked.measure,
        seed=time.time_ns() & 0xFFFF_FFFF,
        # The server may be anywhere on this machine: its CPUs are not known, so the engine is not pinned either.
        cpus=[],
    )
    threads = min(asked.threads or len(cpus), asked.connections)
    source = "::" if ":" in address[0] else "0.0.0.0"
    return made.model_copy(update={"threads": threads, "source_addresses": [source]})


def _address(url: SplitResult, mine: list[str]) -> tuple[str, int]:
    """The address to load: loopback, or a host that the user has named as theirs. One that refuses is an error at once."""
    try:
        port = url.port or 80
        found = socket.getaddrinfo(url.hostname, port, type=socket.SOCK_STREAM)[0][4]
    except (OSError, ValueError) as error:
        raise UserError(f"{url.netloc}: {error}") from error
    if not ipaddress.ip_address(found[0]).is_loopback and url.hostname not in mine:
        raise UserError(
            f"{url.hostname} is not this machine; wsbench loads other hosts only if they are yours: add --mine {url.hostname}"
        )
    try:
        socket.create_connection(found[:2], 5).close()
    except OSError as error:
        raise UserError(f"{url.netloc} does not answer: {error.strerror or error}; is the server running?") from error
    return found[0], found[1]


def _scenario(asked: Request, url: SplitResult) -> Scenario:
    if url.scheme == "tcp" or (url.scheme == "ws" and asked.ping):
        return Ping()
    if url.scheme == "ws":
        return Echo(opcode=asked.opcode, bytes=128 if asked.payload_bytes is None else asked.payload_bytes)
    length = asked.payload_bytes
    return Doc(persistent=asked.persistent, bytes=_document_length(url) if length is None else length)


def _document_length(url: SplitResult) -> int:
    """How long the document is now; every reply will have to be just as long."""
    try:
        connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=10)
        connection.request("GET", (url.path or "/") + (f"?{url.query}" if url.query else ""))
        reply = connection.getresponse()
        body = reply.read()
    except (OSError, http.client.HTTPException) as error:
        raise UserError(f"{url.geturl()}: {error}") from error
    if reply.status != 200:
        raise UserError(f"{url.geturl()} answers {reply.status}; only documents that answer 200 can be measured")
    return len(body)


def carry_out(asked: Request, folder: TrialFolder, watch) -> TrialRecord:
    """Runs the engine and writes a trial's files. On Ctrl-C what was measured is kept, with outcome `interrupted`."""
    binary = engine.require_binary()
    plan = plan_of(asked)
    folder.path.mkdir(parents=True)
    write_json(folder.path / "plan.json", plan)
    log = folder.path / "engine.log"
    began, clock = time.time(), time.monotonic()
    reason = None
    with Engine(binary, folder.path / "plan.json", folder.path, log) as running:
        try:
            until = time.monotonic() + plan.limits.deadline_s + 10
            while (code := running.wait(0.25)) is None and time.monotonic() < until:
                watch(folder)
        except KeyboardInterrupt:
            running.interrupt()
            code = running.exit_code
    try:
        engine.check_exit(code, log)
    except TrialFailed as failure:
        reason = str(failure)
    record = TrialRecord(
        number=1,
        round=1,
        server=asked.url,
        variant="",
        cell={},
        outcome="ok" if reason is None else "failed",
        reason=reason,
        started_unix_s=began,
        duration_s=time.monotonic() - clock,
        ready_s=None,
        server_cpus=[],
        engine_cpus=plan.cpus,
        server_exit=None,
        log_tail=[],
    )
    write_json(folder.path / "trial.json", record)
    return record


def new_folder(runs: Path) -> TrialFolder:
    return TrialFolder(runs / f"{time.strftime('%Y-%m-%dT%H%M%S', time.gmtime())}-load")
