"""Steps over many campaigns: found where there is one, not found in noise, never across machines."""

import random
from dataclasses import replace

import numpy as np
import pytest
from run_maker import SERVERS, make_run, write_table

from wsbench.analysis import history, stats
from wsbench.analysis.campaigns import find
from wsbench.records.errors import UserError

CELLS = ({"connections": 64},)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Ten campaigns; from the seventh on netty is 20 % slower; one more on another machine."""
    folder = tmp_path_factory.mktemp("history")
    for number in range(11):
        factor = 0.8 if number >= 6 else 1.0

        def change(trial, order, factor=factor):
            return replace(trial, rate=trial.rate * factor) if order.server == "netty" else trial

        run = make_run(folder / f"{number:02}", SERVERS[:2], CELLS, 3, seed=number, change=change)
        run.write_json("campaign.json", run.campaign.model_copy(update={"created_unix_s": 1e9 + number}))
        if number == 0:
            run.write_json("machine.json", run.machine.model_copy(update={"cpus": 64}))
        write_table(run)
    return folder


def test_a_step_is_found_where_it_is_and_only_there(runs):
    metric, lines, elsewhere = history.history(find([runs]), "echo-connections", "messages_per_s")
    assert (metric, elsewhere) == ("messages_per_s", 1)
    by_server = {line.server: line for line in lines}
    assert by_server["reference@1.0"].steps == []
    (step,) = by_server["netty@4.2"].steps
    assert (step.before.run.path.name, step.after.run.path.name) == ("05", "06")
    assert step.ratio.low < 0.8 < step.ratio.high


def test_noise_alone_seldom_makes_a_step(tmp_path):
    draw, told = random.Random(5), 0
    for _ in range(200):
        points = [(None, stats.estimate([100 * np.exp(draw.gauss(0, 0.02))])) for _ in range(12)]
        told += bool(history._line("x", (), points, 0.03).steps)
    assert told <= 20, "more than a tenth of quiet histories have a step"


def test_too_few_campaigns_are_a_reason(runs):
    few = [one for one in find([runs]) if one.run.path.name in ("08", "09", "10")]
    _, lines, _ = history.history(few, "echo-connections", "messages_per_s")
    assert {line.reason for line in lines} == {"3 campaigns; a search for steps needs 6"}


def test_an_experiment_without_campaigns_is_named(runs, wsbench):
    with pytest.raises(UserError, match="there are campaigns of: echo-connections"):
        history.history(find([runs]), "quick", None)
    link = runs / "link"
    link.symlink_to(runs / "00")
    shown = wsbench("history", "echo-connections", str(runs), "--metric", "messages_per_s")
    link.unlink()
    assert f"left out {link} is a link" in shown.stdout + shown.stderr
    assert shown.returncode == 0, shown.stderr
    assert f"between {runs.name}/05 and {runs.name}/06" in shown.stdout
    assert "left out: 1 campaign of other machines" in shown.stdout
    assert wsbench("history", "echo-connections", str(runs), "--metric", "speed").returncode == 2
