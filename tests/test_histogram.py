"""The histogram reader against the `hdrhistogram` library as an oracle, and against ranks worked out by hand."""

import contextlib
import math
import random
import struct
import zlib
from fractions import Fraction

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from run_maker import at_rate, write_trial

from wsbench.engine import histogram
from wsbench.records.errors import UserError

HOUR_NS = 3_600_000_000_000


def encoded(values, counts=None, lowest=1, highest=HOUR_NS, digits=3):
    oracle = HdrHistogram(lowest, highest, digits)
    for place, value in enumerate(values):
        oracle.record_value(int(value), counts[place] if counts else 1)
    return oracle, oracle.encode().decode()


def samples(seed):
    """Values of several shapes: uniform, spread over all magnitudes, one value repeated, very small."""
    draw = random.Random(seed)
    shape = seed % 4
    n = draw.randint(1, 3000)
    if shape == 0:
        return [draw.randint(1, 10**9) for _ in range(n)]
    if shape == 1:
        return [int(math.exp(draw.uniform(0, math.log(HOUR_NS - 1)))) for _ in range(n)]
    if shape == 2:
        return [draw.randint(1, HOUR_NS)] * n
    return [draw.randint(1, 3000) for _ in range(n)]


@pytest.mark.parametrize("seed", range(24))
def test_every_bucket_agrees_with_the_library(seed):
    oracle, payload = encoded(samples(seed))
    ours = histogram.decode(payload)
    theirs = []
    for item in oracle.get_recorded_iterator():
        value = item.value_iterated_to
        bounds = oracle.get_lowest_equivalent_value(value), oracle.get_highest_equivalent_value(value)
        theirs.append((*bounds, item.count_at_value_iterated_to))
    used = ours.counts.nonzero()[0]
    assert theirs == [(int(ours.lower_bounds[i]), int(ours.upper_bounds[i]), int(ours.counts[i])) for i in used]
    assert ours.count == oracle.get_total_count()
    assert ours.mean == pytest.approx(oracle.get_mean_value(), rel=1e-12)


@pytest.mark.parametrize("seed", range(24))
def test_quantiles_are_the_bucket_of_the_value_at_that_rank(seed):
    values = sorted(samples(seed))
    oracle, payload = encoded(values)
    ours = histogram.decode(payload)
    for q in ("0", "0.1", "0.25", "0.5", "0.9", "0.99", "0.999", "1"):
        rank = max(1, math.ceil(Fraction(q) * len(values)))
        assert ours.quantile(q) == oracle.get_highest_equivalent_value(values[rank - 1]), q
    assert ours.min == oracle.get_lowest_equivalent_value(values[0])
    assert ours.max == oracle.get_highest_equivalent_value(values[-1])


@pytest.mark.parametrize(("lowest", "digits"), [(1, 2), (1000, 3), (5, 1), (1, 4)])
def test_other_resolutions_agree_too(lowest, digits):
    oracle, payload = encoded([1000, 2000, 999_999, 10**8], lowest=lowest, highest=10**9, digits=digits)
    ours = histogram.decode(payload)
    for rank, value in enumerate([1000, 2000, 999_999, 10**8], 1):
        assert ours.quantile(Fraction(rank, 4)) == oracle.get_highest_equivalent_value(value)


@pytest.mark.parametrize(
    ("q", "n", "rank"),
    [
        (0.5, 1, 1),
        (0.5, 2, 1),
        (0.5, 3, 2),
        (0.9, 10, 9),
        (0.99, 100, 99),
        (0.99, 101, 100),
        (0.999, 1000, 999),
        (0.07, 100, 7),
        (0.29, 100, 29),
        (0.0, 5, 1),
        (1.0, 5, 5),
        (0.2, 5, 1),
        ("0.9999", 10000, 9999),
    ],
)
def test_the_rank_is_the_ceiling_of_q_times_n(q, n, rank):
    ours = histogram.decode(encoded(range(1, n + 1))[1]) if n <= 1000 else histogram.decode(encoded([5], [n])[1])
    assert ours.count == n
    assert ours.rank(q) == rank
    if n <= 1000:
        assert ours.quantile(q) == rank  # below 2048 every value has a bucket of its own


def test_a_quantile_just_past_a_bucket_is_in_the_next_one():
    ours = histogram.decode(encoded([10, 20], [90, 10])[1])
    assert ours.quantile(0.9) == 10
    assert ours.quantile(0.901) == 20


def test_an_empty_histogram_has_no_quantile_no_mean_and_no_curve():
    ours = histogram.decode(encoded([])[1])
    assert (ours.count, ours.quantile(0.5), ours.mean, ours.min, ours.max, ours.curve()) == (
        0,
        None,
        None,
        None,
        None,
        [],
    )
    assert not ours.saturated


def test_a_large_count_survives():
    assert histogram.decode(encoded([77], [2**40])[1]).count == 2**40


def test_a_value_at_the_end_of_the_range_is_saturation():
    assert histogram.decode(encoded([HOUR_NS])[1]).saturated
    assert not histogram.decode(encoded([HOUR_NS // 2])[1]).saturated


def test_intervals_of_a_tag_are_merged_and_tags_are_kept_apart(tmp_path):
    log = tmp_path / "latency.hlog"
    one, two, other = (encoded(v)[1] for v in ([1, 2, 3], [3, 4], [900]))
    log.write_text(
        "#[Histogram log format version 1.3]\n#[StartTime: 1.000 (seconds since epoch)]\n"
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
        f"Tag=service,0.000,1.000,0.000,{one}\nTag=connect,0.000,1.000,0.000,{other}\nTag=service,1.000,1.000,0.000,{two}\n"
    )
    intervals = list(histogram.read_log(log))
    assert [(i.tag, i.start_s) for i in intervals] == [("service", 0.0), ("connect", 0.0), ("service", 1.0)]
    merged = histogram.merge(intervals)
    assert {tag: h.count for tag, h in merged.items()} == {"service": 5, "connect": 1}
    assert [merged["service"].quantile(q) for q in (0.2, 0.4, 0.6, 0.8, 1.0)] == [1, 2, 3, 3, 4]


def test_histograms_of_different_range_can_be_merged():
    small, large = (histogram.decode(encoded([5], highest=top)[1]) for top in (10**6, HOUR_NS))
    both = small + large
    assert (both.count, both.highest, both.quantile(0.5)) == (2, HOUR_NS, 5)
    assert small.count == 1


def test_a_line_cut_off_by_a_crash_is_left_out(tmp_path):
    log = tmp_path / "latency.hlog"
    payload = encoded([1])[1]
    log.write_text(f"Tag=service,0.0,1.0,0.0,{payload}\nTag=service,1.0,1.0,0.0,{payload[:20]}")
    assert len(list(histogram.read_log(log))) == 1


@pytest.mark.parametrize("line", ["nonsense", "Tag=service,0.0,1.0,0.0,AAAA", "Tag=service,0.0,1.0,0.0,####", "Täg=1"])
def test_a_broken_line_is_named_with_its_file_and_number(tmp_path, line):
    log = tmp_path / "latency.hlog"
    log.write_text(f"#comment\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"latency\.hlog:2: not a line of an HdrHistogram log"):
        list(histogram.read_log(log))


def test_a_corrupted_payload_never_ends_in_another_kind_of_error():
    payload = encoded(samples(1))[1]
    for place in range(0, len(payload) - 4, 7):
        broken = payload[:place] + ("A" if payload[place] != "A" else "B") + payload[place + 1 :]
        with contextlib.suppress(ValueError, zlib.error, struct.error):
            histogram.decode(broken)


def test_the_curve_rises_is_short_and_ends_at_the_largest_value():
    ours = histogram.decode(encoded(samples(1))[1])
    curve = ours.curve()
    assert 20 <= len(curve) <= 100
    assert curve[0][0] == 0.0
    assert curve[-1] == (1.0, ours.max)
    assert curve == sorted(curve)
    assert len(histogram.decode(encoded([5], [10**9])[1]).curve(30)) <= 30


def test_a_log_that_is_read_together_is_what_it_is_line_by_line(tmp_path):
    trial = write_trial(tmp_path / "t", at_rate(window_s=300.0, sample_s=10))
    merged = histogram.merge(histogram.read_log(trial.latency_log))
    together = histogram.read_merged(trial.latency_log)
    assert list(together) == list(merged)
    for tag, found in together.items():
        assert np.array_equal(found.counts, merged[tag].counts)
        assert (found.lowest, found.highest, found.digits) == (
            merged[tag].lowest,
            merged[tag].highest,
            merged[tag].digits,
        )
    whole = trial.latency_log.read_text().replace("Tag=service,3.000,1.000,0.000,H", "Tag=service,3.000,1.000,0.000,I")
    trial.latency_log.write_text(whole)
    with pytest.raises(UserError, match=r"latency\.hlog:12: not a line"):
        histogram.read_merged(trial.latency_log)


def test_many_quantiles_are_what_each_is():
    found = histogram.decode(histogram.encode(histogram._histogram(1, 10**9, 3, np.arange(5000))))
    asked = [Fraction(step, 97) for step in range(98)]
    assert found.quantiles(asked) == [found.quantile(q) for q in asked]
