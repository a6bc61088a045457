"""A campaign whose truth is known, and claims about it, for the tests of claims."""

import math
import random
from dataclasses import replace

from run_maker import Server

from wsbench.records.engine_files import Doc

LEVELS = ({"connections": 10}, {"connections": 100}, {"connections": 1000})
VERSIONS = """
[versions.published]
netty = "netty@4.1"
jetty = "jetty@9"
grizzly = "grizzly@2"
[versions.today]
netty = "netty@4.2"
jetty = "jetty@12"
grizzly = "grizzly@4"
"""
SERVERS = (
    Server("netty", "Java", 10_000, variant="4.1"),
    Server("jetty", "Java", 8_000, variant="9"),
    Server("grizzly", "Java", 5_000, variant="2"),
    Server("netty", "Java", 8_100, variant="4.2"),
    Server("jetty", "Java", 8_000, variant="12"),
)


def claim(holds_if: str, more: str = "", sweep: str = "[10, 100, 1000]") -> str:
    head = 'question = "?"\nreading = "."\nheadline = "requests_per_s"\n'
    swept = f"[sweep]\nconnections = {sweep}\n"
    return f'{head}{swept}{VERSIONS}\n[[claim]]\nid = "X1"\nsays = "So it is."\nholds_if = """{holds_if}"""\n{more}'


def as_paper(trial, order):
    """Rates that fall with concurrency; 1 % of noise; each round 5 % off together."""
    server = next(one for one in SERVERS if (one.name, one.variant) == (order.server, order.variant))
    connections = order.cell["connections"]
    draw = random.Random(order.number)
    drift = random.Random(order.round).gauss(0, 0.05)
    rate = server.rate * connections**-0.1 * math.exp(drift + draw.gauss(0, 0.01))
    return replace(trial, rate=rate, scenario=Doc(persistent=False, bytes=512), by_count=True)
