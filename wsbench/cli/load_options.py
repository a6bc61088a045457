"""The options of `wsbench load`: what a user may type, and the `load.Request` that it becomes.

Every value is checked where it is read; what cannot go together is said in one line. It resolves no address and opens no file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from wsbench.analysis import thresholds
from wsbench.cli.values import (
    above_zero,
    cpus,
    fraction,
    from_zero,
    header,
    level,
    pid,
    positive,
    seconds,
    seconds_above_zero,
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
from wsbench.run import load

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
    _add_output(parser.add_argument_group("output and gates"))


def _add_load(group) -> None:
    pace = group.add_mutually_exclusive_group()
    pace.add_argument(
        "--rate", type=above_zero, metavar="R", help="open loop: R messages a second, whatever replies do"
    )
    pace.add_argument(
        "--ramp",
        type=ramp,
        action="append",
        metavar="FROM:TO:SECONDS",
        help="open loop: a rate that moves; repeatable steps",
    )
    pace.add_argument("--push", type=above_zero, metavar="RATE", help="so many broadcasts a second, which all receive")
    pace.add_argument("--idle", action="store_true", help="connections are only held")
    group.add_argument("--poisson", action="store_true", help="open loop: random arrivals instead of even ones")
    group.add_argument("--depth", type=positive, metavar="N", help="messages under way on one connection, at most")
    group.add_argument(
        "--think", type=think, metavar="FORM", help=f"closed loop: a pause before each message: {THINK_FORMS}"
    )
    group.add_argument(
        "--per-connection", type=positive, metavar="K", help="closed loop: a new connection after K replies"
    )
    group.add_argument(
        "--slow-readers", type=fraction, default=0.0, metavar="X", help="push: the share that never reads"
    )
    until = group.add_mutually_exclusive_group()
    until.add_argument("-n", "--messages", type=positive, help="end after so many")
    until.add_argument(
        "-t",
        "--seconds",
        type=seconds_above_zero,
        help="duration, such as 30, 500ms or 5m (default: the ramps or stages, or 10)",
    )
    group.add_argument(
        "--warmup", type=seconds, metavar="SECONDS", help="before the measurement (default 1; 0 with ramps or stages)"
    )


def _add_messages(group) -> None:
    group.add_argument("--bytes", type=int, help="payload of a message (default 128), or length of the document")
    group.add_argument("--file", type=Path, help="the payload, all but its first 16 bytes, which tell messages apart")
    group.add_argument("--binary", action="store_true", help="binary messages instead of text")
    group.add_argument("--ping", action="store_true", help="`Ping`, answered by `Pong`, instead of an echo")
    group.add_argument("--close", action="store_true", help="http: a connection for every request")
    group.add_argument("--fragment", type=positive, metavar="BYTES", help="cut messages into frames of at most so much")
    group.add_argument("--mask", choices=["random", "fixed", "zero"], default="random")
    group.add_argument(
        "--deflate",
        type=level,
        nargs="?",
        const=6,
        metavar="LEVEL",
        help="permessage-deflate (zlib's level, default 6)",
    )


def _add_connections(group) -> None:
    group.add_argument("-c", "--connections", type=positive, help="default 50")
    group.add_argument("--connect-rate", type=above_zero, metavar="R", help="open so many a second (default: at once)")
    group.add_argument(
        "--stages",
        type=stages,
        metavar="TO:SECONDS,…",
        help="the number of connections moves; TO:SECONDS:CHUNK in chunks",
    )
    group.add_argument("--ca", type=Path, metavar="FILE", help="PEM certificates to trust instead of this host's")
    group.add_argument("--insecure", action="store_true", help="do not verify the server's certificate")
    group.add_argument("--subprotocol", action="append", default=[], metavar="NAME", help="offered; repeatable")
    group.add_argument("-H", "--header", type=header, action="append", default=[], metavar="'Name: value'")
    group.add_argument("--source", action="append", default=[], metavar="ADDRESS", help="connect from it; repeatable")
    group.add_argument(
        "--replica",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="another process of the same server listens there: connections take them in turn; repeatable",
    )
    group.add_argument("--threads", type=positive, help="workers of the engine")
    group.add_argument(
        "--engines", type=positive, metavar="N", help="engine processes (default: as many as the file limit demands)"
    )
    group.add_argument(
        "--cluster", type=Path, metavar="FILE", help="the engines run on these hosts, over Ray (docs/cluster.md)"
    )
    group.add_argument("--cpus", type=cpus, default=[], metavar="1,3", help="pin the workers to these CPUs")
    group.add_argument("--busy-poll", action="store_true", help="workers never sleep: for CPUs that nobody else uses")
    group.add_argument("--mine", action="append", default=[], metavar="HOST", help="this other host is mine to load")
    group.add_argument("--pid", type=pid, help="the server's process on this machine, to be sampled")


def _add_output(group) -> None:
    group.add_argument("--json", action="store_true", help="one document on standard output, nothing else")
    group.add_argument("--hdr", type=Path, metavar="FILE", help="writes FILE.hlog and FILE.hgrm (milliseconds)")
    group.add_argument("--csv", type=Path, metavar="FILE", help="writes every metric, a row each")
    group.add_argument(
        "--fail-if",
        type=thresholds.parse,
        action="append",
        default=[],
        metavar="'METRIC OP NUMBER'",
        help="exit 3 where it holds, such as 'response_us_p99 > 5000'; repeatable. An INVALID measurement is exit 4",
    )


def request(arguments) -> load.Request:
    """UserError where options cannot go together."""
    loop = _loop(arguments)
    steps = arguments.stages
    if steps and arguments.messages:
        raise UserError("--stages: connections come and go by time; give -t instead of -n")
    if steps and arguments.connections:
        raise UserError("--stages says how many connections there are; leave -c out")
    planned_s = sum(one.for_s for one in arguments.ramp or []) or sum(one.over_s for one in steps or [])
    by_count = arguments.messages is not None
    duration_s = arguments.seconds or planned_s or DEFAULT_S
    warmup_s = arguments.warmup if arguments.warmup is not None else 0.0 if planned_s or steps else 1.0
    if arguments.bytes is not None and not 0 <= arguments.bytes <= LARGEST_BYTES:
        raise UserError(f"--bytes: found {arguments.bytes}, allowed: 0 to {LARGEST_BYTES}")
    if arguments.bytes is not None and arguments.file is not None:
        raise UserError("--file has a length of its own; leave --bytes out")
    if arguments.ca is not None and arguments.insecure:
        raise UserError("--ca says whom to trust, --insecure to trust anybody; give one of them")
    for name, file in (("--hdr", arguments.hdr), ("--csv", arguments.csv)):
        if file is not None:
            require_writable(name, file)
    if arguments.busy_poll and not arguments.cpus:
        raise UserError("--busy-poll needs --cpus: workers that never sleep take their CPUs from everybody else")
    level = arguments.deflate
    return load.Request(
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
        server_pid=arguments.pid,
        engines=arguments.engines,
        cluster=arguments.cluster,
        replicas=tuple(arguments.replica),
    )


def _kind(arguments) -> str | None:
    if sum([arguments.ping, arguments.idle, arguments.push is not None]) > 1:
        raise UserError("give one of --ping, --idle and --push")
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
        raise UserError(f"{given[0]} is of a closed loop; --rate, --ramp, --push and --idle are none")
    if arguments.poisson and not rates:
        raise UserError("--poisson needs --rate, --ramp or --push")
    if rates:
        return Open(arrivals="poisson" if arguments.poisson else "constant", rate=rates, depth=arguments.depth)
    if arguments.idle:
        return NoLoop()
    return Closed(depth=arguments.depth or 1, think=arguments.think, messages_per_connection=arguments.per_connection)


# ---- values ----------------------------------------------------------------------------------------------------------


def ramp(text: str) -> Segment:
    parts = text.split(":")
    if len(parts) != 3:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: FROM:TO:SECONDS, such as 0:5000:30")
    return Segment(from_per_s=from_zero(parts[0]), to_per_s=from_zero(parts[1]), for_s=seconds(parts[2]))


def stages(text: str) -> list[Stage]:
    found = []
    for part in text.split(","):
        pieces = part.split(":")
        if len(pieces) not in (2, 3) or not pieces[0].isdigit():
            raise argparse.ArgumentTypeError(
                f"found {part!r}, allowed: TO:SECONDS or TO:SECONDS:CHUNK, such as 1000:60"
            )
        chunk = positive(pieces[2]) if len(pieces) == 3 else 1
        found.append(Stage(to=int(pieces[0]), over_s=seconds(pieces[1]), chunk=chunk))
    if max(stage.to for stage in found) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: at least one connection in some stage")
    return found


def think(text: str) -> Think:
    named, *rest = text.split(",")
    kind, pairs = (None, [named, *rest]) if "=" in named else (named, rest)
    try:
        numbers = {
            key: (from_zero if key == "sigma" else seconds)(value)
            for key, _, value in (pair.partition("=") for pair in pairs)
        }
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: {THINK_FORMS}") from error
    for (name, keys), make in THINKS.items():
        if set(keys) == set(numbers) and kind in (None, name):
            return make(*(numbers[key] for key in keys))
    raise argparse.ArgumentTypeError(f"found {text!r}, allowed: {THINK_FORMS}")
