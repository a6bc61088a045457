"""Files of lines: read at once or one by one they hold the same, and a broken line is named."""

import pytest
from run_maker import Trial, write_trial

from wsbench.records.engine_files import EVENTS, parse_event
from wsbench.records.errors import UserError
from wsbench.records.frozen import read_every_line, read_lines


@pytest.fixture
def events(tmp_path):
    return write_trial(tmp_path / "t", Trial()).path / "events.jsonl"


def test_all_lines_at_once_are_what_they_are_one_by_one(events):
    assert read_every_line(events, EVENTS, parse_event) == list(read_lines(events, parse_event))
    assert read_every_line(events.with_name("absent"), EVENTS, parse_event) == []
    events.write_text("")
    assert read_every_line(events, EVENTS, parse_event) == []


def test_a_last_line_cut_off_by_a_crash_is_left_out(events):
    whole = len(read_every_line(events, EVENTS, parse_event))
    events.write_bytes(events.read_bytes()[:-5])
    assert len(read_every_line(events, EVENTS, parse_event)) == whole - 1


@pytest.mark.parametrize("broken", ["nonsense", "", "{one}, {two}", "[]"])
def test_a_broken_line_is_named(events, broken):
    lines = events.read_text().splitlines()
    lines[2] = broken.replace("{one}", lines[2]).replace("{two}", lines[3])
    events.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=r"events\.jsonl:3: "):
        read_every_line(events, EVENTS, parse_event)


def test_a_value_over_two_lines_is_broken_too(events):
    events.write_text(events.read_text().replace(", ", "\n", 1))
    with pytest.raises(UserError, match=r"events\.jsonl:1: "):
        read_every_line(events, EVENTS, parse_event)
