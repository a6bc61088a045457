"""The exit codes: one table for all commands. It imports nothing of wsbench, so every module of the command line can import it."""

from __future__ import annotations

import textwrap

DONE = 0
FAULT = 1
BAD_INPUT = 2
BREACHED = 3
NOTHING_USABLE = 4
INTERRUPTED = 130
PIPE_CLOSED = 141
TERMINATED = 143

#: What each code means, whatever the command.
MEANINGS = {
    DONE: "done; of a command that measures: numbers were measured",
    FAULT: "wsbench or this machine failed: an internal error, a full disk, no permission",
    BAD_INPUT: "bad input; nothing ran, and one line says what to type",
    BREACHED: "a threshold, a gate or an SLO is breached: this is decided",
    NOTHING_USABLE: "nothing usable: not one answer, no connection established or left, more messages lost than answered, or every "
    "number INVALID",
    INTERRUPTED: "interrupted by Ctrl-C; what was measured is kept",
    PIPE_CLOSED: "the reader of the output closed it",
    TERMINATED: "ended by SIGTERM; what was measured is kept",
}
#: The codes with which any command can end.
OF_ALL = (DONE, FAULT, BAD_INPUT, INTERRUPTED, PIPE_CLOSED, TERMINATED)
#: What the other codes mean for the commands that have them.
OF_COMMAND: dict[str, dict[int, str]] = {
    "build": {BREACHED: "a server did not build"},
    "check": {BREACHED: "a server fails its contract"},
    "serve": {DONE: "ended by Ctrl-C or SIGTERM while it served"},
    "start": {DONE: "ended by Ctrl-C or SIGTERM while the server ran", BREACHED: "the server ended, or was not ready in time"},
    "run": {NOTHING_USABLE: "no server passes its checks, or no trial has a usable number of what the experiment is about"},
    "capacity": {
        BREACHED: "every SLO was broken at the lowest load: this is decided",
        NOTHING_USABLE: "no server passes its checks, or no load was shown to be carried",
    },
    "duel": {
        BREACHED: "a condition of --fail-if holds: this is decided",
        NOTHING_USABLE: "a server does not pass its exchange, or no turn of the two can be used",
    },
    "compare": {
        BREACHED: "a metric is worse by more than --fail-if: this is decided",
        NOTHING_USABLE: "neither side has measured the metrics; or --fail-if, and two campaigns without a common anchor",
    },
    "export": {NOTHING_USABLE: "no trial has a usable number for this format"},
    "load": {
        BREACHED: "a condition of --fail-if holds in this run",
        NOTHING_USABLE: f"{MEANINGS[NOTHING_USABLE]}; also if a condition of --fail-if cannot be decided",
    },
    "session": {
        BREACHED: "`try`: a step was not answered as the session says",
        NOTHING_USABLE: "`try`: no message was answered",
    },
    "cluster": {BREACHED: "`status`: a host is not connected"},
    "selftest": {BREACHED: "a check fails", NOTHING_USABLE: "no check fails, but one is undecided: the machine is too busy"},
    "doctor": {BREACHED: "`--connections`: this machine cannot hold so many"},
}


def table(command: str | None = None) -> list[tuple[int, str]]:
    """The codes and their meanings in order: those with which this command can end, or all."""
    if command is None:
        return sorted(MEANINGS.items())
    own = OF_COMMAND.get(command, {})
    return sorted(({code: MEANINGS[code] for code in OF_ALL} | own).items())


def epilog(command: str) -> str:
    """The table of one command as lines of its `--help`."""
    rows = (textwrap.wrap(f"{code:<4} {meaning}", 78, subsequent_indent=" " * 5) for code, meaning in table(command))
    return "\n".join(["exit codes:", *(f"  {line}" for row in rows for line in row)])
