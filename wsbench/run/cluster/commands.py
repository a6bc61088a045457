"""`wsbench cluster up|status|down`: starts and stops Ray on every host. On this machine (127.0.0.2) and in its network
namespaces it starts Ray directly, and by ssh if cluster.toml says so; for other hosts it prints the command to run there. A host
that already runs is left alone, so `up` also restores lost hosts. It never uses `ray stop`, which ends every user's Ray.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import secrets
import shlex
import sys
from pathlib import Path

from wsbench.host import installation
from wsbench.host.process import end_detached, is_running, output_of, start_detached
from wsbench.records.errors import UserError
from wsbench.records.frozen import Frozen, read_json, write_json
from wsbench.run.cluster import hosts, remote
from wsbench.run.cluster.hosts import Cluster, Host

OBJECT_STORE_BYTES = 100_000_000
WORKER_PORTS = 100
#: Exit code of `status` (see `wsbench.cli.exits`).
NOT_CONNECTED = 3
#: Part of the command line of every process that `up` starts.
WORD = "--node-ip-address"


class Started(Frozen):
    """Process ids of what `up` has started, by host: on this machine or on the ssh host."""

    pids: dict[str, int]


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["up", "status", "down"])
    parser.add_argument("file", type=Path, help="cluster.toml")


def run(arguments) -> int:
    cluster = hosts.read(arguments.file)
    if cluster.ray is not None and arguments.what != "status":
        raise UserError(f"{arguments.file}: wsbench did not start the Ray at {cluster.ray}; start and end it yourself")
    return {"up": _up, "status": _status, "down": _down}[arguments.what](cluster, arguments.file)


def command_of(cluster: Cluster, host: Host) -> list[str]:
    """The command that starts Ray on this host, in the foreground. Every listening port is fixed."""
    port = cluster.port
    first = host == cluster.host[0]
    return [
        str(Path(sys.executable).parent / "ray") if _is_here(host) or host.ssh else "ray",
        *("start", "--block", "--disable-usage-stats", f"--node-ip-address={host.address}"),
        *(["--head", f"--port={port}", "--include-dashboard=false"] if first else [f"--address={cluster.head}"]),
        f"--node-manager-port={port + 1}",
        f"--object-manager-port={port + 2}",
        f"--runtime-env-agent-port={port + 3}",
        f"--metrics-export-port={port + 4}",
        f"--dashboard-agent-listen-port={port + 5}",
        f"--min-worker-port={port + 10}",
        f"--max-worker-port={port + 10 + WORKER_PORTS}",
        # Our actors are placed by host name, not by CPUs.
        "--num-cpus=1",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
    ]


def _is_here(host: Host) -> bool:
    return host.netns is not None or ipaddress.ip_address(host.address).is_loopback


def _kept(file: Path) -> Path:
    return installation.folder_of("XDG_STATE_HOME", ".local/state") / f"cluster-{file.stem}.json"


def _up(cluster: Cluster, file: Path) -> int:
    if not cluster.token_file.exists():
        cluster.token_file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(cluster.token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(secrets.token_hex(32))
        print(f"created {cluster.token_file}; copy it to every host, readable only by its user")
    kept = _kept(file)
    kept.parent.mkdir(parents=True, exist_ok=True)
    environment = remote.environment(cluster)
    pids = _started(kept)
    for host in cluster.machines:
        if host.name in pids and _runs(host, pids[host.name]):
            print(f"{host.name}: already running, process {pids[host.name]}")
            continue
        line = shlex.join(["env", *(f"{name}={value}" for name, value in environment.items()), *command_of(cluster, host)])
        log = kept.with_suffix(f".{host.name}.log")
        if _is_here(host):
            inside = [] if host.netns is None else ["ip", "netns", "exec", host.netns]
            pids[host.name] = start_detached([*inside, *command_of(cluster, host)], environment, log)
        elif host.ssh is not None:
            said = _by_ssh(host, f"nohup {line} > /tmp/wsbench-ray.log 2>&1 < /dev/null & echo $!")
            pids[host.name] = int(said)
            log = f"{host.ssh}:/tmp/wsbench-ray.log"
        else:
            print(f"on {host.name}: {line}")
            continue
        write_json(kept, Started(pids=pids))
        print(f"{host.name}: process {pids[host.name]}, log {log}")
    return 0


def _started(kept: Path) -> dict[str, int]:
    return read_json(Started, kept).pids if kept.exists() else {}


def _runs(host: Host, pid: int) -> bool:
    if host.ssh is None or _is_here(host):
        return is_running(pid, WORD)
    return _by_ssh(host, f"grep -aq -e {WORD} /proc/{pid}/cmdline 2> /dev/null && echo yes || echo no") == "yes"


def _end(host: Host, pid: int) -> bool:
    """Ends the process; true if it was still running."""
    if host.ssh is None or _is_here(host):
        return end_detached(pid, WORD)
    running = _runs(host, pid)
    if running:
        _by_ssh(host, f"kill {pid}; for i in 1 2 3 4 5 6 7 8 9 10; do kill -0 {pid} 2> /dev/null && sleep 1; done; true")
    return running


def _by_ssh(host: Host, line: str) -> str:
    argv = ["ssh", "-o", "BatchMode=yes", host.ssh, line]
    print(f"{host.name}: {shlex.join(argv)}")
    done = output_of(argv)
    if done.code != 0:
        raise UserError(f"{host.name}: ssh {host.ssh} exited with {done.code}: {done.text}")
    return done.text


def _status(cluster: Cluster, file: Path) -> int:
    alive = remote.alive(cluster)
    for host in cluster.machines:
        print(f"{host.name} ({host.address}): {'connected' if host.address in alive else 'NOT CONNECTED'}")
    return 0 if all(host.address in alive for host in cluster.host) else NOT_CONNECTED


def _down(cluster: Cluster, file: Path) -> int:
    kept = _kept(file)
    started = _started(kept)
    for host in reversed(cluster.machines):
        if host.name in started:
            print(f"{host.name}: {'ended' if _end(host, started[host.name]) else 'had already ended'}")
    kept.unlink(missing_ok=True)
    for host in cluster.machines:
        if host.name not in started:
            print(f"{host.name}: end its `ray start` on that host, with Ctrl-C or SIGTERM")
    return 0
