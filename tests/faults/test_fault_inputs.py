"""What a person may type: one plain line and exit 2, before anything runs; and Ctrl-C at any instant."""

import http.client
import os
import random
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from conftest import PATIENCE_S, WSBENCH, child
from kinds import draws
from run_maker import SERVERS, make_run

from wsbench.report import document


@pytest.fixture
def port():
    """Somebody listens there, and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield listening.getsockname()[1]


LOADS = {
    "url": ["ws://[::1"],
    "url-port": ["ws://127.0.0.1:99999/"],
    "url-space": ["ws://127.0.0.1:PORT/a b"],
    "url-line": ["ws://127.0.0.1:PORT/a\r\nX: y"],
    "url-host": ["ws://é..x/"],
    "url-long-host": [f"ws://{'a' * 300}/"],
    "replica": ["ws://127.0.0.1:PORT/", "--replica", "[::1"],
    "header-line": ["http://127.0.0.1:PORT/", "--bytes", "5", "-H", "X: a\r\nE: b"],
    "header-letter": ["http://127.0.0.1:PORT/", "--bytes", "5", "-H", "X: ☃"],
    "header-name": ["ws://127.0.0.1:PORT/", "-H", "a b: c"],
    "pid": ["ws://127.0.0.1:PORT/", "--pid", "999999999999999"],
    "nobody": ["ws://127.0.0.1:PORT/", "--pid", "4194304"],
    "csv-folder": ["ws://127.0.0.1:PORT/", "--csv", "/tmp"],
    "hdr-empty": ["ws://127.0.0.1:PORT/", "--hdr", ""],
    "csv-proc": ["ws://127.0.0.1:PORT/", "--csv", "/proc/x"],
    "connections": ["ws://127.0.0.1:PORT/", "-c", "300000000"],
    "connections-words": ["ws://127.0.0.1:PORT/", "-c", "1e11"],
    "connections-digits": ["ws://127.0.0.1:PORT/", "-c", "9" * 5000],
    "other-digits": ["ws://127.0.0.1:PORT/", "-c", "٣"],
    "superscript": ["ws://127.0.0.1:PORT/", "-n", "²"],
    "stages": ["ws://127.0.0.1:PORT/", "--stages", "²:5"],
    "seconds": ["ws://127.0.0.1:PORT/", "-t", "nan"],
    "threshold": ["ws://127.0.0.1:PORT/", "--fail-if", "error_fraction > _5"],
}


@pytest.mark.system
@pytest.mark.fault("I2", "`load` with words that cannot be meant", "exit 2, one line, nothing is made")
@pytest.mark.parametrize("words", LOADS.values(), ids=LOADS)
def test_loads(tmp_path, wsbench, port, words):
    done = wsbench("load", *(word.replace("PORT", str(port)) for word in words))
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("wsbench: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.fault("I2", "a URL with letters of another script", "asked for as a browser asks")
def test_letters_of_another_script(wsbench):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/é?ü=%41"
        with child([*WSBENCH, "load", address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            asked = []
            while not asked or not asked[-1]:  # the first connection only looks whether anybody is there
                client, _ = listening.accept()
                with client:
                    client.settimeout(PATIENCE_S)
                    asked.append(client.recv(1000))
            run.kill()
    assert asked[-1].startswith(b"GET /%C3%A9?%C3%BC=%41 HTTP/1.1\r\n")


OTHERS = {
    "export-folder": ["export", "RUN", "csv", "/tmp"],
    "export-proc": ["export", "RUN", "csv", "/proc/x"],
    "site-proc": ["site", "/proc/x", "RUNS"],
    "pack-proc": ["pack", "RUN", "/proc/x"],
    "serve-name": ["serve", "RUNS", "--host", "é..x"],
    "serve-nothing": ["serve", "RUNS", "--host", ""],
    "serve-elsewhere": ["serve", "RUNS", "--host", "192.0.2.1"],
    "plan-long": ["plan", "x" * 5000],
    "plan-long-path": ["plan", f"{'x' * 5000}.toml"],
    "plan-folder": ["plan", "FOLDER.toml"],
    "plan-bytes": ["plan", "BYTES.toml"],
    "seed-below": ["run", "quick", "--seed", "-2"],
    "seed-large": ["run", "quick", "--seed", "9" * 30],
    "report-nothing": ["report", ""],
    "resume-bytes": ["run", "--resume", "SPOILED"],
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    document.build(make_run(folder / "runs" / "one", SERVERS[:2], ({"connections": 64},)))
    spoiled = make_run(folder / "spoiled", SERVERS[:2], ({"connections": 64},), unfinished=1)
    spoiled.experiment_toml.write_bytes(b"question = '\xff'\n")
    (folder / "FOLDER.toml").mkdir()
    (folder / "BYTES.toml").write_bytes(b"\xff\xfe")
    return folder


@pytest.mark.fault("I2", "other commands with words that cannot be meant", "exit 2, one line")
@pytest.mark.parametrize("words", OTHERS.values(), ids=OTHERS)
def test_other_commands(places, wsbench, words):
    found = {"RUN": places / "runs" / "one", "RUNS": places / "runs", "SPOILED": places / "spoiled"}
    found |= {name: places / name for name in ("FOLDER.toml", "BYTES.toml")}
    done = wsbench(*(str(found.get(word, word)) for word in words))
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("wsbench: ")
    assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.system
@pytest.mark.fault("S4", "`serve` on `::1`, `0.0.0.0` and `127.0.0.1`, asked by addresses and names", "answers its own alone")
@pytest.mark.parametrize(
    ("host", "at", "own"),
    [
        pytest.param("::1", "::1", ["[::1]:PORT", "[::1]", "localhost:PORT"], marks=pytest.mark.nightly),
        ("0.0.0.0", "127.0.0.1", ["127.0.0.1:PORT", "10.1.2.3", "localhost", "LOCALHOST.:PORT", socket.gethostname()]),
        pytest.param("127.0.0.1", "127.0.0.1", ["127.0.0.1:PORT", "localhost:PORT"], marks=pytest.mark.nightly),
    ],
)
def test_serving_answers_its_own_names_alone(places, host, at, own):
    try:
        with socket.create_server((at, 0), family=socket.AF_INET6 if ":" in at else socket.AF_INET) as probe:
            port = probe.getsockname()[1]
    except OSError:
        pytest.skip("this machine has no IPv6")
    words = ["serve", str(places / "runs"), "--host", host, "--port", str(port)]
    with child([*WSBENCH, *words], stdout=subprocess.PIPE, text=True) as serving:
        shown = f"[{host}]" if ":" in host else host
        assert f"http://{shown}:{port}/" in serving.stdout.readline()

        def status(name: str) -> int:
            asking = http.client.HTTPConnection(at, port, timeout=PATIENCE_S)
            asking.request("GET", "/", headers={"Host": name.replace("PORT", str(port))})
            return asking.getresponse().status

        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                status("localhost")
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.1)
        assert {name: status(name) for name in own} == dict.fromkeys(own, 200)
        foreign = [
            "evil.example",
            f"evil.example:{port}",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[",
            "[::1",
            "a b",
            "",
        ]
        assert {name: status(name) for name in foreign} == dict.fromkeys(foreign, 400)
        serving.terminate()


COMMANDS = (["--help"], ["list", "servers"], ["list", "metrics"], ["plan", "quick"], ["export", "RUN", "csv"])


@pytest.mark.system
@pytest.mark.fault("I2", "Ctrl-C at random instants, imports included", "exit 130, one line; or it had ended")
def test_ctrl_c_at_any_instant(places):
    draw = random.Random(1)
    ended = []
    for number in range(draws(40)):
        words = [str(places / "runs" / "one") if word == "RUN" else word for word in COMMANDS[number % len(COMMANDS)]]
        # As a shell's background job. Before our first line it is Python that would end.
        with child(
            [*WSBENCH, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        ) as running:
            while not catches_ctrl_c(running.pid) and running.poll() is None:
                time.sleep(0.0005)
            time.sleep(draw.uniform(0, 0.6))
            running.send_signal(signal.SIGINT)
            said = running.stderr.read()
        # The last of them: Python was ending, and ended by the signal.
        right = ((130, "wsbench: interrupted; every finished trial is kept\n"), (0, ""), (-signal.SIGINT, ""))
        assert (running.returncode, said) in right, said
        ended.append(running.returncode)
    assert ended.count(130) >= draws(5, least=1), "some were met while they ran"


def catches_ctrl_c(pid: int) -> bool:
    """Whether a process has asked for it: a child that was told to ignore it does so with its first line of ours."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) & 1 << (signal.SIGINT - 1))


@pytest.mark.fault("R4", "few files: `ulimit -n 64`, `-n 20`", "exit 1 or 2, one line, not blamed on the server", slow=True)
@pytest.mark.parametrize("files", [20, 64])
@pytest.mark.parametrize("words", [["list", "servers"], ["load", "ws://127.0.0.1:PORT/", "-n", "10"], ["run", "EXPERIMENT"]])
def test_few_files(wsbench, port, experiment, files, words):
    import resource

    found = {"EXPERIMENT": str(experiment)}
    done = wsbench(
        *(found.get(word, word).replace("PORT", str(port)) for word in words),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
    )
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    if done.returncode:
        assert done.returncode in (1, 2, 4), done.stdout + done.stderr
        assert "file" in done.stderr + done.stdout
    assert "was not ready" not in done.stdout


@pytest.mark.system
@pytest.mark.fault("R4", "a folder that may not be written", "one line")
def test_a_read_only_folder(tmp_path, wsbench, experiment):
    if os.geteuid() == 0:
        words, folder = ["env", "-C", "/proc"], "/proc"
    else:
        tmp_path.chmod(0o555)
        words, folder = [], str(tmp_path)
    done = subprocess.run(
        [*words, *WSBENCH, "run", str(experiment), "--no-report"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    tmp_path.chmod(0o755)
    assert "Traceback" not in done.stderr
    assert done.returncode in (1, 2)
    assert done.stderr.count("\n") == 1, done.stderr
