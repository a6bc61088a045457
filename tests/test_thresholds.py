"""`--fail-if` and the numbers with units that a command line takes."""

import argparse
import re
from pathlib import Path

import pytest
from run_maker import Trial, at_rate, write_trial

from wsbench.analysis import thresholds
from wsbench.cli import arguments, values
from wsbench.metrics.trial_data import TrialData
from wsbench.records.errors import UserError


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("response_us_p99 > 5000", ("response_us_p99", ">", 5000)),
        ("  error_fraction!=0", ("error_fraction", "!=", 0)),
        ("messages_per_s<=1e3 ", ("messages_per_s", "<=", 1000)),
        ("rate_ratio < .999", ("rate_ratio", "<", 0.999)),
        ("response_us_p99 > 5ms", ("response_us_p99", ">", 5000)),
        ("p99 > 0.5 s", ("p99", ">", 500_000)),
        ("messages_per_s < 20k", ("messages_per_s", "<", 20_000)),
        ("error_fraction > 1%", ("error_fraction", ">", 0.01)),
        ("server_rss_bytes_max > 1.5GiB", ("server_rss_bytes_max", ">", 1.5 * 2**30)),
    ],
)
def test_a_threshold_is_a_name_an_operator_and_a_number(text, parts):
    found = thresholds.parse(text)
    assert (found.name, found.operator, found.number) == parts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("errors > _5", "allowed: NAME OP NUMBER"),
        ("p99 > 5MB", "p99 is in µs; units allowed: ns, us, µs, ms, s"),
        ("errors > 5ms", "errors is in count; units allowed: k, M"),
        ("rate_ratio < 5ms", "rate_ratio is in ratio; units allowed: none"),
        ("p99 > 5", "p99 is a time; give the unit, such as 5ms"),
        ("say.p99 > 5", "say.p99 is a time; give the unit, such as 5ms"),
        ("p98 > 5", "unknown metric 'p98'; the nearest are p9"),
    ],
)
def test_a_threshold_of_another_form_is_one_line(text, said):
    with pytest.raises(UserError, match=re.escape(said)):
        thresholds.parse(text)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (values.seconds, "2s", 2.0),
        (values.seconds, "500ms", 0.5),
        (values.seconds, "5m", 300.0),
        (values.seconds, "0", 0.0),
        (values.positive, "1k", 1000),
        (values.positive, "1.5M", 1_500_000),
        (values.above_zero, "20k", 20_000.0),
        (values.count, "0", 0),
        (values.count, "2k", 2000),
        (values.size, "4096", 4096),
        (values.size, "64k", 65_536),
        (values.size, "1.5MiB", 1_572_864),
        (values.fraction, "10%", 0.1),
        (values.factor, "50%", 0.5),
        (values.factor, "2", 2.0),
    ],
)
def test_numbers_may_have_units(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((values.seconds, text) for text in ("2x", "-1s")),
        *((values.positive, text) for text in ("1.5", "0k")),
        *((values.size, text) for text in ("1.3", "-1")),
        *((values.size_above_zero, "0k"), (values.fraction, "101%"), (values.factor, "0")),
    ],
)
def test_what_is_no_number_with_a_unit_is_refused(read, text):
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(repr(text))):
        read(text)


def judge(path: Path, trial: Trial, *texts: str) -> list[thresholds.Judged]:
    folder = write_trial(path / "0001", trial)
    return thresholds.judge(TrialData(folder, folder.record), [thresholds.parse(text) for text in texts])


def test_a_threshold_is_breached_where_it_holds_and_where_its_metric_is_not_known(tmp_path):
    rate, ratio, unknown = judge(tmp_path, at_rate(), "messages_per_s < 20000", "rate_ratio >= 1", "push_reach < 1")
    assert (rate.breached, ratio.breached, unknown.breached) == (False, True, True)
    assert rate.words == "--fail-if 'messages_per_s < 20000': held in this run, 20,000 messages/s"
    assert "not known: the scenario has no broadcasts" in unknown.words


def test_a_short_name_means_the_latency_that_a_trial_has(tmp_path):
    (open_loop,) = judge(tmp_path / "open", at_rate(), "p99 > 1s")
    (closed,) = judge(tmp_path / "closed", Trial(), "p50 < 1ns")
    assert (open_loop.metric, open_loop.breached) == ("response_us_p99", False)
    assert (closed.metric, closed.breached) == ("service_us_p50", False)
    assert re.search(r"held in this run, service_us_p50 [\d.]+ (µs|ms)", closed.words)


def numbers_of(name: str) -> list[str]:
    """The options of a command whose value is read as a plain number, which takes no unit."""
    made = next(one for one in arguments.parser([name])._actions if isinstance(one, argparse._SubParsersAction)).choices[name]
    return [option.option_strings[-1] for option in made._actions if option.option_strings and option.type in (int, float)]


@pytest.mark.parametrize("name", arguments.COMMANDS)
def test_no_option_of_a_command_takes_only_plain_digits(name):
    assert numbers_of(name) == []
