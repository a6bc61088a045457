"""The report for everybody: axe-core, no scripts, a phone, a printer, hostile text, headings in order."""

from itertools import pairwise

import pytest
from browsing import Visit, axe_complaints
from run_maker import HOSTILE, SERVERS

pytestmark = pytest.mark.usefixtures("html")
LIVE = "[data-figures][data-state=live]"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("address", ["", "#trial=9"])
def test_axe_finds_nothing_to_complain_about(browser, run, scheme, address):
    with Visit(browser, run, address, color_scheme=scheme, bypass_csp=True) as visit:
        visit.draw_everything()
        assert axe_complaints(visit.page) == []


def test_hostile_text_is_shown_and_not_run(browser, run):
    with Visit(browser, run) as visit:
        visit.draw_everything()
        assert "owned" not in visit.page.title()
        assert HOSTILE in visit.page.locator("main pre").first.inner_text()
        assert SERVERS[3].name in visit.page.locator("#trial-table").inner_text()
        assert visit.count("b") == 0


def test_without_scripts_the_drawings_and_the_answer_are_there(browser, run):
    with Visit(browser, run, java_script_enabled=False) as visit:
        assert visit.page.locator("#percentiles-0 .drawing svg").is_visible()
        assert visit.page.locator("#throughput-0 .drawing svg").bounding_box()["width"] > 300
        assert visit.page.locator("#filters").is_hidden()
        assert "netty clearly in 2 of 3 cells" in visit.page.locator("#answer").inner_text()
        assert visit.count("#trial-table tbody tr") == 34


def test_a_phone_is_never_scrolled_sideways(browser, run):
    with Visit(browser, run, viewport={"width": 375, "height": 740}) as visit:
        visit.draw_everything()
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 375
        assert visit.complaints == []
        figure = visit.page.locator("#throughput-0").bounding_box()
        texts = visit.page.locator("#throughput-0 svg text").all()
        assert max(text.bounding_box()["x"] + text.bounding_box()["width"] for text in texts) <= 375
        assert figure["x"] >= 0


def test_the_printed_page_has_every_section_open(browser, run):
    with Visit(browser, run) as visit:
        visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert visit.count("details:not([open])") == 0
        assert visit.count(LIVE) == visit.count("[data-figures]")
        assert visit.page.pdf().startswith(b"%PDF")


def test_headings_are_in_order_and_tables_have_heads(browser, run):
    with Visit(browser, run) as visit:
        levels = visit.page.eval_on_selector_all(
            "main h1, main h2, main h3, main h4, h1", "all => all.map(heading => +heading.tagName[1])"
        )
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        assert visit.count("main table:not(:has(thead th[scope=col]))") == 0
        assert visit.count(".drawing svg:not([aria-label])") == 0
