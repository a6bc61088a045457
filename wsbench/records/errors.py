"""The error classes of wsbench.

The user can fix the cause of a `UserError`: one plain line states what was found and what is allowed, exit code 2. `NothingUsable`
is one that shows only once something was started or measured, exit code 4. `TrialFailed`
means that the server (or this host) did not complete a trial: it is recorded as a row and the campaign goes on. Bugs are asserts.
"""

import difflib
from collections.abc import Iterable


def nearest(text: str, known: Iterable[str]) -> str:
    """`; did you mean netty?`, or nothing if no name is near."""
    found = difflib.get_close_matches(text, list(known), 1, cutoff=0.7)
    return f"; did you mean {found[0]}?" if found else ""


class UserError(Exception):
    """Invalid input; the message is the single line that is printed."""

    @property
    def lines(self) -> list[str]:
        return [str(self)]


class NothingUsable(UserError):
    """A server was started or loaded, or a measurement was read, and there is no number to go on with."""


class Faults(UserError):
    """Several faults of the user's files, one line each."""

    def __init__(self, lines: list[str]):
        super().__init__("\n".join(lines))
        self._lines = lines

    @property
    def lines(self) -> list[str]:
        return self._lines


class TrialFailed(Exception):
    """A trial without a result; the message is the reason."""


class HostLost(TrialFailed):
    """A cluster host exited or stopped responding. The trial gives no information about the server."""

    def __init__(self, host: str, why: str):
        super().__init__(f"lost host {host}: {why}")
