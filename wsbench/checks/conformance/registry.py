"""The registry of checks, and the runner for one check.

To add a check, decorate one function in the module of its topic. Its docstring states the correct behaviour. It returns on
success and raises `Wrong` on failure. *Required* checks cover what a measurement depends on: the contract and the frames the
engine sends. *Advisory* checks cover the rest of the RFCs, where libraries differ: a failure is reported and excludes no server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from wsbench.checks.peer import Server, Wrong
from wsbench.checks.use import Use, whole
from wsbench.records import contained
from wsbench.servers.manifest import PATHS, Limits

WEBSOCKET = ("echo", "ping", "push")


@dataclass(frozen=True)
class Check:
    """The result of one check. A failed advisory check (`required` false) is only reported."""

    name: str
    section: str
    required: bool
    scenarios: tuple[str, ...]
    passed: bool
    detail: str


@dataclass(frozen=True)
class Spec:
    """A registered check. `transport` None: any transport. `patience`: multiple of the usual time limit. `when`: whether a load
    depends on what it checks."""

    function: Callable[[Server], None]
    section: str
    required: bool
    scenarios: tuple[str, ...]
    transport: str | None
    patience: float
    sees_process: bool
    deep: bool
    last: bool
    when: Callable[[Use], bool]

    @property
    def name(self) -> str:
        return self.function.__name__

    def concerns(self, scenarios: Collection[str], transport: str) -> bool:
        return bool(set(self.scenarios) & set(scenarios)) and self.transport in (None, transport)


SPECS: list[Spec] = []


def checks(
    section: str,
    *scenarios: str,
    required: bool = True,
    transport: str | None = "websocket",
    patience: float = 1,
    sees_process: bool = False,
    deep: bool = False,
    last: bool = False,
    when: Callable[[Use], bool] = lambda use: True,
) -> Callable[[Callable[[Server], None]], Callable[[Server], None]]:
    """Registers the decorated function as a check."""

    def register(function: Callable[[Server], None]) -> Callable[[Server], None]:
        SPECS.append(Spec(function, section, required, scenarios, transport, patience, sees_process, deep, last, when))
        return function

    return register


def check(
    host: str,
    port: int,
    scenarios: Collection[str],
    transport: str,
    *,
    pid: int | None = None,
    deep: bool = False,
    idle_s: float = 90.0,
    patience_s: float = 5.0,
    total_s: float = 120.0,
    use: Use | None = None,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    paths: Mapping[str, str] = PATHS,
    name: str | None = None,
    advisory: bool = True,
    watch: Callable[[str], None] = lambda name: None,
) -> list[Check]:
    """Runs every check for these scenarios and this transport, each on its own connections. With `use`: only the required checks
    that such a load depends on, next to the advisory ones; otherwise everything up to the server's own `limits`.

    A check may take `patience_s` times its own factor, all checks together `total_s`; a deep check's time comes on top.
    `pid` is the server's first process: without it, checks of its sockets are skipped. `paths` has the path of each scenario,
    `name` the Host header. `advisory` false: only required checks. `watch` gets each name before its check.
    """
    asked = use or whole(limits.message_bytes, limits.connections)
    end = time.monotonic() + total_s
    results = []
    # Required checks first: a server that a violation brings down is still measured.
    for spec in sorted(SPECS, key=lambda spec: (not spec.required, spec.last, spec.deep)):
        if not spec.concerns(scenarios, transport) or (spec.deep and not deep) or (spec.sees_process and pid is None):
            continue
        if not spec.when(asked) or not (spec.required or advisory):
            continue
        watch(spec.name)
        began = time.monotonic()
        patience = patience_s * spec.patience
        deadline = began + idle_s + patience if spec.deep else min(end, began + patience)
        with ExitStack() as sockets:
            server = Server(host, port, frozenset(scenarios), transport, deadline, sockets, pid, idle_s, asked, paths, name)
            passed, detail = contained.part(
                f"check {spec.name}", lambda spec=spec, server=server: _carry_out(spec, server), lambda reason: (False, reason)
            )
        if spec.deep:
            end += time.monotonic() - began
        results.append(Check(spec.name, spec.section, spec.required, spec.scenarios, passed, detail))
    return results


def _carry_out(spec: Spec, server: Server) -> tuple[bool, str]:
    try:
        spec.function(server)
    except Wrong as wrong:
        return False, str(wrong)
    except TimeoutError:
        return False, "no complete answer in time"
    except OSError as error:
        return False, f"connection lost: {error.strerror or error}"
    return True, ""
