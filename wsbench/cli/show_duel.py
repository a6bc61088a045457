"""`wsbench duel` on the terminal: its arguments, one line a round, and its result as text, Markdown or JSON. It starts nothing."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from wsbench.cli import values
from wsbench.cli.exits import BREACHED, DONE, NOTHING_USABLE
from wsbench.cli.terminal import Redrawn, console, duration, is_drawn, shown
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import verdict
from wsbench.records.rundir import TrialFolder, TrialOrder

if TYPE_CHECKING:
    from wsbench.analysis.until import Standing


def add(made) -> None:
    """The arguments of the command."""
    what = "a server of the catalogue (netty@4.2), the URL of a server that runs (ws://127.0.0.1:8080/ws), or a command"
    made.add_argument("base", metavar="A", help=f"{what} that starts one ('./my-server --fast', with HOST, PORT, THREADS)")
    made.add_argument("new", metavar="B", help="the same forms; it may equal A")
    made.add_argument("--path", type=values.path, default="/echo", help="path of commands and of URLs without one (default: /echo)")
    made.add_argument(
        "--pid",
        type=values.pid_of,
        action="append",
        default=[],
        metavar="A=PID",
        help="the process behind a URL: it is sampled, and keeps off the engine's CPUs during the rounds; repeatable",
    )
    made.add_argument("-c", "--connections", type=values.positive, default=50, help="default: 50")
    made.add_argument(
        "--size", type=values.size, default=128, metavar="BYTES", help="size of the messages, such as 64k (default: 128)"
    )
    made.add_argument("--depth", type=values.positive, default=1, help="messages in flight per connection (default: 1)")
    made.add_argument(
        "--warmup", type=values.seconds, default=1.0, metavar="TIME", help="warm-up of each process in each round (default: 1s)"
    )
    made.add_argument(
        "--measure",
        type=values.seconds_above_zero,
        default=1.0,
        metavar="TIME",
        help="measured time of each process in each round, in slices of 50 ms (default: 1s)",
    )
    made.add_argument(
        "--budget", type=values.seconds_above_zero, default=300.0, metavar="TIME", help="wall time for all rounds (default: 5m)"
    )
    made.add_argument(
        "--margin", type=values.margin, default=0.03, metavar="PERCENT", help="smaller differences do not matter (default: 3%%)"
    )
    made.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="decide this metric; repeatable (default: messages_per_s and, if wsbench starts both, server_cpu_us_per_message); "
        "`capacity`: what both carry under an SLO",
    )
    made.add_argument(
        "--slo",
        action="append",
        default=[],
        metavar="SLO",
        help="with --metric capacity: such as 'response.p99 < 20ms'; repeatable",
    )
    made.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="CONDITION",
        help="exit 3 if B is shown to differ from A by more than this, such as 'messages_per_s < -3 %%'; repeatable",
    )
    made.add_argument(
        "--as-is",
        action="store_true",
        help="count turns that the host disturbed, instead of leaving them out: the result is then about this host as it is",
    )
    made.add_argument("--seed", type=values.seed, help="seed of all random choices")
    written = made.add_mutually_exclusive_group()
    written.add_argument("--markdown", action="store_true", help="print Markdown, for a pull request")
    written.add_argument("--json", action="store_true", help="print one JSON document")


class DuelView(Redrawn):
    """What is decided so far, redrawn after each round on a terminal; elsewhere one line a round. `quiet`: lines go to standard
    error."""

    def __init__(self, quiet: bool) -> None:
        super().__init__()
        self._quiet = quiet
        self._head = ""
        self._standing: Standing | None = None

    def say(self, line: str) -> None:
        self.clear()
        if self._quiet:
            print(shown(line), file=sys.stderr)
        else:
            console.print(shown(line))

    def trials_begin(self, orders: list[TrialOrder], done: int, total: int, left_s: float) -> None:
        self._head = f"round {orders[0].round}"
        self._draw()

    def trial_runs(self, folder: TrialFolder) -> None:
        pass

    def trial_ends(self, trial: TrialData) -> None:
        """Only what is wrong: the result is about all rounds."""
        record = trial.record
        if record.outcome != "ok":
            last = f": {record.log_tail[-1]}" if record.log_tail else ""
            self.say(f"round {record.round}: {record.name} {record.outcome}: {record.reason}{last}")
            return
        found = verdict(trial)
        for one in found.outcomes:
            self.say(f"round {record.round}: {record.name}: {one.seen}")

    def round_ends(self, standing: Standing) -> None:
        self._standing = standing
        if self._quiet or not is_drawn():
            self.say(standing.words)
        self._draw()

    def _draw(self) -> None:
        if self._quiet or not is_drawn():
            return
        from wsbench.analysis import titles, wording

        now, lines = self._standing, []
        head = self._head
        if now is not None:
            left_s = max(0.0, now.until.budget_s - now.spent_s)
            head += f", at most {duration(left_s)} left"
            for one in now.comparisons:
                found = None if one.decision is None else wording.decided(one.decision)
                says = "decided" if one.decided else "open"
                lines.append(f"  {titles.title(one.metric)}: B/A {found or 'not known yet'}: {says}")
        self.show("\n".join([head, *lines]))


def result(found, gates: list, as_json: bool, as_markdown: bool) -> None:
    """Prints an `analysis.duel.Duel`."""
    from wsbench.analysis import duel

    if as_json:
        print(json.dumps(duel.document(found, gates), indent=1, ensure_ascii=False))
    elif as_markdown:
        print(duel.markdown(found, gates), end="")
    else:
        console.print(shown(f"A: {found.base}"))
        console.print(shown(f"B: {found.new}"))
        for line in [*found.sentences, *duel.gate_words(found, gates)]:
            console.print(shown(line), style="bold" if line in found.sentences else None)
        for line in found.notes:
            console.print(shown(line))


def exit_code(found, gates: list) -> int:
    """Nothing that can be used, then a breached gate. What is undecided has not failed."""
    if not found.usable:
        return NOTHING_USABLE
    return BREACHED if any(says == "breached" for _, says, _ in found.judged(gates)) else DONE
