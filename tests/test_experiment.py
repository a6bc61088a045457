"""Experiment files: every one in the repository is sound, and a wrong one is refused in one line."""

import pytest

from wsbench import metrics
from wsbench.analysis import slo
from wsbench.experiments import experiment
from wsbench.records.errors import UserError
from wsbench.records.rundir import Ladder
from wsbench.run import request
from wsbench.run.ordering import order_of
from wsbench.servers.manifest import Limits


def changed(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return file


@pytest.mark.parametrize("file", sorted(experiment.EXPERIMENTS.glob("*.toml")), ids=lambda file: file.stem)
def test_every_experiment_in_the_repository_is_sound(file):
    read = experiment.read(file)
    assert read.question.endswith("?")
    assert read.headline in metrics.METRICS


def test_the_concurrency_test_of_2018_is_as_published():
    read = experiment.read(experiment.path_of("hoticn-2018-concurrency"))
    assert read.sweep == {"connections": [10, 100, 200, 500, 1000]}
    assert read.load.messages == 10_000
    assert not read.load.persistent
    assert read.load.payload_bytes < 1024
    assert read.timing.rounds == 3
    assert read.timing.warmup_s == 0


@pytest.mark.parametrize(
    ("change", "seconds", "per_s"),
    [
        ({}, 20.0, 10_000),  # half of the middle of its loads, though the lowest needs a minute
        ({"coarse": True}, 10.0, 500),
        ({"connections": [10, 20, 30, 40]}, 60.0, 500),
    ],
    ids=["rates", "coarse", "connections"],
)
def test_a_jvm_is_warm_after_so_many_messages_at_half_of_the_middle_of_its_ladder(change, seconds, per_s):
    read = experiment.read(experiment.path_of("capacity"))
    asked = [slo.parse("p99 < 1ms"), slo.parse("p99 < 50ms")]
    loads = {"rates": [1_000, 1_500, 38_500, 39_000], "relief_per_s": 50, "rung_s": 2, "gap_s": 1, "coarse": False}
    climbing = read.climbing({}, "jvm", Ladder(**{"slos": asked, **loads, **change}))
    first = climbing.load.rate[0]
    assert (first.from_per_s, first.for_s) == (per_s, seconds)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("rounds = 2", "rounds = 2\ncolour = 1", r"unknown key 'timing.colour'"),
        ("rounds = 2", "rounds = 0", r"'timing.rounds': .* found 0"),
        ('"ping"', '"sing"', r"'scenario': .*'doc', 'echo', 'ping', 'idle', 'push', 'rooms' or 'rpc'.* found 'sing'"),
        ("connections = [2, 4]", "moons = [2, 4]", r"'sweep.moons' cannot be swept; allowed: connections"),
        ("connections = [2, 4]", "connections = [0]", r"'connections': .* found 0"),
        ("rounds = 2", "rounds = 2\nwarmup_of = { jvm = 1 }", r"'timing.warmup_of' needs loop 'ladder'"),
        ("measure_s = 0.6", "", r"exactly one of 'load.messages' and 'timing.measure_s'"),
        ("[load]", "[load", r"tiny.toml: "),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(experiment, wsbench, old, new, line):
    import re

    done = wsbench("plan", str(changed(experiment, old, new)))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert re.search(line, done.stderr), done.stderr


def test_every_round_runs_every_cell_once_in_an_order_drawn_from_the_seed(experiment):
    class Fake:
        def __init__(self, name):
            self.server, self.variant, self.limits = name, "v", Limits()

    read = __import__("wsbench.experiments.experiment", fromlist=["read"]).read(experiment)
    servers = [Fake(name) for name in "abcdef"]
    order = order_of(read, servers, seed=7)
    rounds = [[(o.server, o.cell["connections"]) for o in order if o.round == n] for n in (1, 2)]
    assert [sorted(one) for one in rounds] == [sorted((s.server, c) for s in servers for c in (2, 4))] * 2
    assert rounds[0] != rounds[1]
    assert order == order_of(read, servers, seed=7)
    assert order != order_of(read, servers, seed=8)
    assert [one.number for one in order] == list(range(1, 25))


def written(tmp_path, loop: str, load: str):
    file = tmp_path / "one.toml"
    file.write_text(
        f'question = "?"\nreading = "."\nservers = ["reference"]\nscenario = "echo"\nloop = "{loop}"\n'
        f'headline = "messages_per_s"\n[timing]\nmeasure_s = 1\n[load]\n{load}\n'
    )
    return experiment.read(file)


def test_an_open_loop_becomes_a_schedule_and_a_sweep_of_rates_cells(tmp_path):
    read = written(tmp_path, "open", 'rate_per_s = 500\narrivals = "poisson"\n[sweep]\nrate_per_s = [100, 200]')
    assert [read.load_of(cell).loop("open").rate[0].to_per_s for cell in read.cells()] == [100, 200]
    assert read.load.loop("open").arrivals == "poisson"


@pytest.mark.parametrize(
    ("loop", "load"),
    [("open", "depth = 1"), ("closed", "rate_per_s = 5"), ("none", "rate_per_s = 5"), ("open", "rate_per_s = 0")],
)
def test_a_loop_and_a_rate_that_do_not_go_together_are_refused(tmp_path, loop, load):
    with pytest.raises(UserError, match="rate"):
        written(tmp_path, loop, load)


def test_copies_give_every_number_of_receivers_the_same_load(tmp_path):
    with pytest.raises(UserError, match=r"'load\.copies_per_s' needs scenario 'push'"):
        written(tmp_path, "open", "copies_per_s = 10_000")
    read = experiment.of_catalogue("broadcast")
    loads = [read.load_of(cell) for cell in read.cells()]
    assert [(load.connections, load.loop("open").rate[0].to_per_s) for load in loads] == [(1_000, 10), (10_000, 1)]


def test_the_cells_that_are_kept_are_told_as_the_experiment_writes_them():
    only = {"only": ["connections=1000000"], "servers": ["reference"], "seed": 1}
    asked = request.request("c1000k-2015", "", scale=0.015, **only)
    assert asked.experiment.sweep == {"connections": [15_000]}
    assert asked.departures[0] == "only connections 1000000 of the experiment's 250000, 500000, 750000, 1000000"


def test_a_closed_loop_thinks_and_comes_in_stages(tmp_path):
    read = written(
        tmp_path,
        "closed",
        'think = {kind = "gaussian", mean_s = 5, deviation_s = 2}\nstages = [{to = 40, over_s = 3, chunk = 4}]',
    )
    assert read.load.loop("closed").think.mean_s == 5
    assert read.load.stages[0].chunk == 4
