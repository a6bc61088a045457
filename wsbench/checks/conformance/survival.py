"""Repeated checks: once after all other required checks, once after all checks."""

from wsbench.checks.conformance.control import ping_frame_gets_a_pong
from wsbench.checks.conformance.documents import doc_closes_when_asked, doc_is_exact_and_persistent
from wsbench.checks.conformance.messages import echo_returns_binary, echo_returns_text
from wsbench.checks.conformance.ping import ping_is_answered, ping_is_answered_over_tcp
from wsbench.checks.conformance.push import push_reaches_every_member_once
from wsbench.checks.conformance.registry import WEBSOCKET, checks
from wsbench.checks.peer import Server


@checks("contract", "doc", "echo", "ping", "push", transport=None, last=True)
def still_serves(server: Server) -> None:
    """After all required checks the server still answers correctly."""
    _ask_for_everything(server)


@checks("contract", *WEBSOCKET, required=False, last=True)
def still_serves_after_violations(server: Server) -> None:
    """After all protocol violations the server still answers correctly."""
    _ask_for_everything(server)


def _ask_for_everything(server: Server) -> None:
    if "doc" in server.scenarios:
        (doc_is_exact_and_persistent if server.use.persistent else doc_closes_when_asked)(server)
    if server.transport == "tcp":
        ping_is_answered_over_tcp(server)
        return
    if server.scenarios != {"doc"}:
        ping_frame_gets_a_pong(server)
    echoes = echo_returns_binary if server.use.sends("binary") else echo_returns_text if server.use.sends("text") else None
    for scenario, asked in (
        ("echo", echoes),
        ("ping", ping_is_answered),
        ("push", push_reaches_every_member_once),
    ):
        if scenario in server.scenarios and asked is not None:
            asked(server)
