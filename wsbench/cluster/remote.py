"""What runs on another host, as a Ray actor: its engines, the time there, and what its engines have written since it was last
asked. The only room that imports Ray.

An actor is never restarted and a call never repeated. When it ends, however that is, the pipes to its engines close, and they end.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from wsbench.cluster.hosts import Cluster, Host
from wsbench.errors import TrialFailed, UserError
from wsbench.process import INHERITED, Engine

CONNECT_S = 30.0
#: A host that does not answer for so long is lost.
ANSWER_S = 5.0


class OnHost:
    """The actor. All it returns is plain data."""

    def __init__(self, engine: str | None):
        self._binary = Path(engine) if engine else Path(sys.executable).parent / "wsbench-engine"
        self._folder = Path(tempfile.mkdtemp(prefix="wsbench-"))
        self._engines: dict[int, Engine] = {}
        self._read: dict[int, int] = {}

    def describe(self) -> dict:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        return {
            "engine": self._binary.exists(),
            "binary": str(self._binary),
            "files": None if limit == resource.RLIM_INFINITY else limit,
            "nice": os.nice(0),
            "oom": int(Path("/proc/self/oom_score_adj").read_text()),
        }

    def time(self) -> tuple[int, int]:
        heard = time.monotonic_ns()
        return heard, time.monotonic_ns()

    def start(self, number: int, plan: str) -> int:
        own = self._folder / str(number)
        own.mkdir()
        (own / "plan.json").write_text(plan, encoding="utf-8")
        # Ray's workers have settings of their own in the environment, which are not those of a user's shell.
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        self._engines[number] = Engine(self._binary, own / "plan.json", own, own / "engine.log", env)
        return self._engines[number].pid

    def news(self) -> dict[int, tuple[bytes, int | None]]:
        """Of each engine the whole lines it has written since, and its exit code, looked at before what it wrote."""
        found = {}
        for number, engine in self._engines.items():
            code = engine.exit_code
            file = self._folder / str(number) / "events.jsonl"
            lines = b""
            if file.exists():
                with file.open("rb") as opened:
                    opened.seek(self._read.get(number, 0))
                    whole, newline, _ = opened.read().rpartition(b"\n")
                lines = whole + newline
                self._read[number] = self._read.get(number, 0) + len(lines)
            found[number] = (lines, code)
        return found

    def file(self, number: int, name: str) -> bytes:
        file = self._folder / str(number) / name
        return file.read_bytes() if file.exists() else b""

    def tell(self, number: int, line: str) -> None:
        self._engines[number].tell(line)

    def interrupt(self, number: int) -> None:
        self._engines[number].interrupt()

    def clear(self) -> None:
        """Ends all engines and leaves no file."""
        for engine in self._engines.values():
            engine.__exit__()
        shutil.rmtree(self._folder, ignore_errors=True)


def environment(cluster: Cluster) -> dict[str, str]:
    """What every process of Ray is started with, ours too: a token, no reports to anybody, children neither niced nor first to be
    killed, a silent host noticed within seconds, and nobody who kills a server because memory is short."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(cluster.token_file),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_worker_oom_score_adjustment": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_health_check_initial_delay_ms": "2000",
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_timeout_ms": "1000",
        "RAY_health_check_failure_threshold": "3",
    }


def alive(cluster: Cluster) -> set[str]:
    """The addresses of the hosts that are in the cluster now."""
    with Connected(cluster, place=False) as connected:
        return connected.alive()


class Connected:
    """A connection to the cluster's Ray, an actor a host; nothing of it is left when the context ends."""

    def __init__(self, cluster: Cluster, place: bool = True):
        self._wanted = cluster.host if place else []
        if not cluster.token_file.exists():
            raise UserError(f"{cluster.token_file} is missing; `wsbench cluster up` makes it")
        os.environ.update(environment(cluster))
        try:
            import ray
        except ImportError as error:
            raise UserError("Ray is not installed: pip install 'wsbench[cluster]'") from error
        # What Ray has to say of lost workers would stand between the lines of our standard output, and has no switch of its own.
        ray._private.worker._worker_logs_enabled = False
        self._ray = ray
        self._cluster = cluster
        self._actors: dict[str, object] = {}

    def __enter__(self) -> Connected:
        own = self._cluster.host[0].address
        try:
            self._ray.init(
                address=self._cluster.head,
                _node_ip_address=own,
                log_to_driver=False,
                logging_level="ERROR",
                configure_logging=False,
            )
        except Exception as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(
                f"no cluster answers at {self._cluster.head}: {first}; `wsbench cluster up` starts one"
            ) from error
        try:
            self._place()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        cleared = [actor.clear.remote() for actor in self._actors.values()]
        until = time.monotonic() + ANSWER_S
        for one in cleared:
            with contextlib.suppress(Exception):
                self._ray.get(one, timeout=max(0.0, until - time.monotonic()))
        for actor in self._actors.values():
            with contextlib.suppress(Exception):
                self._ray.kill(actor)
        self._ray.shutdown()

    def alive(self) -> set[str]:
        return {node["NodeManagerAddress"] for node in self._ray.nodes() if node["Alive"]}

    def _place(self) -> None:
        alive = self.alive()
        for host in self._wanted:
            if host.address not in alive:
                raise UserError(
                    f"{host.name} ({host.address}) is not in the cluster; `wsbench cluster status` shows who is"
                )
        kind = self._ray.remote(OnHost)
        for host in self._wanted:
            there = {f"node:{host.address}": 0.001}
            options = {"num_cpus": 0, "resources": there, "max_restarts": 0, "max_task_retries": 0}
            self._actors[host.name] = kind.options(**options).remote(host.engine)
        for host in self._wanted:
            _require_fit(host, self.call(host.name, "describe", timeout_s=CONNECT_S))

    def call(self, host: str, method: str, *arguments, timeout_s: float = ANSWER_S):
        """What the actor there answers; TrialFailed where it is gone or silent."""
        try:
            return self._ray.get(getattr(self._actors[host], method).remote(*arguments), timeout=timeout_s)
        except self._ray.exceptions.GetTimeoutError as error:
            raise TrialFailed(f"lost host {host}: it did not answer for {timeout_s:g} s") from error
        except self._ray.exceptions.RayActorError as error:
            raise TrialFailed(f"lost host {host}: what ran there has ended") from error
        except self._ray.exceptions.RayError as error:
            raise TrialFailed(f"host {host}: {str(error).splitlines()[-1]}") from error


def _require_fit(host: Host, found: dict) -> None:
    if not found["engine"]:
        raise UserError(f"{host.name}: no engine at {found['binary']}; install the same wsbench there")
    for what, name in (("nice", "RAY_worker_niceness"), ("oom", "RAY_worker_oom_score_adjustment")):
        if found[what] != 0:
            raise UserError(
                f"{host.name}: what Ray starts there has {what} {found[what]}, not 0: start it with {name}=0"
            )
