"""The gate: builds a variant, starts it, checks what it serves and stops it. Variants that fail are not measured. A server
that runs already is checked where it runs, and left running.

In: a variant and the depth of the checks. Out: one `CheckResult` per check, or the reason why there is none. Prints nothing.
"""

from __future__ import annotations

import os
import resource
import shlex
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from wsbench.checks import autobahn, conformance, conversation, offered
from wsbench.checks.conformance import deep as deep_checks
from wsbench.checks.use import Use
from wsbench.host import machine
from wsbench.host.process import Server
from wsbench.records import contained
from wsbench.records.errors import TrialFailed, UserError
from wsbench.records.rundir import CheckResult
from wsbench.servers import build, serving, speaking
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Offer, Running

OPEN_AT_THE_END = 20
#: How many of a server's last lines are told if it ends by itself.
LAST_LINES = 5
ENDS, ALIVE = "ends_within_five_seconds", "stays_alive"


@dataclass(frozen=True)
class Depth:
    """Depth of the checks. `idle_s`: idle time of the deep checks. `suite`: the runner of Autobahn's cases; None: skip them."""

    deep: bool = False
    idle_s: float = 90.0
    suite: autobahn.Suite | None = None


QUICK = Depth()


@dataclass(frozen=True)
class Gated:
    """The result of one variant. `outcome`: passes, fails, or skipped (cannot run here). `reason`: why there are no checks."""

    variant: Variant
    outcome: str
    receipt: str | None
    reason: str | None
    checks: list[CheckResult]
    cases: autobahn.Cases | None
    took_s: float

    def count(self, *, required: bool) -> tuple[int, int]:
        """Passed and total number of the required (or the advisory) checks."""
        kind = [one for one in self.checks if one.required is required]
        return sum(one.passed for one in kind), len(kind)


def hold(variant: Variant, built: build.Built, depth: Depth, watch: Callable[[str], None]) -> Gated:
    """Runs every check of what a built variant serves. `watch` gets the name of each check."""
    began = time.monotonic()
    receipt, checks, cases = None, [], None
    outcome, reason = ("fails" if built.did == "failed" else "skipped"), built.problem
    if built.problem is None:
        receipt = built.receipt
        try:
            checks = check(variant, variant.serves, None, depth=depth, watch=watch)
            if depth.suite is not None and "echo" in variant.scenarios:
                watch("Autobahn's cases")
                cases = run_suite(variant, depth.suite)
            outcome = "passes" if all(one.passed for one in checks if one.required) else "fails"
        except TrialFailed as failure:
            outcome, reason = "fails", str(failure)
        except Exception as error:
            outcome, reason = "fails", contained.fault(f"checks of {variant.name}", error)
    return Gated(variant, outcome, receipt, reason, checks, cases, time.monotonic() - began)


def check(
    variant: Variant,
    served: Collection[str],
    port: int | None,
    use: Use | None = None,
    depth: Depth = QUICK,
    watch: Callable[[str], None] = lambda name: None,
) -> list[CheckResult]:
    """Starts the server once, or finds it, and checks these scenarios and roles. TrialFailed if it does not answer.

    With `use`, only the required checks that such a load depends on count, and a server that runs already is asked for nothing
    else: it is the user's, and a violation of the protocol might bring it down. A user's own server is sent what the load consists
    of and nothing else (`Use.exchange`). Without `use`: everything.
    """
    if depth.deep:
        _require_files()
    if use is not None and use.exchange:
        return _exchanged(variant, served, port, use, watch)
    with reached(variant, port, "check") as place:
        results = _contracted(variant, served, place, use, depth, watch)
        results += _spoken(variant, served, place, use, watch)
        if place.server is not None:
            watch(ENDS)
            results.append(_ended(variant, place.server) or _ends_in_time(place.server, place.port))
    for offer in variant.offers if use is None else use.asks:
        watch(f"echo_with_{offer}")
        results.append(_offered(variant, offer, port))
    return results


def _exchanged(
    variant: Variant, served: Collection[str], port: int | None, use: Use, watch: Callable[[str], None]
) -> list[CheckResult]:
    with reached(variant, port, "check", use.asks) as place:
        results = _spoken(variant, served, place, use, watch)
        if "echo" in variant.scenarios and "echo" in served:
            watch("echo_exchange")
            results.append(offered.exchange(variant, place.authority, place.name, use, machine.placement().engine))
        return [*results, *filter(None, [_ended(variant, place.server)])]


def _spoken(
    variant: Variant, served: Collection[str], place: Place, use: Use | None, watch: Callable[[str], None]
) -> list[CheckResult]:
    """A short session of each role."""
    results, largest = [], None if use is None else use.largest
    for role in variant.roles:
        if role in served:
            watch(f"{role}_session")
            cpus = machine.placement().engine
            results.append(conversation.check(variant, role, place.authority, place.name, largest, cpus))
    return results


def _ended(variant: Variant, server: Server | None) -> CheckResult | None:
    """A failed check if the server has ended by itself, with its last lines."""
    if server is None or server.exit_code is None:
        return None
    lines = [line.strip() for line in serving.last_lines(log_of(variant, "check")) if len(line.strip()) > 1][-LAST_LINES:]
    detail = f"it {server.stop()}" + (f"; it wrote: {' | '.join(lines)}" if lines else "")
    return CheckResult(name=ALIVE, section="contract", required=True, passed=False, detail=detail)


def _offered(variant: Variant, offer: Offer, port: int | None) -> CheckResult:
    """Starts the server again, with what it offers."""
    try:
        with started(variant, port, f"check-{offer}", [offer]) as (_, at_port):
            return offered.check(variant, offer, serving.shown(serving.HOST, at_port), machine.placement().engine)
    except TrialFailed as failure:
        return offered.result(offer, str(failure))


def _contracted(
    variant: Variant, served: Collection[str], place: Place, use: Use | None, depth: Depth, watch: Callable[[str], None]
) -> list[CheckResult]:
    """The checks of what it serves of the contract."""
    scenarios = [one for one in variant.scenarios if one in served]
    if not scenarios:
        return []
    found = conformance.check(
        place.host,
        place.port,
        scenarios,
        variant.transport,
        pid=place.pid,
        deep=depth.deep,
        idle_s=depth.idle_s,
        use=use,
        limits=variant.limits,
        paths=variant.paths,
        name=place.name,
        advisory=use is None or place.server is not None,
        watch=watch,
    )
    return [
        CheckResult(name=one.name, section=one.section, required=one.required, passed=one.passed, detail=one.detail)
        for one in found
    ]


@dataclass(frozen=True)
class Place:
    """Where a server answers. `name`: its Host header. `server`: its process, if it was started for this. `pid`: if it is known."""

    host: str
    port: int
    name: str
    server: Server | None
    pid: int | None

    @property
    def authority(self) -> str:
        return serving.shown(self.host, self.port)


@contextmanager
def reached(variant: Variant, port: int | None, purpose: str, asks: Sequence[Offer] = ()) -> Iterator[Place]:
    """The server, started for this purpose with what is asked of its offers, or found where it runs already. TrialFailed if it does
    not answer."""
    if isinstance(variant.table, Running):
        with serving.Attached(variant, machine.placement().server) as found:
            host, _, at_port = found.ready.addresses[0].rpartition(":")
            yield Place(host.strip("[]"), int(at_port), found.ready.host, None, variant.table.pid)
        return
    with started(variant, port, purpose, asks) as (server, at_port):
        yield Place(serving.HOST, at_port, serving.shown(serving.HOST, at_port), server, server.pid)


@contextmanager
def started(variant: Variant, port: int | None, purpose: str, asks: Sequence[Offer] = ()) -> Iterator[tuple[Server, int]]:
    """The running server and its port. Its output goes to the build log for that purpose."""
    asked = serving.Order(port=port, number=os.getpid(), cpus=machine.placement().server, asks=list(asks))
    log = log_of(variant, purpose)
    log.parent.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    with serving.started(variant, asked, log) as (server, at_port, _):
        yield server, at_port


def keep_running(variant: Variant, port: int | None, asks: Sequence[Offer], say: Callable[[str], None]) -> None:
    """Starts the server, with what is asked of its offers, reports its addresses, and runs until Ctrl-C. TrialFailed if the server
    ends by itself."""
    with started(variant, port, "start", asks) as (server, at_port):
        try:
            scheme = "ws" if variant.transport == "websocket" else "tcp"
            sealed = "s" if "tls" in asks else ""
            for scenario in variant.scenarios:
                path = serving.document(variant.paths, 512) if scenario == "doc" else variant.paths[scenario]
                path = "" if scheme == "tcp" else path
                say(f"{'http' if scenario == 'doc' else scheme}{sealed}://{serving.HOST}:{at_port}{path}")
            for role in variant.roles:
                say(f"{role}: {_load_command(variant, role, f'ws{sealed}://{serving.HOST}:{at_port}')}")
            if sealed:
                say(f"trust its certificate: --ca {serving.SWITCHES['tls']['TLS_CERT']}")
            say(f"{variant.name} runs (process {server.pid}, log {log_of(variant, 'start')}); Ctrl-C ends it")
            while server.exit_code is None:
                time.sleep(0.1)
        except KeyboardInterrupt:
            say(server.stop())
            return
        raise TrialFailed(f"{variant.name} {server.stop()}")


def _load_command(variant: Variant, role: str, url: str) -> str:
    """What loads a started server in this role; `url` is without a path."""
    session = variant.roles[role].session
    named = str(speaking.file_of(variant, role)) if session.endswith(".toml") else session
    sets = [word for pair in speaking.settings_of(variant, role).items() for word in ("--set", "=".join(pair))]
    rooms = ["--room-size", "10"] if role == "rooms" else []
    return shlex.join(["wsbench", "load", url + speaking.path_of(variant, role), "--session", named, *sets, *rooms])


def log_of(variant: Variant, purpose: str) -> Path:
    return build.log_of(variant).with_suffix(f".{purpose}.log")


def run_suite(variant: Variant, suite: autobahn.Suite) -> autobahn.Cases:
    """Runs Autobahn's cases against a fresh server. TrialFailed if they cannot run."""
    folder = variant.folder / "build" / f"autobahn-{variant.row}"
    with reached(variant, None, "autobahn") as place:
        return autobahn.run(suite, variant.name, f"ws://{place.authority}{variant.paths['echo']}", folder)


def _ends_in_time(server: Server, port: int) -> CheckResult:
    """Sends SIGTERM to a running server with connections open. The leash kills one that does not end in time."""
    with ExitStack() as sockets:
        for _ in range(OPEN_AT_THE_END):
            with suppress(OSError):
                sockets.enter_context(socket.create_connection((serving.HOST, port), timeout=1))
        words = server.stop()
    killed = server.exit_code == 128 + signal.SIGKILL
    crashed = words.startswith("had ended")
    return CheckResult(
        name=ENDS,
        section="contract: SIGTERM",
        required=True,
        passed=not killed and not crashed,
        detail=words if killed or crashed else "",
    )


def _require_files() -> None:
    """The deep checks hold one socket per member, and so does the server, which inherits this limit. UserError if too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < deep_checks.FILES:
        raise UserError(
            f"--deep needs {deep_checks.FILES} open files, this host allows {hard}: raise `ulimit -Hn` (/etc/security/limits.conf)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
