"""A strict server that shares nothing with the engine: the `websockets` library; and a plan that its tests begin with."""

import contextlib
import threading

from websockets.sync.server import serve

from wsbench.records.engine_files import Closed, Connect, Echo, End, Limits, Messages, Plan, Target

MIB = 1 << 20


@contextlib.contextmanager
def echo_server(echo=None, **options):
    """A `websockets` server on a free port; yields its address and the handshakes and exceptions it saw."""
    seen = {"requests": [], "messages": [], "closes": []}

    def handler(connection):
        seen["requests"].append(connection.request)
        for message in connection:
            seen["messages"].append((type(message), len(message)))
            connection.send(message) if echo is None else echo(connection, message)
        seen["closes"].append((connection.close_code, connection.close_reason))

    # No pings unless a test is about them: a busy machine must not look like a dead client.
    with serve(handler, "127.0.0.1", 0, **{"max_size": 4 * MIB, "ping_interval": None, **options}) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        host, port = server.socket.getsockname()
        try:
            yield f"{host}:{port}", seen
        finally:
            server.shutdown()
            thread.join()


def plan(address: str, **changes) -> Plan:
    """Twenty text messages of a hundred bytes on two connections, unless changed."""
    standard = {
        "scenario": Echo(opcode="text", bytes=100),
        "transport": "websocket",
        "target": Target(address=address, host=address, path="/echo"),
        "loop": Closed(),
        "connections": 2,
        "connect": Connect(),
        "stages": None,
        "mask": "random",
        "tls": None,
        "deflate": None,
        "fragment_bytes": None,
        "subprotocols": [],
        "warmup": None,
        "measure": Messages(messages=20),
        "slices": None,
        "drain_s": 5.0,
        "limits": Limits(connect_s=20.0, reply_s=20.0, deadline_s=60.0),
        "threads": 1,
        "cpus": [],
        "busy_poll": False,
        "receive_stamps": None,
        "source_addresses": ["127.0.0.1"],
        "headers": [],
        "seed": 7,
        "shard": (0, 1),
    }
    return Plan(**{**standard, **changes})


def all_answered(end: End, messages: int = 20) -> None:
    assert end.errors == {}
    assert (end.measured.sent, end.measured.answered) == (messages, messages)
    assert end.outcome == "completed"


def nothing_but(end: End, kind: str) -> None:
    assert set(end.errors) == {kind}, end.errors
    assert end.outcome == "no_connection"
    assert end.measured.sent == 0
