"""The only module that starts processes: servers on a leash, pins, engines, and short commands.

A server gets its own environment. Its output goes to a file and is never parsed. It ends when it is stopped, when this process
ends, or when the context of its `Server` exits.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from wsbench.host import leftovers
from wsbench.records.errors import TrialFailed, UserError

STOP_S = 8.0
LEASH_S = 5.0
KILLED_S = 300.0  # a killed process remains until the kernel has closed its connections one by one
LEASH, PIN = (Path(__file__).with_name(name) for name in ("leash.py", "pin.py"))
#: The only variables that a server inherits; any other would be a hidden setting.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "JAVA_HOME", "TMPDIR", "USER")


@dataclass(frozen=True)
class Output:
    code: int
    text: str


def output_of(
    argv: list[str],
    folder: Path | None = None,
    timeout_s: float = 60.0,
    env: dict[str, str] | None = None,
    cpus: list[int] | None = None,
) -> Output:
    """Exit code of a short command, with its standard output and error combined. Code 127 if there is no such program.

    `env` and `cpus` give it the environment and the CPUs that a server would get.
    """
    try:
        with _on(cpus):
            done = subprocess.run(
                argv,
                cwd=folder,
                env=None if env is None else _server_environment(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
    except (FileNotFoundError, NotADirectoryError):
        return Output(127, f"{argv[0]}: not found")
    except PermissionError:  # also of a folder on the PATH
        return Output(127, f"{argv[0]}: not found where this user may look")
    except subprocess.TimeoutExpired:
        return Output(124, f"{argv[0]}: did not end within {timeout_s:g} s")
    return Output(done.returncode, done.stdout.decode(errors="replace").strip())


@contextlib.contextmanager
def _on(cpus: list[int] | None):
    """Binds this thread, and so the processes it starts, to these CPUs."""
    before = os.sched_getaffinity(0)
    if cpus is not None:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _server_environment(env: dict[str, str]) -> dict[str, str]:
    return {**{name: os.environ[name] for name in INHERITED if name in os.environ}, **env}


def run_logged(argv: list[str], folder: Path, log: Path, env: dict[str, str], timeout_s: float = 1800.0) -> int:
    """Runs a build command with `env` added to our environment. Appends its output to `log`; returns its exit code."""
    with log.open("ab") as out:
        out.write(f"$ {' '.join(argv)}\n".encode())
        out.flush()
        try:
            return subprocess.run(
                argv,
                cwd=folder,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            ).returncode
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            out.write(f"{argv[0]}: not found, or not to be executed\n".encode())
            return 127
        except subprocess.TimeoutExpired:
            out.write(f"did not end within {timeout_s:g} s\n".encode())
            return 124


class Server:
    """A running server: its first process's pid, its start (monotonic ns), its environment, the mark of all its processes
    (`leftovers`), its state, and how to stop it."""

    def __init__(self, argv: list[str], folder: Path, env: dict[str, str], cpus: list[int], log: Path):
        self.env = env
        self.mark = leftovers.mark()
        status_read, status_write = os.pipe()
        cpu_list = ",".join(str(cpu) for cpu in cpus)
        with log.open("ab") as out:
            self._leash = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LEASH), cpu_list, str(status_write), "--", *argv],
                cwd=folder,
                env=_server_environment(env) | {leftovers.NAME: self.mark},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=(status_write,),
                start_new_session=True,
            )
        os.close(status_write)
        with os.fdopen(status_read) as status:
            line = status.readline()
            status.read()  # returns at the exec: until then the leash's child holds the other end
        self.started_ns = time.monotonic_ns()
        if not line:
            raise TrialFailed(f"the server could not be started: {argv[0]}")
        self.pid = int(line)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    @property
    def exit_code(self) -> int | None:
        """None while the server runs."""
        if self._leash.poll() is None and _has_ended(self.pid):
            # The leash first ends what the server has left behind.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._leash.wait(LEASH_S)
        return self._leash.returncode

    @property
    def exit_words(self) -> str | None:
        """How it ended, in words. None while it runs."""
        code = self.exit_code
        return None if code is None else _exit_words(code)

    def stop(self) -> str:
        """Stops the server and everything it started. Describes in words how it ended."""
        ended = self.exit_code
        if ended is not None:
            # If the leash was killed, processes that the server started may remain.
            leftovers.end({self.mark})
            return f"had ended by itself with {_exit_words(ended)}"
        self._leash.send_signal(signal.SIGTERM)
        began = time.monotonic()
        try:
            code = self._leash.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._leash.stdin.close()
            try:
                code = self._leash.wait(KILLED_S)
            except subprocess.TimeoutExpired as late:
                raise TrialFailed(f"the server was still running {KILLED_S:g} s after SIGKILL") from late
        with contextlib.suppress(OSError):
            self._leash.stdin.close()
        return f"ended with {_exit_words(code)} {time.monotonic() - began:.1f} s after SIGTERM"


def _has_ended(pid: int) -> bool:
    """Whether a process is gone, or only waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True


def _exit_words(code: int) -> str:
    if code > 128 and code - 128 in iter(signal.Signals):
        return signal.Signals(code - 128).name
    return f"exit code {code}"


class Pinned:
    """Keeps the trees of processes that run already on these CPUs while the context lasts. Afterwards, and however this process
    ends, their threads get back the CPUs that they had (`pin`). UserError if a process may not be moved."""

    def __init__(self, pids: list[int], cpus: list[int]):
        self._argv = [sys.executable, "-I", "-S", str(PIN), ",".join(map(str, cpus)), *map(str, pids)]
        self._names = ", ".join(map(str, pids))

    def __enter__(self) -> Pinned:
        self._pin = subprocess.Popen(self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        said = self._pin.stdout.readline().strip()
        if said != "pinned":
            self.__exit__()
            why = said or "the helper ended"
            raise UserError(f"process {self._names} cannot be kept on CPUs of its own: {why}; run as its user, or do not pin it")
        return self

    def __exit__(self, *_) -> None:
        with contextlib.suppress(OSError):
            self._pin.stdin.close()
        self._pin.wait()
        self._pin.stdout.close()


class Engine:
    """A running engine. It ends when this process ends, because its standard input is our pipe."""

    def __init__(self, binary: Path, plan: Path, folder: Path, log: Path, env: dict[str, str] | None = None):
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [str(binary), str(plan), str(folder)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
            )
        self.pid = self._process.pid

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def tell(self, line: str) -> None:
        """Writes a line to the engine's standard input. Does nothing if the engine has ended."""
        with contextlib.suppress(OSError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def interrupt(self) -> None:
        """Tells the engine to write its measurements and exit."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, or None if the engine has not ended within the time."""
        # Popen.wait(timeout) wakes up 40 times a second, next to a server that is measured.
        if (code := self._process.poll()) is not None:
            return code
        ended, waiting = os.pidfd_open(self.pid), select.poll()
        try:
            waiting.register(ended, select.POLLIN)
            waiting.poll(1000 * timeout_s)
        finally:
            os.close(ended)
        return self._process.poll()


def start_detached(argv: list[str], env: dict[str, str], log: Path) -> int:
    """Starts a process that outlives this one. It gets `env` and the inherited variables only. Returns its pid."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    with log.open("ab") as out:
        started = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**inherited, **env},
            start_new_session=True,
        )
    return started.pid


def is_running(pid: int, word: str) -> bool:
    """Whether a process started by `start_detached` still runs. `word` is in its command line and would not be in that of another
    process that reuses its pid."""
    try:
        return word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def end_detached(pid: int, word: str, timeout_s: float = 10.0) -> bool:
    """Ends a process started by `start_detached`, with its whole session. False if it no longer runs."""
    if not is_running(pid, word):
        return False
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + timeout_s
    while is_running(pid, word) and time.monotonic() < until:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return True
