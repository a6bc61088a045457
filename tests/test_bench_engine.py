"""The engine's bench: what is read from the other load generators' own words, and when a run is worth no number."""

import json
import sys
from pathlib import Path

import pytest

from wsbench.host.installation import ROOT

sys.path.insert(0, str(ROOT / "engine/benches"))
from contenders import K6, Ab, Autocannon, Engine, NoNumber, Run, Setting, Wrk, serves

KEEP_ALIVE = Run(Setting("keep-alive", 50), port=21000, seconds=2.0, cpu=1, folder=Path())
ECHO = Run(Setting("echo", 50, 16), port=21000, seconds=2.0, cpu=1, folder=Path())

WRK = """Running 1s test @ http://127.0.0.1:21700/doc?size=512
  1 threads and 50 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.79ms    5.11ms  50.19ms   95.85%
    Req/Sec    48.25k    13.26k   58.15k    80.00%
  48048 requests in 1.00s, 27.54MB read
Requests/sec:  47958.94
Transfer/sec:     27.49MB
"""
AB = """Concurrency Level:      50
Time taken for tests:   1.000 seconds
Complete requests:      24113
Failed requests:        0
Keep-Alive requests:    24113
Requests per second:    24107.12 [#/sec] (mean)
"""
AUTOCANNON = '{"duration":1.04,"errors":0,"timeouts":0,"non2xx":0,"requests":{"average":18168,"total":18162}}\n'
K6_SAID = '{"messages":34684,"connections":50,"wrong":0}\n'


@pytest.mark.parametrize(
    ("contender", "run", "output", "messages", "rate_per_s"),
    [
        (Wrk(), KEEP_ALIVE, WRK, 48048, 47958.94),
        (Ab(), KEEP_ALIVE, AB, 24113, 24107.12),
        (Autocannon(), KEEP_ALIVE, AUTOCANNON, 18162, 18162 / 1.04),
        (K6(), ECHO, K6_SAID, 34684, 17342),
    ],
)
def test_a_contender_is_taken_at_its_word(contender, run, output, messages, rate_per_s):
    said = contender.read(run, output)
    assert (said.messages, said.rate_per_s) == (messages, pytest.approx(rate_per_s))


@pytest.mark.parametrize(
    ("contender", "run", "output"),
    [
        (Wrk(), KEEP_ALIVE, WRK + "  Socket errors: connect 0, read 3, write 0, timeout 0\n"),
        (Wrk(), KEEP_ALIVE, "unable to connect"),
        (Ab(), KEEP_ALIVE, AB.replace("Failed requests:        0", "Failed requests:        7")),
        (Autocannon(), KEEP_ALIVE, AUTOCANNON.replace('"timeouts":0', '"timeouts":2')),
        (K6(), ECHO, K6_SAID.replace('"connections":50', '"connections":49')),
    ],
)
def test_a_run_with_failures_gives_no_number(contender, run, output):
    with pytest.raises(NoNumber):
        contender.read(run, output)


def test_a_depth_changes_nothing_else_of_the_loop_and_k6_keeps_it_too(tmp_path):
    engine = Engine(Path("engine"))
    deep = Setting("echo", 50, 16, depth=16)
    shallow_loop = engine.plan(ECHO)["loop"]
    deep_loop = engine.plan(Run(deep, 21000, 2.0, 1, tmp_path))["loop"]
    assert (shallow_loop["depth"], deep_loop["depth"]) == (1, 16)
    assert deep_loop | {"depth": 1} == shallow_loop
    assert serves(K6(), ECHO.setting)
    assert serves(K6(), deep)


def test_an_engine_that_lost_messages_gives_no_number(tmp_path):
    measured = {"sent": 9, "answered": 8, "unanswered": 1, "replies_in_window": 8, "window_ns": 10**9}
    end = {"event": "end", "outcome": "completed", "errors": {}, "measured": measured, "threads": [{"cpu_ns": 80}]}
    run = Run(ECHO.setting, 21000, 2.0, 1, tmp_path)

    def read(end: dict):
        lines = [{"event": "tick", "answered": 8, "failed": 0}, end]
        (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return Engine(Path("engine")).read(run, "")

    with pytest.raises(NoNumber):
        read(end)
    said = read(end | {"measured": measured | {"answered": 9, "unanswered": 0}})
    assert (said.messages, said.rate_per_s, said.window_cpu_ns, said.window_messages) == (8, 8.0, 80, 8)
