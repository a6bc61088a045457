"""`wsbench doctor`: its options, and what it prints of this machine."""

from __future__ import annotations

import argparse

from wsbench import capacity, catalogue, engine, machine, sysctls, terminal
from wsbench.errors import UserError
from wsbench.load_options import positive


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--connections", type=positive, metavar="N", help="can this machine hold so many, both ends of each?"
    )
    changing = parser.add_mutually_exclusive_group()
    changing.add_argument(
        "--set", action="store_true", help="with --connections: change the kernel settings that stand in the way"
    )
    changing.add_argument("--restore", action="store_true", help="put back the kernel settings that --set has changed")


def examine(arguments) -> int:
    if arguments.restore:
        return _restore()
    if arguments.set and arguments.connections is None:
        raise UserError("--set needs --connections N")
    if arguments.connections is None:
        _table(machine.examine(catalogue.read(), engine.binary()))
        return 0
    if arguments.set:
        for change in sysctls.put(capacity.examine(arguments.connections).wanted):
            print(f"set {change.name} = {change.after} (was {change.before}); `wsbench doctor --restore` puts it back")
    found = capacity.examine(arguments.connections)
    _table(found.findings)
    return 0


def _table(findings: list[machine.Finding]) -> None:
    rows = [["ok" if one.fine else "!!", one.what, one.found, "" if one.fine else one.advice] for one in findings]
    terminal.table(None, ["", "what", "found", "what to do"], rows)


def _restore() -> int:
    back, left = sysctls.restore()
    for change in back:
        print(f"put back {change.name} = {change.before}")
    for change in left:
        print(f"left {change.name}: somebody has changed it since; before --set it was {change.before}")
    if not back and not left:
        print("nothing to put back")
    return 0
