"""The published campaigns of this repository: each is read by every command that reads a campaign, from its data set alone."""

import json
import re
from html import unescape

import pytest

from wsbench.analysis import tables
from wsbench.analysis.claims.evaluate import evaluate
from wsbench.analysis.reading import load
from wsbench.host.installation import ROOT
from wsbench.records.rundir import RunFolder

FOLDERS = sorted(file.parent for file in (ROOT / "results").glob("*/campaign.json"))
#: The table of the verdicts that differ from those printed on the page of the day.
CHANGED = ROOT / "results/claims-by-new-rules.md"
VERDICTS = {"holds", "does not hold", "undecided"}


def printed(page: str) -> dict[tuple[str, str], str]:
    """The verdicts on a report's page, by claim and set of versions."""
    found = re.search(r'<section class="claims".*?</section>', page, re.DOTALL)
    if found is None:
        return {}
    versions = re.findall(r"versions (\w+)", found[0].partition("</thead>")[0])
    made = {}
    for claim, row in re.findall(r'<tr id="claim-([^"]+)">(.*?)</tr>', found[0], re.DOTALL):
        tags = re.findall(r'<td class="text"><span class="tag \w+">([^<]+)</span>', row)
        made |= {(claim, name): unescape(tag) for name, tag in zip(versions, tags, strict=True)}
    return made


def changed() -> dict[tuple[str, str, str], tuple[str, str]]:
    """Campaign, claim and versions → the verdict of its page, the verdict now."""
    rows = re.findall(r"^\| `([^`]+)` \| (\S+), (\w+) \| ([^|]+) \| ([^|]+) \|", CHANGED.read_text(encoding="utf-8"), re.MULTILINE)
    return {(campaign, claim, versions): (before, after) for campaign, claim, versions, before, after in rows}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_published_campaign_has_its_data_set_and_the_verdicts_of_its_page_but_for_those_listed(folder):
    run = RunFolder.open(folder)
    results = load(run)
    assert results.data.numbers == tables.trials_in(run)
    assert results.data.numbers <= {planned.number for planned in run.order}
    verdicts = {(one.id, one.versions): one.verdict for one in evaluate(results)}
    assert set(verdicts.values()) <= VERDICTS
    page = folder / "report.html"
    if page.exists():
        before = printed(page.read_text(encoding="utf-8"))
        differ = {(folder.name, *key): (before[key], now) for key, now in verdicts.items() if before[key] != now}
        assert differ == {key: found for key, found in changed().items() if key[0] == folder.name}


def test_claims_compare_and_export_work_on_published_campaigns(wsbench):
    concurrency, backlog = (ROOT / "results" / f"2026-11-22-hoticn-2018-concurrency{name}" for name in ("", "-jetty-backlog"))
    claims = wsbench("claims", str(concurrency), "--json")
    assert claims.returncode == 0, claims.stderr
    assert {one["verdict"] for one in json.loads(claims.stdout)[str(concurrency)]} <= VERDICTS
    compared = wsbench("compare", str(concurrency), str(backlog), "--metric", "requests_per_s")
    assert compared.returncode == 0, compared.stderr
    assert "jetty@12.1" in compared.stdout
    exported = wsbench("export", str(concurrency), "csv")
    assert exported.stdout.count("\n") > 10_000
