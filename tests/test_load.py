"""`wsbench load` as its user meets it: options, plans, thresholds, exports, exit codes, Ctrl-C."""

import contextlib
import csv
import io
import json
import random
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
import trustme
from conftest import PATIENCE_S, WSBENCH
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hdrh.histogram import HdrHistogram
from run_maker import HOUR_NS, Trial, at_rate, failed, write_trial
from websockets.sync.server import serve

from wsbench.analysis import thresholds
from wsbench.cli import arguments, exits, load_options, show_load
from wsbench.engine import histogram, shards
from wsbench.host import machine
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import of_load
from wsbench.records.engine_files import Open, Plan, Segment
from wsbench.records.errors import UserError
from wsbench.report import hdr
from wsbench.run import load_plan


@pytest.fixture
def silent():
    """The address of something that accepts connections and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def plan_of(*typed: str) -> Plan:
    asked = load_options.request(arguments.parser(["load"]).parse_args(["load", *typed]))
    plan = load_plan.plan_of(asked)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    return plan


# ---- from options to a plan ------------------------------------------------------------------------------------------


def test_a_rate_is_an_open_loop_and_without_one_it_is_closed(silent):
    plan = plan_of(f"ws://{silent}/echo", "--rate", "5000", "--poisson", "--depth", "4")
    assert plan.loop == Open(arrivals="poisson", rate=[Segment(from_per_s=5000, to_per_s=5000, for_s=0)], depth=4)
    closed = plan_of(f"ws://{silent}/echo", "--depth", "8", "--per-connection", "100").loop
    assert (closed.kind, closed.depth, closed.messages_per_connection, closed.think) == ("closed", 8, 100, None)


def test_a_session_without_steps_can_only_be_held(silent, tmp_path):
    rules = 'about = "a feed"\nsource = "https://example.org"\n[rules]\ntick = { begins = "t", push = true }\n'
    step = '[[{}]]\nname = "first"\nsend = "hello"\nawait = "tick"\n'
    (tmp_path / "setup.toml").write_text(rules + step.format("setup"))
    with pytest.raises(UserError, match="no steps behind its setup: add --idle"):
        plan_of(f"ws://{silent}/", "--session", str(tmp_path / "setup.toml"))
    assert plan_of(f"ws://{silent}/", "--session", str(tmp_path / "setup.toml"), "--idle").loop.kind == "none"
    (tmp_path / "steps.toml").write_text(rules.replace("push", "reply") + step.format("steps"))
    assert plan_of(f"ws://{silent}/", "--session", str(tmp_path / "steps.toml")).loop.kind == "closed"


def test_ramps_follow_each_other_and_say_how_long_it_takes(silent):
    plan = plan_of(f"ws://{silent}/echo", "--ramp", "0:1000:5", "--ramp", "1000:1000:7")
    assert [(one.from_per_s, one.to_per_s, one.for_s) for one in plan.loop.rate] == [(0, 1000, 5), (1000, 1000, 7)]
    assert plan.measure.seconds == 12
    assert plan.warmup is None, "the schedule would begin with the warm-up"


def test_stages_say_how_many_connections_and_how_long(silent):
    plan = plan_of(f"ws://{silent}/echo", "--stages", "100:10,20:5:4")
    assert [(one.to, one.over_s, one.chunk) for one in plan.stages] == [(100, 10, 1), (20, 5, 4)]
    assert (plan.connections, plan.measure.seconds, plan.warmup) == (100, 15, None)


@pytest.mark.parametrize(
    ("typed", "kind", "numbers"),
    [
        ("mean=0.5", "constant", {"mean_s": 0.5}),
        ("exponential,mean=2", "exponential", {"mean_s": 2}),
        ("from=1,to=3", "uniform", {"from_s": 1, "to_s": 3}),
        ("mean=5,deviation=2", "gaussian", {"mean_s": 5, "deviation_s": 2}),
        ("median=1,sigma=0.5", "lognormal", {"median_s": 1, "sigma": 0.5}),
    ],
)
def test_every_pause_has_its_form(typed, kind, numbers):
    found = load_options.think(typed)
    assert found.model_dump() == {"kind": kind, **numbers}


def test_every_other_option_reaches_the_plan(silent, tmp_path):
    file = tmp_path / "payload"
    file.write_bytes(b"x" * 16 + "grüße".encode())
    plan = plan_of(
        *(f"ws://{silent}/a?b=c", "--file", str(file), "--fragment", "10", "--mask", "zero", "--deflate", "--binary"),
        *("--subprotocol", "chat", "--subprotocol", "mqtt", "-H", "X-One: 1:2", "--source", "127.0.0.2"),
        *(
            "--source",
            "127.0.0.3",
            "--connect-rate",
            "100",
            "--threads",
            "2",
            "-c",
            "9",
            "--cpus",
            "0,1",
            "--busy-poll",
        ),
    )
    assert (plan.cpus, plan.busy_poll) == ([0, 1], True)
    assert (plan.scenario.bytes, plan.scenario.content, plan.scenario.opcode) == (23, str(file), "binary")
    assert (plan.fragment_bytes, plan.mask, plan.deflate.level, plan.threads) == (10, "zero", 6, 2)
    assert (plan.subprotocols, plan.headers) == (["chat", "mqtt"], [("X-One", "1:2")])
    assert (plan.source_addresses, plan.connect.per_s) == (["127.0.0.2", "127.0.0.3"], 100)
    assert (plan.target.path, plan.connections) == ("/a?b=c", 9)
    assert plan_of(f"ws://{silent}/", "--push", "20", "--slow-readers", "0.1").scenario.slow_readers == 0.1
    assert plan_of(f"tcp://{silent}", "--idle").loop.kind == "none"
    assert plan_of(f"tcp://{silent}", "--replica", silent, "--replica", silent).target.replicas == [silent, silent]


def test_wss_is_tls_below_a_websocket_and_says_whom_it_trusts(silent, tmp_path):
    assert plan_of(f"wss://{silent}/echo").tls.model_dump() == {"verify": True, "ca": None}
    assert plan_of(f"wss://{silent}/echo", "--insecure").tls.verify is False
    (tmp_path / "ca.pem").write_text("read by the engine alone")
    authority = plan_of(f"wss://{silent}/echo", "--ca", str(tmp_path / "ca.pem")).tls.ca
    assert authority == str(tmp_path / "ca.pem")
    secure = plan_of(f"https://{silent}/", "--bytes", "7")
    assert (secure.transport, secure.scenario.kind, secure.scenario.bytes, secure.tls.verify) == (
        "http",
        "doc",
        7,
        True,
    )
    assert plan_of(f"ws://{silent}/echo").tls is None


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (["--rate", "5", "--think", "mean=1"], "--think needs a closed loop"),
        (["--rate", "0"], "found '0', allowed: a number from 0.001"),
        (["--poisson"], "--poisson needs --rate, --ramp or --push"),
        (["--rate", "5", "--ramp", "1:2:3"], "not allowed with argument"),
        (["--ramp", "1:2"], "found '1:2', allowed: FROM:TO:SECONDS"),
        (["--stages", "ten:5"], "found 'ten:5', allowed: TO:SECONDS"),
        (["--stages", "5:5", "-c", "5"], "omit -c"),
        (["--think", "mean=1,sigma=2"], "allowed: mean=S, exponential,mean=S"),
        (["--idle", "--ping"], "--ping, --idle and --push exclude"),
        (["--file", "/nowhere/at/all"], "No such file or directory"),
        (["--file", "x", "--bytes", "5"], "omit --bytes"),
        (["--ca", "x", "--insecure"], "exclude each other"),
        (["-H", "no colon"], "allowed: 'Name: value'"),
        (["--busy-poll"], "--busy-poll needs --cpus, --pid or --start"),
        (["--replica", "192.0.2.1:80"], "192.0.2.1 is not this machine"),
        (["--replica", "nonsense:x"], "--replica: found 'nonsense:x', allowed: HOST:PORT"),
        (["--cpus", "all"], "found 'all', allowed: numbers of CPUs"),
        (["--close"], "--close is for http and https"),
        (["--bytes", "-1"], "--bytes: found '-1'"),
        (["--csv", "/nowhere/at/all.csv"], "does not exist"),
        (["--fail-if", "service_us_p98 > 5"], "unknown metric 'service_us_p98'; the nearest are service_us_p9"),
        (["--fail-if", "service_us_p99 over 5"], "allowed: NAME OP NUMBER"),
    ],
)
def test_what_cannot_be_is_one_line_before_anything_runs(silent, typed, line):
    with pytest.raises(UserError) as said:
        plan_of(f"ws://{silent}/echo", *typed)
    assert line in str(said.value)
    assert "\n" not in str(said.value)


def test_text_from_a_file_must_be_text_after_its_stamp(silent, tmp_path):
    file = tmp_path / "payload"
    file.write_bytes(b"x" * 15 + "ü".encode())
    with pytest.raises(UserError, match="not UTF-8 from byte 16 on; give --binary"):
        plan_of(f"ws://{silent}/echo", "--file", str(file))
    assert plan_of(f"ws://{silent}/echo", "--file", str(file), "--binary").scenario.bytes == 17


def test_more_connections_than_a_worker_has_files_for_take_several(silent, wsbench, monkeypatch):
    monkeypatch.setattr(machine, "file_limit", lambda: 1024)
    plan = plan_of(f"ws://{silent}/echo", "-c", "2000", "--threads", "1")
    assert shards.chosen(None, plan) == 1
    assert shards.words(plan, 1) == "3 workers: a worker may open at most 1,024 files here"
    assert shards.words(plan, 2) == "2 engine processes, 2 workers each: a worker may open at most 1,024 files here"
    assert shards.words(plan, 3) == "3 engine processes"
    done = wsbench("load", f"ws://{silent}/echo", "-c", "2", "--engines", "3")
    assert done.returncode == 2
    assert "3 engine processes for 2 connections; each process needs at least one" in done.stderr


# ---- thresholds and exit codes ---------------------------------------------------------------------------------------


def judge(path: Path, trial: Trial, *texts: str) -> list[thresholds.Judged]:
    folder = write_trial(path / "0001", trial)
    return thresholds.judge(TrialData(folder, folder.record), [thresholds.parse(text) for text in texts])


@pytest.mark.parametrize(
    ("trial", "interrupted", "breached", "code"),
    [
        (at_rate(), False, False, exits.DONE),
        (at_rate(), False, True, exits.BREACHED),
        (at_rate(throttled_s=0.1), False, True, exits.NOTHING_USABLE),
        (at_rate(throttled_s=0.1), False, False, exits.NOTHING_USABLE),
        (failed("the server ended during the load, with SIGSEGV"), False, True, exits.NOTHING_USABLE),
        (failed("the engine failed: exit code 101"), False, True, exits.FAULT),
        (at_rate(throttled_s=0.1), True, True, exits.INTERRUPTED),
    ],
)
def test_the_exit_code_says_what_matters_most(tmp_path, trial, interrupted, breached, code):
    judged = judge(tmp_path, at_rate(), "rate_ratio >= 1" if breached else "rate_ratio > 1")
    folder = write_trial(tmp_path / "0002", trial)
    found = of_load(TrialData(folder, folder.record))
    assert show_load.exit_code(found, interrupted, judged) == code


def test_a_threshold_on_a_number_that_the_host_disturbed_is_undecided(tmp_path):
    judged = judge(tmp_path, at_rate(throttled_s=0.1), "p99 > 1s", "rate_ratio > 1")
    assert [(one.undecided, one.breached) for one in judged] == [(True, False), (False, False)]
    assert "undecided: response_us_p99 is INVALID: a CPU quota throttled the machine" in judged[0].words
    folder = write_trial(tmp_path / "0002", at_rate())
    found = of_load(TrialData(folder, folder.record))
    assert show_load.exit_code(found, False, judged) == exits.NOTHING_USABLE
    breached = [*judged, *judge(tmp_path / "b", at_rate(), "rate_ratio >= 1")]
    assert show_load.exit_code(found, False, breached) == exits.BREACHED


def test_a_threshold_on_a_tail_that_the_server_lost_is_breached(tmp_path):
    (one,) = judge(tmp_path, Trial(unanswered=900), "p99 > 1s")
    assert (one.undecided, one.breached, one.value) == (False, True, None)


# ---- through the front door ------------------------------------------------------------------------------------------


@pytest.mark.system
def test_json_is_one_document_and_its_exit_code_follows_from_it(wsbench, pong, tmp_path):
    typed = ("load", f"tcp://{pong}", "-c", "4", "-t", "1", "--warmup", "0.2", "--rate", "500", "--json")
    done = wsbench(*typed, "--fail-if", "response_us_p50 > 0.001", "--hdr", "out", "--csv", "out.csv")
    found = json.loads(done.stdout)
    assert done.stderr == ""
    (one,) = found["thresholds"]
    assert done.returncode == (3 if found["verdict"]["usable"] and one["breached"] else 4)
    assert one["undecided"] is (found["verdict"]["families"]["body"] == "INVALID")
    assert found["ledger"]["sent"] == found["ledger"]["answered"] == 500
    assert found["metrics"]["planned_rate_ratio"]["value"] == pytest.approx(1, abs=0.01)
    assert found["metrics"]["push_reach"] == {
        "value": None,
        "unit": "fraction",
        "reason": "the scenario has no broadcasts",
    }
    assert found["times_ns"]["response"]["count"] == 500
    assert found["times_ns"]["response"]["p999"] <= found["times_ns"]["response"]["max"]
    kept = tmp_path / found["folder"]
    assert (kept / "plan.json").exists()
    assert (tmp_path / "out.hlog").read_bytes() == (kept / "latency.hlog").read_bytes()
    assert f"TotalCount     = {500:12.3f}]" in (tmp_path / "out.hgrm").read_text()
    rows = {row["metric"]: row for row in csv.DictReader((tmp_path / "out.csv").open())}
    assert float(rows["messages_per_s"]["value"]) == found["metrics"]["messages_per_s"]["value"]
    assert rows["push_reach"]["value"] == ""
    assert rows["push_reach"]["reason"] == "the scenario has no broadcasts"


@pytest.mark.system
def test_without_a_terminal_there_is_a_plain_line_a_second(wsbench_process, pong):
    done = wsbench_process("load", f"tcp://{pong}", "-c", "4", "-t", "2", "--warmup", "0", "--rate", "200", "-v")
    lines = [line for line in done.stderr.splitlines() if line.startswith("phase measure, open 4, sent/s ")]
    assert lines
    assert all("p99" in line and "failed 0" in line and "left" in line for line in lines)
    assert "open loop (constant arrivals)" in done.stdout
    assert "are the engine's own sending and reading" in done.stdout
    assert "receive_delay" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    answer = r"200 messages/s over 2\.00 s, p50 .*, none lost; .*\. (VALID|SUSPECT|INVALID)\n"
    assert re.match(rf"{answer}|no number can be used", done.stdout)


@pytest.mark.system
def test_a_server_that_never_answers_makes_an_invalid_measurement(wsbench, silent):
    done = wsbench(
        "load", f"tcp://{silent}", "-c", "2", "-t", "0.5", "--warmup", "0", "--no-preflight", "--fail-if", "errors > 9999"
    )
    assert done.returncode == 4, done.stdout
    # The reply and the drain have the same 10 s: a message has failed at the end, or is still unanswered.
    assert "no message was answered" in done.stdout or "the server did not answer on all 2 connections" in done.stdout


@pytest.mark.system
def test_a_plan_that_the_engine_refuses_is_bad_input_and_leaves_no_folder(wsbench, pong, tmp_path):
    done = wsbench("load", f"tcp://{pong}", "--source", "::1")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "source_addresses" in done.stderr
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.system
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, exits.INTERRUPTED), (signal.SIGTERM, exits.TERMINATED)])
def test_an_interrupt_says_what_was_measured_and_judges_no_threshold(environment, pong, tmp_path, number, code):
    typed = ["load", f"tcp://{pong}", "-c", "2", "-t", "60", "--warmup", "0", "--json", "--fail-if", "errors >= 0"]
    running = subprocess.Popen([*WSBENCH, *typed], cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    until = time.monotonic() + PATIENCE_S
    while not any('"measure"' in file.read_text() for file in tmp_path.glob("runs/*/events.jsonl")):
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(0.5)
    running.send_signal(number)
    said, _ = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == code
    found = json.loads(said)
    assert (found["interrupted"], found["outcome"], found["thresholds"]) == (True, "interrupted", [])
    assert found["ledger"]["answered"] > 0
    assert found["metrics"]["service_us_p50"]["value"] > 0


# ---- exports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_percentile_file_is_that_of_the_library(seed):
    draw = random.Random(seed)
    theirs = HdrHistogram(1, HOUR_NS, 3)
    for _ in range([1, 50, 5000][seed - 1]):
        theirs.record_value(max(1, round(draw.lognormvariate(13, 1.5))))
    ours = hdr.percentile_distribution(histogram.decode(theirs.encode()), 1e6).splitlines()
    written = io.BytesIO()
    theirs.output_percentile_distribution(written, 1e6)
    expected = written.getvalue().decode().splitlines()
    mean, deviation = expected[-3].split(", ")
    # The library forgets to scale its standard deviation; the original, in Java, does not.
    scaled = f"StdDeviation   = {theirs.get_stddev() / 1e6:12.3f}]"
    assert deviation.startswith("StdDeviation")
    expected[-3] = f"{mean}, {scaled}"
    assert ours == expected


# ---- against a server of somebody else's, over TLS -------------------------------------------------------------------


@pytest.fixture
def sealed(tmp_path):
    """A `websockets` echo server over TLS: its address, and the file of the authority that vouches for it."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with echoing(context) as address:
        yield address, tmp_path / "ca.pem"


@contextlib.contextmanager
def echoing(context):
    """The address of an echo server over TLS."""

    def echo(connection):
        for message in connection:
            connection.send(message)

    with serve(echo, "127.0.0.1", 0, ssl=context, subprotocols=["chat"]) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.system
@pytest.mark.parametrize(
    ("named", "days", "said"), [("127.0.0.1", 1, None), ("127.0.0.2", 1, "not valid for name"), ("127.0.0.1", -1, "expired")]
)
def test_a_certificate_that_signs_itself_is_trusted_by_ca_under_its_name_and_in_its_time(wsbench, tmp_path, named, days, said):
    """As `openssl req -x509` makes it: it may also sign others."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    secret, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    mine = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mine")])
    made = x509.CertificateBuilder(mine, mine, secret.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(2)).not_valid_after(now + timedelta(days))
    made = made.add_extension(x509.BasicConstraints(True, None), critical=True)
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(named))]), critical=False)
    certificate.write_bytes(made.sign(secret, hashes.SHA256()).public_bytes(Encoding.PEM))
    key.write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with echoing(context) as address:
        url, short = f"wss://{address}/", ("-c", "2", "-t", "0.5", "--warmup", "0", "--subprotocol", "chat")
        done = wsbench("load", url, *short, "--ca", str(certificate), "--json")
        assert (done.returncode == 2) == (said is not None), done.stderr
        assert (said or "") in done.stderr
        assert wsbench("load", url, *short).returncode == 2, "it is trusted by nobody else"


@pytest.mark.system
def test_wss_with_everything_that_a_message_can_have(wsbench, sealed, tmp_path):
    address, authority = sealed
    (tmp_path / "payload").write_text("wie ein Gedicht " * 40)
    typed = ["load", f"wss://{address}/echo", "--ca", str(authority), "-c", "3", "-n", "300", "--warmup", "0", "--json"]
    typed += ["--deflate", "--fragment", "50", "--file", "payload", "--subprotocol", "chat", "--per-connection", "20"]
    found = json.loads(wsbench(*typed, "--think", "exponential,mean=0.001").stdout)
    assert (found["ledger"]["answered"], found["errors"], found["outcome"]) == (300, {}, "completed")
    assert found["connections"]["established"] >= 15
    assert found["times_ns"]["response"]["count"] == 300


@pytest.mark.system
def test_a_server_that_nobody_vouches_for_is_not_loaded_unless_told_so(wsbench, sealed):
    address, _ = sealed
    typed = ["load", f"wss://{address}/echo", "-c", "2", "-n", "20", "--warmup", "0", "--json", "--subprotocol", "chat"]
    refused = wsbench(*typed)
    assert refused.returncode == 2
    assert "trust its certificate with --ca, or add --insecure" in refused.stderr
    refused = wsbench(*typed, "--no-preflight")
    assert refused.returncode == 4
    assert json.loads(refused.stdout)["errors"] == {"tls_failed": 2}
    assert json.loads(wsbench(*typed, "--insecure").stdout)["ledger"]["answered"] == 20
