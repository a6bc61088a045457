"""The page of one load: what it says, that it keeps secrets, and that a real browser opens it without complaint."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from browsing import axe_complaints
from run_maker import HOSTILE, Trial, at_rate, write_trial

from wsbench.analysis import thresholds
from wsbench.engine import histogram
from wsbench.host import machine
from wsbench.metrics.findings import finding
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import of_load
from wsbench.records.frozen import write_json
from wsbench.report import load_page, loaded, still
from wsbench.sessions import compiling

WORDS = ["load", "ws://h/", "-H", "Authorization: Bearer SECRET", "--header=X-Key:SECRET", "-HX-Other: SECRET", "-c", "64"]
SESSION = """
about = "two steps behind a login"
source = "a test"
[rules]
welcome = { begins = "login", ignore = true }
short   = { begins = "short", reply = true }
long    = { begins = "long", reply = true }
[[setup]]
name  = "login"
send  = "login PASSWORD"
await = "welcome"
[[steps]]
name  = "short"
send  = "short"
await = "short"
[[steps]]
name  = "long"
send  = "long"
await = "long"
"""


def data_of(path, trial: Trial, **record) -> TrialData:
    folder = write_trial(path / "load", trial)
    return TrialData(folder, folder.record.model_copy(update={"server": "ws://127.0.0.1:8080/", **record}))


def page_of(trial: TrialData, hint: str | None = None, judged=()) -> str:
    return load_page.render(load_page.Load(trial, WORDS, machine.read(), hint, judged))


def session_data(path) -> TrialData:
    """A load of which the second step took half of the times."""
    (path / "s.toml").write_text(SESSION, encoding="utf-8")
    trial = data_of(path, at_rate())
    scenario = compiling.compiled(path / "s.toml", compiling.Choice(), 64)
    write_json(trial.folder.path / "plan.json", trial.plan.model_copy(update={"scenario": scenario}))
    log = trial.folder.latency_log
    lines = log.read_text(encoding="ascii")
    steps = [lines.replace("Tag=service", f"Tag=step_{place}").split("\n", 1)[1] for place in range(3)]
    log.write_text(
        lines + "".join(line + "\n" for text in steps for line in text.splitlines() if "step_" in line), encoding="ascii"
    )
    assert {one.tag for one in histogram.read_log(log)} >= {"step_0", "step_1", "step_2"}
    return TrialData(trial.folder, trial.record)


def words(html: str) -> str:
    """The text of a page, without style, script and data."""
    html = re.sub(r"<(style|script|svg)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", html).replace("\u00a0", " ").split())


@pytest.fixture(scope="module")
def open_loop(tmp_path_factory):
    return data_of(tmp_path_factory.mktemp("load"), at_rate(unanswered=7))


def test_it_says_what_was_measured_and_whether_that_is_valid(open_loop):
    said = words(page_of(open_loop, "add `--pid`", thresholds.judge(open_loop, [thresholds.parse("p99 > 1us")])))
    assert "ws://127.0.0.1:8080/" in said
    assert re.search(r"messages/s over 4\.00 s\. Half of the response times are at most .* 99 % at most", said)
    assert "Of 80,007 messages, 7 had no reply." in said
    assert "The instrument: VALID" in said
    assert "messages unanswered 7" in said
    assert "Hint add --pid" in said
    assert "breached in this run, response_us_p99" in said
    assert re.search(r"response 80,000 .* service 80,000 .* send_lag 80,000", said)
    assert "throughput: VALID" in said
    assert "messages_per_s" in said
    assert "Target and plan" in said


def test_the_figures_are_those_of_a_campaign_with_a_line_for_each_time(open_loop):
    html = page_of(open_loop)
    assert html.count('<figure class="chart lines" id="percentiles-') == 2
    assert 'id="time-0"' in html
    assert '<figure class="chart heat"' in html
    assert re.findall(r'class="key"[^>]*>.*?</svg>([a-z_]+)<', html) == ["response", "service", "send_lag"]
    assert "trial 0001" not in html


def test_headers_and_messages_of_a_session_are_not_told(tmp_path):
    trial = session_data(tmp_path)
    write_json(trial.folder.path / "plan.json", trial.plan.model_copy(update={"headers": [("X-Token", "SECRET")]}))
    html = page_of(TrialData(trial.folder, trial.record))
    command = "wsbench load ws://h/ -H 'Authorization: …' '--header=X-Key: …' '-HX-Other: …' -c 64"
    assert command in words(html).replace("&#39;", "'")
    assert "X-Token" in html
    assert "SECRET" not in html
    assert "PASSWORD" not in html


def test_a_session_has_its_times_by_step(tmp_path):
    html = page_of(session_data(tmp_path))
    steps = html.split('id="steps"')[1].split("</table>")[0]
    assert re.findall(r'<th scope="row">(\w+)<', steps) == ["login", "short", "long"]
    assert re.findall(r'class="key"[^>]*>.*?</svg>([a-z_]+)<', html)[-2:] == ["short", "long"], "the setup is no line"


def test_a_load_that_failed_and_hostile_text_are_a_page_as_well(tmp_path):
    failed = data_of(tmp_path, Trial(outcome="failed", reason=HOSTILE, log_tail=(HOSTILE,)), server=HOSTILE)
    html = page_of(failed)
    assert "The load failed: &lt;script&gt;" in html
    assert HOSTILE not in html

    class Scripts(HTMLParser):
        found = 0

        def handle_starttag(self, tag, attrs):
            self.found += tag == "script"

    outline = Scripts()
    outline.feed(html)
    assert outline.found == 2  # the data block, and the page's own


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_a_browser_opens_it_without_complaint(browser, tmp_path, scheme, width):
    file = tmp_path / "load.html"
    file.write_text(page_of(session_data(tmp_path)), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page, complaints, asked = context.new_page(), [], []
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator('[data-figures="percentiles"]').scroll_into_view_if_needed()
    page.wait_for_selector('[data-figures="percentiles"][data-state=live]')
    lines = page.locator("#percentiles-0 path.line")
    before = lines.count()
    page.locator("button.key").last.click()
    page.wait_for_function(f"document.querySelectorAll('#percentiles-0 path.line').length === {before - 1}")
    assert (complaints, asked) == ([], [file.as_uri()])
    assert axe_complaints(page) == []
    context.close()


# ---- a server that does not echo -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("errors", "answered", "failed", "unanswered", "seen"),
    [
        ({"reply_content": 1000}, 0, 1000, 0, True),
        ({"close_frame": 64}, 9, 991, 0, True),
        ({}, 0, 0, 64, True),
        ({"unexpected_reply": 64}, 0, 0, 0, True),
        ({"reset": 1000}, 0, 1000, 0, False),
        ({"unexpected_reply": 64}, 1000, 0, 0, False),
        ({"reply_content": 500}, 500, 500, 0, False),
    ],
)
def test_a_server_that_answers_nothing_correctly_does_not_seem_to_echo(tmp_path, errors, answered, failed, unanswered, seen):
    trial = data_of(tmp_path, at_rate())
    counts = {"sent": answered + failed + unanswered, "answered": answered, "failed": failed, "unanswered": unanswered}
    measured = trial.end.measured.model_copy(update=counts)
    trial.__dict__["end"] = trial.end.model_copy(update={"errors": errors, "measured": measured})
    trial.__dict__["ticks"] = [trial.ticks[-1].model_copy(update={"sent": counts["sent"], "answered": answered})]
    advice = loaded.no_echo(trial)
    assert (advice is not None) == seen
    assert advice is None or ("--session (`wsbench list sessions`)" in advice and "\n" not in advice)


def test_the_answer_has_no_number_that_cannot_be_used(open_loop):
    found = of_load(open_loop)
    assert re.match(r"[\d,]+ messages/s over .* s, p50 \S+ .s, p99 \S+ .s, 7 lost; .*\.$", loaded.answer(open_loop, found))
    spoiled = replace(found, findings=(*found.findings, finding("host", "others", "a browser ran", "", tail="INVALID")))
    assert re.search(r", p50 \S+ .s, p99 cannot be used, 7 lost; ", loaded.answer(open_loop, spoiled))


def test_without_what_draws_beforehand_the_page_has_room_for_its_script(open_loop, monkeypatch):
    monkeypatch.setattr(still, "can_draw", lambda: False)
    page = page_of(open_loop)
    assert '<div id="undrawn" hidden></div>' in page
    assert "<div data-legend></div>" in page
    assert re.search(r'data-figures="percentiles"><p class="note">Drawn by the script', page)
    assert re.search(r'data-figures="time"><p class="note">Drawn by the script', page)
