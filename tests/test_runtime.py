"""What is chosen of a runtime: names, the experiment's table, JDKs found by a rule, and what the runtime says."""

import os
import stat

import pytest

from wsbench import metrics
from wsbench.experiments import experiment as experiments
from wsbench.records.errors import UserError
from wsbench.run import request
from wsbench.servers import build, catalogue, runtime
from wsbench.servers.settings import RuntimeTable

SERVER = """
language = "Java"
library = "none"
homepage = "https://example.org"
scenarios = ["ping"]
{runtime}
default = "one"
[variants.one]
library_version = "1"
build = []
run = ["java"]
version = ["java"]
[variants.new]
library_version = "1"
build = [["true"]]
run = ["java"]
version = ["java"]
{new}
[variants.lost]
library_version = "0"
unavailable = "its jars are gone"
"""


@pytest.fixture
def variants(tmp_path):
    for name, line, new in (
        ("java", 'runtime = "jvm"', "jdk = 25"),
        ("node", 'runtime = "node"', ""),
        ("native", "", ""),
    ):
        (tmp_path / "servers" / name).mkdir(parents=True)
        (tmp_path / "servers" / name / "server.toml").write_text(SERVER.format(runtime=line, new=new))
    return catalogue.read(tmp_path / "servers")


@pytest.fixture
def jdks(tmp_path, monkeypatch):
    """Makes JDKs that say what they were given; nothing of this machine's is found."""
    monkeypatch.setattr(runtime, "PLACES", (str(tmp_path / "jvm/*"),))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(runtime.shutil, "which", lambda _: None)

    def make(*versions: str):
        for version in versions:
            home = tmp_path / "jvm" / f"java-{version}"
            (home / "bin").mkdir(parents=True)
            (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
            for program in ("java", "javac"):
                script = home / "bin" / program
                script.write_text(f'#!/bin/sh\necho "1, java {version}, $JAVA_TOOL_OPTIONS"\n')
                script.chmod(script.stat().st_mode | stat.S_IXUSR)

    return make


def select(variants, *patterns):
    return [variant.name for variant in catalogue.select(list(patterns), variants)]


def test_what_is_chosen_is_part_of_the_name_and_of_the_environment(variants):
    (chosen,) = catalogue.select(["java+heap4g+jdk25+ZGC"], variants)
    assert chosen.name == "java@one+jdk25+ZGC+heap4g"
    assert chosen.env == {"JAVA_TOOL_OPTIONS": "-Xms4g -Xmx4g -XX:+UseZGC"}
    assert chosen.departures == ["the heap is fixed at 4 GiB (-Xms4g -Xmx4g)"]


def test_a_jvm_of_which_nothing_is_chosen_has_the_heap_of_all(variants):
    (usual,) = catalogue.select(["java"], variants)
    assert usual.env == {"JAVA_TOOL_OPTIONS": "-Xms1g -Xmx1g"}
    assert "as for every JVM server" in usual.departures[0]


def test_processes_share_a_heap(variants):
    chosen, usual = (one.settings for one in catalogue.select(["java+heap12g", "java"], variants))
    assert chosen.shared_by(52) == chosen.model_copy(update={"heap": "236m"})
    assert chosen.shared_by(1) == chosen
    assert usual.shared_by(52) == usual


def test_a_choice_goes_to_those_who_take_it(variants):
    assert select(variants, "*+G1") == ["java@one+G1"]
    assert select(variants, "*+heap2g") == ["java@one+heap2g", "node@one+heap2g"]
    assert select(variants, "java+jdk17", "java+jdk25", "!java+jdk17") == ["java@one+jdk25"]
    assert select(variants, "java+jdk17", "java", "!java") == []
    with pytest.raises(UserError, match=r"'native\+jdk17': \+jdk17 does not apply to native@one"):
        select(variants, "native+jdk17")


@pytest.mark.parametrize("wrong", ["java+jdk", "java+CMS", "java+heap4", "java+jdk17+jdk25", "java+"])
def test_what_is_no_choice_is_said(variants, wrong):
    with pytest.raises(UserError, match=r"found "):
        select(variants, wrong)


def test_the_table_makes_every_combination_of_those_who_take_it(variants):
    table = RuntimeTable(jdk=[17, 25], gc=["G1", "ZGC"], jvm_flags=["-XX:+AlwaysPreTouch"])
    named = catalogue.select(["java", "native", "java@lost"], variants)
    made = catalogue.chosen_for(table, named)
    assert [variant.name for variant in made] == [
        *("java@one+jdk17+G1", "java@one+jdk17+ZGC", "java@one+jdk25+G1", "java@one+jdk25+ZGC"),
        *("java@lost", "native@one"),
    ]
    assert made[0].env["JAVA_TOOL_OPTIONS"] == "-Xms1g -Xmx1g -XX:+UseG1GC -XX:+AlwaysPreTouch"
    assert "run with -XX:+AlwaysPreTouch" in made[0].departures
    assert catalogue.named("java@one+jdk25+ZGC", variants, table) == made[3]
    assert catalogue.untaken(RuntimeTable(gc=["G1"], node_options=["--jitless"]), made) == ["node_options"]


def test_what_the_name_chooses_stays(variants):
    made = catalogue.chosen_for(RuntimeTable(jdk=[17, 25]), catalogue.select(["java+jdk21", "java+jdk21+G1"], variants))
    assert [variant.name for variant in made] == ["java@one+jdk21", "java@one+jdk21+G1"]


@pytest.mark.parametrize("flag", ["-Xmx2g", "-XX:+UseZGC", "-XX:MaxHeapSize=1g", "two words", "no-dash"])
def test_flags_choose_neither_heap_nor_collector(flag):
    with pytest.raises(ValueError, match="found"):
        RuntimeTable(jvm_flags=[flag])


def test_a_manifest_does_not_fix_what_can_be_chosen(variants, tmp_path):
    file = tmp_path / "servers/java/server.toml"
    file.write_text(file.read_text().replace('run = ["java"]', 'run = ["java", "-Xmx2g"]', 1))
    with pytest.raises(UserError, match=r"'variants.one.run': found '-Xmx2g'"):
        catalogue.read(tmp_path / "servers")


def test_a_jdk_is_found_in_its_newest_release_and_gives_the_receipt(variants, jdks):
    jdks("17.0.9", "17.0.15", "25.0.3", "1.8.0_392")
    assert [one.major for one in runtime.jdks()] == [25, 17, 17, 8]
    (chosen,) = catalogue.select(["java+jdk17"], variants)
    assert runtime.environment(chosen)["JAVA_HOME"].endswith("java-17.0.15")
    assert build.build(chosen, sorted(os.sched_getaffinity(0))).receipt == "1, java 17.0.15, -Xms1g -Xmx1g"


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("java+jdk21", "needs JDK 21, found 17.0.15 in"),
        ("java@new", "needs JDK 25 or newer, found 17.0.15 in"),
        ("java@new+jdk17", "needs JDK 25 or newer, but 17 was chosen"),
    ],
)
def test_a_jdk_that_is_not_to_be_had_is_a_row_with_the_reason(variants, jdks, pattern, problem):
    jdks("17.0.15")
    (chosen,) = catalogue.select([pattern], variants)
    built = build.build(chosen, [0])
    assert (built.receipt, built.did) == (None, "skipped")
    assert built.problem.startswith(problem)


def test_a_variant_that_needs_a_newer_jdk_has_the_oldest_that_will_do(variants, jdks):
    jdks("17.0.15", "25.0.3", "26.0.1")
    (chosen,) = catalogue.select(["java@new"], variants)
    assert runtime.environment(chosen)["JAVA_HOME"].endswith("java-25.0.3")
    assert runtime.build_environment(chosen) == {
        name: value for name, value in runtime.environment(chosen).items() if name in ("JAVA_HOME", "PATH")
    }


@pytest.mark.skipif(not runtime.jdks(), reason="no JDK here")
def test_the_jvm_itself_says_which_collector_and_heap_it_has(variants):
    cpus = sorted(os.sched_getaffinity(0))[:1]
    usual, asked = catalogue.select([f"java+jdk{runtime.jdks()[0].major}", "java+Parallel+heap64m"], variants)
    if usual.settings.heap:
        usual, asked = asked, usual
    said = runtime.observe(usual, cpus)
    assert (said.collector, said.collector_asked, said.heap_bytes) == ("Serial", False, 1 << 30)
    said = runtime.observe(asked, cpus)
    assert (said.collector, said.collector_asked, said.heap_bytes) == ("Parallel", True, 64 << 20)
    assert "collector Parallel, heap at most 64 MiB" in said.text


TABLED = """
question = "?"
reading = "?"
servers = ["{server}"]
scenario = "ping"
loop = "closed"
headline = "messages_per_s"
[runtime]
jdk = [17, 25]
jvm_flags = ["-Xlog:disable"]
[timing]
measure_s = 1
"""


def test_an_experiment_whose_table_says_nothing_to_its_servers_is_refused(variants, tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "read", lambda: variants)
    file = tmp_path / "tabled.toml"
    file.write_text(TABLED.format(server="java"))
    asked = request.request(str(file), "", seed=1)
    assert [variant.name for variant in asked.variants] == ["java@one+jdk17", "java@one+jdk25"]
    assert experiments.read(file).runtime.jdk == [17, 25]
    file.write_text(TABLED.format(server="native"))
    with pytest.raises(UserError, match=r"none of native@one supports 'runtime.jdk'"):
        request.request(str(file), "", seed=1)
    assert [one.name for one in request.request(str(file), "", servers=["java", "native"], seed=1).variants] == [
        *("java@one+jdk17", "java@one+jdk25", "native@one")
    ]


def test_a_median_is_typical_and_the_rest_of_a_delay_its_tail():
    families = {name: metrics.METRICS[f"event_loop_delay_ms_{name}"].family for name in ("p50", "p99", "max")}
    assert families == {"p50": "body", "p99": "tail", "max": "tail"}
