"""`wsbench load URL`: one run of the engine against any server the user names, kept as a trial folder.

It refuses any host that is neither this machine nor declared as the user's own. It samples the server's processes if the user names
them, and starts the server if the user gives its command. Either way, server and engine then get different CPUs.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import secrets
import shutil
import socket
import ssl
import time
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import SplitResult, quote, urlsplit

from wsbench.engine import program, shards
from wsbench.host import http_deadline, machine
from wsbench.metrics import spans
from wsbench.monitoring.sampler import Sampler
from wsbench.records.engine_files import (
    Connect,
    Deflate,
    Doc,
    Echo,
    Idle,
    Loop,
    Messages,
    Ping,
    Plan,
    Push,
    Scenario,
    Seconds,
    Stage,
    Target,
    Tls,
)
from wsbench.records.errors import TrialFailed, UserError
from wsbench.records.files import new_folder
from wsbench.records.frozen import write_json
from wsbench.records.rundir import TrialFolder, TrialRecord
from wsbench.run import capacity, target
from wsbench.servers import serving

#: Scheme: transport, whether it uses TLS, default port.
SCHEMES = {
    "ws": ("websocket", False, 80),
    "wss": ("websocket", True, 443),
    "http": ("http", False, 80),
    "https": ("http", True, 443),
    "tcp": ("tcp", False, 80),
}
STAMP_BYTES = 16
#: Limits for the request that determines a document's length.
DOCUMENT_S, LARGEST_DOCUMENT = 10.0, 16 << 20
#: Characters that a path and a query may contain unescaped (RFC 3986 §3.3, §3.4), and the % of existing escapes.
PATH_LETTERS = "/?:@!$&'()*+,;=-._~%"
PLAN_WAS_WRONG = 2


@dataclass(frozen=True)
class Request:
    """The user's request. `measure` is a time or a number of messages. `kind` None: as the URL's scheme implies."""

    url: str
    kind: str | None
    loop: Loop
    connections: int
    connect_per_s: float | None
    stages: list[Stage] | None
    measure: Seconds | Messages
    warmup_s: float
    payload_bytes: int | None
    content: Path | None
    opcode: str
    persistent: bool
    slow_readers: float
    mask: str
    deflate: Deflate | None
    fragment_bytes: int | None
    subprotocols: list[str]
    headers: list[tuple[str, str]]
    ca: Path | None
    verify: bool
    sources: list[str]
    threads: int | None
    cpus: list[int]
    busy_poll: bool
    mine: list[str]
    #: Processes of a server that runs already, or the command that starts it; neither if both are unknown.
    pids: tuple[int, ...] = ()
    start: tuple[str, ...] | None = None
    pin: bool = True
    engines: int | None = None
    cluster: Path | None = None
    replicas: tuple[str, ...] = ()


def plan_of(asked: Request, cpus: list[int] | None = None) -> Plan:
    """The plan for a request; the engine is pinned to `cpus` (None: those that the user named, if any). UserError if the URL, the
    target, the payload or this machine's limits rule it out."""
    url = _url_of(asked)
    pinned = asked.cpus if cpus is None else cpus
    if asked.busy_poll and not pinned:
        raise UserError("--busy-poll needs --cpus, --pid or --start, because workers that never sleep occupy their CPUs")
    transport, sealed, usual_port = SCHEMES[url.scheme]
    others = [_split(f"{url.scheme}://{one}") for one in asked.replicas]
    if None in others:
        raise UserError(f"--replica: found {asked.replicas[others.index(None)]!r}, allowed: HOST:PORT")
    address, *replicas = (_address(one, usual_port, asked.mine) for one in [url, *others])
    if asked.cluster is None:
        capacity.require_room(asked.connections, ends=2 if ipaddress.ip_address(address[0]).is_loopback else 1)
    shown, *others = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in [address, *replicas])
    workers = len(pinned or machine.placement().engine)
    made = program.plan(
        scenario=_scenario(asked, url, usual_port),
        transport=transport,
        target=Target(address=shown, replicas=others, host=url.netloc.rpartition("@")[2], path=_path(url)),
        connections=asked.connections,
        warmup=Seconds(seconds=asked.warmup_s) if asked.warmup_s else None,
        measure=asked.measure,
        seed=secrets.randbits(32),
        # Unless its process is known, the server may be anywhere on this machine; the engine is then not pinned.
        cpus=pinned,
        loop=asked.loop,
        connect=Connect(per_s=asked.connect_per_s),
        stages=asked.stages,
    )
    changed = {
        "mask": asked.mask,
        "tls": Tls(verify=asked.verify, ca=_absolute(asked.ca)) if sealed else None,
        "deflate": asked.deflate,
        "fragment_bytes": asked.fragment_bytes,
        "subprotocols": asked.subprotocols,
        "headers": asked.headers,
        "busy_poll": asked.busy_poll,
        "threads": min(asked.threads or workers, asked.connections),
        "source_addresses": asked.sources or made.source_addresses,
    }
    return made.model_copy(update=changed)


def _url_of(asked: Request) -> SplitResult:
    url = _split(asked.url)
    if url is None or url.scheme not in SCHEMES:
        raise UserError(
            f"{asked.url!r} is not a target; allowed: ws://HOST:PORT/PATH, wss://…, http://…, https://…, tcp://HOST:PORT"
        )
    return url


def _split(text: str) -> SplitResult | None:
    """The parts of a URL with a host; None if the text is not such a URL."""
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        return None
    return url if url.hostname and text.isprintable() and " " not in text else None


def _address(url: SplitResult, usual_port: int, mine: list[str]) -> tuple[str, int]:
    """The address to load: loopback, or a host declared as the user's own. UserError if the host refuses a connection."""
    found = _resolved(url, usual_port)
    if not ipaddress.ip_address(found[0]).is_loopback and url.hostname not in mine:
        raise UserError(
            f"{url.hostname} is not this machine; wsbench loads other hosts only if they are yours: add --mine {url.hostname}"
        )
    try:
        socket.create_connection(found[:2], 5).close()
    except OSError as error:
        raise UserError(f"{url.netloc} does not answer: {error.strerror or error}; is the server running?") from error
    return found


def _resolved(url: SplitResult, usual_port: int) -> tuple[str, int]:
    """The IP address and the port of a URL."""
    try:
        return socket.getaddrinfo(url.hostname, url.port or usual_port, type=socket.SOCK_STREAM)[0][4][:2]
    except (OSError, ValueError) as error:  # UnicodeError of an invalid name is a ValueError
        raise UserError(f"{url.netloc}: {error}") from error


def _scenario(asked: Request, url: SplitResult, usual_port: int) -> Scenario:
    if SCHEMES[url.scheme][0] == "http":
        if asked.kind is not None or asked.content is not None:
            raise UserError("http and https request documents: --ping, --idle, --push and --file need ws, wss or tcp")
        known = asked.payload_bytes is not None
        length = asked.payload_bytes if known else _document_length(asked, url, usual_port)
        return Doc(persistent=asked.persistent, bytes=length)
    if not asked.persistent:
        raise UserError("--close is for http and https; --per-connection closes others after that many replies")
    if asked.kind == "idle":
        return Idle()
    if asked.kind == "ping" or (url.scheme == "tcp" and asked.kind is None):
        return Ping()
    if url.scheme == "tcp":
        raise UserError("--push needs ws or wss")
    if asked.kind == "push":
        return Push(slow_readers=asked.slow_readers)
    if asked.content is not None:
        return _content(asked.content, asked.opcode)
    return Echo(opcode=asked.opcode, bytes=128 if asked.payload_bytes is None else asked.payload_bytes)


def _content(file: Path, opcode: str) -> Echo:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UserError(f"--file {file}: {error.strerror}") from error
    if opcode == "text":
        try:
            # The first bytes are overwritten with the stamp: the rest must be text.
            data[STAMP_BYTES:].decode()
        except UnicodeDecodeError as error:
            raise UserError(f"--file {file}: not UTF-8 from byte {STAMP_BYTES} on; give --binary") from error
    return Echo(opcode=opcode, bytes=len(data), content=_absolute(file))


def _document_length(asked: Request, url: SplitResult, usual_port: int) -> int:
    """The length of the document now, in bytes; every reply must have the same length."""
    where = url.hostname, url.port or usual_port
    try:
        if url.scheme == "https":
            context = ssl.create_default_context(cafile=_absolute(asked.ca))
            if not asked.verify:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = http.client.HTTPSConnection(*where, timeout=DOCUMENT_S, context=context)
        else:
            connection = http.client.HTTPConnection(*where, timeout=DOCUMENT_S)
        with http_deadline.within(connection, DOCUMENT_S):
            connection.request("GET", _path(url), headers=dict(asked.headers))
            reply = connection.getresponse()
            body = reply.read(LARGEST_DOCUMENT + 1)
    except (OSError, http.client.HTTPException) as error:
        raise UserError(f"{url.geturl()}: {error or type(error).__name__}") from error
    if reply.status != 200:
        raise UserError(f"{url.geturl()} answers {reply.status}; wsbench measures only documents that answer 200")
    if len(body) > LARGEST_DOCUMENT:
        raise UserError(f"{url.geturl()} is longer than {LARGEST_DOCUMENT >> 20} MiB or endless; give its length with --bytes")
    return len(body)


def _path(url: SplitResult) -> str:
    """Path and query as sent: non-ASCII characters are escaped as in a browser (RFC 3986 §2.5)."""
    return quote((url.path or "/") + (f"?{url.query}" if url.query else ""), safe=PATH_LETTERS)


def _absolute(file: Path | None) -> str | None:
    return None if file is None else str(file.resolve())


@dataclass(frozen=True)
class Done:
    """A finished load: its record, which is on disk, and whether Ctrl-C ended it."""

    record: TrialRecord
    interrupted: bool


def require_sound(asked: Request) -> None:
    """UserError for everything that can be wrong before a server is started or a folder is made."""
    target.side_of(_server(asked), TrialFolder(Path()))
    if asked.start is None:
        plan_of(replace(asked, busy_poll=False))  # whether the engine has its own CPUs is not known yet


def carry_out(asked: Request, folder: TrialFolder, watch, say=lambda line: None) -> Done:
    """Finds or starts the server, runs the engine and writes a trial's files. After Ctrl-C the results so far are kept.

    `watch(folder)` is called a few times a second. `say(line)` gets notes for the user before the run. UserError if the load cannot
    start; the folder is then removed.
    """
    try:
        return _carried_out(asked, folder, watch, say)
    except BaseException as error:
        if isinstance(error, UserError) or folder.record is None:
            shutil.rmtree(folder.path, ignore_errors=True)
        raise


def _carried_out(asked: Request, folder: TrialFolder, watch, say) -> Done:
    binary = program.require_binary()
    began, clock = time.time(), time.monotonic()
    reason, interrupted, plan, count = None, False, None, 1
    side = target.side_of(_server(asked), folder)
    try:
        with side:
            for note in side.notes:
                say(note)
            plan = plan_of(asked, side.engine_cpus)
            with _hosts(asked, binary) as (hosts, sampling):
                count = hosts.count(asked.engines, plan)
                hosts.plans(plan, count)
                _tell_shape(asked, plan, count, hosts, side, say)
                interrupted = _load(plan, count, hosts, sampling, side, folder, watch)
            if not interrupted:
                side.require_alive()
    except TrialFailed as failure:
        reason = str(failure)
        if getattr(failure, "code", None) == PLAN_WAS_WRONG:
            raise UserError(reason) from failure
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
        ready_s=side.ready_s,
        server_cpus=side.server_cpus,
        engine_cpus=plan.cpus if plan is not None else [],
        server_exit=side.exit_words,
        server_env=side.env,
        log_tail=side.log_tail(),
        engines=count,
        restarted=asked.start is not None,
    )
    write_json(folder.path / "trial.json", record)
    return Done(record, interrupted)


def _server(asked: Request) -> target.Asked:
    """What the request says of the server's side."""
    url = _url_of(asked)
    transport, sealed, usual_port = SCHEMES[url.scheme]
    host, port = _resolved(url, usual_port)
    question = None
    if transport == "websocket" and not sealed:
        question = serving.Question(_path(url))
    return target.Asked(
        host=host,
        port=port,
        name=url.netloc.rpartition("@")[2],
        question=question or serving.Question(None),
        headers=[*asked.headers, *_offered(asked)],
        pids=asked.pids,
        start=asked.start,
        pin=asked.pin and asked.cluster is None,
        engine_cpus=asked.cpus,
    )


def _offered(asked: Request) -> list[tuple[str, str]]:
    return [("Sec-WebSocket-Protocol", ", ".join(asked.subprotocols))] if asked.subprotocols else []


@contextlib.contextmanager
def _hosts(asked: Request, binary: Path):
    """The testbed of the engines, here or on a cluster, until the context ends; and a function that samples its hosts."""
    if asked.cluster is None:
        yield shards.ThisHost(binary), lambda folder: contextlib.nullcontext()
        return
    from wsbench.run.cluster.testbed import loading

    with loading(asked.cluster) as found:
        yield found


def _tell_shape(asked: Request, plan: Plan, count: int, hosts: shards.Hosts, side: target.Side, say) -> None:
    """Notes on the number of processes, and on a server that may open too few files."""
    if count > 1:
        say(shards.words(count) if asked.cluster is None else f"{count} engine processes on {hosts.words}")
    limits = [machine.file_limit(pid) for pid in side.pids]
    if limits and None not in limits and sum(limits) <= plan.connections and not asked.replicas:
        processes = ", ".join(map(str, side.pids))
        say(f"the server (process {processes}) may open {sum(limits):,} files, too few for all {plan.connections:,} connections")


def _load(plan: Plan, count: int, hosts: shards.Hosts, sampling, side: target.Side, folder: TrialFolder, watch) -> bool:
    """Runs the engines. Returns whether Ctrl-C ended them."""
    # An engine that is not pinned may use every CPU.
    both = [*side.server_cpus, *plan.cpus] if side.server_cpus and plan.cpus else []
    with (
        Sampler(folder.path / "resources.jsonl", *side.pids, cpus=both) as sampler,
        sampling(folder.path) as hosts_sampler,
        shards.Engines(plan, count, folder, hosts) as running,
    ):
        events = running.folders[0].path / "events.jsonl"
        (hosts_sampler or sampler).watch_engine(events, spans.quiet_s(plan), *running.pids)
        try:
            running.carry_out(lambda: watch(folder))
            watch(folder)
        except KeyboardInterrupt:
            running.interrupt()
            running.conclude(interrupted=True)
            return True
    return False


def claimed(runs: Path) -> TrialFolder:
    """A new folder for a load; loads that start in the same second are numbered."""
    return TrialFolder(new_folder(runs, f"{time.strftime('%Y-%m-%dT%H%M%S', time.gmtime())}-load"))
