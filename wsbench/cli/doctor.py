"""`wsbench doctor`: its options and output."""

from __future__ import annotations

import argparse
import os
import time

from wsbench.cli import terminal
from wsbench.cli.exits import BREACHED, DONE
from wsbench.cli.values import positive
from wsbench.engine import program
from wsbench.host import machine, sysctls, toolchains
from wsbench.metrics import tracks
from wsbench.metrics.limits import LIMITS
from wsbench.monitoring import kernel, programs
from wsbench.records.errors import UserError
from wsbench.run import host_limits
from wsbench.servers import build, catalogue
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Unavailable

#: Other programs are watched for so long.
WATCH_S = 1.9


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--connections",
        type=positive,
        metavar="N",
        help="check whether this machine can hold this many connections, both ends",
    )
    changing = parser.add_mutually_exclusive_group()
    changing.add_argument("--set", action="store_true", help="with --connections: change the kernel settings that are too low")
    changing.add_argument("--restore", action="store_true", help="restore the kernel settings that --set changed")


def examine(arguments) -> int:
    if arguments.restore:
        return _restore()
    if arguments.set and arguments.connections is None:
        raise UserError("--set needs --connections N")
    if arguments.connections is None:
        _table([*machine.examine(program.binary()), _quota(), _others()])
        _tools(catalogue.read())
        return 0
    if arguments.set:
        for change in sysctls.put(host_limits.examine(arguments.connections).wanted):
            print(f"set {change.name} = {change.after} (was {change.before}); `wsbench doctor --restore` restores it")
    found = host_limits.examine(arguments.connections)
    _table(found.findings)
    return DONE if all(one.fine for one in found.findings) else BREACHED


def _quota() -> machine.Finding:
    """A quota stops every process of the control group once it is used up, in the middle of a message."""
    quota = kernel.own_quota()
    found = "none" if quota is None else f"{quota.cpus:.3g} CPUs ({quota.folder})"
    return machine.Finding(quota is None, "CPU quota", found, "raise or remove it: a trial that it throttles is INVALID")


def _others() -> machine.Finding:
    """What other programs use now. If it stays so, the tails of trials are SUSPECT from a limit on."""
    began_ns, before = time.monotonic_ns(), programs.used()
    time.sleep(WATCH_S)
    seen = programs.since(began_ns, before, {os.getpid()})
    share = seen.cpu_s / WATCH_S
    found = f"{share:.1%} of a CPU{tracks.busiest(seen)}"
    return machine.Finding(share < LIMITS["others"].suspect, "other programs", found, "stop them: messages wait for them")


def _table(findings: list[machine.Finding]) -> None:
    rows = [["ok" if one.fine else "!!", one.what, one.found, "" if one.fine else one.advice] for one in findings]
    terminal.table(None, ["", "item", "found", "fix"], rows, keys=2)


def _tools(variants: list[Variant]) -> None:
    """The tools that servers need, the missing ones, and the command that installs them."""
    wanted: dict[tuple[str, str], list[Variant]] = {}
    for variant in variants:
        for key, need in variant.needs.items():
            if isinstance(need, str):
                wanted.setdefault((key, need), []).append(variant)
    rows = []
    for (key, least), using in sorted(wanted.items()):
        problem = toolchains.lacks(key, least)
        found = toolchains.found(key, least)
        rows.append(
            [
                "ok" if problem is None else "!!",
                f"{toolchains.table()[key].name} ≥ {least}",
                "none" if found is None else found.version,
                ", ".join(dict.fromkeys(variant.server for variant in using)),
            ]
        )
    print()
    terminal.table(None, ["", "tool", "found", "needed by"], rows, keys=2)
    lacking = {
        variant.name: variant for variant in variants if not isinstance(variant.table, Unavailable) and build.obstacle(variant)
    }
    if not lacking:
        terminal.say("all servers can be built on this machine")
        return
    print("\nservers that cannot be built yet:")
    for name, variant in lacking.items():
        terminal.say(f"  {name}: {build.obstacle(variant)}")
    installable = list(dict.fromkeys(one.server for one in lacking.values() if build.missing(one)))
    if installable:
        print()
        terminal.say(
            f"to install the missing tools and build them: wsbench build --install {' '.join(_patterns(installable, lacking))}"
        )


def _patterns(servers: list[str], lacking: dict[str, Variant]) -> list[str]:
    """The servers as a user types them: the bare name if the default variant is among them."""
    defaults = {one.server for one in lacking.values() if one.is_default}
    return [name if name in defaults else f"'{name}@*'" for name in servers]


def _restore() -> int:
    back, left = sysctls.restore()
    for change in back:
        print(f"restored {change.name} = {change.before}")
    for change in left:
        print(f"kept {change.name}: it was changed after --set; before, it was {change.before}")
    if not back and not left:
        print("nothing to restore")
    return 0
