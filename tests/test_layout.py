"""Tables of the terminal: lines that fit, whole words and numbers, and one line for each row in a pipe."""

import io
import sys
from argparse import Namespace

import pytest
from rich.console import Console

from wsbench.analysis.reading import load
from wsbench.cli import layout, reading, show_campaign, terminal
from wsbench.host.installation import ROOT
from wsbench.records.rundir import RunFolder

HEADINGS = ["server", "cell", "messages per s [messages/s]", "p50 [ms]", "verdict"]
ROWS = [["netty@4.2", "", "104,000 (98,000–110,000)", "1.21", "3 VALID"], ["go@1.5", "", "9,400 (9,100–9,700)", "12.4", "3 VALID"]]
QUICK = ROOT / "results" / "2026-11-27-quick"


def drawn(headings, rows, width, right=frozenset(), keys=1) -> list[str]:
    return [line.text for line in layout.laid_out(headings, rows, width, right, keys)]


def test_a_table_with_room_has_one_line_for_each_row():
    head, *rows = drawn(HEADINGS, ROWS, 200, {2, 3})
    assert head.split() == " ".join(HEADINGS).split()
    assert [row.split()[0] for row in rows] == ["netty@4.2", "go@1.5"]
    assert {len(row) for row in rows} == {len(head)}


def test_headings_wrap_first_and_an_empty_column_goes():
    assert drawn(HEADINGS, ROWS, 60, {2, 3}) == [
        "                     messages per s   p50",
        "server                 [messages/s]  [ms]  verdict",
        "netty@4.2  104,000 (98,000–110,000)  1.21  3 VALID",
        "go@1.5          9,400 (9,100–9,700)  12.4  3 VALID",
    ]


def test_numbers_go_into_further_tables_that_repeat_the_server():
    assert drawn(HEADINGS, ROWS, 40, {2, 3}) == [
        "                     messages per s",
        "server                 [messages/s]",
        "netty@4.2  104,000 (98,000–110,000)",
        "go@1.5          9,400 (9,100–9,700)",
        "",
        "            p50",
        "server     [ms]  verdict",
        "netty@4.2  1.21  3 VALID",
        "go@1.5     12.4  3 VALID",
    ]


def test_prose_wraps_between_words_and_stands_below_if_there_is_no_room():
    row = ["broadcast", "How long until the last connection has a message that is sent to all?"]
    assert drawn(["experiment", "question"], [row], 50) == [
        "experiment  question",
        "broadcast   How long until the last connection has",
        "            a message that is sent to all?",
    ]
    assert drawn(["experiment", "question"], [row], 36) == [
        "experiment",
        "broadcast",
        "    How long until the last",
        "    connection has a message that is",
        "    sent to all?",
    ]


class Screen(io.StringIO):
    """A terminal of 80 columns."""

    def isatty(self) -> bool:
        return True

    def lines_of(self, monkeypatch, show, *arguments) -> list[str]:
        """The lines that a function prints."""
        monkeypatch.setattr(sys, "stdout", self)
        monkeypatch.setattr(terminal, "console", Console(highlight=False, width=80, file=self, color_system=None))
        show(*arguments)
        return self.getvalue().splitlines()


@pytest.mark.parametrize("what", ["servers", "experiments", "sessions", "metrics", "claims"])
def test_every_list_fits_80_columns(monkeypatch, what):
    monkeypatch.chdir(ROOT)
    lines = Screen().lines_of(monkeypatch, reading.list_things, Namespace(what=what, session=None))
    assert len(lines) > 5
    assert [line for line in lines if len(line) > 80] == []


def test_the_result_of_a_campaign_fits_80_columns_and_breaks_no_number(monkeypatch):
    lines = Screen().lines_of(monkeypatch, show_campaign.summary, load(RunFolder.open(QUICK)))
    assert [line for line in lines if len(line) > 80] == []
    assert any(line.startswith("uwebsockets@20  ") and "≥ 252,000 (244,000–260,000)" in line for line in lines)


def test_a_pipe_has_one_line_for_each_row(wsbench):
    done = wsbench("list", "sessions")
    assert all("  " in line for line in done.stdout.splitlines())
    assert max(map(len, done.stdout.splitlines())) > 80


@pytest.mark.parametrize(("silent_s", "said"), [(-1, ["reading the files of 3 trials, about 0 s left"]), (60, [])])
def test_many_trials_are_announced_once_if_reading_them_takes_long(monkeypatch, capsys, silent_s, said):
    monkeypatch.setattr(terminal, "SILENT_S", silent_s)
    with terminal.FilesOfTrials("reading") as read:
        for done in (1, 2, 3):
            read.tell(done, 3)
    assert capsys.readouterr().out.splitlines() == said
