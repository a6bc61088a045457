"""Checks of the verdict about the host: steal, quotas, other programs."""

import pytest
from judging import TAKEN, found_in, judge, trial_of
from run_maker import Trial

from wsbench import metrics
from wsbench.metrics import host_checks
from wsbench.metrics.verdict import disturbed
from wsbench.records import engine_files
from wsbench.records.samples import Program, ProgramsSample, SamplerCost


def test_idle_cpus_do_not_dilute_steal(tmp_path):
    few = judge(tmp_path / "few", steal=0.02)
    many = judge(tmp_path / "many", steal=0.02, apart=True)
    assert found_in(few, "the hypervisor took") == found_in(many, "the hypervisor took") == TAKEN


def test_the_cpu_time_of_a_rival_that_is_sampled_is_not_foreign(tmp_path):
    assert not judge(tmp_path / "rival", rival=0.6).findings
    assert "other programs" in judge(tmp_path / "foreign", others=0.6).findings[0].seen


def test_the_programs_that_used_most_are_named(tmp_path):
    trial = trial_of(tmp_path / "0001", Trial(others=0.6))
    used = [Program(name="backup", cpu_s=4.5), Program(name="cron", cpu_s=0.01)]
    trial._by_kind[ProgramsSample] = [ProgramsSample(t_ns=10 * 10**9, of="programs", began_ns=0, programs=used)]
    (one,) = [one for one in host_checks.cpu_time(trial) if one.name == "foreign_cpu"]
    assert "of a CPU of the machine (busiest: backup 45%)" in one.seen


@pytest.mark.parametrize(("used_s", "affects"), [(0.05, []), (0.3, [{"tail": "SUSPECT"}])])
def test_programs_that_run_little_are_held_against_the_tail_alone(tmp_path, used_s, affects):
    trial = trial_of(tmp_path / "0001", Trial())
    used = [Program(name="agent", cpu_s=used_s)]
    trial._by_kind[ProgramsSample] = [ProgramsSample(t_ns=10 * 10**9, of="programs", began_ns=0, programs=used, cpu_s=used_s)]
    found = list(host_checks.others(trial))
    assert [one.affects for one in found] == affects
    assert all("3.0% of a CPU of the machine during the trial (busiest: agent 3%)" in one.seen for one in found)
    assert disturbed(trial) is None, "nothing is run again for it"


def test_programs_are_not_held_against_a_trial_where_they_may_have_had_their_own_cpus(tmp_path):
    trial = trial_of(tmp_path / "0001", Trial())
    trial._by_kind[ProgramsSample] = [ProgramsSample(t_ns=10**9, of="programs", began_ns=0, programs=[], cpu_s=0.5)]
    assert list(host_checks.others(trial))
    trial.machine[0].__dict__["trial_cpu_s"] = trial.machine[0].cpu_s
    assert not list(host_checks.others(trial))


@pytest.mark.parametrize(("used_share", "affects"), [(0.009, []), (0.02, [{"tail": "SUSPECT"}])])
def test_the_sampler_is_held_against_the_tail_as_any_program(tmp_path, used_share, affects):
    trial = trial_of(tmp_path / "0001", Trial())
    begin, end = trial.window
    readings = [(begin, 10**9), (begin + (end - begin) // 2, 10**9), (end, 10**9 + round(used_share * (end - begin)))]
    trial._by_kind[SamplerCost] = [SamplerCost(t_ns=t_ns, of="sampler", began_ns=0, cpu_ns=used) for t_ns, used in readings]
    found = list(host_checks.sampling(trial))
    assert [one.affects for one in found] == affects
    assert all(f"wsbench itself used {used_share:.1%} of a CPU of the machine" == one.seen for one in found)


def test_of_an_older_run_the_mean_use_of_the_sampler_is_known(tmp_path):
    trial = trial_of(tmp_path / "0001", Trial())
    begin, end = trial.window
    trial._by_kind[SamplerCost] = [
        SamplerCost(t_ns=end + 10**9, of="sampler", began_ns=begin - 10**9, cpu_ns=(end - begin + 2 * 10**9) // 50)
    ]
    (found,) = host_checks.sampling(trial)
    assert found.seen == "wsbench itself used 2.0% of a CPU of the machine"


def test_busy_time_that_beats_with_the_timer_is_not_foreign(tmp_path):
    """At 20,000 messages a second, a server that used a quarter of its CPU was found busy at every tick."""
    assert not judge(tmp_path / "beat", server_busy=0.3, beat=0.7).findings
    found = found_in(judge(tmp_path / "foreign", server_busy=0.3, beat=0.7, others=0.3), "other programs used at least 29%")
    assert found["throughput"] == "INVALID"


def test_the_idle_share_is_that_of_the_clock(tmp_path):
    calm, beats = (trial_of(tmp_path / str(beat), Trial(server_busy=0.3, beat=beat)) for beat in (0.0, 0.7))
    assert metrics.values(beats, ["cpu_idle_percent"]) == metrics.values(calm, ["cpu_idle_percent"])
    assert metrics.values(calm, ["cpu_idle_percent"])["cpu_idle_percent"] == pytest.approx(55, abs=1)


@pytest.mark.parametrize("lacking", ["server", "engine"])
def test_foreign_cpu_time_is_unknown_where_a_side_was_not_sampled(tmp_path, lacking):
    trial = trial_of(tmp_path / "0001", Trial(others=0.6))
    trial.__dict__["_processes"] = trial._processes | {lacking: []}
    assert not [one for one in host_checks.cpu_time(trial) if one.name == "foreign_cpu"]


def test_cpu_time_taken_while_connecting_is_held_against_connect_times_alone(tmp_path):
    trial = trial_of(tmp_path / "0001", Trial(connect_s=3.0))
    begun = trial.begins["warmup"]
    for sample in trial.machine:
        stolen = 0.1 * min(sample.t_ns, begun) / 1e9
        sample.__dict__["cpu_s"] = sample.cpu_s.model_copy(update={"steal": stolen})
    (one,) = [one for one in host_checks.cpu_time(trial) if one.name == "steal"]
    assert one.affects == {"connect": "INVALID"}
    assert "while connections were opened" in one.seen


def test_connections_that_are_opened_in_the_window_share_its_verdict(tmp_path):
    found = judge(tmp_path, throttled_s=0.1, scenario=engine_files.Doc(persistent=False, bytes=100))
    assert found.of("connect") == "INVALID"


@pytest.mark.parametrize(
    ("quantities", "name"),
    [({"steal": 0.02}, "steal"), ({"throttled_s": 0.1}, "throttled"), ({"others": 0.3}, "foreign_cpu"), ({"steal": 0.008}, None)],
)
def test_a_trial_is_disturbed_by_what_the_host_took_from_it(tmp_path, quantities, name):
    found = disturbed(trial_of(tmp_path / "0001", Trial(**quantities)))
    assert (found and found.name) == name


def test_no_result_makes_a_trial_disturbed(tmp_path):
    for number, quantities in enumerate(({"engine_wait": 0.5}, {"unanswered": 9_000}, {"little": 0.5}, {"established": 1})):
        assert disturbed(trial_of(tmp_path / str(number), Trial(**quantities))) is None


@pytest.mark.parametrize(
    ("idle", "waiting", "seen"),
    [(0.7, 0.0, []), (0.0, 0.7, []), (0.3, 0.3, []), (0.0, 0.0, ["the servers that ran at the same time left no CPU time"])],
    ids=["idle", "waiting for a disk", "both", "full"],
)
def test_the_cpus_of_the_servers_say_whether_they_were_full(tmp_path, idle, waiting, seen):
    """The engine fills its own CPU."""
    heat = trial_of(tmp_path / "0001", Trial(server_busy=0.3, engine_busy=1.0))
    heat.__dict__["record"] = heat.record.model_copy(update={"heat": 1})
    (found,) = host_checks.crowd(heat)
    assert "may have left no CPU time" in found.seen
    for sample in heat.machine:
        own = sample.cpu_s.model_copy(update={"idle": idle * sample.t_ns / 1e9, "iowait": waiting * sample.t_ns / 1e9})
        sample.__dict__["server_cpu_s"] = own
    assert [one.seen.split(" for ")[0] for one in host_checks.crowd(heat)] == seen


@pytest.mark.parametrize(
    ("quantities", "affects"),
    [
        ({"server_busy": 0.3, "engine_busy": 0.1}, None),
        ({"server_busy": 0.5, "engine_busy": 0.1, "rival": 0.5}, {"body": "INVALID", "tail": "INVALID"}),
        ({"server_busy": 0.5, "rival": 0.5, "failed": 3}, {"counts": "INVALID", "body": "INVALID", "tail": "INVALID"}),
        ({"server_busy": 0.3, "engine_busy": 0.1, "failed": 3}, None),
        ({"server_busy": 1.0, "failed": 3}, None),
    ],
)
def test_servers_that_fill_the_cpu_at_the_same_time_wait_for_each_other(tmp_path, quantities, affects):
    alone, heat = (trial_of(tmp_path / name, Trial(**quantities)) for name in ("alone", "heat"))
    heat.__dict__["record"] = heat.record.model_copy(update={"heat": 1})
    assert not list(host_checks.crowd(alone))
    assert [one.affects for one in host_checks.crowd(heat)] == ([affects] if affects else [])
    assert disturbed(heat) is None
