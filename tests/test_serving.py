"""A server that is started answers at a port that is its own."""

import socket
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from wsbench.host import machine
from wsbench.records.errors import TrialFailed, UserError
from wsbench.servers import catalogue, serving

pytestmark = pytest.mark.system

CATALOGUE = Path(__file__).parent.parent / "servers"

#: A server that shares its port with whoever asks, as those with SO_REUSEPORT do.
SHARES = """
import os, socket, time
listening = socket.create_server((os.environ["HOST"], int(os.environ["PORT"])), reuse_port=True)
time.sleep(300)
"""


@pytest.fixture
def order(monkeypatch):
    """Each server is given the same free port, as if both had looked before either listened."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    monkeypatch.setattr(serving.machine, "held_port", lambda *_: nullcontext(port))
    return serving.Order(port=None, number=0, cpus=[])


@pytest.fixture
def variant():
    [found] = catalogue.select(["reference@tcp"], catalogue.read(CATALOGUE))
    return replace(found, table=found.table.model_copy(update={"run": [sys.executable, "-c", SHARES]}))


def test_a_port_that_was_found_free_is_nobody_elses_until_its_server_has_ended():
    with machine.held_port("127.0.0.77", None, 0) as first, machine.held_port("127.0.0.77", None, 0) as second:
        assert first < second
        with pytest.raises(UserError, match=f"port {first} on 127.0.0.77 is in use"):
            machine.free_port("127.0.0.77", first, 0)
        assert machine.free_port("127.0.0.78", first, 0) == first
    assert machine.free_port("127.0.0.77", None, 0) == first


def test_a_port_of_two_servers_fails_the_second_trial(variant, order, tmp_path):
    with serving.started(variant, order, tmp_path / "first") as (first, port, _):
        with pytest.raises(TrialFailed, match=f"port {port} .* process {first.pid} of another trial listens there"):
            serving.started(variant, order, tmp_path / "second").__enter__()
        elsewhere = order.model_copy(update={"address": "127.0.0.2"})
        with serving.started(variant, elsewhere, tmp_path / "third") as (third, *_):
            assert third.exit_code is None, "the same port of another address is another server's"
    with serving.started(variant, order, tmp_path / "fourth") as (fourth, *_):
        assert fourth.exit_code is None
