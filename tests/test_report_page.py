"""The page's text: what comes from elsewhere stays text, it refers to nothing outside, it says how it was made, it stays small."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser

import pytest
from kinds import draws
from run_maker import HOSTILE, SERVERS, Server, make_run

from wsbench.analysis.reading import load
from wsbench.records.errors import UserError
from wsbench.report import document, frame, page, palette
from wsbench.report.blocks import Block, ClaimRow, Table

ONE_CELL = ({"connections": 64},)
NO_SWEEP = 'question = "Who is fastest?"\n'


def block_of(html: str) -> dict:
    """The data block of a page."""
    return json.loads(gzip.decompress(base64.b64decode(re.search(r'id="data">([^<]*)<', html)[1])))


def test_a_block_of_a_study_stands_in_the_page_escaped(results):
    block = Block("study", "What <b>they</b> said", "In `code` & words", Table(["claim", "verdict"], [["<i>", "holds"]]))
    html = page.render(results, [block])
    assert '<h2 id="study">What &lt;b&gt;they&lt;/b&gt; said</h2>' in html
    assert "<code>code</code> &amp; words" in html
    assert '<th scope="row">&lt;i&gt;</th><td>holds</td>' in html


def test_claims_stand_beside_the_answer_with_a_verdict_for_each_set_of_versions(results):
    verdicts = {"published": ("holds", ""), "today": ("undecided", "fewer <rounds>")}
    figures = [("netty / go", "1.5×", {"published": "1.4×", "today": "1.2×"})]
    html = page.render(results, claims=[ClaimRow("c-1", "netty is <b>ahead</b>", "Figure 3", "", verdicts, figures)])
    row = html.split('id="claim-c-1"')[1].split("</tr>")[0]
    for text in (
        "netty is &lt;b&gt;ahead&lt;/b&gt;",
        ">holds<",
        ">undecided<",
        "fewer &lt;rounds&gt;",
        "netty / go: published 1.5×; measured 1.4× (versions published), 1.2× (versions today)<",
    ):
        assert text in row
    first_screen = html.split('class="answer"')[1].split("</section>")[0]
    assert "versions published: 1 holds; versions today: 1 undecided" in first_screen
    of_claim = first_screen.split('href="#claim-c-1"')[1].split("</tr>")[0]
    assert [of_claim.count(text) for text in (">holds<", ">undecided<", "fewer")] == [1, 1, 0]


class Outline(HTMLParser):
    """Collects the elements of a page."""

    def __init__(self):
        super().__init__()
        self.elements = []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))


def test_hostile_text_is_text_and_adds_no_element(html):
    assert HOSTILE not in html
    assert "&lt;script&gt;document.title=" in html
    outline = Outline()
    outline.feed(html)
    kinds = [attributes.get("type") for tag, attributes in outline.elements if tag == "script"]
    assert len([kind for kind in kinds if kind is None]) == 1
    assert not [tag for tag, _ in outline.elements if tag == "b"]


def test_hostile_keys_commands_and_questions_are_text_as_well(tmp_path):
    hostile = '"><img src=x onerror=alert(1)></script>'
    run = make_run(
        tmp_path / "r",
        (Server(hostile, language=hostile, departures=(hostile,)),),
        ({"key": hostile}, {"key": "b"}),
        rounds=1,
        experiment=f"question = '{hostile}'\nreading = '{hostile}'\n",
    )
    text = document.build(run).read_text(encoding="utf-8")
    outline = Outline()
    outline.feed(text)
    assert not [tag for tag, _ in outline.elements if tag == "img"]
    assert not [name for _, attributes in outline.elements for name in attributes if name.startswith("on")]


def test_the_page_refers_to_nothing_outside_of_itself(html):
    outline = Outline()
    outline.feed(html)
    assert not [a for tag, a in outline.elements if tag in ("link", "iframe", "object", "base", "img")]
    assert not [a["src"] for _, a in outline.elements if "src" in a]
    policy = next(a["content"] for tag, a in outline.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_the_page_says_how_it_was_made(html):
    for text in ("wsbench run echo-connections --seed 7", "Fictional CPU", "net.core.somaxconn", "java not found"):
        assert text in html
    assert "needs java ≥ 17, found none" in html
    assert "advisory, failed:" in html


def test_a_kernel_setting_that_changed_while_the_campaign_ran_is_named(tmp_path, html):
    assert "not read again after the last trial" in html
    run = make_run(tmp_path / "r", SERVERS[:1], ONE_CELL, rounds=1)
    record = json.loads((run.path / "machine.json").read_text())
    (run.path / "machine-after.json").write_text(json.dumps(record))
    assert "none in the above or in kernel settings after the last trial" in document.build(run).read_text(encoding="utf-8")
    record["sysctls"]["net.core.somaxconn"] = "128"
    run.write({"machine-after.json": json.dumps(record).encode()})
    assert "net.core.somaxconn: 4096 → 128" in document.build(run).read_text(encoding="utf-8")


def test_what_ran_otherwise_than_its_file_says_is_named_at_the_top(tmp_path, html):
    departures = ("2 rounds instead of the experiment's 5",)
    run = make_run(tmp_path / "r", SERVERS[:1], ONE_CELL, rounds=2, departures=departures)
    page_text = document.build(run).read_text(encoding="utf-8")
    header = page_text.split("<main>")[0]
    assert "2 rounds</li>" in header
    assert "Overrides of the experiment: 2 rounds instead of the experiment&#39;s 5." in header
    assert "Overrides of the experiment" not in html
    assert "none: run as its file specifies" in html


def test_every_chart_has_its_numbers_as_a_table(html):
    figures = html.split("</main>")[0].split('<figure class="chart')[1:]
    assert len(figures) >= 8
    assert all("<table " in figure.split("</figure>")[0] for figure in figures)
    assert all("<svg " in figure.split("</figure>")[0] for figure in figures)


def test_drawings_share_no_identifier(html):
    names = re.findall(r'\bid="([^"]+)"', html.split("<script>")[0])
    assert len(names) == len(set(names))


@pytest.mark.nightly
def test_a_campaign_of_a_thousand_trials_is_a_page_that_opens(tmp_path):
    languages = ("Java", "Rust", "Go", "C", "JavaScript", "Python", "C++", "Elixir", "PHP")
    crowd = tuple(Server(f"server-{place}", languages[place % 9], 900 * (place + 1)) for place in range(40))
    cells = tuple({"connections": connections} for connections in (10, 40, 160, 640, 2560))
    rounds = draws(5, least=1)
    run = make_run(tmp_path / "r", crowd, cells, rounds=rounds)
    assert len(run.order) == 200 * rounds
    html = document.build(run).read_text(encoding="utf-8")
    assert len(html.encode()) < page.LARGEST_BYTES
    assert len(block_of(html)["trials"]["number"]) == 200 * rounds
    assert html.split("</main>")[0].count('<a href="#trial=') == 100


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def schemes() -> list[dict[str, str]]:
    """The colours of the page's style, light and dark."""
    style = (frame.HERE / "page.css").read_text(encoding="utf-8")
    return [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})\b", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)[:2]]


def test_marks_are_told_from_the_card_and_texts_are_read_in_both_schemes():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for scheme in schemes():
        for colour in (colour for shades in palette.HUES for colour in shades):
            assert contrast(colour, scheme["card"]) >= 3, colour
        for text in ("ink", "soft", "accent", "valid", "suspect", "invalid"):
            assert min(contrast(scheme[text], scheme[ground]) for ground in ("page", "card")) >= 4.5, text


@pytest.mark.parametrize(
    "families",
    [["Java"] * 40, ["a", "b"] * 20, [f"language {place % 11}" for place in range(40)], list("abcdefghij") * 4],
)
def test_forty_servers_look_different_and_a_language_keeps_its_hue(families):
    found = palette.looks(families)
    assert len(set(found)) == 40
    hues = {}
    for family, look in zip(families, found, strict=True):
        hues.setdefault(family, set()).add(next(place for place, shades in enumerate(palette.HUES) if look.colour in shades))
    assert all(len(used) == 1 for used in hues.values())


def test_variants_of_a_server_share_a_hue_where_there_are_hues_for_all_servers():
    servers, languages = ["netty", "netty", "jetty", "jetty", "vertx"], ["Java"] * 5
    assert palette.families(servers, languages) == servers
    crowd = [f"server-{place}" for place in range(9)]
    assert palette.families(crowd, ["Java"] * 9) == ["Java"] * 9


def test_eight_servers_of_a_language_have_eight_shapes():
    assert len({look.shape for look in palette.looks(["Java"] * 8)}) == 8


def test_the_same_run_makes_the_same_page(run, html):
    assert document.build(run).read_text(encoding="utf-8") == html


def test_a_broken_experiment_file_is_one_plain_line(tmp_path):
    run = make_run(tmp_path / "r", SERVERS[:1], ONE_CELL, rounds=1, experiment="question = [")
    with pytest.raises(UserError, match=r"experiment\.toml"):
        load(run)


def test_an_unknown_headline_is_an_error_and_not_another_metric(tmp_path):
    run = make_run(tmp_path / "r", SERVERS[:1], ONE_CELL, rounds=1, experiment='headline = "speed"\n')
    with pytest.raises(UserError, match="headline"):
        load(run)


def test_a_report_needs_neither_machine_nor_servers_file(tmp_path):
    run = make_run(tmp_path / "r", SERVERS[:1], ONE_CELL, rounds=1, experiment=NO_SWEEP)
    (run.path / "machine.json").unlink()
    (run.path / "servers.json").unlink()
    (run.path / "experiment.toml").unlink()
    assert "echo-connections" in document.build(run).read_text(encoding="utf-8")
