"""The quiet stretches of a trial: which ones they are, and that what lies between them changes no time."""

from itertools import pairwise

import pytest
from judging import found_in, trial_of
from run_maker import Trial
from trial_maker import at_rate, pushing

from wsbench import metrics
from wsbench.metrics import quiet
from wsbench.metrics.verdict import verdict
from wsbench.records.engine_files import Closed, GaussianThink
from wsbench.records.samples import MachineCpu, MachineSample

MS = 1_000_000
FINE = {"tick_s": 0.2, "sample_s": 0.1}
#: 5 % of the window are stolen, in three pieces.
THREE = ((0.5, 0.05), (1.5, 0.1), (3.0, 0.05))


def machine(*steal_ms: float) -> list[MachineSample]:
    """Samples every 100 ms, with the steal so far."""
    rest = dict.fromkeys(("user", "system", "idle", "iowait", "irq", "softirq"), 0.0)
    return [
        MachineSample(t_ns=place * 100 * MS, of="machine", cpu_s=MachineCpu(steal=one / 1e3, **rest), throttled_s=None)
        for place, one in enumerate(steal_ms)
    ]


def test_a_disturbance_lasts_until_the_server_has_caught_up():
    assert quiet.disturbances(machine(0, 0, 50, 50, 50)) == [(100 * MS, 400 * MS)]
    assert quiet.disturbances(machine(0, 0, 0, 200)) == [(100 * MS, 1100 * MS)], "it began before the last sample without it"
    assert quiet.disturbances(machine(7, 7, 7)) == []


def test_what_is_taken_while_it_catches_up_adds_to_it():
    found = quiet.disturbances(machine(0, 50, 100, 100))
    assert [until for _, until in found] == [300 * MS, 500 * MS]


@pytest.mark.parametrize("scenario", ["open", "closed", "push", "whole seconds"])
def test_only_the_times_of_an_open_loop_with_short_ticks_can_be_judged_so(tmp_path, scenario):
    made = {"open": at_rate(**FINE), "closed": Trial(**FINE), "push": pushing(**FINE), "whole seconds": at_rate(sample_s=0.1)}
    trial = trial_of(tmp_path / "0001", made[scenario])
    assert (trial.quiet is not None) == (scenario == "open")


def test_bursts_of_steal_change_no_time_of_a_probe(tmp_path):
    calm = trial_of(tmp_path / "calm", at_rate(**FINE))
    burst = trial_of(tmp_path / "burst", at_rate(**FINE, bursts=THREE))
    names = ["response_us_p50", "response_us_p99", "response_us_max", "send_lag_us_p99"]
    assert metrics.values(burst, names) == pytest.approx(metrics.values(calm, names), rel=1e-3)
    assert burst.recorded["response"].quantile("0.99") > 10 * calm.histograms["response"].quantile("0.99")
    assert burst.histograms["connect"].count == calm.histograms["connect"].count
    judged = verdict(burst)
    assert found_in(judged, "the hypervisor took") == {"throughput": "SUSPECT", "cpu": "INVALID", "connect": "SUSPECT"}
    assert judged.of("tail") == judged.of("body") == "VALID"


def test_the_same_steal_makes_a_trial_of_whole_seconds_invalid(tmp_path):
    assert verdict(trial_of(tmp_path / "0001", at_rate(sample_s=0.1, bursts=THREE))).of("tail") == "INVALID"


def test_a_probe_without_enough_quiet_time_says_nothing(tmp_path):
    often = tuple((0.25 * place, 0.02) for place in range(16))
    judged = verdict(trial_of(tmp_path / "0001", at_rate(**FINE, bursts=often)))
    assert found_in(judged, "undisturbed for only") == dict.fromkeys(("throughput", "body", "tail"), "INVALID")


def test_a_machine_that_was_not_sampled_has_no_quiet_stretches_and_says_so(tmp_path):
    trial = trial_of(tmp_path / "0001", at_rate(**FINE, samples_end_early=True))
    assert trial.quiet[-1][1] <= trial.machine[-1].t_ns
    assert "not sampled across the window" in " ".join(one.seen for one in verdict(trial).findings)


# ---- users who pause -----------------------------------------------------------------------------------------------


def pausing(**quantities) -> Trial:
    """A thousand users for 400 s. The hypervisor takes nothing, and the server has time to spare."""
    usual = {"loop": Closed(think=GaussianThink(mean_s=5, deviation_s=2)), "connections": 1_000, "rate": 200.0, "little": 1e-4}
    usual |= {"window_s": 400.0, "tick_s": 0.5, "sample_s": 0.5, "server_busy": 0.1, "engine_busy": 0.1, "engine_wait": 0.0}
    return Trial(**{**usual, **quantities})


def test_a_burst_of_steal_changes_no_time_of_a_long_trial_and_is_told(tmp_path):
    calm = trial_of(tmp_path / "calm", pausing())
    burst = trial_of(tmp_path / "burst", pausing(bursts=((101.0, 1.5), (205.0, 0.5))))
    names = ["service_us_p50", "service_us_p99", "service_us_max", "service_us_tick_mean_max"]
    assert metrics.values(burst, names) == pytest.approx(metrics.values(calm, names), rel=1e-2)
    assert burst.recorded["service"].quantile("0.99") > 10 * calm.histograms["service"].quantile("0.99")
    judged = verdict(burst)
    assert found_in(judged, "undisturbed for 379 s of 400 s") == dict.fromkeys(("throughput", "body", "tail"), "SUSPECT")
    assert found_in(judged, "wanted on the machine")["cpu"] == "INVALID"
    assert judged.of("tail") == judged.of("body") == "SUSPECT"
    assert verdict(calm).of("tail") == "VALID"


def test_whole_periods_of_ten_seconds_are_left_out(tmp_path):
    trial = trial_of(tmp_path / "0001", pausing(bursts=((101.0, 1.5),)))
    ((begin, end),) = [(before[1], after[0]) for before, after in pairwise(trial.quiet) if before[1] != after[0]]
    assert 99.5 <= (begin - trial.window[0]) / 1e9 <= 100 < 110 <= (end - trial.window[0]) / 1e9 <= 110.5, "and ticks at its edges"


def test_steal_that_never_comes_in_bursts_counts_against_a_long_trial(tmp_path):
    judged = verdict(trial_of(tmp_path / "0001", pausing(steal=0.02)))
    assert found_in(judged, "in what counts of it") == {"body": "INVALID", "tail": "INVALID"}


def test_a_long_trial_of_which_a_quarter_is_disturbed_says_nothing(tmp_path):
    often = tuple((20.0 * place + 1, 1.0) for place in range(11))
    judged = verdict(trial_of(tmp_path / "0001", pausing(bursts=often)))
    assert found_in(judged, "undisturbed for only") == dict.fromkeys(("throughput", "body", "tail"), "INVALID")


@pytest.mark.parametrize("quantities", [{"window_s": 200.0}, {"loop": Closed()}, {"tick_s": 1.0}])
def test_other_trials_are_judged_as_a_whole(tmp_path, quantities):
    assert trial_of(tmp_path / "0001", pausing(**quantities)).quiet is None
