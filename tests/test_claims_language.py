"""Claims: what the language reads and refuses, what the catalogue's say, and the commands that show them."""

import json

import pytest
from claims_maker import LEVELS, SERVERS, as_paper, claim
from run_maker import make_run

from wsbench import metrics
from wsbench.analysis.claims.evaluate import evaluate, read
from wsbench.analysis.reading import load
from wsbench.experiments import experiment
from wsbench.experiments.claims import conditions, language
from wsbench.records.errors import UserError


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    return load(make_run(tmp_path_factory.mktemp("claims") / "run", SERVERS, LEVELS, rounds=1, change=as_paper))


# ---- the language --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("holds_if", "words"),
    [
        ("netty.requests_per_s", "expected one of < <= > >= =, found the end"),
        ("netty > 3", "expected '.', found '>' after 'netty'"),
        ("every cell netty.requests_per_s > 1", "expected ':'"),
        ("netty.requests_per_s > 1 jetty.requests_per_s", "expected the end, 'and' or 'or', found 'jetty'"),
        ("__import__('os') > 1", "cannot read"),
        ("undertow.requests_per_s > 1", "unknown role 'undertow'; known roles: grizzly, jetty, netty"),
        ("at payload = 1: netty.requests_per_s > 1", "'payload' is not swept; swept keys: connections"),
        ("falls(netty.requests_per_s, rate)", "'rate' is not swept"),
        ("netty.requests_per_s > 1", "covers 3 cells; choose with"),
        ("every cell: netty.requests > 1", "unknown metric 'requests'"),
        ("every cell: server.requests_per_s > 1", "'server' is used outside"),
        ("every cell: netty.requests_per_s > others.requests_per_s", "say which of the 'others'"),
        ("every cell: highest(netty.errors) / highest(jetty.errors) > 1", "cannot be both the highest and the lowest"),
        ("every cell: within(netty.errors, highest(jetty.errors), 10 %)", "compares two single values"),
        ("most server in netty: server.errors = 0", "expected '('"),
        ("", "the end"),
    ],
)
def test_what_cannot_be_understood_is_one_line_that_names_the_claim(campaign, holds_if, words):
    with pytest.raises(UserError) as raised:
        evaluate(campaign, claim(holds_if))
    assert words in str(raised.value)
    assert "X1" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('netty = "netty@4.1"', 'netty = "netty"', "assign a variant"),
        ('netty = "netty@4.1"', 'server = "netty@4.1"', "assign a variant"),
        ('says = "So it is."', "", "missing key 'says'|'0.says'"),
        ('says = "So it is."', 'says = "."\ncolour = 1', "unknown key"),
    ],
)
def test_a_claim_is_checked_when_it_is_read(old, new, words):
    import re

    with pytest.raises(UserError) as raised:
        read(claim("every cell: netty.errors = 0").replace(old, new))
    assert re.search(words.replace("(", r"\(").replace(")", r"\)"), str(raised.value)) or words in str(raised.value)


def test_two_claims_of_one_name_are_an_error():
    twice = claim("every cell: netty.errors = 0")
    with pytest.raises(UserError, match="two claims have the id 'X1'"):
        read(twice + twice[twice.index("[[claim]]") :])


def test_brackets_may_hold_a_condition_or_a_sum():
    one = language.condition("(a.x + b.x) / 2 > 3 and (a.x > 1 or b.x > 1)")
    assert isinstance(one, conditions.Join)
    assert isinstance(one.conditions[0], conditions.Compare)
    assert isinstance(one.conditions[1], conditions.Join)


def test_every_claim_in_the_catalogue_can_be_understood_and_asks_for_metrics_that_exist():
    seen = []
    for file in experiment.EXPERIMENTS.glob("*.toml"):
        for one in experiment.read(file).claim:
            seen.append(one.id)
            nodes = [one.condition, *(value for value, _ in one.printed)]
            asked = {part.metric for node in nodes for part in conditions.parts(node) if isinstance(part, conditions.Reading)}
            assert asked <= set(metrics.METRICS), (file, one.id)
    assert {f"H{number}" for number in range(1, 8)} <= set(seen)


# ---- the command ---------------------------------------------------------------------------------------------------


def test_the_command_writes_a_table_markdown_and_json(tmp_path, wsbench):
    source = claim("every cell: netty.requests_per_s > jetty.requests_per_s")
    run = make_run(tmp_path / "run", SERVERS[:3], LEVELS[:1], rounds=5, change=as_paper, experiment=source)
    table, marked, whole = (wsbench("claims", str(run.path), *option) for option in ([], ["--markdown"], ["--json"]))
    assert (table.returncode, marked.returncode, whole.returncode) == (0, 0, 0), table.stderr
    assert "X1" in table.stdout
    assert "holds" in table.stdout
    assert marked.stdout.startswith("| claim | statement | versions | verdict | reason |")
    (verdicts,) = json.loads(whole.stdout).values()
    assert [(one["versions"], one["verdict"]) for one in verdicts] == [("published", "holds"), ("today", "undecided")]
    assert verdicts[0]["comparisons"][0]["holds"] is True


def test_a_campaign_without_claims_says_so(tmp_path, wsbench):
    run = make_run(tmp_path / "run", SERVERS[:2], LEVELS[:1], rounds=1)
    assert "has no claims" in wsbench("claims", str(run.path)).stdout


def test_claims_of_another_file_can_be_held_against_an_old_campaign(tmp_path, wsbench):
    run = make_run(tmp_path / "run", SERVERS[:3], LEVELS[:1], rounds=5, change=as_paper)
    found = wsbench("claims", str(run.path), "--from", str(experiment.path_of("hoticn-2018-concurrency")))
    assert found.returncode == 0, found.stderr
    assert "H4" in found.stdout
    assert "netty@4.1.19 is not in this campaign" in found.stdout


def test_a_broken_claim_is_exit_2(tmp_path, wsbench):
    run = make_run(tmp_path / "run", SERVERS[:2], LEVELS[:1], rounds=1, experiment=claim("netty >"))
    found = wsbench("claims", str(run.path))
    assert found.returncode == 2
    assert found.stderr.startswith("wsbench: ")
    assert len(found.stderr.splitlines()) == 1


def test_the_list_has_every_claim(wsbench):
    assert "H6" in wsbench("list", "claims").stdout
