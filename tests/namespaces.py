"""Three hosts made of network namespaces of this machine, one that serves and two that load, with Ray on each; what runs there, and
what takes it away. Only ssh leads to one of them. Needs root, `ip`, Ray, an ssh client and
dropbear.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from wsbench.host.installation import ROOT
from wsbench.servers import build, catalogue

SERVE, LOADS = "wsbt-s", ("wsbt-a", "wsbt-b")
SPACES = (SERVE, *LOADS)
BRIDGE = "wsbtbr"
PORT = 21_000
CLUSTER = """
token = "{folder}/token"
port = 26379
wait_s = {wait_s}
[[host]]
name = "load-a"
address = "10.77.8.2"
cpus = [{last}]
netns = "wsbt-a"
[[host]]
name = "load-b"
address = "10.77.8.3"
cpus = [{last}]
ssh = "wsbt-b"
[[host]]
name = "serve"
role = "serve"
address = "10.77.8.1"
cpus = [0]
netns = "wsbt-s"
"""
#: Of the user who types `ssh wsbt-b`.
SSH_CONFIG = """
Host wsbt-b
HostName 10.77.8.3
User root
IdentityFile {folder}/key
UserKnownHostsFile {folder}/known_hosts
StrictHostKeyChecking yes
ConnectTimeout 3
"""
TOOLS = ("ip", "ssh", "ssh-keygen", "dropbear", "dropbearkey")


def ip(*words: str, check: bool = True) -> subprocess.CompletedProcess:
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def possible() -> bool:
    if os.geteuid() != 0 or not all(map(shutil.which, TOOLS)) or find_spec("ray") is None:
        return False
    made = ip("netns", "add", "wsbt-probe", check=False).returncode == 0
    return made and ip("netns", "del", "wsbt-probe", check=False).returncode == 0


@contextlib.contextmanager
def alone():
    """One run of these tests at a time: the bridge and its links have fixed names. The name of an abstract socket reaches as far as
    they do, one network namespace."""
    with socket.socket(socket.AF_UNIX) as held:
        until = time.monotonic() + 1200
        while True:
            try:
                held.bind("\0wsbench-tests-namespaces")
                break
            except OSError:
                assert time.monotonic() < until, "another run of these tests does not end"
                time.sleep(1)
        yield


def end_namespaces() -> None:
    for space in SPACES:
        # By itself it would stay for as long as the kernel keeps a socket of the namespace.
        ip("link", "del", f"v{space}", check=False)
        ip("netns", "del", space, check=False)
    ip("link", "del", BRIDGE, check=False)


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    """The namespaces, a reference server in one, Ray in the two others; the folder to load from."""
    if not possible():
        pytest.skip(f"needs root, Ray, {', '.join(TOOLS)}")
    with alone():
        yield from made(tmp_path_factory)


def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    for name, wait_s in (("cluster.toml", 90), ("impatient.toml", 3)):
        (folder / name).write_text(CLUSTER.format(folder=folder, wait_s=wait_s, last=os.cpu_count() - 1))
    end_namespaces()
    started = []
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("link", "set", BRIDGE, "up")
        for number, space in enumerate(SPACES, 1):
            ip("netns", "add", space)
            ip("link", "add", f"v{space}", "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", f"v{space}", "master", BRIDGE, "up")
            ip("-n", space, "addr", "add", f"10.77.8.{number}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
        variant = next(one for one in catalogue.read(ROOT / "servers") if one.name == "reference@websocket")
        assert build.build(variant, sorted(os.sched_getaffinity(0))).problem is None
        binary = variant.folder / variant.table.run[0]
        env = {"HOST": "10.77.8.1", "PORT": str(PORT), "THREADS": "1"}
        started.append(subprocess.Popen(["ip", "netns", "exec", SERVE, str(binary)], env={**os.environ, **env}))
        started.append(ssh_server(folder))
        up(folder)
        yield folder
    finally:
        inside(folder, "cluster", "down", "cluster.toml")
        for one in started:
            one.kill()
            one.wait()
        end_namespaces()
        Path("/tmp/wsbench-ray.log").unlink(missing_ok=True)


def ssh_server(folder: Path) -> subprocess.Popen:
    """On the host `load-b`, for whoever has the key that is made here, and the `ssh` that has it."""
    home = folder / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / "passwd").write_text(f"root:x:0:0:root:{home}:/bin/sh\n")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
    shutil.copy(folder / "key.pub", home / ".ssh" / "authorized_keys")
    made = subprocess.run(["dropbearkey", "-t", "ed25519", "-f", str(home / "hostkey")], check=True, capture_output=True, text=True)
    public = next(line for line in made.stdout.splitlines() if line.startswith("ssh-ed25519"))
    (folder / "known_hosts").write_text(f"10.77.8.3 {public}\n")
    (folder / "ssh_config").write_text(SSH_CONFIG.format(folder=folder))
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
    (folder / "bin" / "ssh").chmod(0o755)
    # dropbear looks for keys at home, and `ip netns exec` gives it mounts of its own: there, home is elsewhere.
    line = 'mount --bind "$0/passwd" /etc/passwd && exec dropbear -F -E -s -r "$0/hostkey" -p 10.77.8.3:22'
    server = subprocess.Popen(["ip", "netns", "exec", LOADS[1], "sh", "-c", line, str(home)])
    until = time.monotonic() + 20
    while ip("netns", "exec", LOADS[0], f"{folder}/bin/ssh", "wsbt-b", "true", check=False).returncode != 0:
        assert time.monotonic() < until, "no ssh server answered"
        time.sleep(0.2)
    return server


def environment(folder: Path) -> dict[str, str]:
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "XDG_STATE_HOME": str(folder / "state"), "NO_COLOR": "1"}


def command(*words: str) -> list[str]:
    return ["ip", "netns", "exec", LOADS[0], sys.executable, "-m", "wsbench.cli", *words]


def inside(folder: Path, *words: str, timeout: float = 120) -> subprocess.CompletedProcess:
    return subprocess.run(command(*words), cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=timeout)


def up(folder: Path) -> None:
    """A host that has been given up takes a moment to end: only then is it started anew. The first Ray on a machine that has just
    installed it reads some hundred megabytes."""
    # Ray's children get the niceness of what starts it, which a test runner may have lowered.
    start = ["nice", "-n", str(-os.nice(0)), *command("cluster", "up", "cluster.toml")]
    until = time.monotonic() + 300
    said = []
    while (lack := lacking(folder)) is not None:
        said.append(lack)
        done = subprocess.run(start, cwd=folder, env=environment(folder), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
        if time.monotonic() > until:
            logs = [f"{log.name}:\n{log.read_text()[-2000:]}" for log in folder.glob("state/wsbench/*.log")]
            pytest.fail("\n".join(["the cluster did not come up", *said[:2], "…", *said[-4:], *logs]))
        time.sleep(2)


def lacking(folder: Path) -> str | None:
    """Why the cluster is not up, `None` if it is."""
    if not raylets_everywhere():
        return "a host has no raylet"
    status = inside(folder, "cluster", "status", "cluster.toml")
    return None if status.returncode == 0 else status.stdout + status.stderr


def raylets_everywhere() -> bool:
    """Ray takes a moment to see that one was killed, and calls its host alive until then."""
    found = {namespace(one) for one in psutil.process_iter(["name"]) if one.info["name"] == "raylet"}
    return all(Path(f"/run/netns/{space}").stat().st_ino in found for space in SPACES)


@pytest.fixture
def whole_again(bed):
    """After what breaks the cluster itself."""
    yield
    mend(bed)


def mend(bed: Path) -> None:
    """The links are there, and Ray is started anew where it has ended."""
    if any(",UP" not in ip("-br", "link", "show", f"v{space}").stdout for space in SPACES):
        # Whose link comes back at the moment in which Ray gives the host up is given up all the same, after it was seen alive.
        until = time.monotonic() + 60
        while inside(bed, "cluster", "status", "cluster.toml").returncode == 0 and time.monotonic() < until:
            time.sleep(0.5)
    for space in SPACES:
        ip("link", "set", f"v{space}", "up")
    up(bed)


def engines() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "wsbench-engine" and any("/tmp/wsbench-" in word for word in process.info["cmdline"] or []):
            found.append(process)
    return found


def servers() -> list[psutil.Process]:
    """Those of a campaign: of a leash's child."""
    found = [one for one in psutil.process_iter(["name"]) if one.info["name"] == "reference"]
    return [one for one in of_host(found, SERVE) if "leash.py" in " ".join(one.parent().cmdline())]


def of_host(processes: list[psutil.Process], space: str) -> list[psutil.Process]:
    there = Path(f"/run/netns/{space}").stat().st_ino
    return [one for one in processes if namespace(one) == there]


def namespace(process: psutil.Process) -> int | None:
    try:
        return Path(f"/proc/{process.pid}/ns/net").stat().st_ino
    except OSError:
        return None


def kill_engine(_) -> None:
    of_host(engines(), LOADS[1])[0].kill()


def kill_actor(_) -> None:
    of_host(engines(), LOADS[1])[0].parent().kill()


def kill_raylet(_, space: str = LOADS[1]) -> None:
    raylets = [one for one in psutil.process_iter(["name"]) if one.info["name"] == "raylet"]
    of_host(raylets, space)[0].kill()


def cut_link(_, space: str = LOADS[1]) -> None:
    ip("link", "set", f"v{space}", "down")


def kill_serving_actor(_) -> None:
    servers()[0].parent().parent().kill()


def kill_serving_raylet(driver) -> None:
    kill_raylet(driver, SERVE)


def cut_serving_link(driver) -> None:
    cut_link(driver, SERVE)
