"""What the harness's tests share: wsbench as a command, a folder of test servers, and an experiment that is quick."""

import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import ChainMap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from conducts import serve  # noqa: F401 (fixture)
from namespaces import bed, whole_again  # noqa: F401 (fixtures)
from run_maker import SERVERS as MADE_SERVERS
from run_maker import Server, make_run, spoil_some

from wsbench import cli
from wsbench.analysis.reading import load
from wsbench.cli import exits
from wsbench.engine import program
from wsbench.host import leftovers
from wsbench.records import contained
from wsbench.records.engine_files import End, Plan, parse_event
from wsbench.report import document

pytest_plugins = ["kinds"]

SERVERS = Path(__file__).parent / "servers"
# A fault of wsbench in a metric, a check or a figure is no missing number here: it fails the test, also in a subprocess.
os.environ[contained.STRICT] = "1"
# What a test writes need not survive a loss of power.
os.fsync = lambda _: None
WSBENCH = [sys.executable, "-m", "wsbench.cli"]
#: What a test waits for comes by then, also beside a compiler.
PATIENCE_S = 300
#: How a campaign ends that was carried out: on a busy machine perhaps without a trial that can be used.
RAN = (0, 4)

# A shell's background job ignores Ctrl-C and hands that down; the programs whose Ctrl-C is tested must not.
signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def child(words: list[str], **options) -> Iterator[subprocess.Popen]:
    """A running program, which a test that fails meanwhile ends: `Popen` alone would wait for it for ever."""
    with subprocess.Popen(words, **options) as running:
        try:
            yield running
        except BaseException:
            running.kill()
            raise


def started_by(pid: int) -> list[leftovers.Marked]:
    """Servers, and what they started, of the wsbench that has or had this pid."""
    return [one for one in leftovers.marked() if one.mark.startswith(f"{pid}.")]


@pytest.fixture
def environment() -> dict[str, str]:
    return {**os.environ, "WSBENCH_SERVERS": str(SERVERS), "NO_COLOR": "1"}


def _too_long(*_) -> None:
    raise TimeoutError(f"the command did not end within {PATIENCE_S} s")


@pytest.fixture
def wsbench(tmp_path, environment, monkeypatch):
    """Calls `wsbench …` in this process, in an empty folder and with the test servers as its catalogue."""

    def run(*arguments: str) -> subprocess.CompletedProcess:
        written = {name: io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for name in ("stdout", "stderr")}
        with monkeypatch.context() as patched:
            patched.chdir(tmp_path)
            patched.setattr(sys, "argv", ["wsbench", *arguments])
            for name in os.environ.keys() - environment.keys():
                patched.delenv(name)
            for name, value in environment.items():
                patched.setenv(name, value)
            for name, stream in written.items():
                patched.setattr(sys, name, stream)
            signal.signal(signal.SIGALRM, _too_long)
            signal.alarm(PATIENCE_S)
            try:
                code = cli.carried_out(list(arguments))
            except SystemExit as end:  # --help, --version
                code = end.code
            finally:
                signal.alarm(0)
        said = {name: stream.buffer.getvalue().decode() for name, stream in written.items()}
        return subprocess.CompletedProcess(arguments, code or 0, **said)

    return run


@pytest.fixture
def wsbench_process(tmp_path, environment):
    """Runs `wsbench …` as a process of its own, for what a process is about: several at once, its exit, its threads, its limits."""

    def run(*arguments: str, **options) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*WSBENCH, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            **options,
        )

    return run


@pytest.fixture
def checked(wsbench_process):
    """What the gate says of variants: (variant, check) → the check. All are asked at once, because the gate mostly waits."""

    def of(name: str) -> dict:
        done = wsbench_process("check", name, "--json")
        (server,) = json.loads(done.stdout)["servers"]
        wrong = any(check["required"] and not check["passed"] for check in server["checks"])
        assert done.returncode == (exits.BREACHED if wrong else 0), done.stdout + done.stderr
        return {(server["server"], check["name"]): check for check in server["checks"]}

    def run(*names: str) -> dict:
        with ThreadPoolExecutor(len(names)) as pool:
            return dict(ChainMap(*pool.map(of, names)))

    return run


@pytest.fixture
def pong(environment):
    """The address of a real server of the contract's `ping` over TCP."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [sys.executable, str(SERVERS / "fragile" / "server.py")]
    server = subprocess.Popen(argv, env={**environment, "HOST": "127.0.0.1", "PORT": str(port)})
    until = time.monotonic() + PATIENCE_S
    while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
        assert time.monotonic() < until
        time.sleep(0.02)
    yield f"127.0.0.1:{port}"
    server.kill()
    server.wait()


@pytest.fixture
def experiment(tmp_path) -> Path:
    file = tmp_path / "tiny.toml"
    file.write_text(
        """
question = "Does the harness work?"
reading  = "Nothing here is a result."
servers  = ["fragile"]
scenario = "ping"
loop     = "closed"
headline = "messages_per_s"
[load]
connections = 4
[sweep]
connections = [2, 4]
[timing]
measure_s = 0.6
rounds = 2
again = 0
"""
    )
    return file


@pytest.fixture
def carry_out(tmp_path):
    """Runs the engine with a plan; the `end` of what it wrote, every line of which must keep the contract."""
    numbers = itertools.count()

    def run(plan: Plan) -> End:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        file = folder / "plan.json"
        file.write_text(plan.model_dump_json())
        command = [program.require_binary(), file, folder / "out"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        events = [parse_event(line) for line in (folder / "out" / "events.jsonl").read_text().splitlines()]
        assert isinstance(events[-1], End)
        return events[-1]

    return run


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A campaign of made-up trials with all that can be wrong: one failed, one INVALID, two missing, a server that cannot run."""
    servers = (*MADE_SERVERS, Server("undertow", "Java", skipped="needs java ≥ 17, found none"))
    return make_run(tmp_path_factory.mktemp("runs") / "spoiled", servers, change=spoil_some, unfinished=2)


@pytest.fixture(scope="session")
def results(run):
    return load(run)


@pytest.fixture(scope="session")
def html(run) -> str:
    """The text of its report, which stands in its folder."""
    return document.build(run).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser():
    """Chromium, for as long as a file of tests lasts."""
    from browsing import ARGUMENTS, chromium
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield opened
        opened.close()
