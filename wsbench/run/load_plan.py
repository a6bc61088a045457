"""The request of `wsbench load`, and the plan made from it: target, scenario and load of one engine run.

It refuses any host that is neither this machine nor declared as the user's own.
"""

from __future__ import annotations

import http.client
import ipaddress
import secrets
import socket
import ssl
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from urllib.parse import SplitResult, quote, urlsplit

from wsbench.engine import program
from wsbench.host import http_deadline, machine
from wsbench.records.engine_files import (
    Connect,
    Deflate,
    Doc,
    Echo,
    Idle,
    Loop,
    Messages,
    NoLoop,
    Open,
    Ping,
    Plan,
    Push,
    Scenario,
    Seconds,
    Stage,
    Target,
    Tls,
)
from wsbench.records.errors import UserError
from wsbench.records.files import read_file
from wsbench.run import host_limits
from wsbench.sessions import compiling, session_file

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
#: Limit for the payload, which is the engine's, and for certificates.
LARGEST_FILE = 16 << 20
#: Characters that a path and a query may contain unescaped (RFC 3986 §3.3, §3.4), and the % of existing escapes.
PATH_LETTERS = "/?:@!$&'()*+,;=-._~%"


@dataclass(frozen=True)
class Request:
    """The user's request. `measure` is a time or a number of messages. `kind` None: as the URL's scheme implies.

    `session` is the file of a session, and `choice` what the user chose of it.
    """

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
    #: Whether one exchange is tried first.
    preflight: bool = True
    engines: int | None = None
    cluster: Path | None = None
    replicas: tuple[str, ...] = ()
    session: Path | None = None
    choice: compiling.Choice = field(default_factory=compiling.Choice)


def require_files(asked: Request) -> None:
    """UserError unless the named files are regular files of a bounded size."""
    if asked.content is not None:
        _read("--file", asked.content)
    if asked.cluster is not None:
        _read("--cluster", asked.cluster)
    elif asked.ca is not None:  # a host of a cluster reads its own
        _read("--ca", asked.ca)


def _read(option: str, file: Path) -> bytes:
    try:
        return read_file(file, LARGEST_FILE, links=True)
    except UserError as error:
        raise UserError(f"{option} {error}") from error


def plan_of(asked: Request, cpus: list[int] | None = None) -> Plan:
    """The plan for a request; the engine is pinned to `cpus` (None: those that the user named, if any). UserError if the URL, the
    target, the payload or this machine's limits rule it out."""
    require_files(asked)
    url = url_of(asked)
    pinned = asked.cpus if cpus is None else cpus
    if asked.busy_poll and not pinned:
        raise UserError("--busy-poll needs --cpus, --pid or --start, because workers that never sleep occupy their CPUs")
    transport, sealed, usual_port = SCHEMES[url.scheme]
    others = [_split(f"{url.scheme}://{one}") for one in asked.replicas]
    if None in others:
        raise UserError(f"--replica: found {asked.replicas[others.index(None)]!r}, allowed: HOST:PORT")
    address, *replicas = (_address(one, usual_port, asked.mine) for one in [url, *others])
    if asked.cluster is None:
        host_limits.require_room(asked.connections, ends=2 if ipaddress.ip_address(address[0]).is_loopback else 1)
    shown, *others = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in [address, *replicas])
    workers = len(pinned or machine.placement().engine)
    made = program.plan(
        scenario=_scenario(asked, url, usual_port),
        transport=transport,
        target=Target(address=shown, replicas=others, host=url.netloc, path=path(asked, url)),
        connections=asked.connections,
        warmup=Seconds(seconds=asked.warmup_s) if asked.warmup_s else None,
        measure=asked.measure,
        seed=secrets.randbits(32),
        # Unless its process is known, the server may be anywhere on this machine; the engine is then not pinned.
        cpus=pinned,
        loop=_loop(asked.loop, transport),
        connect=Connect(per_s=asked.connect_per_s),
        stages=asked.stages,
    )
    changed = {
        "mask": asked.mask,
        "tls": Tls(verify=asked.verify, ca=_absolute(asked.ca)) if sealed else None,
        "deflate": asked.deflate,
        "fragment_bytes": asked.fragment_bytes,
        "subprotocols": subprotocols(asked),
        "headers": asked.headers,
        "busy_poll": asked.busy_poll,
        "threads": min(asked.threads or workers, asked.connections),
        "source_addresses": asked.sources or made.source_addresses,
    }
    return made.model_copy(update=changed)


def _loop(loop: Loop, transport: str) -> Loop:
    """HTTP has no pipeline here: a request of an open loop waits for a free connection."""
    return loop.model_copy(update={"depth": 1}) if transport == "http" and isinstance(loop, Open) and loop.depth is None else loop


def url_of(asked: Request) -> SplitResult:
    url = _split(asked.url)
    if url is None or url.scheme not in SCHEMES:
        raise UserError(
            f"{asked.url!r} is not a target; allowed: ws://HOST:PORT/PATH, wss://…, http://…, https://…, tcp://HOST:PORT"
        )
    if "@" in url.netloc:  # not shown: it may hold a password
        raise UserError("the URL has a user's name, which no server is told: give -H 'Authorization: …' in its place")
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
    found = resolved(url, usual_port)
    if not ipaddress.ip_address(found[0]).is_loopback and url.hostname not in mine:
        raise UserError(
            f"{url.hostname} is not this machine; wsbench loads other hosts only if they are yours: add --mine {url.hostname}"
        )
    try:
        socket.create_connection(found[:2], 5).close()
    except OSError as error:
        raise UserError(f"{url.netloc} does not answer: {error.strerror or error}; is the server running?") from error
    return found


def resolved(url: SplitResult, usual_port: int) -> tuple[str, int]:
    """The IP address and the port of a URL."""
    try:
        return socket.getaddrinfo(url.hostname, url.port or usual_port, type=socket.SOCK_STREAM)[0][4][:2]
    except socket.gaierror as error:
        raise UserError(f"{url.hostname} is not known here: {error.strerror}; correct the host") from error
    except (OSError, ValueError) as error:  # UnicodeError of an invalid name is a ValueError
        raise UserError(f"{url.netloc}: {error}") from error


def _scenario(asked: Request, url: SplitResult, usual_port: int) -> Scenario:
    if asked.session is not None:
        return _session(asked, asked.session, url)
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


def _session(asked: Request, file: Path, url: SplitResult) -> Scenario:
    if SCHEMES[url.scheme][0] != "websocket":
        raise UserError("--session needs ws or wss")
    made = compiling.compiled(file, asked.choice, asked.connections)
    if len(made.steps) == made.setup and not isinstance(asked.loop, NoLoop):
        raise UserError(f"{file} has no steps behind its setup: add --idle to hold its connections")
    return made


def _content(file: Path, opcode: str) -> Echo:
    data = _read("--file", file)
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
            connection.request("GET", path(asked, url), headers=dict(asked.headers))
            reply = connection.getresponse()
            body = reply.read(LARGEST_DOCUMENT + 1)
    except (OSError, http.client.HTTPException) as error:
        raise UserError(f"{url.geturl()}: {error or type(error).__name__}") from error
    if reply.status != 200:
        remedy = "; for a WebSocket, write ws://" if reply.status == HTTPStatus.UPGRADE_REQUIRED else ""
        raise UserError(f"{url.geturl()} answers {reply.status}; wsbench measures only documents that answer 200{remedy}")
    if len(body) > LARGEST_DOCUMENT:
        raise UserError(f"{url.geturl()} is longer than {LARGEST_DOCUMENT >> 20} MiB or endless; give its length with --bytes")
    return len(body)


def path(asked: Request, url: SplitResult) -> str:
    """Path and query as sent: non-ASCII characters are escaped as in a browser (RFC 3986 §2.5). A session has its own, if the URL
    has none."""
    if asked.session is not None and url.path in ("", "/") and not url.query:
        return session_file.read(asked.session).path
    return quote((url.path or "/") + (f"?{url.query}" if url.query else ""), safe=PATH_LETTERS)


def _absolute(file: Path | None) -> str | None:
    return None if file is None else str(file.resolve())


def subprotocols(asked: Request) -> list[str]:
    """Those that the user named, or those of the session."""
    if asked.subprotocols or asked.session is None:
        return asked.subprotocols
    return session_file.read(asked.session).subprotocols
