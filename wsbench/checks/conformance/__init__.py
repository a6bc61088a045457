"""Conformance of a server to its contract, tested before it is measured.

In: an address and the scenarios that the server declares. Out: one `Check` per test, module by module. Nothing here uses
the engine: `peer` is an independent client.
"""

from importlib import import_module

from wsbench.checks.conformance.registry import SPECS, Check, check

__all__ = ["ROOMS", "SPECS", "Check", "check"]
#: A module registers its checks when it is imported: this order is the order of the checks.
ROOMS = (
    *("handshake", "messages", "fragments", "control", "violations", "closing", "ping", "push", "documents", "sockets"),
    *("deep", "survival"),
)
for _room in ROOMS:
    import_module(f"wsbench.checks.conformance.{_room}")
