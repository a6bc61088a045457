"""The options of `wsbench load`, and the `Request` made from them.

Every value is checked as it is parsed; options that exclude each other are a UserError. It resolves no address and opens no file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from wsbench.analysis import thresholds
from wsbench.cli.values import (
    above_zero,
    command,
    count,
    cpus,
    fraction,
    from_zero,
    header,
    level,
    pid,
    positive,
    seconds,
    seconds_above_zero,
    size,
    size_above_zero,
)
from wsbench.records.engine_files import (
    Closed,
    ConstantThink,
    Deflate,
    ExponentialThink,
    GaussianThink,
    LognormalThink,
    Loop,
    Messages,
    NoLoop,
    Open,
    Seconds,
    Segment,
    Stage,
    Think,
    UniformThink,
)
from wsbench.records.errors import UserError
from wsbench.records.files import require_writable
from wsbench.report import hdr
from wsbench.run.load_plan import Request
from wsbench.sessions import compiling, session_file

THINKS = {
    ("constant", ("mean",)): lambda mean: ConstantThink(mean_s=mean),
    ("exponential", ("mean",)): lambda mean: ExponentialThink(mean_s=mean),
    ("uniform", ("from", "to")): lambda low, high: UniformThink(from_s=low, to_s=high),
    ("gaussian", ("mean", "deviation")): lambda mean, deviation: GaussianThink(mean_s=mean, deviation_s=deviation),
    ("lognormal", ("median", "sigma")): lambda median, sigma: LognormalThink(median_s=median, sigma=sigma),
}
THINK_FORMS = "mean=S, exponential,mean=S, from=S,to=S, mean=S,deviation=S or median=S,sigma=X"
DEFAULT_S = 10.0
LARGEST_BYTES = 16 << 20


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help="ws://, wss://, http://, https:// or tcp://")
    _add_load(parser.add_argument_group("load"))
    _add_messages(parser.add_argument_group("messages"))
    _add_connections(parser.add_argument_group("connections"))
    _add_server(parser.add_argument_group("server"))
    _add_output(parser.add_argument_group("output and gates"))


def _add_load(group) -> None:
    pace = group.add_mutually_exclusive_group()
    pace.add_argument("--rate", type=above_zero, metavar="R", help="open loop: R messages/s, independent of replies")
    pace.add_argument(
        "--ramp",
        type=ramp,
        action="append",
        metavar="FROM:TO:SECONDS",
        help="open loop: a changing rate; repeatable",
    )
    pace.add_argument("--push", type=above_zero, metavar="RATE", help="broadcasts/s to all connections")
    pace.add_argument("--idle", action="store_true", help="hold connections without sending")
    group.add_argument("--poisson", action="store_true", help="open loop: Poisson arrivals in place of constant gaps")
    group.add_argument("--depth", type=positive, metavar="N", help="maximum messages in flight per connection")
    group.add_argument("--think", type=think, metavar="FORM", help=f"closed loop: a pause before each message: {THINK_FORMS}")
    group.add_argument("--per-connection", type=positive, metavar="K", help="closed loop: reconnect after K replies")
    group.add_argument(
        "--slow-readers", type=fraction, default=0.0, metavar="X", help="push: the share of connections that never read"
    )
    until = group.add_mutually_exclusive_group()
    until.add_argument("-n", "--messages", type=positive, help="end after this many messages")
    until.add_argument(
        "-t",
        "--seconds",
        type=seconds_above_zero,
        help="duration, such as 30, 500ms or 5m (default: the ramps or stages, or 10)",
    )
    group.add_argument(
        "--warmup",
        type=seconds,
        metavar="SECONDS",
        help="unmeasured load beforehand (default 1; 0 with ramps or stages)",
    )


def _add_messages(group) -> None:
    group.add_argument("--bytes", type=size, help="payload size of a message, such as 64k (default 128), or length of the document")
    group.add_argument("--file", type=Path, help="the payload; a stamp that identifies the message replaces its first 16 bytes")
    group.add_argument("--binary", action="store_true", help="send binary messages in place of text")
    group.add_argument(
        "--session",
        type=session_file.path_of,
        metavar="NAME|FILE",
        help="carry out this conversation in place of an echo; `wsbench list sessions` shows the names",
    )
    add_session(group)
    group.add_argument("--ping", action="store_true", help="send `Ping` and expect `Pong` in place of an echo")
    group.add_argument("--close", action="store_true", help="http: a new connection for each request")
    group.add_argument(
        "--fragment", type=size_above_zero, metavar="BYTES", help="fragment messages into frames of at most this size"
    )
    group.add_argument("--mask", choices=["random", "fixed", "zero"], default="random")
    group.add_argument(
        "--deflate",
        type=level,
        nargs="?",
        const=6,
        metavar="LEVEL",
        help="permessage-deflate (zlib's level, default 6)",
    )


def add_session(group) -> None:
    """What a user chooses of a session."""
    group.add_argument(
        "--set", type=setting, action="append", default=[], metavar="NAME=VALUE", help="a setting of the session; repeatable"
    )
    group.add_argument("--data", type=Path, metavar="FILE.csv", help="session: a line of columns for each user, behind their names")
    group.add_argument("--room-size", type=positive, metavar="N", help="session: users in a room, whose messages reach all of them")
    group.add_argument("--publishers", type=positive, metavar="N", help="session: users of a room that send (default: all)")


def _add_connections(group) -> None:
    group.add_argument("-c", "--connections", type=positive, help="default 50")
    group.add_argument("--connect-rate", type=above_zero, metavar="R", help="connections opened per second (default: all at once)")
    group.add_argument(
        "--stages",
        type=stages,
        metavar="TO:SECONDS,…",
        help="a changing number of connections; TO:SECONDS:CHUNK changes it in chunks",
    )
    group.add_argument("--ca", type=Path, metavar="FILE", help="PEM certificates to trust in place of this host's")
    group.add_argument("--insecure", action="store_true", help="do not verify the server's certificate")
    group.add_argument("--subprotocol", action="append", default=[], metavar="NAME", help="offer this subprotocol; repeatable")
    group.add_argument("-H", "--header", type=header, action="append", default=[], metavar="'Name: value'")
    group.add_argument("--source", action="append", default=[], metavar="ADDRESS", help="local address to connect from; repeatable")
    group.add_argument(
        "--replica",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="another address of the same server; connections alternate between them; repeatable",
    )
    group.add_argument("--threads", type=positive, help="worker threads of the engine")
    group.add_argument(
        "--engines", type=positive, metavar="N", help="engine processes (default: as many as the file limit requires)"
    )
    group.add_argument("--cluster", type=Path, metavar="FILE", help="run the engines on the hosts of this cluster.toml")
    group.add_argument("--cpus", type=cpus, default=[], metavar="1,3", help="pin the workers to these CPUs")
    group.add_argument("--busy-poll", action="store_true", help="workers never sleep; only for CPUs that run nothing else")
    group.add_argument(
        "--mine", action="append", default=[], metavar="HOST", help="confirm that you may load this host; repeatable"
    )


def _add_server(group) -> None:
    group.add_argument(
        "--pid",
        type=pid,
        action="append",
        default=[],
        metavar="PID",
        help="a process of the server on this machine: sample it and its children, and keep them off the engine's CPUs during the "
        "load; repeatable (default: the process that listens at the URL's port)",
    )
    group.add_argument(
        "--start",
        type=command,
        metavar="'COMMAND'",
        help="start the server on CPUs of its own, without a shell and with HOST, PORT and THREADS set; stop it after the load",
    )
    group.add_argument("--no-pin", action="store_true", help="leave server and engine on the CPUs that they have")
    group.add_argument("--no-preflight", action="store_true", help="send the load without trying one exchange first")


def _add_output(group) -> None:
    group.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    group.add_argument("-v", "--verbose", action="store_true", help="also the engine's own times, and less serious findings")
    group.add_argument("--report", type=Path, metavar="FILE.html", help="write one page with verdict, figures and every metric")
    group.add_argument("--hdr", type=Path, metavar="FILE", help="write FILE.hlog and FILE.hgrm (milliseconds)")
    group.add_argument("--csv", type=Path, metavar="FILE", help="write every metric as one row")
    group.add_argument(
        "--fail-if",
        type=thresholds.parse,
        action="append",
        default=[],
        metavar="'METRIC OP NUMBER[UNIT]'",
        help="exit 3 if this holds, such as 'p99 > 5ms'; repeatable. Exits with 4 if the metric is INVALID",
    )


def request(arguments) -> Request:
    """UserError for options that exclude each other."""
    loop = _loop(arguments)
    steps = arguments.stages
    if steps and arguments.messages:
        raise UserError("--stages ends by time; use -t in place of -n")
    if steps and arguments.connections:
        raise UserError("--stages sets the number of connections; omit -c")
    planned_s = sum(one.for_s for one in arguments.ramp or []) or sum(one.over_s for one in steps or [])
    by_count = arguments.messages is not None
    duration_s = arguments.seconds or planned_s or DEFAULT_S
    warmup_s = arguments.warmup if arguments.warmup is not None else 0.0 if planned_s or steps else 1.0
    if arguments.bytes is not None and arguments.bytes > LARGEST_BYTES:
        raise UserError(f"--bytes: found {arguments.bytes}, allowed: 0 to {LARGEST_BYTES}")
    if arguments.bytes is not None and arguments.file is not None:
        raise UserError("--file sets the length; omit --bytes")
    if arguments.ca is not None and arguments.insecure:
        raise UserError("--ca and --insecure exclude each other")
    if arguments.hdr is not None and not arguments.hdr.name:
        raise UserError(f"--hdr {str(arguments.hdr)!r}: expected a file name")
    logs = () if arguments.hdr is None else hdr.files(arguments.hdr)
    for name, file in [*(("--hdr", log) for log in logs), ("--csv", arguments.csv), ("--report", arguments.report)]:
        if file is not None:
            require_writable(name, file)
    if arguments.start is not None and arguments.pid:
        raise UserError("--start and --pid exclude each other; --start knows the process that it starts")
    if arguments.start is not None and (arguments.cluster is not None or arguments.replica):
        raise UserError("--start starts one server on this machine; omit --cluster and --replica")
    level = arguments.deflate
    return Request(
        url=arguments.url,
        kind=_kind(arguments),
        loop=loop,
        connections=max(one.to for one in steps) if steps else arguments.connections or 50,
        connect_per_s=arguments.connect_rate,
        stages=steps,
        measure=Messages(messages=arguments.messages) if by_count else Seconds(seconds=duration_s),
        warmup_s=warmup_s,
        payload_bytes=arguments.bytes,
        content=arguments.file,
        opcode="binary" if arguments.binary else "text",
        persistent=not arguments.close,
        slow_readers=arguments.slow_readers,
        mask=arguments.mask,
        deflate=None if level is None else Deflate(level=level),
        fragment_bytes=arguments.fragment,
        subprotocols=arguments.subprotocol,
        headers=arguments.header,
        ca=arguments.ca,
        verify=not arguments.insecure,
        sources=arguments.source,
        threads=arguments.threads,
        cpus=arguments.cpus,
        busy_poll=arguments.busy_poll,
        mine=arguments.mine,
        pids=tuple(dict.fromkeys(arguments.pid)),
        start=arguments.start,
        pin=not arguments.no_pin,
        preflight=not arguments.no_preflight,
        engines=arguments.engines,
        cluster=arguments.cluster,
        replicas=tuple(arguments.replica),
        session=arguments.session,
        choice=choice(arguments, arguments.session),
    )


def choice(arguments, session: Path | None) -> compiling.Choice:
    """What the user chose of a session."""
    given = {"--set": arguments.set, "--data": arguments.data, "--room-size": arguments.room_size}
    given |= {"--publishers": arguments.publishers}
    for name, value in given.items():
        if value and session is None:
            raise UserError(f"{name} needs --session")
    if arguments.publishers and not arguments.room_size:
        raise UserError("--publishers needs --room-size")
    return compiling.Choice(dict(arguments.set), arguments.data, arguments.room_size, arguments.publishers)


def _kind(arguments) -> str | None:
    if sum([arguments.ping, arguments.idle, arguments.push is not None]) > 1:
        raise UserError("--ping, --idle and --push exclude each other")
    if arguments.session is not None and (arguments.ping or arguments.push is not None):
        raise UserError("--session excludes --ping and --push")
    if arguments.session is not None and any([arguments.bytes is not None, arguments.file, arguments.binary]):
        raise UserError("--session has its own messages; omit --bytes, --file and --binary")
    if arguments.slow_readers and arguments.push is None:
        raise UserError("--slow-readers needs --push")
    return "ping" if arguments.ping else "idle" if arguments.idle else "push" if arguments.push is not None else None


def _loop(arguments) -> Loop:
    rates = arguments.ramp or []
    constant = arguments.rate or arguments.push
    if constant is not None:
        rates = [Segment(from_per_s=constant, to_per_s=constant, for_s=0)]
    closed_only = {"--think": arguments.think, "--per-connection": arguments.per_connection}
    given = [name for name, value in closed_only.items() if value is not None]
    if (rates or arguments.idle) and given:
        raise UserError(f"{given[0]} needs a closed loop; --rate, --ramp, --push and --idle are open loops")
    if arguments.poisson and not rates:
        raise UserError("--poisson needs --rate, --ramp or --push")
    if rates:
        return Open(arrivals="poisson" if arguments.poisson else "constant", rate=rates, depth=arguments.depth)
    if arguments.idle:
        return NoLoop()
    return Closed(depth=arguments.depth or 1, think=arguments.think, messages_per_connection=arguments.per_connection)


# ---- values ----------------------------------------------------------------------------------------------------------


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: NAME=VALUE")
    return name, value


def ramp(text: str) -> Segment:
    parts = text.split(":")
    if len(parts) != 3:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: FROM:TO:SECONDS, such as 0:5k:30")
    return Segment(from_per_s=from_zero(parts[0]), to_per_s=from_zero(parts[1]), for_s=seconds(parts[2]))


def stages(text: str) -> list[Stage]:
    found = []
    for part in text.split(","):
        try:
            to, over_s, chunk = [*part.split(":"), "1"] if part.count(":") == 1 else part.split(":")
            found.append(Stage(to=count(to), over_s=seconds(over_s), chunk=positive(chunk)))
        except (ValueError, argparse.ArgumentTypeError) as error:
            allowed = "TO:SECONDS or TO:SECONDS:CHUNK, such as 1k:60"
            raise argparse.ArgumentTypeError(f"found {part!r}, allowed: {allowed}") from error
    if max(stage.to for stage in found) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: at least one connection in some stage")
    return found


def think(text: str) -> Think:
    named, *rest = text.split(",")
    kind, pairs = (None, [named, *rest]) if "=" in named else (named, rest)
    try:
        numbers = {
            key: (from_zero if key == "sigma" else seconds)(value) for key, _, value in (pair.partition("=") for pair in pairs)
        }
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: {THINK_FORMS}") from error
    for (name, keys), make in THINKS.items():
        if set(keys) == set(numbers) and kind in (None, name):
            return make(*(numbers[key] for key in keys))
    raise argparse.ArgumentTypeError(f"found {text!r}, allowed: {THINK_FORMS}")
