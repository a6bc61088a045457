"""What a server may do to the engine: rows of the table for the tests in `engine/tests/all`, which `make test` runs there."""

import subprocess

import pytest

from wsbench.host.installation import ROOT

pytestmark = pytest.mark.nightly

STREAMS, DOCUMENTS, HOSTILE = "misbehaviour", "misbehaviour_http", "hostile"
#: Name, what the server does, what should become of it, the file of tests, and those of its tests that show it (all where none).
ROWS = [
    ("E1", "resets behind the last reply of a connection, with more bytes", "`reset`; the others go on", HOSTILE,
     ["a_reset_behind_the_last_reply_of_a_connection_ends_only_that_connection"]),
    ("E2", "pings without end and never reads", "bounded memory", HOSTILE,
     ["pings_that_nobody_reads_the_answers_of_fill_nothing"]),
    ("E3", "sends without end: pings, empty fragments, documents", "ends in time, with its `end`", HOSTILE,
     ["floods_end_when_the_run_does", "a_flood_of_documents_ends_when_the_run_does"]),
    ("E4", "answers ahead, twice, always the same, or what came elsewhere", "`unexpected_reply`, `reply_content`", HOSTILE,
     ["an_echo_made_ahead_is_never_an_answer", "an_echo_of_what_came_on_another_connection_is_no_answer",
      "a_constant_echo_is_no_answer", "pongs_and_documents_made_ahead_or_twice_are_seen_at_every_pace",
      "broadcasts_that_nobody_triggered_are_foreign_and_a_second_copy_is_out_of_order",
      "honest_servers_are_above_suspicion_at_every_depth"]),
    ("E5", "stalls in an open loop", "what the kernel does not take is `unsent`, and no memory", HOSTILE,
     ["what_the_kernel_does_not_take_is_not_sent"]),
    ("P", "breaks WebSocket, in every way it can", "an error of its kind, counted once", STREAMS, []),
    ("P1, P2", "breaks HTTP, or is lawful in rare ways", "an error of its kind, or an answer", DOCUMENTS, []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        pytest.param(file, tests, id=name, marks=pytest.mark.fault(name, f"a server {done}", should, slow=True))
        for name, done, should, file, tests in ROWS
    ],
)
def test_the_engine(file, tests):
    asked = ["--exact", *(f"{file}::{one}" for one in tests)] if tests else [f"{file}::"]
    done = subprocess.run(
        ["cargo", "--quiet", "test", "--profile", "checked", "--locked", "--test", "all", "--", *asked],
        cwd=ROOT / "engine",
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = int(done.stdout.partition("test result: ok. ")[2].split()[0])
    assert passed == len(tests) or (not tests and passed > 10)
