"""A load that carried nothing ends with its own exit code and begins with the cause, whatever the server did."""

import errno
import json
import re
import struct

import pytest
from conducts import (
    Peer,
    answers_each_third,
    closes,
    closes_with_words,
    echoes,
    feeds,
    goes_away,
    has_another_key,
    leaves,
    listens,
    masks,
    redirects,
    refuses,
    refuses_with_a_page,
    refuses_with_words,
    says_twice,
)

from wsbench.cli import exits
from wsbench.host import machine
from wsbench.records.rundir import TrialFolder
from wsbench.servers import serving

pytestmark = pytest.mark.system

CLOSE = 0x8
FEED = """
about  = "a feed: the server sends, the client listens"
source = "https://example.org"
[fields]
type = { json = "type" }
[rules]
tick = { is = { type = "tick" }, push = true }
[[setup]]
name  = "first"
await = "tick"
"""


QUICK = ("-c", "4", "--warmup", "0", "--no-preflight")
FOR_A_SECOND, BY_COUNT = ("-t", "1"), ("-n", "400")
OPEN, CLOSED = ("--rate", "100", *FOR_A_SECOND), ("--depth", "4", *BY_COUNT)
WITHIN = r"all 4 connections (within [\d.]+ s|at once)"
NONE = "no connection was established"
USELESS = [
    (refuses, OPEN, "no connection was established: the server answers HTTP 401 Unauthorized"),
    (refuses, ("--idle", *FOR_A_SECOND), "no connection was established: the server answers HTTP 401 Unauthorized"),
    (refuses_with_words, OPEN, f"{NONE}: the server answers HTTP 429 Slow Down: quota is 2/s, Retry-After: 7"),
    (refuses_with_a_page, OPEN, f"{NONE}: the server answers HTTP 403 Forbidden"),
    (redirects, OPEN, f"{NONE}: the server answers HTTP 308 Permanent Redirect: Location: /new/ws"),
    (has_another_key, CLOSED, "no connection was established: the server's handshake has a wrong key: AAAA instead of .*"),
    (leaves, OPEN, f"the server closed {WITHIN}: without a Close frame"),
    (leaves, ("--idle", *FOR_A_SECOND), f"the server closed {WITHIN}: without a Close frame"),
    (closes, CLOSED, f"the server closed {WITHIN}: code 4000"),
    (closes_with_words, CLOSED, f"the server closed {WITHIN}: code 4003: quota used"),
    (goes_away, OPEN, f"the server closed {WITHIN}: code 1001"),
    (goes_away, CLOSED, f"the server closed {WITHIN}: code 1001"),
    (goes_away, ("--per-connection", "9", *BY_COUNT), f"the server closed {WITHIN}: code 1001"),
    (masks, CLOSED, rf"the server broke the protocol on {WITHIN}: masked_frame \(opcode 1\)"),
    (listens, OPEN, r"no message was answered: \d+ sent"),
    (says_twice, CLOSED, r"no message was answered: [\d,]+ sent; reply_length .*"),
    (answers_each_third, OPEN, r"more messages were lost than answered: \d+ of \d+; reply_missing .*"),
    (goes_away, ("--warmup", "1", *FOR_A_SECOND), f"the server closed {WITHIN}: code 1001"),
    (goes_away, ("--warmup", "1", *BY_COUNT), f"the server closed {WITHIN}: code 1001"),
    (listens, ("--warmup", "1", *FOR_A_SECOND), r"no message was answered: 4 sent before the window; timeout 4 \(.*\)"),
    (listens, ("--push", "20", *FOR_A_SECOND), r"no message was answered: [\d,]+ sent"),
]


@pytest.mark.parametrize(("conduct", "words", "cause"), USELESS)
def test_the_first_line_of_a_useless_load_is_its_cause(serve, wsbench, conduct, words, cause):
    done = wsbench("load", f"ws://127.0.0.1:{serve(conduct)}/", *QUICK, *words)
    said = done.stdout.splitlines()
    assert re.fullmatch(cause, said[0])
    assert done.returncode == exits.NOTHING_USABLE
    assert "INVALID" in said
    advice = "\n".join(said)
    for ruled_out in (
        "Lower the",
        "schedstat",
        "Give the engine",
        "Little's law",
        "Run the trial again",
        "trial's folder",
        "--pid",
    ):
        assert ruled_out not in advice


def test_a_server_that_was_silent_in_the_warm_up_does_not_seem_to_echo(serve, wsbench):
    silent, leaving = (
        wsbench("load", f"ws://127.0.0.1:{serve(one)}/", "-c", "2", "--no-preflight", *FOR_A_SECOND) for one in (listens, goes_away)
    )
    assert "the server does not seem to echo" in silent.stdout
    assert "the server does not seem to echo" not in leaving.stdout


def test_programs_and_the_page_get_the_cause_too(serve, wsbench, tmp_path):
    done = wsbench("load", f"ws://127.0.0.1:{serve(refuses)}/", *QUICK, *FOR_A_SECOND, "--json", "--report", "load.html")
    found = json.loads(done.stdout)
    cause = "no connection was established: the server answers HTTP 401 Unauthorized"
    assert (done.returncode, found["cause"]) == (exits.NOTHING_USABLE, cause)
    assert found["verdict"]["usable"] is False
    assert [one["name"] for one in found["verdict"]["findings"]] == ["no_connection"]
    page = (tmp_path / "load.html").read_text(encoding="utf-8")
    assert f"N{cause[1:]}." in page
    assert "schedstat" not in page.partition("<nav")[0]


def test_a_service_that_only_sends_is_a_useful_load(serve, wsbench, tmp_path):
    (tmp_path / "feed.toml").write_text(FEED, encoding="utf-8")
    done = wsbench(
        "load", f"ws://127.0.0.1:{serve(feeds)}/", *QUICK, "--session", str(tmp_path / "feed.toml"), "--idle", *FOR_A_SECOND
    )
    assert done.returncode == exits.DONE, done.stdout
    assert any(re.fullmatch(r"[1-9]\d* messages received, [\d.]+ a second", line) for line in done.stdout.splitlines())


def test_connections_that_come_and_go_are_counted_as_such(serve, wsbench):
    done = wsbench("load", f"ws://127.0.0.1:{serve(echoes)}/", *QUICK, "--per-connection", "1", "-n", "40")
    assert re.search(r"/  4 connections at a time, \d+ in all$", done.stdout, re.M)


@pytest.mark.parametrize("option", ["-n", "--depth", "--per-connection", "-c"])
def test_a_number_beyond_every_counter_is_one_line(wsbench, option):
    done = wsbench("load", "ws://127.0.0.1:1/", option, str(2**63))
    assert done.returncode == exits.BAD_INPUT
    (line,) = done.stderr.splitlines()
    assert str(2**63 - 1) in line


def test_a_load_ends_before_the_machine_runs_out_of_memory(serve, wsbench, monkeypatch):
    monkeypatch.setattr(machine, "memory_available", lambda: 1 << 62)
    monkeypatch.setattr(serving, "MEMORY_FLOOR", 1 << 63)
    done = wsbench("load", f"ws://127.0.0.1:{serve(listens)}/", "-c", "2", "-t", "30", "--no-preflight")
    assert done.returncode == exits.FAULT
    assert done.stdout.startswith("failed: the machine ran out of memory")


def test_what_was_measured_is_shown_although_the_disk_is_full(serve, wsbench, monkeypatch):
    def full(folder, _):
        raise OSError(errno.ENOSPC, "No space left on device", str(folder.path / "trial.json"))

    monkeypatch.setattr(TrialFolder, "end", full)
    done = wsbench("load", f"ws://127.0.0.1:{serve(echoes)}/", *QUICK, "-n", "16")
    assert done.returncode == exits.FAULT
    assert re.search(r"messages/s over .*: 16 sent = 16 answered", done.stdout)
    assert done.stderr.endswith("trial.json: No space left on device; free space on that disk\n")


def test_a_server_that_says_different_things_is_quoted_with_each(serve, wsbench):
    numbers = iter(range(100))

    def parts(peer: Peer) -> None:
        number = next(numbers)
        peer.accept()
        peer.message()
        code, reason = (4001, b"you") if number % 5 == 0 else (1013, b"come later")
        peer.send(struct.pack("!H", code) + reason, CLOSE)

    done = wsbench(
        "load", f"ws://127.0.0.1:{serve(parts)}/", "-c", "5", "--warmup", "0", "--no-preflight", "--depth", "4", *BY_COUNT
    )
    said = "code 1013: come later; also 1 × code 4001: you"
    assert re.search(rf"^the server closed all 5 connections.*: {said}$", done.stdout, re.M)
    assert re.search(rf"^close_frame: \d+ \({said}\)$", done.stdout, re.M)
