"""What a load shows while it runs."""

import contextlib
import io
import os
import re
import subprocess
import sys

import pytest
from conftest import PATIENCE_S, WSBENCH
from rich.console import Console

from wsbench.cli import live, show_campaign, terminal
from wsbench.metrics.trial_data import TrialData
from wsbench.records.samples import MachineCpu, MachineSample, ProcessSample, Program, ProgramsSample, SamplerCost

S = 1_000_000_000


def sampled(second: int, others_share: float, stolen_share: float = 0.0) -> list:
    """Of two CPUs: the server uses 0.4 and the engine 0.3 of one, other programs and the hypervisor these shares."""
    used = {"server": 0.4 * second, "engine": 0.3 * second}
    busy = sum(used.values()) + others_share * second
    idle = 2 * second - busy - stolen_share * second
    cpu = MachineCpu(user=busy, system=0, idle=idle, iowait=0, steal=stolen_share * second, irq=0, softirq=0)
    trees = [
        ProcessSample(
            t_ns=second * S,
            of=side,
            processes=1,
            threads=1,
            fds=None,
            rss_bytes=1,
            cpu_ns=round(seconds * S),
            cpu_user_s=seconds,
            cpu_system_s=0,
        )
        for side, seconds in used.items()
    ]
    machine = MachineSample(t_ns=second * S, of="machine", cpu_s=cpu, cpus=2, throttled_s=None)
    return [*trees, machine, SamplerCost(t_ns=second * S, of="sampler", began_ns=0, cpu_ns=0)]


@pytest.mark.parametrize(
    ("others", "stolen", "kind", "seen"),
    [
        (0.0, 0.0, None, ""),
        (0.09, 0.0, "SUSPECT", "other programs used at least 8% of a CPU of the machine (busiest: chrome 9%)"),
        (0.5, 0.0, "INVALID", "other programs used at least 49% of a CPU of the machine (busiest: chrome 50%)"),
        (0.0, 0.1, "INVALID", "the hypervisor took 12.2% of the CPU time that the trial wanted on the machine"),
    ],
)
def test_what_spoils_a_load_is_said_while_it_runs(others, stolen, kind, seen):
    programs = ProgramsSample(
        t_ns=5 * S, of="programs", began_ns=0, programs=[Program(name="chrome", cpu_s=5 * others)], cpu_s=5 * others
    )
    samples = [one for second in range(6) for one in sampled(second, others, stolen)]
    assert {name: round(share, 6) for name, share in live.shares(samples).items()} == {"server": 0.4, "engine": 0.3}
    assert [(one.kind, one.seen) for one in live.findings(samples, programs)] == ([] if kind is None else [(kind, seen)])


@pytest.mark.system
@pytest.mark.parametrize("columns", [60, 120])
def test_a_terminal_has_the_last_seconds_and_a_word_on_them(pong, tmp_path, environment, columns):
    screen, terminal = os.openpty()
    environment |= {"COLUMNS": str(columns), "LINES": "40", "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    words = ["load", f"tcp://{pong}", "-c", "2", "--rate", "200", "-t", "4", "--warmup", "0"]
    with subprocess.Popen([*WSBENCH, *words], cwd=tmp_path, env=environment, stdout=terminal, stderr=terminal) as running:
        os.close(terminal)
        text = b""
        with contextlib.suppress(OSError):  # the terminal is closed
            while part := os.read(screen, 65536):
                text += part
        running.wait(PATIENCE_S)
    os.close(screen)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode()).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= columns
    for wanted in (
        r"measure  open 2  failed 0  left \d s",
        r"answered/s +2\d\d  [▁▂▃▄▅▆▇█]{2,}",
        r"p99 +[\d.]+ .s +[▁▂▃▄▅▆▇█]{2,}",
    ):
        assert any(re.fullmatch(wanted, line.rstrip()) for line in lines), (wanted, lines)
    assert any(re.search(r"engine CPU \d+%", line) for line in lines)
    assert any(re.match(r"● (VALID|SUSPECT|INVALID) so far", line) for line in lines)


def shown_of(run, columns: int | None, monkeypatch) -> list[str]:
    """What is printed while the trials of a campaign end, on a terminal that is so wide, or on none."""
    written = io.StringIO()
    if columns is not None:
        written.isatty = lambda: True
    printing = Console(highlight=False, width=columns or 100, height=12, soft_wrap=columns is None, file=written, color_system=None)
    monkeypatch.setattr(sys, "stdout", written)
    for module in (terminal, show_campaign):
        monkeypatch.setattr(module, "console", printing)
    ended = list(run.finished())
    with show_campaign.CampaignView() as view:
        for done, (folder, record) in enumerate(ended):
            view.trials_begin([run.order[done]], done, len(ended), 60.0)
            view.trial_ends(TrialData(folder, record))
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.getvalue()).replace("\r", "\n").splitlines()


def test_a_campaign_has_a_short_line_a_trial_and_says_once_what_spoils_it(run, monkeypatch):
    lines = shown_of(run, None, monkeypatch)
    assert len(lines) == sum(1 for _ in run.finished())
    assert sum("engine was the limit" in line for line in lines) == 1
    assert re.fullmatch(r"\[1/34\] .+ connections=\d+  [\d,]+ messages/s  VALID", lines[0])
    assert sum("failed: " in line for line in lines) == 1


def test_a_terminal_has_a_table_of_the_servers_and_cells_that_ran_last(run, monkeypatch):
    lines = shown_of(run, 80, monkeypatch)
    assert max(map(len, lines)) <= 80
    end = max(at for at, line in enumerate(lines) if line.startswith("[34/34] "))
    rows = lines[end - 6 : end]
    assert [row.split()[0] for row in rows] == sorted(row.split()[0] for row in rows)
    assert ["29,818", "2", "1"] in [row.split()[-3:] for row in rows if row.startswith("reference@1.0")]
    assert lines[end].rstrip().endswith("about 1 min 00 s left")
