"""Does a server keep its contract? Asked before it is measured, by a second pair of eyes.

In: an address and what the server says it serves. Out: one `Check` for each thing that was tried, room by room. Nothing here
comes from the engine: `peer` speaks to the server.
"""

from importlib import import_module

from wsbench.checks.conformance.registry import SPECS, Check, check

__all__ = ["ROOMS", "SPECS", "Check", "check"]
#: A room puts its checks on the list when it is imported: the order here is the order of the checks.
ROOMS = (
    *("handshake", "messages", "fragments", "control", "violations", "closing", "ping", "push", "documents", "sockets"),
    *("deep", "survival"),
)
for _room in ROOMS:
    import_module(f"wsbench.checks.conformance.{_room}")
