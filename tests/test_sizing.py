"""What a load needs: the arithmetic, its intervals, and that docs/sizing.md has the same."""

import re

import pytest

from wsbench.analysis import sizing
from wsbench.analysis.sizing import Between, Host, Known, Wanted
from wsbench.host.installation import ROOT
from wsbench.records.errors import UserError

KNOWN = Known(
    server="one@1",
    capacity=Between(10_000, 8_000, 12_500),
    slo="p99 < 20ms",
    cpus=2,
    connections=50,
    message_s=20e-6,
    connection_bytes=Between(10_000.0, 9_000.0, 11_000.0),
    server_bytes=100e6,
    campaign="2026-01-01-capacity",
    ladders=1,
    memory_campaign=None,
)
WANTED = Wanted(1_000_000, 0.1)


def test_the_interval_of_the_capacity_is_carried_through():
    found = sizing.need(KNOWN, WANTED)
    assert found.servers == Between(10, 8, 13)
    assert found.cpus == Between(20, 16, 26)
    assert found.busy_cpus == pytest.approx(2.0)
    each = 10_000 + sizing.KERNEL_BYTES
    assert found.memory_bytes.value == pytest.approx(1e6 * each + 10 * 100e6)
    assert found.memory_bytes.low < found.memory_bytes.value < found.memory_bytes.high


def test_an_end_that_is_not_known_stays_unknown():
    found = sizing.need(KNOWN.__class__(**{**vars(KNOWN), "capacity": Between(10_000, 10_000, None)}), WANTED)
    assert found.servers == Between(10, None, 10)


def test_hosts_are_limited_by_cpus_or_by_memory():
    small, large = Host(name="small", cpus=2, memory_gib=64, price=10), Host(name="large", cpus=64, memory_gib=4, price=3)
    tiny = Host(name="tiny", cpus=1, memory_gib=4)
    found = {one.host.name: one for one in sizing.hosts(sizing.need(KNOWN, WANTED), [small, large, tiny])}
    assert set(found) == {"small", "large"}  # a server of two CPUs does not fit on one
    assert (found["small"].limit, found["small"].number) == ("CPUs", Between(10, 8, 13))
    assert found["small"].price.value == 100
    assert found["large"].limit == "memory"
    assert [one.host.name for one in sizing.hosts(sizing.need(KNOWN, WANTED), [small, large])] == ["large", "small"]


def test_the_page_on_load_hosts_has_the_same_arithmetic():
    """The example: one message a minute, all opened in ten minutes, 16 cores and 64 GiB."""
    page = (ROOT / "docs" / "sizing.md").read_text()
    rows = re.findall(r"^\| (\d+) million \| [\d,]+ \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| (\d+) \|$", page, re.MULTILINE)
    assert len(rows) == 3
    for millions, *parts, number in rows:
        found = sizing.load_hosts(Wanted(int(millions) * 1_000_000, 1 / 60), 600, 16, 64)
        said = [float(part) for part in parts]
        assert [found.by_memory, found.by_messages, found.by_opening] == pytest.approx(said, rel=0.03, abs=0.006)
        assert found.number == int(number)


def test_a_file_of_hosts_is_checked(tmp_path):
    file = tmp_path / "hosts.toml"
    file.write_text('[[host]]\nname = "small"\ncpus = 0\nmemory_gib = 8\n')
    with pytest.raises(UserError, match="cpus"):
        sizing.prices(file)


def test_without_a_capacity_there_is_one_plain_line(wsbench):
    run = ROOT / "results" / "2026-11-22-idle-memory"
    done = wsbench("size", "-c", "1M", "--rate-each", "0.1", "--from", str(run))
    assert done.returncode == 2
    assert "wsbench capacity SERVER" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_numbers_come_with_what_they_rest_on(wsbench):
    assert KNOWN.rests_on == "one@1: capacity: 1 ladder in 2026-01-01-capacity"
