"""The report in a real browser: nothing is fetched, nothing complains, drawings are complete, filters, keys and downloads work."""

import json
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from browsing import Visit
from run_maker import HOSTILE, SERVERS, make_run

from wsbench.report import document

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("html")]
LIVE = "[data-figures][data-state=live]"


@pytest.fixture(scope="module")
def bars(tmp_path_factory):
    """One cell: bars instead of lines."""
    made = make_run(tmp_path_factory.mktemp("runs") / "bars", SERVERS, ({"connections": 64},), rounds=3)
    document.build(made)
    return made


# ---- drawings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_draws_without_complaint_and_asks_nobody_for_anything(browser, run, tmp_path, scheme):
    with Visit(browser, run, color_scheme=scheme) as visit:
        visit.draw_everything()
        assert visit.count(LIVE) == visit.count("[data-figures]") >= 6
        assert visit.complaints == []
        assert visit.requests == [(run.path / document.FILE).resolve().as_uri()]
        shot = visit.page.screenshot(path=tmp_path / f"{scheme}.png")
        assert len(shot) > 10_000


def test_the_switch_goes_against_the_system_and_back(browser, run):
    colour = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('.drawing svg text')).fill"
    with Visit(browser, run, color_scheme="light") as visit:
        seen = [visit.page.evaluate(f"[{colour}, {ink}]")]
        for name in ("dark", "light", "auto"):
            visit.page.locator(f"#scheme button[value={name}]").click()
            seen.append(visit.page.evaluate(f"[{colour}, {ink}]"))
        assert seen[0] == seen[2] == seen[3]
        assert all(one != other for one, other in zip(seen[0], seen[1], strict=True))


def test_every_trial_with_a_number_is_a_mark_and_an_invalid_one_is_hollow(browser, run):
    table = pq.read_table(run.path / "trials.parquet").to_pylist()
    ran = [row for row in table if row["metric"] == "messages_per_s" and row["outcome"] == "ok"]
    assert len(ran) == 34 - 1
    counted = [row for row in ran if row["server"] != "reference"]  # its means are a mark
    for options in ({"java_script_enabled": False}, {}):
        with Visit(browser, run, **options) as visit:
            if not options:
                visit.draw_everything()
            assert visit.count("#throughput-0 .dots use") == len(counted)
            hollow = [row["trial"] for row in counted if row["trial"] == 9]
            assert visit.count("#throughput-0 .dots use.hollow") == len(hollow)
            assert visit.count("#throughput-0 path.line") == len(SERVERS) - 1
            assert visit.count("#throughput-0 path.mark") == len(SERVERS) - 1
            assert visit.count("#percentiles-0 path.line") == len(SERVERS)
            assert visit.count("#percentiles-0 .drawing svg text") > 8


def test_the_still_drawing_and_the_live_one_are_the_same(browser, bars):
    drawings = []
    for options in ({"java_script_enabled": False}, {}):
        with Visit(browser, bars, **options) as visit:
            figure = visit.page.locator("#distance-0")
            if not options:
                visit.draw_everything()
            drawings.append((figure.locator("svg text").all_text_contents(), figure.locator("rect.bar").count()))
    assert drawings[0] == drawings[1]
    assert drawings[0][1] == len(SERVERS) - 1


def test_one_cell_is_bars_sorted_by_throughput(browser, bars):
    with Visit(browser, bars) as visit:
        visit.draw_everything()
        assert visit.complaints == []
        names = visit.page.locator("#throughput-0 svg text.name").all_text_contents()
        assert names == ["netty", "ws", SERVERS[3].name]
        assert visit.count("#throughput-0 rect.bar") == len(SERVERS) - 1
        assert visit.count("#throughput-0 path.mark") == 1
        assert visit.count("#throughput-0 .dots use") == 9


def test_over_time_there_are_lanes_and_a_heat_map_a_server_on_one_axis(browser, bars):
    with Visit(browser, bars) as visit:
        visit.draw_everything()
        titles = visit.page.locator("#time ~ .grid .lane text.title").all_text_contents()
        for text in ("Open connections", "Replies per second", "p99 (ms)", "Server CPU", "Server memory"):
            assert any(title.startswith(text) for title in titles), text
        assert visit.count("#time ~ .grid figure.heat") == len(SERVERS)
        assert visit.count("#time ~ .grid figure.heat path.heat") > len(SERVERS)
        drawing = visit.page.locator("#time-1 .drawing")
        drawing.focus()
        drawing.press("ArrowRight")
        lanes = visit.count("#time ~ .grid figure.lane")
        assert visit.count("#time ~ .grid path.cursor") == lanes + len(SERVERS)


@pytest.mark.parametrize("connections", [(16, 64), (1, 7, 1500), (100, 110, 125)])
def test_an_axis_is_labelled_with_the_values_that_were_swept(browser, tmp_path, connections):
    cells = [{"connections": number} for number in connections]
    run = make_run(tmp_path / "r", SERVERS[:1], cells, rounds=1)
    document.build(run)
    with Visit(browser, run) as visit:
        labels = visit.page.locator("#throughput-0 svg text[text-anchor=middle]:not(.title)").all_text_contents()
        assert labels == [f"{number:,}" for number in connections]


# ---- filters and the address ---------------------------------------------------------------------------------------


def test_a_filter_acts_on_all_charts_and_tables_and_stands_in_the_address(browser, run):
    with Visit(browser, run) as visit:
        visit.page.locator("#filters select[name=language]").select_option("Java")
        visit.draw_everything()
        assert visit.page.evaluate("location.hash") == "#language=Java"
        for figure in ("#throughput-0", "#percentiles-0", "#time-1"):
            assert visit.count(f"{figure} path.line") == 1, figure
        assert visit.count("#result-tables tbody tr") == 3
        assert visit.page.locator("#trial-table tbody td.n:nth-of-type(2)").all_text_contents() == ["netty"] * 8
        assert "1 of 4 servers" in visit.page.locator("#filtered").inner_text()
        visit.page.locator("#filters button[type=reset]").click()
        visit.draw_everything()
        assert visit.count("#throughput-0 path.line") == len(SERVERS) - 1
        assert visit.page.evaluate("location.hash") == ""
        assert visit.complaints == []


def test_a_deep_link_restores_what_was_chosen(browser, run):
    with Visit(browser, run, "#servers=netty@4.2,ws@8.18&cell.connections=64&sort=messages_per_s:-1") as visit:
        visit.draw_everything()
        assert visit.count("#result-tables tbody tr") == 2
        assert visit.count("#percentiles-0 path.line") == 2
        assert visit.count("#percentiles-2") == 0
        rates = visit.page.locator("#trial-table tbody td:nth-of-type(4) data").all()
        values = [float(rate.get_attribute("value")) for rate in rates]
        assert values == sorted(values, reverse=True)
        assert visit.count("#filters input[name=server]:checked") == 2
        assert visit.page.locator("#filters select[name='cell.connections']").input_value() == "64"


def test_a_link_with_nonsense_shows_everything(browser, run):
    hostile = "#servers=nobody&cell.connections=7&sort=a:9&zoom=x&trial=77777&text=" + quote("<b>")
    with Visit(browser, run, hostile) as visit:
        assert visit.complaints == []
        assert visit.count("b") == 0


def test_servers_are_hidden_and_shown_by_their_key(browser, run):
    with Visit(browser, run) as visit:
        key = visit.page.locator("#throughput ~ ul.legend button.key").nth(1)
        name = key.inner_text()
        key.click()
        visit.draw_everything()
        assert key.get_attribute("aria-pressed") == "false"
        assert visit.count("#throughput-0 path.line") == len(SERVERS) - 2
        key.click()
        visit.draw_everything()
        assert visit.count("#throughput-0 path.line") == len(SERVERS) - 1
        assert name


def test_a_name_with_quotes_and_tags_is_filtered_by_and_survives_the_address(browser, run):
    with Visit(browser, run) as visit:
        visit.page.locator("details.servers > summary").click()
        for box in visit.page.locator("#filters input[name=server]").all()[:]:
            if box.get_attribute("value") != f"{SERVERS[3].name}@1.0":
                visit.page.locator(f"#filters input[value='{box.get_attribute('value')}']").uncheck()
        address = visit.page.evaluate("location.hash")
        assert visit.count("#result-tables tbody tr") == 3
    with Visit(browser, run, address) as visit:
        names = visit.page.locator("#result-tables tbody th").all_text_contents()
        assert all(name.startswith(SERVERS[3].name) for name in names)


# ---- values, keys, one trial ---------------------------------------------------------------------------------------


def test_values_are_read_with_pointer_and_keys(browser, bars):
    with Visit(browser, bars) as visit:
        visit.draw_everything()
        visit.page.locator("#throughput-0 rect.bar").nth(0).hover()
        assert "netty" in visit.page.locator("#tip").inner_text()
        assert "95 % interval" in visit.page.locator("#tip").inner_text()
        drawing = visit.page.locator("#percentiles-0 .drawing")
        drawing.focus()
        drawing.press("End")
        assert "reference" in visit.page.locator("#spoken").inner_text()
        first = visit.page.locator("#spoken").inner_text()
        drawing.press("ArrowLeft")
        assert visit.page.locator("#spoken").inner_text() != first
        drawing.press("Escape")
        assert visit.page.locator("#tip").is_hidden()


def test_time_is_zoomed_by_dragging_and_by_keys_and_stands_in_the_address(browser, bars):
    with Visit(browser, bars) as visit:
        visit.draw_everything()
        visit.page.locator("#time-1").scroll_into_view_if_needed()
        box = visit.page.locator("#time-1 .drawing svg").bounding_box()
        visit.page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 40)
        visit.page.mouse.down()
        visit.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 40, steps=3)
        visit.page.mouse.up()
        assert visit.page.evaluate("location.hash").startswith("#zoom=")
        visit.page.locator("#whole").click()
        assert visit.page.evaluate("location.hash") == ""
        visit.draw_everything()
        visit.page.locator("#time-1 .drawing").focus()
        visit.page.keyboard.press("+")
        assert visit.page.evaluate("location.hash").startswith("#zoom=")


def test_a_trial_is_one_click_away_with_its_plan_command_and_log(browser, run):
    with Visit(browser, run) as visit:
        visit.draw_everything()
        visit.page.locator("#trial-table a", has_text="0005").click()
        dialog = visit.page.locator("dialog#trial[open]")
        assert "Trial 0005" in dialog.locator("h2").inner_text()
        assert HOSTILE in dialog.inner_text()
        assert visit.page.evaluate("location.hash") == "#trial=5"
        visit.page.keyboard.press("Escape")
        assert visit.page.evaluate("location.hash") == ""
        visit.page.locator("#throughput-0 .dots use[data-trial='4']").dispatch_event("click")
        assert "Trial 0004" in dialog.locator("h2").inner_text()
        text = dialog.inner_text()
        assert "VALID" in text
        assert '"scenario"' in text
        assert "wsbench-engine 0004/plan.json OUT" in text
        assert visit.count("dialog figure.heat") == 1
        assert visit.complaints == []


def test_a_trial_is_reached_and_left_by_keys_alone(browser, run):
    with Visit(browser, run, "#trial=9") as visit:
        assert visit.page.locator("dialog#trial[open]").is_visible()
        assert visit.page.evaluate("document.activeElement.closest('dialog') !== null")
        visit.page.keyboard.press("Escape")
        assert visit.count("dialog#trial[open]") == 0
        visit.page.keyboard.press("Tab")
        visit.page.locator("#trial-table a").first.focus()
        visit.page.keyboard.press("Enter")
        assert visit.page.locator("dialog#trial[open]").is_visible()


def test_the_first_tab_leads_to_the_skip_link(browser, run):
    with Visit(browser, run) as visit:
        visit.page.keyboard.press("Tab")
        assert visit.page.evaluate("document.activeElement.className") == "skip"
        visit.page.keyboard.press("Enter")
        assert visit.page.evaluate("document.activeElement.id") == "results"


def test_the_table_of_trials_has_the_values_of_the_parquet_file(browser, run):
    rows = pq.read_table(run.path / "trials.parquet").to_pylist()
    expected = {(row["trial"], row["metric"]): row["value"] for row in rows}
    with Visit(browser, run) as visit:
        shown = visit.page.evaluate(
            "[...document.querySelectorAll('#trial-table thead th')].flatMap((head, column) => {"
            " const metric = head.querySelector('button')?.dataset.sort;"
            " return metric?.includes('_') || metric === 'errors'"
            " ? [...document.querySelectorAll('#trial-table tbody tr')].map(row => [+row.cells[0].textContent,"
            "   metric, row.cells[column].querySelector('data')?.value ?? null]) : [] })"
        )
    assert len(shown) == 34 * 7
    for trial, metric, value in shown:
        assert (value is None) == (expected[trial, metric] is None)
        assert value is None or float(value) == pytest.approx(expected[trial, metric], rel=1e-5)


# ---- downloads -----------------------------------------------------------------------------------------------------


def test_what_is_downloaded_is_what_is_shown(browser, run):
    found = {}
    with Visit(browser, run, "#language=Java", accept_downloads=True) as visit:
        for name in ("summary.csv", "trials.csv", "report.json", "pooled.hlog"):
            with visit.page.expect_download() as download:
                visit.page.locator(f"button[data-file='{name}']").click()
            found[name] = Path(download.value.path()).read_text(encoding="utf-8")
    assert len(found["summary.csv"].strip().splitlines()) == 1 + 3
    assert len(found["trials.csv"].strip().splitlines()) == 1 + 8
    assert len(json.loads(found["report.json"])["trials"]["number"]) == 34
    lines = [line for line in found["pooled.hlog"].splitlines() if line.startswith("Tag=")]
    assert [line.split(",")[0] for line in lines] == [f"Tag=netty@4.2;connections={n}" for n in (16, 64, 256)]


# ---- tables --------------------------------------------------------------------------------------------------------


def column(visit, place):
    return visit.page.eval_on_selector_all(
        "#result-tables table:first-of-type tbody",
        "(all, at) => [...all[0].rows].map(row => row.cells[at].innerText.split('\\n')[0])",
        place,
    )


def test_a_table_sorts_by_every_column_with_click_and_keyboard(browser, bars):
    with Visit(browser, bars) as visit:
        heads = visit.page.locator("#result-tables thead th")
        assert heads.count() == visit.count("#result-tables thead th button") >= 6
        assert column(visit, 0)[0].startswith("reference")
        heads.nth(1).locator("button").click()
        assert heads.nth(1).get_attribute("aria-sort") == "ascending"
        values = [float(text.replace(",", "")) for text in column(visit, 1)]
        assert values == sorted(values)
        assert len(set(values)) == len(SERVERS)
        visit.page.keyboard.press("Enter")
        assert heads.nth(1).get_attribute("aria-sort") == "descending"
        assert [float(text.replace(",", "")) for text in column(visit, 1)] == values[::-1]
        heads.nth(0).locator("button").press("Space")
        assert visit.count("#result-tables th[aria-sort]") == 1
        assert column(visit, 0) == sorted(column(visit, 0))
        assert visit.complaints == []


def test_heads_stick_below_the_filters_and_links_land_below_them(browser, run):
    with Visit(browser, run) as visit:
        visit.page.locator("nav a[href='#trials']").click()
        below = visit.page.evaluate("document.querySelector('#filters').getBoundingClientRect().bottom")
        assert visit.page.locator("#trials").bounding_box()["y"] >= below > 0
        visit.page.evaluate("document.querySelector('#trial-table tbody tr:nth-child(20)').scrollIntoView()")
        head = visit.page.locator("#trial-table thead th").first.bounding_box()
        assert head["y"] == pytest.approx(below, abs=2)


def test_tables_of_results_fit_the_usual_width_and_the_first_column_stays_on_a_phone(browser, run):
    with Visit(browser, run) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 1280
        visit.page.add_style_tag(content="#result-tables td { padding: 0 60px; }")
        visit.page.wait_for_selector("#result-tables .scroll.wide")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 1280, "a wider one scrolls by itself"
    with Visit(browser, run, viewport={"width": 390, "height": 800}) as visit:
        visit.page.eval_on_selector("#result-tables .scroll", "area => { area.scrollLeft = 200; }")
        box = visit.page.locator("#result-tables tbody th").first.bounding_box()
        assert 0 <= box["x"] < 20
        assert box["width"] <= 130
