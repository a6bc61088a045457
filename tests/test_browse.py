"""Campaigns in a real browser, served by the real command: search, a running campaign, overlay, and strings of hostile servers."""

import re
import shutil
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from browsing import served
from run_maker import EXPERIMENT, HOSTILE, SERVERS, Server, failed, make_run

from wsbench.analysis import campaigns
from wsbench.analysis.reading import load
from wsbench.records import lock
from wsbench.records.rundir import RunFolder
from wsbench.report import document

HOSTILE_SERVER = Server(f"evil\"'{HOSTILE}", rate=3_000)


def spoil_one(trial, order):
    return failed(HOSTILE) if order.number == 2 else trial


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two finished campaigns of one experiment, and one of which two trials are missing."""
    runs = tmp_path_factory.mktemp("browse") / "runs"
    runs.mkdir()
    for name, seed in (("2026-11-01T000000-echo-connections", 1), ("2026-11-02T000000-echo-connections", 2)):
        document.build(make_run(runs / name, (*SERVERS[:2], HOSTILE_SERVER), change=spoil_one, seed=seed))
    make_run(runs / "2026-11-03T000000-echo-connections", SERVERS[:1], unfinished=2)
    return runs


@pytest.fixture(scope="module")
def address(folder):
    with served(folder) as found:
        yield found


@pytest.fixture
def page(browser):
    """A page of which nothing may be complained, by itself or by its policy."""
    context = browser.new_context()
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert not complaints


def test_the_list_is_searched_and_the_search_stands_in_the_address(page, address):
    page.goto(address)
    rows = page.locator("#campaigns tbody tr")
    assert rows.count() == 3
    assert "throughput" in rows.first.locator(".lead").inner_text()
    page.get_by_label("Search").fill("netty valid")
    assert rows.locator("visible=true").count() == 2
    assert page.locator("#found").inner_text() == "2 shown"
    assert "q=netty+valid" in page.url
    page.reload()
    assert page.locator("#campaigns tbody tr").count() == 2


def test_a_campaign_leads_to_its_report_and_its_numbers(page, address):
    page.goto(address)
    page.get_by_role("link", name="runs/2026-11-01T000000-echo-connections").click()
    assert "36 of 36" not in page.locator("#live").inner_text()
    assert "27 of 27 trials finished" in page.locator("#live").inner_text()
    assert "1 failed" in page.locator("#live").inner_text()
    assert page.locator("#live tbody tr").count() == 9
    with page.expect_download() as download:
        page.get_by_role("link", name="JSON").click()
    assert '"format": "wsbench-campaign-1"' in Path(download.value.path()).read_text()
    page.get_by_role("link", name="Open the report").click()
    assert page.locator("h1").count() == 1


def test_hostile_text_stays_text(page, address):
    for path in ("", "/campaign/runs/2026-11-01T000000-echo-connections/", "/overlay/echo-connections"):
        page.goto(address + path)
        assert page.title() != "owned"
        assert page.locator("script").count() == 1
    assert HOSTILE in page.locator("main").inner_text()


def test_campaigns_lie_over_each_other(page, address):
    page.goto(f"{address}/campaign/runs/2026-11-01T000000-echo-connections/")
    page.get_by_label("2026-11-02").check()
    page.get_by_role("button", name="Overlay").click()
    assert page.locator("svg .mean").count() == 2 * 9
    page.get_by_label("Metric").select_option("messages_per_s")
    page.get_by_role("button", name="Show").click()
    assert "metric=messages_per_s" in page.url
    assert "Higher is better" in page.locator("main").inner_text()


@pytest.mark.system
def test_a_running_campaign_is_followed_until_it_ends(page, address, folder):
    run = folder / "2026-11-03T000000-echo-connections"
    with lock.holding(run / ".lock", ""):
        page.goto(f"{address}/campaign/runs/{run.name}/")
        text = page.locator("#live")
        assert "7 of 9" in text.inner_text()
        assert "trial 8" in text.inner_text()
        shutil.copytree(run / "0001", run / "part")
        record = (run / "part" / "trial.json").read_text()
        (run / "part" / "trial.json").write_text(re.sub(r'"number": \d+', '"number": 8', record))
        (run / "part").rename(run / "0008")
        page.locator("#live", has_text="8 of 9").wait_for(timeout=300_000)
        assert "trial 9" in text.inner_text()
    page.locator("#live:not([data-follow])").wait_for(timeout=300_000)
    shutil.rmtree(run / "0008")


@pytest.mark.system
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/campaign/runs/../../etc/passwd/", 404),
        ("/campaign/runs/nothing/", 404),
        ("/campaign/runs/nothing/report.html", 404),
        ("/assets/app.py", 404),
        ("/assets/..%2f..%2fcli.py", 404),
        ("/overlay?run=nothing", 404),
        ("/overlay/nothing", 404),
        ("/campaign/runs/2026-11-01T000000-echo-connections/campaign.exe", 404),
    ],
)
def test_what_is_not_there_is_not_found(address, path, status):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(address + path, timeout=10)
    assert refused.value.code == status


@pytest.mark.system
def test_nothing_can_be_written_and_no_other_name_is_answered(address):
    for method in ("POST", "PUT", "DELETE"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(address, method=method), timeout=10)
        assert refused.value.code == 405
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(address, headers={"Host": "evil.example"}), timeout=10)
    assert refused.value.code == 400


@pytest.mark.system
def test_pages_run_no_script_but_the_file_and_reports_have_no_origin(address):
    page = urllib.request.urlopen(address, timeout=10).headers["Content-Security-Policy"]
    assert "script-src 'self'" in page
    assert "unsafe" not in page
    of_report = f"{address}/campaign/runs/2026-11-01T000000-echo-connections/report.html"
    policy = urllib.request.urlopen(of_report, timeout=10).headers["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in policy


@pytest.mark.system
def test_a_site_opens_from_the_disk(wsbench, folder, tmp_path, page):
    made = wsbench("site", "out", str(folder))
    assert made.returncode == 0, made.stderr
    page.goto((tmp_path / "out" / "index.html").as_uri())
    assert page.locator("#campaigns tbody tr").count() == 3
    page.get_by_role("link", name="runs/2026-11-02T000000-echo-connections").click()
    assert page.locator("#live tbody tr").count() == 9
    page.get_by_role("link", name="Open the report").click()
    assert page.locator("h1").count() == 1
    page.go_back()
    page.get_by_role("link", name="echo-connections", exact=True).first.click()
    assert page.locator("svg .mean").count() >= 2 * 9
    again = wsbench("site", "out", str(folder))
    assert again.returncode == 2
    assert "exists" in again.stderr


def test_pages_and_the_report_say_the_same(folder):
    one = next(one for one in campaigns.find([folder]) if "11-01" in one.id)
    raw = load(RunFolder(one.run.path), anew=True)
    for line in one.lines():
        for name, found in line.found.items():
            assert found == raw.estimate(line.server, line.cell, name)


def test_a_campaign_that_grows_shows_each_trial_once_it_has_ended(tmp_path):
    run = make_run(tmp_path / "runs" / "a", SERVERS[:2])
    hidden = [folder.rename(folder.with_name(f"x{folder.name}")) for folder in sorted(run.path.glob("00*"))[2:]]
    (before,) = campaigns.find([tmp_path / "runs"])
    assert before.trials == 2
    for folder in hidden:
        folder.rename(folder.with_name(folder.name[1:]))
    (after,) = campaigns.find([tmp_path / "runs"])
    assert after.trials == len(run.order)
    assert after.lines() == campaigns.Campaign(after.id, run, after.record, 0).lines()
    assert after.results.trials == load(run).trials


@pytest.mark.parametrize("headline", ["messages_per_s", "server_rss_bytes_max"])
def test_the_best_server_of_a_cell_comes_first_whichever_way_is_better(tmp_path, headline):
    text = EXPERIMENT.replace('headline = "service_us_p99"', f'headline = "{headline}"')
    assert headline in text
    make_run(tmp_path / "runs" / "a", SERVERS[:3], experiment=text)
    (one,) = campaigns.find([tmp_path / "runs"])
    means = [line.found[headline].mean for line in one.lines() if line.cell == one.results.cells[0]]
    assert means == sorted(means, reverse=headline == "messages_per_s")


def test_a_folder_that_is_not_there_is_one_plain_line(wsbench):
    for arguments in (("serve", "nowhere"), ("site", "out", "nowhere")):
        refused = wsbench(*arguments)
        assert refused.returncode == 2
        assert refused.stderr == "wsbench: nowhere is not a folder\n"
