"""The claims of the four studies say what the studies say: with the published figures every one of them holds, and with figures
that contradict them none does.

Where a study printed numbers, these stand here; where it drew a figure or used words, numbers that agree with its words.
"""

import math
import random
import tomllib
from types import SimpleNamespace

import pytest

from wsbench.analysis.claims.evaluate import evaluate, read
from wsbench.analysis.stats import Rules
from wsbench.experiments import experiment

ROUNDS = 6
WRITTEN = {
    "hoticn-2018-concurrency": ["H1", "H2", "H3", "H4", "H5", "H6", "H7"],
    "hoticn-2018-flow": ["H8", "H9"],
    "hoticn-2018-connection": ["H10", "H11"],
    "hoticn-2018-resource": ["H12"],
    "hoticn-2018-concurrency-ws": ["H1-ws", "H2-ws", "H3-ws", "H4-ws", "H5-ws", "H6-ws", "H7-ws"],
    "hoticn-2018-flow-ws": ["H8-ws", "H9-ws"],
    "hoticn-2018-connection-ws": ["H10-ws", "H11-ws"],
    "hoticn-2018-resource-ws": ["H12-ws"],
    "c1000k-2015": ["C1", "C2", "C3", "C4", "C5", "C6", "C7"],
    "jvm-echo-2023-easy": ["S1", "S3", "S4"],
    "jvm-echo-2023-hard": ["S2"],
    "tcp-vs-websocket-2013": ["K1", "K2", "K3", "K4"],
}
PRESENT = [name for name in WRITTEN if (experiment.EXPERIMENTS / f"{name}.toml").exists()]
SMALL, LARGE = {"payload_bytes": 512}, {"payload_bytes": 102_400}
MILLION = {"connections": 1_000_000}


def by_role(metric, **values):
    return {(role, metric): value for role, value in values.items()}


def concurrency(level):
    """Figure 2 and 3 in words: all fall, Netty least; below 500 Vert.x and Undertow answer 90 % soonest."""
    falls = level**-0.1
    high = level >= 500
    rates = {"netty": 10_000 * (1.6 if level == 1000 else 1), "undertow": 9_500, "vertx": 8_000}
    rates |= {"grizzly": 5_000, "jetty": 4_000}
    if level == 1000:
        rates["netty"] = 9_900
        rates["undertow"] = 7_500
        rates["vertx"] = 7_000
    times = {"netty": 2.0 if high else 6.0, "undertow": 4.0, "vertx": 4.0, "grizzly": 8.0, "jetty": 9.0}
    return by_role("requests_per_s", **{role: rate * falls for role, rate in rates.items()}) | by_role("served_90_ms", **times)


def flow(size):
    grizzly = 12 - 8 * math.log(size / 512) / math.log(200)
    return by_role("time_per_request_ms", netty=5, undertow=5.2, vertx=5.5, jetty=9, grizzly=grizzly)


def million(connections):
    """The table of the study; Jetty, Grizzly and Spray as they were when they were stopped."""
    reached = by_role("connections_reached", netty=1e6, undertow=1e6, vertx=1e6, node=1e6, go=1e6)
    reached |= by_role("connections_reached", jetty=36e4, grizzly=5e5, spray=5e5)
    reached = {key: min(value, connections) for key, value in reached.items()}
    stamp = {"netty": 2446.09, "undertow": 1366.86, "vertx": 10_427, "node": 1.27, "go": 1.89}
    memory = {"netty": 1.68e9, "undertow": 4.02e9, "vertx": 6.37e9, "node": 5.0e9, "go": 15e9}
    pauses = {"netty": 500, "undertow": 500, "vertx": 400, "jetty": 60_000, "grizzly": 9_000, "spray": 8_000}
    rates = dict.fromkeys(("netty", "undertow", "vertx", "node", "go"), 10_000)
    found = reached | by_role("push_stamp_us_mean", **{role: ms * 1000 for role, ms in stamp.items()})
    found |= by_role("idle_rss_bytes", **memory) | by_role("connect_gc_pause_ms_sum", **pauses)
    found |= by_role("connect_s", **dict.fromkeys(pauses, 100.0)) | by_role("connects_per_s", **rates)
    idle = {"netty": 90, "vertx": 95, "undertow": 90, "jetty": 2, "grizzly": 20, "spray": 80, "node": 94, "go": 94}
    found |= by_role("connect_cpu_idle_percent", **idle) | by_role("idle_cpu_idle_percent", spray=60)
    return found | by_role("sending_cpu_idle_percent", netty=75, undertow=65)


def easy():
    found = by_role("errors", ktor=0, webflux=0, mvc=700) | by_role("messages_per_s", ktor=250, webflux=250, mvc=15.4)
    found |= by_role("received_bytes_per_s", ktor=1.28e6, webflux=1.28e6, mvc=8e4)
    found |= by_role("service_us_mean", ktor=900, webflux=1_000, mvc=4_000)
    found |= by_role("service_us_tick_mean_max", ktor=20_000, webflux=20_000, mvc=6e6)
    found |= by_role("service_us_tick_mean_p99", ktor=3_000, webflux=3_000, mvc=5e6)
    return found | by_role("connections_reached", ktor=2_000, webflux=2_000, mvc=100) | by_role("error_fraction", mvc=0.12)


def hard():
    found = by_role("errors", ktor=0, webflux=0) | by_role("service_us_mean", ktor=9_500, webflux=3_000)
    return found | by_role("service_us_p50", ktor=2_000, webflux=2_500) | by_role("service_us_p99", ktor=90_000, webflux=9_000)


def pings(connections):
    found = by_role("elapsed_us_per_message", tcp=4 if connections == 800 else 2, websocket=20)
    found |= by_role("server_rss_bytes_max", tcp=40e6, websocket=400e6)
    found |= by_role("connections_reached", tcp=connections, websocket=min(connections, 100))
    found |= by_role("cpu_idle_percent", tcp=25, websocket=15)
    return found | by_role("server_cpu_percent_mean", tcp=150, websocket=180)


def resource():
    found = by_role("server_cpu_percent_max", netty=30, vertx=32, undertow=45, jetty=50, grizzly=70)
    return found | by_role("heap_used_bytes_max", netty=50e6, vertx=60e6, undertow=70e6, jetty=90e6, grizzly=150e6)


def over_websocket(found):
    """The figures of the study under the names that its tests have over WebSocket."""
    names = {
        "requests_per_s": "messages_per_s",
        "served_90_ms": "service_us_p90",
        "time_per_request_ms": "elapsed_us_per_message",
    }
    return {(role, names.get(metric, metric)): value for (role, metric), value in found.items()}


def connection(persistent):
    rates = {"netty": 25e3, "undertow": 20e3, "vertx": 15e3, "grizzly": 11e3, "jetty": 9e3}
    return by_role("requests_per_s", **{role: rate / (1 if persistent else 3) for role, rate in rates.items()})


FIGURES = {
    "hoticn-2018-concurrency": lambda cell: concurrency(cell["connections"]),
    "hoticn-2018-flow": lambda cell: flow(cell["payload_bytes"]),
    "hoticn-2018-connection": lambda cell: connection(cell["persistent"]),
    "hoticn-2018-resource": lambda cell: resource(),
    "hoticn-2018-concurrency-ws": lambda cell: over_websocket(concurrency(cell["connections"])),
    "hoticn-2018-flow-ws": lambda cell: over_websocket(flow(cell["payload_bytes"])),
    "hoticn-2018-connection-ws": lambda cell: over_websocket(connection(cell["messages_per_connection"] > 1)),
    "hoticn-2018-resource-ws": lambda cell: resource(),
    "c1000k-2015": lambda cell: million(cell["connections"]),
    "jvm-echo-2023-easy": lambda cell: easy(),
    "jvm-echo-2023-hard": lambda cell: hard(),
    "tcp-vs-websocket-2013": lambda cell: pings(cell["connections"]),
}
#: What is really asked of the engine where no cell says it.
LOADS = {
    "jvm-echo-2023-easy": {"connections": 2_000, "measure_s": 1_022.0},
    "jvm-echo-2023-hard": {"connections": 12_000, "measure_s": 1_031.0},
}


def campaign(name, source, figures, scale=1.0):
    """A campaign of the published versions with these figures, 1 % of noise and a drift that rounds share."""
    keys = tomllib.loads(source)
    sweep = {key: [int(v * scale) if key == "connections" else v for v in values] for key, values in keys.get("sweep", {}).items()}
    cells = [tuple(zip(sweep, values, strict=True)) for values in experiment.itertools.product(*sweep.values())]
    _, versions = read(source)
    roles = {variant: role for role, variant in versions["published"].items()}
    draw = random.Random(3)
    noise = {(at, role): math.exp(draw.gauss(0, 0.01)) for at in range(ROUNDS) for role in [*roles.values()]}
    messages = int(keys["load"].get("messages", 1_000_000) * scale)
    load = {"server_cpus": 4} | keys["load"] | LOADS.get(name, {}) | {"messages": messages}

    def value(variant, cell, metric, at):
        found = figures(dict(cell)).get((roles[variant], metric))
        exact = metric in ("connections_reached", "errors") or found is None
        return found if exact else found * noise[at, roles[variant]]

    def group(variant, cell):
        if variant not in roles:
            return []
        asked = load | dict(cell)
        record = SimpleNamespace(outcome="ok", reason=None)
        return [
            SimpleNamespace(
                load=asked,
                record=record,
                verdict=SimpleNamespace(bottleneck="server", reasons=[]),
                value=lambda metric, at=at: value(variant, cell, metric, at),
            )
            for at in range(ROUNDS)
        ]

    return SimpleNamespace(
        campaign=SimpleNamespace(sweep=None),
        cells=cells,
        names=list(roles),
        servers=[],
        group=group,
        counted=lambda variant, cell, _: group(variant, cell),
        by_round=lambda variant, cell, metric: {at: value(variant, cell, metric, at) for at in range(ROUNDS)},
        lost=lambda *_: frozenset(),
        prior=lambda *_: None,
        margin=0.03,
        claimed=Rules(),
        cell_text=lambda cell: " ".join(f"{key} {value}" for key, value in cell),
    )


def source_of(name):
    return (experiment.EXPERIMENTS / f"{name}.toml").read_text(encoding="utf-8")


def judged(name, figures):
    """The verdicts of an experiment's claims on a campaign with these figures."""
    return evaluate(campaign(name, source_of(name), figures), source_of(name))


def test_every_claim_is_written():
    assert {name: [one.id for one in read(source_of(name))[0]] for name in PRESENT} == {name: WRITTEN[name] for name in PRESENT}


def test_what_was_published_holds_with_the_published_figures():
    """Other versions have no figures."""
    found = [one for name in PRESENT for one in judged(name, FIGURES[name])]
    wrong = [one for one in found if one.verdict != ("holds" if one.versions == "published" else "undecided")]
    assert [(one.id, one.versions, one.why) for one in wrong] == []


def test_it_does_not_hold_where_all_servers_are_alike():
    """Of equals it is true that the second is close to the first."""
    found = [one for name in PRESENT for one in judged(name, alike(name)) if one.versions == "published"]
    wrong = [one for one in found if one.verdict != ("holds" if one.id in ("H3", "H3-ws") else "does not hold")]
    assert [(one.id, one.why) for one in wrong] == []


def alike(name):
    return lambda cell: {key: 1000.0 for key in FIGURES[name](cell)}


def test_a_printed_figure_stands_beside_one_of_ours():
    found = [one for name in PRESENT for one in judged(name, FIGURES[name]) if one.versions == "published"]
    figures = [(one.id, figure) for one in found for figure in one.figures]
    assert figures
    assert [(id_, figure) for id_, figure in figures if figure.ours != pytest.approx(figure.published, rel=0.03)] == []


@pytest.mark.skipif("c1000k-2015" not in PRESENT, reason="the experiment is not in the catalogue")
def test_a_smaller_run_of_the_million_confirms_nothing():
    source = source_of("c1000k-2015")
    made = campaign("c1000k-2015", source, FIGURES["c1000k-2015"], scale=0.015)
    for one in evaluate(made, source):
        assert one.verdict != "holds", one.id
        if one.versions == "published":
            assert one.obstacle == "scaled", (one.id, one.why)
