"""What a load shows while it runs."""

import contextlib
import os
import re
import subprocess
from types import SimpleNamespace

import pytest
from conftest import PATIENCE_S, WSBENCH

from wsbench.cli import live
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
    seconds = iter(range(6))
    sampler = SimpleNamespace(now=lambda: sampled(next(seconds), others, stolen), other_programs=lambda: programs)
    sides = live.Sides()
    for _ in range(6):
        sides.look(sampler)
    assert {name: round(share, 6) for name, share in sides.shares().items()} == {"server": 0.4, "engine": 0.3}
    assert [(one.kind, one.seen) for one in sides.findings(sampler)] == ([] if kind is None else [(kind, seen)])


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
