"""The leash: a supervisor process that kills a server when wsbench dies, however wsbench ends.

Run as `python -I -S leash.py CPUS STATUS_FD -- ARGV…`. It starts ARGV as its child and adopts every orphaned descendant. It kills
them all when its standard input closes (wsbench ended, also by kill -9) or, after a grace period, on SIGTERM. If the leash itself
is killed, the kernel sends the child SIGKILL. It exits with the server's exit status and imports only the standard library.

It sleeps until one of these happens: a server in fifty processes has fifty leashes, on the CPUs that are measured.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path

GRACE_S = 5.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> int:
    cpus, status_fd, argv = sys.argv[1], int(sys.argv[2]), sys.argv[4:]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal group; wsbench handles it
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signals, written = os.pipe()
    os.set_blocking(signals, False)
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written)
    server = os.fork()
    if server == 0:
        _become_server(libc, cpus, status_fd, argv)
    os.write(status_fd, f"{server}\n".encode())
    os.close(status_fd)
    os.set_blocking(0, False)
    while True:
        status = _reap(server)
        if status is not None:
            _kill_descendants()
            return status
        if told:
            return _stop(server, signals, GRACE_S)
        if _orphaned(signals):
            return _stop(server, signals, 0.0)


def _become_server(libc, cpus: str, status_fd: int, argv: list[str]) -> None:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.set_inheritable(status_fd, False)
    # The server gets the same file limit as the engine, which raises its own; a login shell's default is 1,024.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):  # some containers have a limit above the kernel's
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        if cpus:
            os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(",")])
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"wsbench: {argv[0]}: {error.strerror}\n".encode())
        os._exit(127)


def _orphaned(signals: int, timeout_s: float | None = None) -> bool:
    """Waits for a signal or for the end of wsbench; whether it was the latter. `signals`: a pipe with a byte for each signal."""
    readable, _, _ = select.select([0, signals], [], [], timeout_s)
    with contextlib.suppress(BlockingIOError):
        while signals in readable and os.read(signals, 4096):
            pass
    with contextlib.suppress(BlockingIOError):
        return 0 in readable and os.read(0, 1) == b""
    return False


def _reap(server: int) -> int | None:
    """Reaps ended children. Returns the server's exit status once the server has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0
        if pid == 0:
            return None
        if pid == server:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _stop(server: int, signals: int, grace_s: float) -> int:
    with contextlib.suppress(ProcessLookupError):
        os.kill(server, signal.SIGTERM)
    until = time.monotonic() + grace_s
    status = _reap(server)
    while status is None and (left_s := until - time.monotonic()) > 0 and not _orphaned(signals, left_s):
        status = _reap(server)
    _kill_descendants()
    return 128 + signal.SIGKILL if status is None else status


def _kill_descendants() -> None:
    """Sends SIGKILL to all descendants until none is left. Orphans are reparented to this process, so none escapes."""
    while children := _children():
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def _children() -> list[int]:
    own = str(os.getpid())
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                if (entry / "stat").read_text().rpartition(")")[2].split()[1] == own:
                    found.append(int(entry.name))
    return found


if __name__ == "__main__":
    sys.exit(main())
