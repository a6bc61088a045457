"""The hosts over Ray: one actor per host, calls to it, and lost hosts. The only module that imports Ray.

Within a trial no actor restarts and no call repeats: a load that silently runs again is not a measurement.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from wsbench.host import installation
from wsbench.records.errors import HostLost, TrialFailed, UserError
from wsbench.run.cluster.hosts import Cluster, Host
from wsbench.run.cluster.onhost import OnHost, installed
from wsbench.servers import catalogue

CONNECT_S = 30.0
#: A host that does not answer for this long is lost.
ANSWER_S = 5.0
#: Interval of checks whether a lost host is back.
BACK_S = 1.0


def environment(cluster: Cluster) -> dict[str, str]:
    """The environment of every Ray process, ours included: token, no usage reports, normal niceness and OOM score, no kills by
    Ray's memory monitor, silent hosts noticed within seconds. A Ray that wsbench does not manage takes its authentication
    from the user's environment. Folders of your own servers must be the same on every host."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(cluster.token_file)}
    own = os.pathsep.join(str(folder.absolute()) for folder in catalogue.own())
    return {
        **({} if cluster.ray else token),
        **({catalogue.VARIABLE: own} if own else {}),
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
    """Addresses of the hosts that are in the cluster now."""
    with Connected(cluster, []) as connected:
        return connected.alive()


class Connected:
    """A connection to the cluster's Ray with one actor per wanted host. It leaves nothing behind when the context ends."""

    def __init__(self, cluster: Cluster, wanted: list[Host]):
        self._wanted = wanted
        if cluster.ray is None and not cluster.token_file.exists():
            raise UserError(f"{cluster.token_file} is missing; `wsbench cluster up` creates it")
        os.environ.update(environment(cluster))
        try:
            import ray
        except ImportError as error:
            raise UserError(f"Ray is not installed: {installation.extra('cluster')}") from error
        # Ray's messages about lost workers would appear on our standard output, and Ray has no public switch for them.
        ray._private.worker._worker_logs_enabled = False
        self._ray = ray
        self._cluster = cluster
        self._actors: dict[str, object] = {}
        #: The reason why a host was lost, until it is back.
        self._lost: dict[str, HostLost] = {}

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
            raise UserError(f"no cluster at {self._cluster.head}: {first}; `wsbench cluster up` starts one") from error
        try:
            alive = self.alive()
            for host in self._wanted:
                if host.address not in alive:
                    raise UserError(f"{host.name} ({host.address}) is not in the cluster; `wsbench cluster status` lists its hosts")
            for host in self._wanted:
                self._place(host)
            for host in self._wanted:
                _require_fit(host, self.call(host.name, "describe", timeout_s=CONNECT_S))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        left = [actor.leave.remote() for name, actor in self._actors.items() if name not in self._lost]
        until = time.monotonic() + ANSWER_S
        for one in left:
            with contextlib.suppress(Exception):
                self._ray.get(one, timeout=max(0.0, until - time.monotonic()))
        for actor in self._actors.values():
            with contextlib.suppress(Exception):
                self._ray.kill(actor)
        self._ray.shutdown()

    def alive(self) -> set[str]:
        return {node["NodeManagerAddress"] for node in self._ray.nodes() if node["Alive"]}

    def call(self, host: str, method: str, *arguments, timeout_s: float = ANSWER_S):
        """The actor's answer. TrialFailed if it reports an error, HostLost if the host is down, silent or already lost."""
        if host in self._lost:
            raise self._lost[host]
        try:
            return self._ray.get(getattr(self._actors[host], method).remote(*arguments), timeout=timeout_s)
        except self._ray.exceptions.GetTimeoutError as error:
            self._lost[host] = HostLost(host, f"it did not answer for {timeout_s:g} s")
            raise self._lost[host] from error
        except self._ray.exceptions.RayActorError as error:
            self._lost[host] = HostLost(host, "its wsbench actor has ended")
            raise self._lost[host] from error
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, TrialFailed | UserError):
                raise TrialFailed(str(error.cause)) from error
            raise TrialFailed(f"host {host}: {str(error).splitlines()[-1]}") from error
        except self._ray.exceptions.RayError as error:
            raise TrialFailed(f"host {host}: {str(error).splitlines()[-1]}") from error

    def restore(self, wait_s: float, say: Callable[[str], None]) -> None:
        """Starts a new actor on every lost host that is back. UserError if a host is not back within `wait_s`."""
        until = time.monotonic() + wait_s
        for name in list(self._lost):
            host = next(one for one in self._wanted if one.name == name)
            say(f"waiting for {name}, at most {wait_s:g} s: {self._lost[name]}")
            while not self._back(host):
                if time.monotonic() > until:
                    raise UserError(
                        f"{name} did not come back within {wait_s:g} s; bring it up (`wsbench cluster up`), then "
                        "continue with `wsbench run --resume`: every finished trial is kept"
                    )
                time.sleep(BACK_S)
            say(f"{name} is back")

    def _back(self, host: Host) -> bool:
        if host.address not in self.alive():
            return False
        with contextlib.suppress(Exception):
            self._ray.kill(self._actors[host.name])
        self._place(host)
        known = self._lost.pop(host.name)
        try:
            _require_fit(host, self.call(host.name, "describe"))
        except TrialFailed:
            self._lost[host.name] = known
            return False
        return True

    def _place(self, host: Host) -> None:
        there = {f"node:{host.address}": 0.001}
        options = {"num_cpus": 0, "resources": there, "max_restarts": 0, "max_task_retries": 0}
        self._actors[host.name] = self._ray.remote(OnHost).options(**options).remote(host.engine)


def _require_fit(host: Host, found: dict) -> None:
    if not found["engine"]:
        raise UserError(f"{host.name}: no engine at {found['binary']}; install the same wsbench there")
    if found["wsbench"] != installed():
        raise UserError(f"{host.name} has wsbench {found['wsbench']}, this host {installed()}; install the same there")
    for what, name in (("nice", "RAY_worker_niceness"), ("oom", "RAY_worker_oom_score_adjustment")):
        if found[what] != 0:
            raise UserError(
                f"{host.name}: Ray's processes there have {what} {found[what]}, not 0: start Ray with {name}=0 where {what} is 0"
            )
