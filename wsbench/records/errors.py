"""The two ways in which wsbench says no.

A `UserError` is something the user can mend: one plain line that says what was found and what is allowed, exit 2. A `TrialFailed`
is a server (or this host) that did not carry out a trial: it becomes a row, and the campaign goes on. Bugs are asserts.
"""


class UserError(Exception):
    """Bad input; the message is the one line that is printed."""


class TrialFailed(Exception):
    """A trial that has no result; the message is its reason."""


class HostLost(TrialFailed):
    """A host of a cluster is gone or silent: nothing can be said of the server."""

    def __init__(self, host: str, why: str):
        super().__init__(f"lost host {host}: {why}")
