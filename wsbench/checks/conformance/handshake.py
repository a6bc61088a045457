"""The opening handshake (RFC 6455 section 4): what a server must accept and what it must refuse."""

import base64
import hashlib

from wsbench.checks.conformance.registry import WEBSOCKET, checks
from wsbench.checks.peer import WEBSOCKET_SCENARIOS, Server, expect, new_key

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@checks("RFC 6455 §4.2.2", *WEBSOCKET)
def handshake_is_accepted(server: Server) -> None:
    """Every endpoint answers 101 with the right accept value, and selects nothing that was not offered."""
    for scenario in sorted(WEBSOCKET_SCENARIOS & server.scenarios):
        key, path = new_key(), server.paths[scenario]
        _, status, headers = server.handshake(scenario, key)
        expect(status == 101, f"{path}: status {status}")
        accept = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
        expect(headers.get("sec-websocket-accept") == accept, f"{path}: wrong Sec-WebSocket-Accept")
        expect(headers.get("upgrade", "").lower() == "websocket", f"{path}: no Upgrade: websocket")
        expect("upgrade" in headers.get("connection", "").lower(), f"{path}: no Connection: Upgrade")
        for unasked in ("sec-websocket-extensions", "sec-websocket-protocol"):
            expect(unasked not in headers, f"{path}: {unasked} was not offered")


@checks("RFC 6455 §4.2.1", *WEBSOCKET, required=False)
def handshake_may_be_written_otherwise(server: Server) -> None:
    """`Upgrade` in another case, or as one of several options of `Connection`, as browsers send it, is accepted."""
    for upgrade, connection in (("WebSocket", "upgrade"), ("websocket", "keep-alive, Upgrade")):
        _, status, _ = server.handshake(server.any_scenario, new_key(), upgrade=upgrade, connection=connection)
        expect(status == 101, f"status {status} for Upgrade: {upgrade}, Connection: {connection}")


@checks("RFC 6455 §4.4", *WEBSOCKET, required=False)
def handshake_of_another_version_is_refused(server: Server) -> None:
    """Version 99 is answered by status 426 (Upgrade Required) or 400."""
    _, status, _ = server.handshake(server.any_scenario, new_key(), version="99")
    expect(status in (400, 426), f"version 99 was answered by status {status}")


@checks("RFC 6455 §4.4", *WEBSOCKET, required=False)
def handshake_refused_names_the_version(server: Server) -> None:
    """A server that refuses a version names its own: `Sec-WebSocket-Version: 13`."""
    _, status, headers = server.handshake(server.any_scenario, new_key(), version="99")
    named = headers.get("sec-websocket-version", "")
    expect("13" in named, f"status {status}, Sec-WebSocket-Version is {named or 'missing'}")


def _expect_refusal(server: Server, what: str, **altered: str | None) -> None:
    key = altered.pop("key", new_key())
    _, status, _ = server.handshake(server.any_scenario, key, **altered)
    expect(status >= 400, f"{what} was answered by status {status}")


@checks("RFC 6455 §4.2.1", *WEBSOCKET, required=False)
def handshake_without_a_key_is_refused(server: Server) -> None:
    """A request without `Sec-WebSocket-Key` gets an error status."""
    _expect_refusal(server, "no key", key=None)


@checks("RFC 6455 §4.2.1", *WEBSOCKET, required=False)
def handshake_with_a_short_key_is_refused(server: Server) -> None:
    """The key is 16 bytes in base64; any other key gets an error status."""
    _expect_refusal(server, "a key of 3 bytes", key="AAAA")


@checks("RFC 6455 §4.2.1", *WEBSOCKET, required=False)
def handshake_by_post_is_refused(server: Server) -> None:
    """An upgrade request uses GET; any other method gets an error status."""
    _expect_refusal(server, "POST", method="POST")


@checks("RFC 6455 §4.2.1", *WEBSOCKET, required=False)
def request_without_upgrade_is_no_handshake(server: Server) -> None:
    """A request that does not ask for an upgrade is not answered by 101."""
    _, status, _ = server.handshake(server.any_scenario, new_key(), upgrade=None, connection="keep-alive")
    expect(status != 101, "101 came without Upgrade: websocket in the request")
