"""The experiments of the four studies: their cells and loads are the published ones, and what makes them smaller keeps together."""

import tomllib

import pytest

from wsbench import metrics
from wsbench.experiments import experiment, scaling
from wsbench.experiments.figure_table import FigureTable
from wsbench.host.installation import ROOT
from wsbench.records.engine_files import Messages, Open, Seconds
from wsbench.records.errors import UserError
from wsbench.servers import catalogue
from wsbench.servers.manifest import Unavailable
from wsbench.servers.settings import Settings, options

EXPERIMENTS = {file.stem: experiment.read(file) for file in sorted(experiment.EXPERIMENTS.glob("*.toml"))}
CATALOGUE = catalogue.read(ROOT / "servers")
FIVE = {"netty", "undertow", "vertx", "grizzly", "jetty"}
MILLION = [250_000, 500_000, 750_000, 1_000_000]


def read(name):
    return EXPERIMENTS[name]


def chosen(name) -> set[str]:
    return {variant.name for variant in catalogue.select(read(name).servers, CATALOGUE)}


def test_every_figure_names_metrics_and_keys_that_there_are():
    figures = [(name, of, figure) for name, of in EXPERIMENTS.items() for figure in of.figure]
    unknown = [(name, figure.title, set(figure.metrics) - set(metrics.METRICS)) for name, _, figure in figures]
    assert [one for one in unknown if one[2]] == []
    assert [(name, figure.over) for name, of, figure in figures if figure.over not in (None, *of.sweep)] == []


def test_every_experiment_chooses_servers_that_serve_it():
    wrong = []
    for name, of in EXPERIMENTS.items():
        variants = catalogue.select(of.servers, CATALOGUE)
        started = [variant for variant in variants if not isinstance(variant.table, Unavailable)]
        wrong += [(name, variant.name) for variant in started if of.served not in variant.serves]
        wrong += [] if variants else [(name, "no server")]
    assert wrong == []


@pytest.mark.parametrize("test", ["concurrency", "flow", "connection", "resource"])
def test_the_tests_of_2018_are_as_published(test):
    of = read(f"hoticn-2018-{test}")
    swept = {
        "concurrency": {"connections": [10, 100, 200, 500, 1000]},
        "flow": {"payload_bytes": [512, 5_120, 10_240, 20_480, 51_200, 102_400]},
        "connection": {"persistent": [True, False]},
        "resource": {},
    }
    assert of.sweep == swept[test]
    assert (of.scenario, of.loop, of.timing.rounds, of.timing.warmup_s) == ("doc", "closed", 3, 0)
    for cell in of.cells():
        load = of.load_of(cell)
        assert of.measure_of(load) == Messages(messages=10_000)
        assert load.persistent == (cell.get("persistent") is True)
        assert "connections" in of.sweep or load.connections == 100
        assert "payload_bytes" in of.sweep or load.payload_bytes < 1024
    published = {"netty@4.1.19", "undertow@1.4.12", "vertx@3.5.0", "grizzly@2.4.0", "jetty@9.4.8"}
    assert published <= chosen(f"hoticn-2018-{test}")
    assert {name.partition("@")[0] for name in chosen(f"hoticn-2018-{test}")} == FIVE | {"reference"}


@pytest.mark.parametrize("test", ["concurrency", "flow", "connection", "resource"])
def test_their_twins_over_websocket_differ_in_the_protocol_alone(test):
    http, twin = read(f"hoticn-2018-{test}"), read(f"hoticn-2018-{test}-ws")
    assert twin.scenario == "echo"
    assert (twin.servers, twin.timing, twin.load.messages) == (http.servers, http.timing, http.load.messages)
    same = {key: values for key, values in http.sweep.items() if key != "persistent"}
    assert {key: values for key, values in twin.sweep.items() if key != "messages_per_connection"} == same
    assert 1 in [twin.load_of(cell).messages_per_connection for cell in twin.cells()]


def test_the_million_is_as_published_and_sends_one_broadcast_after_the_idle_phase():
    of = read("c1000k-2015")
    assert of.sweep == {"connections": MILLION}
    assert of.load.connect.per_s == 10_000
    assert (of.runtime.heap, of.runtime.gc, of.runtime.jvm_flags) == (["12g"], ["Parallel"], ["-Xss1M"])
    loop = of.load.loop("open")
    assert isinstance(loop, Open)
    assert loop.due_before(of.timing.warmup_s) == 0
    assert 0 < loop.due_before(of.timing.warmup_s + of.timing.measure_s) <= 1, "the first message is due at position 0"
    assert loop.rate[-1].to_per_s == 0
    eight = {
        "netty",
        "undertow",
        "vertx",
        "jetty",
        "grizzly",
        "spray-websocket",
        "node-nodejs-websocket",
        "go-net-websocket",
    }
    assert eight <= {name.partition("@")[0] for name in chosen("c1000k-2015")}


def test_a_scale_shrinks_connections_and_heap_in_the_same_proportion():
    written = read("c1000k-2015")
    made = scaling.scaled(written, 0.015, 0.1)
    assert made.sweep == {"connections": [3_750, 7_500, 11_250, 15_000]}
    assert made.runtime.heap == ["184m"]
    assert abs(184 / (12 * 1024) / 0.015 - 1) < 0.01
    assert options("jvm", Settings(heap=made.runtime.heap[0]))["JAVA_TOOL_OPTIONS"] == "-Xms184m -Xmx184m"
    assert made.load.connect == written.load.connect, "the rate stays"
    assert made.timing.warmup_s == pytest.approx(6)
    assert made.load.loop("open").due_before(made.timing.warmup_s) == 0
    assert scaling.departures(written, 0.015, 0.1) == [
        "scale 0.015: connections and heap times 0.015",
        "time scale 0.1: phases, stages and rate segments last 0.1 times as long",
    ]


@pytest.mark.parametrize(
    ("name", "scale", "time_scale", "line"),
    [
        ("quick", 0.5, 1, "has no key 'scales'"),
        ("c1000k-2015", 0.001, 1, "a heap of 12g becomes 12 MiB"),
        ("c1000k-2015", 0, 1, "'--scale': found 0"),
        ("c1000k-2015", 1, -1, "'--time-scale': found -1"),
        ("idle-memory", 0.0001, 1, "two cells become the same"),
    ],
)
def test_a_size_that_leaves_nothing_is_refused(name, scale, time_scale, line):
    with pytest.raises(UserError, match=line):
        scaling.scaled(read(name), scale, time_scale)


@pytest.mark.parametrize(("name", "mean_s"), [("easy", 5), ("easy-code", 5.5), ("hard", 5), ("hard-code", 35)])
def test_the_echo_of_2023_is_as_published(name, mean_s):
    of = read(f"jvm-echo-2023-{name}")
    think = of.load.loop("closed").think
    assert (think.kind, think.mean_s, think.deviation_s) == ("gaussian", mean_s, 2)
    assert (of.load.payload_bytes, of.load.reply_s, of.timing.rounds) == (5_120, 6, 1)
    assert of.measure_of(of.load) == Seconds(seconds=sum(stage.over_s for stage in of.load.stages))
    most = max(stage.to for stage in of.load.stages)
    held = max(
        stage.over_s for before, stage in zip(of.load.stages, of.load.stages[1:], strict=False) if before.to == stage.to == most
    )
    assert (most, held) == ((2_000, 180) if name.startswith("easy") else (12_000, 1_000))
    assert of.load.stages[-1].to == 0


def test_every_cell_asks_the_engine_for_as_many_connections_as_its_highest_stage():
    loads = [(name, of.load_of(cell)) for name, of in EXPERIMENTS.items() for cell in of.cells()]
    highest = [max((stage.to for stage in load.stages or []), default=load.connections) for _, load in loads]
    assert [name for (name, load), most in zip(loads, highest, strict=True) if load.most_connections != most] == []


def test_the_easy_mode_climbs_by_200_and_falls_by_400_every_minute():
    of = read("jvm-echo-2023-easy")
    began, reached = 0.0, []
    for before, stage in zip([0, *(one.to for one in of.load.stages)], of.load.stages, strict=False):
        if stage.to != before:
            reached.append((began, stage.to))
        began += stage.over_s
    climb = [(60.0 * step, min(2_000, 50 + 200 * step)) for step in range(11)]
    fall = [(781.0 + 60 * step, 1_600 - 400 * step) for step in range(5)]
    assert reached == [*climb, *fall]


def test_time_scale_shortens_stages_and_leaves_pauses_and_users_alone():
    made = scaling.scaled(read("jvm-echo-2023-easy"), 1, 0.1)
    assert made.measure_s == pytest.approx(read("jvm-echo-2023-easy").measure_s / 10)
    assert max(stage.to for stage in made.load.stages) == 2_000
    assert made.load.think.mean_s == 5


def test_the_pings_of_2013_are_as_published_with_a_thin_pair_beside_them():
    of = read("tcp-vs-websocket-2013")
    assert of.sweep["connections"][0] == 50
    assert of.sweep["connections"][-1] >= 400
    assert of.load.messages == 1_000_000
    assert {"tcp-java@threads", "play@2.3.10", "play@3.0-netty", "reference@tcp", "reference@websocket"} <= chosen(
        "tcp-vs-websocket-2013"
    )


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"metrics": []}, "needs 'metrics'"),
        ({"kind": "percentiles"}, "has no 'metrics'"),
        ({"kind": "percentiles", "metrics": []}, "no other kind takes it"),
        ({"kind": "fit"}, "no other kind takes it"),
        ({"published": {"source": "p. 1", "head": ["a", "b"], "rows": [["1"]]}}, "as many texts"),
    ],
)
def test_a_figure_that_is_not_whole_is_refused(changes, line):
    with pytest.raises(ValueError, match=line):
        FigureTable.model_validate({"title": "one", "kind": "lines", "metrics": ["messages_per_s"], **changes})


def test_published_numbers_are_the_texts_of_the_study():
    figures = {one["title"]: one for one in tomllib.loads(experiment.path_of("c1000k-2015").read_text())["figure"]}
    table = figures["Latency of the message by the server's own stamp, as the study took it"]["published"]
    netty = dict(zip(table["head"], table["rows"][0], strict=True))
    assert (netty["mean"], netty["stddev"], netty["99.9%"]) == ("2446.09", "3082.11", "18301.00")
