"""The report in a real browser: nothing is fetched, nothing complains, drawings are complete, and it reads without scripts.

Needs Chromium (`apt-get install chromium`); where it is absent these tests fail, because a report that nobody opened is not
tested.
"""

import json
import re
import shutil
from itertools import pairwise

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import sync_playwright
from run_maker import HOSTILE, SERVERS, make_run
from test_report import spoil_some

from wsbench import report

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.fail("the report's browser tests need Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = make_run(tmp_path_factory.mktemp("runs") / "spoiled", SERVERS, change=spoil_some, unfinished=2)
    report.build(made)
    return made


class Visit:
    """A page that was opened and scrolled through, with everything it said and asked for."""

    def __init__(self, browser, run, **options):
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto((run.path / report.FILE).resolve().as_uri())

    def draw_everything(self):
        """Opens every section and waits until every chart has been made live, or has failed to be."""
        self.page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
        for figure in self.page.locator("figure.chart").all():
            figure.scroll_into_view_if_needed()
            self.page.wait_for_function(
                "figure => ['live', 'still'].includes(figure.dataset.state)", arg=figure.element_handle()
            )
        return self

    def states(self):
        return self.page.eval_on_selector_all("figure.chart", "all => all.map(figure => figure.dataset.state)")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_draws_without_complaint_and_asks_nobody_for_anything(browser, run, tmp_path, scheme):
    with Visit(browser, run, color_scheme=scheme) as visit:
        visit.draw_everything()
        assert set(visit.states()) == {"live"}
        assert visit.complaints == []
        assert visit.requests == [(run.path / report.FILE).resolve().as_uri()]
        visit.page.evaluate("scrollTo(0, 0)")
        shot = visit.page.screenshot(path=tmp_path / f"{scheme}.png")
        assert len(shot) > 10_000


def test_light_and_dark_differ_in_page_and_in_ink(browser, run):
    seen = []
    for scheme in ("light", "dark"):
        with Visit(browser, run, color_scheme=scheme) as visit:
            visit.draw_everything()
            seen.append(
                visit.page.evaluate(
                    "[getComputedStyle(document.body).backgroundColor,"
                    " getComputedStyle(document.querySelector('figure.chart .live svg text')).fill]"
                )
            )
    (light_page, light_ink), (dark_page, dark_ink) = seen
    assert light_page != dark_page
    assert light_ink != dark_ink


def test_every_trial_with_a_number_is_a_point_and_an_invalid_one_is_hollow_and_named(browser, run):
    table = pq.read_table(run.path / "trials.parquet").to_pylist()
    rates = [row for row in table if row["metric"] == "messages_per_s"]
    counted = [row for row in rates if row["outcome"] == "ok"]
    assert len(counted) == 34 - 1
    points = "#throughput-0 {} .mark-symbol:not(.role-legend-symbol) > *"
    hollow = '[fill-opacity="0"]'
    with Visit(browser, run) as visit:
        assert visit.page.locator(points.format(".drawing svg")).count() == len(counted)
        assert visit.page.locator("#throughput-0 .drawing svg .role-mark.mark-text text").all_text_contents() == [
            "INVALID 0009"
        ]
        assert visit.page.locator("#throughput-0 .drawing svg .mark-line path").count() == len(SERVERS)
        visit.draw_everything()
        assert visit.page.locator(points.format(".live svg")).count() == len(counted)
        assert visit.page.locator(points.format(".live svg") + hollow).count() == 1
        assert visit.page.locator("#throughput-0 .live svg .mark-line path").count() == len(SERVERS)


def test_the_table_of_trials_has_the_values_of_the_parquet_file(browser, run):
    rows = pq.read_table(run.path / "trials.parquet").to_pylist()
    expected = {(row["trial"], row["metric"]): row["value"] for row in rows}
    with Visit(browser, run) as visit:
        shown = visit.page.evaluate(
            "[...document.querySelectorAll('#trial-table thead th')].flatMap((head, column) => head.dataset.metric"
            " ? [...document.querySelectorAll('#trial-table tbody tr')].map(row => [+row.cells[0].textContent,"
            "   head.dataset.metric, row.cells[column].querySelector('data')?.value ?? null]) : [])"
        )
    assert len(shown) == 34 * 7
    for trial, metric, value in shown:
        assert (value is None) == (expected[trial, metric] is None)
        assert value is None or float(value) == pytest.approx(expected[trial, metric], rel=1e-5)


def test_hostile_text_is_shown_and_not_run(browser, run):
    with Visit(browser, run) as visit:
        assert "owned" not in visit.page.title()
        assert HOSTILE in visit.page.locator("pre").first.inner_text()
        assert SERVERS[3].name in visit.page.locator("#trial-table").inner_text()
        assert visit.page.locator("b").count() == 0


def test_without_scripts_the_drawings_and_the_answer_are_there(browser, run):
    with Visit(browser, run, java_script_enabled=False) as visit:
        assert visit.page.locator("#percentiles-0 .drawing svg").is_visible()
        assert visit.page.locator("#throughput-0 .drawing svg").bounding_box()["width"] > 300
        assert "netty had the highest throughput" in visit.page.locator("#answer").inner_text()


def test_a_phone_is_never_scrolled_sideways(browser, run):
    with Visit(browser, run, viewport={"width": 375, "height": 740}) as visit:
        visit.draw_everything()
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 375
        assert visit.complaints == []
        legend = visit.page.locator("#throughput-0 .live svg .role-legend-label text")
        assert legend.count() == len(SERVERS)
        figure = visit.page.locator("#throughput-0").bounding_box()
        ends = [text.bounding_box()["x"] + text.bounding_box()["width"] for text in legend.all()]
        assert max(ends) <= figure["x"] + figure["width"]


def test_a_server_chosen_in_the_legend_stands_out(browser, run):
    opacities = "all => all.map(path => path.getAttribute('opacity'))"
    with Visit(browser, run) as visit:
        visit.draw_everything()
        lines = "#throughput-0 .live svg .mark-line path"
        assert len(set(visit.page.eval_on_selector_all(lines, opacities))) == 1
        visit.page.locator("#throughput-0 .live svg .role-legend-label text").first.click()
        visit.page.wait_for_timeout(200)
        assert len(set(visit.page.eval_on_selector_all(lines, opacities))) == 2


def test_the_printed_page_has_every_section_open(browser, run):
    with Visit(browser, run) as visit:
        visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert visit.page.locator("details:not([open])").count() == 0
        assert visit.page.pdf().startswith(b"%PDF")


def test_headings_are_in_order_and_tables_have_heads(browser, run):
    with Visit(browser, run) as visit:
        levels = visit.page.eval_on_selector_all("h1, h2, h3, h4", "all => all.map(heading => +heading.tagName[1])")
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        assert visit.page.locator("table:not(:has(thead th[scope=col]))").count() == 0
        assert visit.page.locator(".drawing svg:not([aria-label])").count() == 0


def test_one_cell_is_bars_sorted_by_throughput(browser, tmp_path):
    run = make_run(tmp_path / "r", SERVERS, ({"connections": 64},), rounds=3)
    report.build(run)
    with Visit(browser, run) as visit:
        visit.draw_everything()
        assert visit.complaints == []
        labels = visit.page.locator("#throughput-0 .live svg .role-axis-label text").all_text_contents()
        servers = [label for label in labels if not re.fullmatch(r"[\d,]+", label)]
        assert servers == ["reference", "netty", "ws", SERVERS[3].name]
        assert visit.page.locator("#throughput-0 .live svg .mark-rect.role-mark path").count() >= len(SERVERS)
        spec = json.loads(visit.page.locator("#throughput-0 script").text_content())
        assert len(spec["datasets"]["points"]["rows"]) == 12


@pytest.mark.parametrize("connections", [(16, 64), (1, 7, 1500), (100, 110, 125)])
def test_an_axis_is_labelled_with_the_values_that_were_swept(browser, tmp_path, connections):
    cells = [{"connections": number} for number in connections]
    run = make_run(tmp_path / "r", SERVERS[:1], cells, rounds=1)
    report.build(run)
    axis = '.role-axis[aria-label*="connections"] .role-axis-label text'
    with Visit(browser, run) as visit:
        expected = [f"{number:,}" for number in connections]
        assert visit.page.locator(f"#throughput-0 .drawing {axis}").all_text_contents() == expected
        visit.draw_everything()
        assert visit.page.locator(f"#throughput-0 .live {axis}").all_text_contents() == expected
