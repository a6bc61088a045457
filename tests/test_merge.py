"""What several engine processes wrote about one trial, merged as if one had."""

import json
from pathlib import Path

import numpy as np
import pytest
from run_maker import Trial, at_rate, pushing, write_trial

from wsbench import metrics
from wsbench.engine import histogram, merge
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import verdict
from wsbench.records.errors import TrialFailed
from wsbench.records.rundir import TrialFolder


def parts(path: Path, *trials: Trial) -> TrialFolder:
    """A trial's folder whose processes wrote these."""
    for number, one in enumerate(trials):
        write_trial(path / f"engine-{number}", one)
    return TrialFolder(path)


def rewrite(folder: TrialFolder, change) -> None:
    file = folder.path / "events.jsonl"
    events = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(event) + "\n" for event in change(events)))


def test_the_whole_is_the_sum_of_its_parts(tmp_path):
    one, two = at_rate(8000, connections=20, under_way=10), at_rate(4000, connections=12, under_way=5, failed=3)
    folder = parts(tmp_path, one, two)
    merge.merge(folder, interrupted=False)
    ends = [part.events()[-1] for part in folder.parts()]
    end = folder.events()[-1]
    for key in ("sent", "answered", "failed", "unanswered", "unsent", "replies_in_window", "bytes_sent"):
        assert getattr(end.measured, key) == sum(getattr(part.measured, key) for part in ends), key
    assert end.measured.window_ns == ends[0].measured.window_ns
    assert end.connections.established == 32
    assert len(end.threads) == 2
    assert sum(end.errors.values()) == 3
    split = [histogram.merge(histogram.read_log(part.latency_log)) for part in folder.parts()]
    merged = histogram.merge(histogram.read_log(folder.latency_log))
    assert set(merged) == set(split[0]) | set(split[1])
    for tag, found in merged.items():
        assert (found.counts == (split[0][tag] + split[1][tag]).counts).all(), tag
    keys = [(one.tag, one.start_s, one.length_s) for one in histogram.read_log(folder.latency_log)]
    assert len(keys) == len(set(keys)), "one line a tag and stretch of time"
    ticks = [event for event in folder.events() if event.event == "tick"]
    each = [[event for event in part.events() if event.event == "tick"] for part in folder.parts()]
    assert [tick.t_ns for tick in ticks] == [tick.t_ns for tick in each[0]]
    assert [tick.sent for tick in ticks] == [a.sent + b.sent for a, b in zip(*each, strict=True)]


def test_the_words_of_servers_are_merged_by_code_and_status(tmp_path):
    folder = parts(tmp_path, at_rate(8000, copies=(9, 9, 0)), at_rate(4000, copies=(9, 8, 1, 2)))
    closes = ([(1008, 2, "slow"), (None, 1, "")], [(1008, 3, "too slow"), (1001, 1, "away")])
    refusals = ([(429, 4, "slow down")], [(429, 1, "no"), (302, 1, "")])
    for part, closed, refused in zip(folder.parts(), closes, refusals, strict=True):

        def told(events, closed=closed, refused=refused):
            *others, end = events
            end["closes"] = [{"code": code, "count": count, "reason": reason} for code, count, reason in closed]
            more = {"location": None, "retry_after": "5"}
            end["refusals"] = [{"status": status, "count": count, "body": body, **more} for status, count, body in refused]
            return [*others, end]

        rewrite(part, told)
    merge.merge(folder, interrupted=False)
    end = folder.events()[-1]
    assert [(one.code, one.count, one.reason) for one in end.closes] == [(None, 1, ""), (1001, 1, "away"), (1008, 5, "slow")]
    assert [(one.status, one.count, one.body) for one in end.refusals] == [(302, 1, ""), (429, 5, "slow down")]
    assert (end.session.copies_misplaced, end.session.last_unknown) == (2, 0)


def test_counts_that_an_older_engine_did_not_write_stay_missing(tmp_path):
    folder = parts(tmp_path, at_rate(8000, copies=(9, 9, 0, None, None)), at_rate(4000, copies=(9, 8, 1, 2)))
    merge.merge(folder, interrupted=False)
    session = folder.events()[-1].session
    assert (session.copies_misplaced, session.last_unknown, session.copies_received) == (None, None, 17)


@pytest.mark.parametrize("count", [0, 1, 2, 300, 2**40])
def test_a_histogram_is_written_as_it_is_read(count):
    found = histogram.decode(histogram.encode(histogram.decode(histogram.encode(sample(count)))))
    used = len(found.counts)
    assert (found.counts == sample(count).counts[:used]).all()
    assert not sample(count).counts[used:].any()
    assert (found.lowest, found.highest, found.digits) == (1, 3_600_000_000_000, 3)


def sample(count: int) -> histogram.Histogram:
    empty = histogram.decode(next(iter(write_log_line())))
    counts = np.zeros(empty.buckets, dtype=np.int64)
    for testbed in (0, 1, 2, 5, 4000, len(counts) - 1):
        counts[testbed] = count + testbed * (count > 0)
    return histogram.Histogram(1, 3_600_000_000_000, 3, counts)


def write_log_line():
    from hdrh.histogram import HdrHistogram

    one = HdrHistogram(1, 3_600_000_000_000, 3)
    one.record_value(5)
    yield one.encode()


def test_one_that_began_late_is_in_the_spread_and_makes_the_trial_suspect(tmp_path):
    folder = parts(tmp_path, at_rate(8000), at_rate(4000))

    def entered_late(events):
        return [{**one, "entered_ns": one["t_ns"] + 80_000_000} if one["event"] == "phase" else one for one in events]

    rewrite(folder.parts()[1], entered_late)
    rewrite(
        folder.parts()[0],
        lambda events: [{**one, "entered_ns": one["t_ns"] + 1000} if one["event"] == "phase" else one for one in events],
    )
    merge.merge(folder, interrupted=False)
    begun = next(one for one in folder.events() if one.event == "phase" and one.phase == "measure")
    assert begun.entered_ns - begun.t_ns == 80_000_000
    data = TrialData(folder, write_trial(tmp_path / "record", Trial()).record)
    assert metrics.rates.start_spread_us(data) == 80_000
    (tmp_path / "plan.json").write_bytes((tmp_path / "engine-0" / "plan.json").read_bytes())
    assert "the engine's workers did not start together: the last 80 ms after the first" in [
        one.seen for one in verdict(data).findings
    ]


def test_copies_that_another_process_missed_are_unanswered(tmp_path):
    trials = pushing(connections=64), pushing(connections=64)
    folder = parts(tmp_path, *trials)
    triggered = [one for one in folder.parts()[0].events() if one.event == "broadcast"]

    def receives(events):
        *before, end = (one for one in events if one["event"] != "broadcast")
        first = before[0]["t_ns"]
        copies = [
            {
                "event": "copies",
                "t_ns": one.t_ns + 50_000,
                "number": one.number,
                "received": 8,
                "last_ns": one.t_ns + 10**9,
            }
            for one in triggered[2:]
        ]
        reading = [{"event": "receivers", "t_ns": first, "reading": 10}]
        ledger = {
            **end["measured"],
            "sent": 304,
            "answered": 304,
            "replies_in_window": 304,
            "failed": 0,
            "unanswered": 0,
        }
        return [*before, *copies, *reading, {**end, "measured": ledger}]

    rewrite(folder.parts()[1], receives)
    merge.merge(folder, interrupted=False)
    whole = [one for one in folder.events() if one.event == "broadcast"]
    assert [(one.expected, one.received) for one in whole] == [(74, 64)] * 2 + [(74, 72)] * 38
    assert [one.last_ns for one in whole[2:]] == [one.t_ns + 10**9 for one in triggered[2:]]
    assert whole[0].last_ns == triggered[0].last_ns
    own, measured = folder.parts()[0].events()[-1].measured, folder.events()[-1].measured
    assert measured.answered == own.answered + 304
    assert measured.sent == own.sent + 10 * 40
    assert measured.unanswered == measured.sent - measured.answered - measured.failed


def test_parts_that_did_not_end_alike_are_no_trial(tmp_path):
    folder = parts(tmp_path, Trial(), Trial(), Trial(engine_outcome="connections_lost"))
    with pytest.raises(TrialFailed, match="engine 3 of 3 ended as connections_lost, the others as completed"):
        merge.merge(folder, interrupted=False)
    rewrite(folder.parts()[1], lambda events: events[:-1])
    with pytest.raises(TrialFailed, match="engine 2 of 3: its record has no end event"):
        merge.merge(folder, interrupted=False)
    assert not (tmp_path / "events.jsonl").exists()
