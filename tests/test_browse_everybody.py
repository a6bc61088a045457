"""The pages of `serve` and `site` for everybody: axe-core, keys alone, a phone, hostile names, and an experiment's history."""

from dataclasses import replace

import pytest
from browsing import axe_complaints, served
from run_maker import HOSTILE, SERVERS, Server, make_run, write_table

from wsbench.analysis import campaigns
from wsbench.report import document

pytestmark = pytest.mark.nightly

HOSTILE_SERVER = Server(f"evil\"'{HOSTILE}", rate=3_000)
ONE = "campaign/runs/06/"
PAGES = ("", ONE, "overlay/echo-connections", "history/echo-connections")
METRICS = "messages_per_s"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Seven campaigns of one experiment, a second apart; from the fourth on the reference is 30 % slower."""
    runs = tmp_path_factory.mktemp("everybody") / "runs"
    for number in range(7):
        factor = 0.7 if number >= 3 else 1.0

        def change(trial, order, factor=factor):
            return replace(trial, rate=trial.rate * factor) if order.server == "reference" else trial

        servers = (SERVERS[0], HOSTILE_SERVER)
        run = make_run(runs / f"{number:02}", servers, ({"connections": 64},), 3, seed=number, change=change)
        run.write_json("campaign.json", run.campaign.model_copy(update={"created_unix_s": 1e9 + 3600 * number}))
        write_table(run) if number < 6 else document.build(run)
    return runs


@pytest.fixture(scope="module")
def address(folder):
    with served(folder) as found:
        yield found


@pytest.fixture(scope="module")
def site(folder, tmp_path_factory):
    from wsbench.report.web.site import write

    out = tmp_path_factory.mktemp("site") / "out"
    write([folder], out)
    return out


def opened(browser, address, **options):
    page = browser.new_context(bypass_csp=True, **options).new_page()
    page.goto(address)
    return page


def written(site, path) -> str:
    file = site / (f"{path}index.html" if not path or path.endswith("/") else f"{path}.html")
    return file.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_to_complain_about(browser, address, site, path, scheme):
    for at in (f"{address}/{path}", written(site, path)):
        page = opened(browser, at, color_scheme=scheme)
        page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
        assert axe_complaints(page) == []
        page.context.close()


@pytest.mark.parametrize("path", PAGES)
def test_hostile_names_stay_text_and_a_phone_is_never_scrolled_sideways(browser, address, site, path):
    for at in (f"{address}/{path}", written(site, path)):
        page = opened(browser, at, viewport={"width": 390, "height": 800})
        assert page.title() != "owned"
        assert page.locator("script").count() == 1
        assert not path or HOSTILE in page.locator("main").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.context.close()


def test_from_the_list_to_a_report_and_to_the_history_by_keys_alone(browser, address):
    page = opened(browser, address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("runs/06")
    assert page.locator("#found").inner_text() == "1 shown"
    press_until(page, "runs/06")
    page.keyboard.press("Enter")
    page.wait_for_url("**/campaign/runs/06/")
    press_until(page, "over time")
    page.keyboard.press("Enter")
    page.wait_for_url("**/history/echo-connections")
    press_until(page, "Numbers")
    page.keyboard.press("Enter")
    assert page.locator(".history details[open] tbody tr").count() == 7
    page.go_back()
    press_until(page, "Open the report")
    page.keyboard.press("Enter")
    page.wait_for_url("**/report.html")
    page.context.close()


def press_until(page, text):
    """Tab until what has the focus says so."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").strip() == text:
            return
    raise AssertionError(f"no Tab leads to {text!r}")


def test_a_history_shows_every_campaign_and_marks_the_step(browser, address, site):
    for at in (
        f"{address}/history/echo-connections?metric={METRICS}",
        (site / f"history/echo-connections.{METRICS}.html").as_uri(),
    ):
        page = opened(browser, at)
        assert page.locator(".history > tbody > tr").count() == 2
        assert page.locator(".history circle").count() == 2 * 7
        assert page.locator(".history .step").count() == 1
        text = page.locator(".history > tbody > tr", has_text="reference@1.0").inner_text()
        assert "from 2001-09-09 03:46 to 2001-09-09 04:46" in text
        assert "Steps in 1 of 2 lines: reference@1.0." in page.locator("main").inner_text()
        drawing = page.locator(".history svg").first.get_attribute("aria-label")
        assert "7 campaigns" in drawing
        page.context.close()


def test_a_history_of_another_metric_is_one_choice_away(browser, address, site):
    page = opened(browser, f"{address}/history/echo-connections")
    page.get_by_label("Metric").select_option(METRICS)
    page.get_by_role("button", name="Show").click()
    assert page.url.endswith(f"?metric={METRICS}")
    page.context.close()
    page = opened(browser, written(site, "history/echo-connections"))
    page.get_by_role("link", name=METRICS).click()
    assert page.url.endswith(f"history/echo-connections.{METRICS}.html")
    page.context.close()


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", ".", "..", "a/b"])
def test_an_experiment_that_is_called_like_a_path_is_no_campaign(tmp_path, name):
    run = make_run(tmp_path / "runs" / "one", SERVERS[:1], ({"connections": 64},), rounds=1)
    assert len(campaigns.find([tmp_path / "runs"])) == 1
    run.write_json("campaign.json", run.campaign.model_copy(update={"experiment": name}))
    assert campaigns.find([tmp_path / "runs"]) == []
