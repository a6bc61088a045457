"""`wsbench size` on the terminal: its arguments, and what a load needs as a table or JSON. It measures nothing."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from wsbench.cli import values
from wsbench.cli.terminal import say, shown, table
from wsbench.records.errors import UserError


def add(made) -> None:
    """The arguments of the command."""
    made.add_argument("-c", "--connections", type=values.positive, required=True, help="connections, such as 1M")
    made.add_argument("--rate-each", type=values.above_zero, required=True, metavar="RATE", help="messages/s of each connection")
    made.add_argument("--slo", metavar="SLO", help="an SLO of the campaigns (default: the first of each)")
    made.add_argument(
        "--from",
        dest="runs",
        type=Path,
        action="append",
        required=True,
        metavar="RUN",
        help="campaigns: of `wsbench capacity`, and of `idle-memory` for the memory of a connection; repeatable",
    )
    made.add_argument(
        "--hosts", type=Path, metavar="FILE", help="kinds of hosts, as [[host]] name, cpus, memory_gib and, if known, price"
    )
    made.add_argument(
        "--opening",
        type=values.seconds_above_zero,
        default=600.0,
        metavar="TIME",
        help="all connections are opened within this time, for the number of load hosts (default: 10m)",
    )
    made.add_argument("--json", action="store_true", help="print one JSON document instead of tables")


def run(arguments) -> int:
    from wsbench.analysis import sizing
    from wsbench.analysis.reading import load
    from wsbench.records.rundir import RunFolder

    wanted = sizing.Wanted(arguments.connections, arguments.rate_each, arguments.slo)
    listed = sizing.prices(arguments.hosts) if arguments.hosts is not None else None
    campaigns = [load(RunFolder.open(run)) for run in arguments.runs]
    found = sizing.known(campaigns, wanted)
    if not found:
        under = f" under {arguments.slo!r}" if arguments.slo else ""
        raise UserError(f"no capacity over the rate{under} in these campaigns; find one with `wsbench capacity SERVER --slo …`")
    left = withdrawn_of(arguments.runs)
    needs = sorted((sizing.need(one, wanted) for one in found), key=lambda one: one.cpus.value or 0.0)
    kinds = listed.host if listed is not None else []
    if arguments.json:
        made = [
            {**asdict(one), "hosts": [asdict(of) | {"host": of.host.model_dump()} for of in sizing.hosts(one, kinds)]}
            for one in needs
        ]
        for line in left:
            print(shown(line), file=sys.stderr)
        print(json.dumps({"connections": wanted.connections, "messages_per_s": wanted.per_s, "servers": made}, indent=2))
        return 0
    _needs(needs, wanted)
    for line in left:
        say(line)
    if listed is not None:
        _hosts({one.known.server: sizing.hosts(one, kinds) for one in needs}, listed.unit)
        for kind in kinds:
            of = sizing.load_hosts(wanted, arguments.opening, kind.cpus, kind.memory_gib)
            say(f"to make this load: {of.number} {kind.name} (docs/sizing.md)")
    return 0


def withdrawn_of(runs: list[Path]) -> list[str]:
    """One line for each of these campaigns that was withdrawn where it is published."""
    from wsbench.analysis.campaigns import WITHDRAWN, withdrawn

    lines = []
    for run in (path.resolve() for path in runs):
        try:
            why = withdrawn(run.parent).get(run.name)
        except Exception as error:  # whatever that file holds
            lines.append(f"{run.parent / WITHDRAWN}: whether {run.name} is withdrawn is unknown: {error}")
        else:
            lines += [] if why is None else [f"{run.name} is withdrawn: {why}"]
    return lines


def _needs(needs: list, wanted) -> None:
    rows = []
    for one in needs:
        of = one.known
        busy = "?" if one.busy_cpus is None else f"{one.busy_cpus:,.3g}"
        memory = (
            "? (no idle-memory campaign)" if one.memory_bytes is None else _between(one.memory_bytes.map(lambda size: size / 2**30))
        )
        rows.append([of.server, _between(of.capacity), str(of.cpus), _between(one.servers), _between(one.cpus), busy, memory])
    say(f"{wanted.connections:,} connections, {wanted.per_s:,.6g} messages/s, under {needs[0].known.slo}")
    headers = ["server", "one carries [messages/s]", "CPUs of one", "servers", "CPUs", "busy CPUs", "memory [GiB]"]
    table(None, headers, rows, right=set(range(1, len(headers))))
    most = max(one.known.connections for one in needs)
    say(f"Capacities were measured with {most:,} connections to a server. With more of them, one carries less.")
    say("What these numbers rest on:")
    for one in needs:
        say(f"  {one.known.rests_on}")


def _hosts(of: dict, unit: str) -> None:
    rows = [
        [server, one.host.name, _between(one.number), one.limit, "?" if one.price is None else _between(one.price)]
        for server, kinds in of.items()
        for one in kinds
    ]
    table(None, ["server", "host", "hosts", "limited by", f"price [{unit}]" if unit else "price"], rows, right={2, 4}, keys=2)


def _between(one) -> str:
    """`12 (11 to 14)`; an end that is not known is `?`."""
    low, high = ("?" if end is None else _number(end) for end in (one.low, one.high))
    return f"{'?' if one.value is None else _number(one.value)} ({low} to {high})"


def _number(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.10g}"
