"""`wsbench capacity` on the terminal: its arguments, and its answers as text or JSON. It starts nothing."""

from __future__ import annotations

import json
import math

from wsbench.cli import exits, load_options, values
from wsbench.cli.terminal import say, table


def add(made) -> None:
    """The arguments of the command."""
    made.add_argument(
        "targets",
        nargs="+",
        metavar="SERVER",
        help="a server of the catalogue (netty@4.2), a command that starts one ('./my-server', with HOST, PORT, THREADS), or a URL",
    )
    made.add_argument(
        "--slo",
        action="append",
        required=True,
        metavar="SLO",
        help="what the server is to keep, such as 'response.p99 < 20ms' or 'p99 < 5ms and lost = 0'; up to three at once",
    )
    made.add_argument("--over", choices=("rate", "connections"), default="rate", help="what is raised (default: rate)")
    made.add_argument("-c", "--connections", type=values.positive, default=50, help="over the rate: connections (default: 50)")
    made.add_argument(
        "--rate-each", type=values.above_zero, metavar="RATE", help="over connections: messages/s of each connection, such as 0.1"
    )
    made.add_argument("--push", action="store_true", help="broadcasts in place of echoes: --slo 'push_last.p99 < 50ms'")
    made.add_argument("--rooms", type=values.positive, metavar="SIZE", help="chat rooms of this size in place of echoes, likewise")
    made.add_argument("--rpc", action="store_true", help="requests in each server's own protocol in place of echoes")
    made.add_argument("--session", metavar="NAME|FILE", help="commands and URLs speak this session (`wsbench list sessions`)")
    made.add_argument(
        "--set",
        type=load_options.setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the session; repeatable",
    )
    made.add_argument("--size", type=values.size, default=128, metavar="BYTES", help="size of the messages (default: 128)")
    made.add_argument("--tls", action="store_true", help="over TLS, with servers of the catalogue that offer it")
    made.add_argument("--deflate", action="store_true", help="with permessage-deflate, with servers that offer it")
    made.add_argument(
        "--start", type=values.above_zero, metavar="LOAD", help="the first load, from which loads double (default: 2000)"
    )
    made.add_argument("--most", type=values.above_zero, metavar="LOAD", help="no load is higher than this")
    made.add_argument(
        "--within",
        type=values.margin,
        default=0.1,
        metavar="PERCENT",
        help="end when every capacity is known to this half width of its interval (default: 10%%)",
    )
    made.add_argument(
        "--budget",
        type=values.seconds_above_zero,
        metavar="TIME",
        help="end after this wall time (default: 5m for each server); a confirmation and a test of recovery come after it",
    )
    made.add_argument(
        "--rung",
        type=values.seconds_above_zero,
        default=1.0,
        metavar="TIME",
        help="time at each load of a ladder, at least (default: 1s)",
    )
    made.add_argument(
        "--warmup",
        type=values.seconds,
        metavar="TIME",
        help="warm-up of each, at half of the load (default: 2s; 10s to 60s for servers of the catalogue on the JVM)",
    )
    made.add_argument(
        "--as-is",
        action="store_true",
        help="count what the host disturbed, instead of leaving it out: the answer is then about this host as it is",
    )
    made.add_argument(
        "--path", type=values.path, help="path of commands and of URLs without one (default: /echo, or that of the session)"
    )
    made.add_argument("--pid", type=values.pid, metavar="PID", help="the process behind a URL")
    made.add_argument("--seed", type=values.seed, help="seed of all random choices")
    made.add_argument("--json", action="store_true", help="print one JSON document instead of tables")


def rows(results) -> list[dict]:
    """The answers: server, cell, SLO, capacity with its interval, what a longer load at its lower end showed, and recovery."""
    return [
        {
            "server": one.server,
            "cell": dict(one.cell),
            "slo": one.slo.text,
            "capacity": one.estimate.mean,
            "low": one.estimate.low,
            "high": one.estimate.high,
            "at_least": one.estimate.at_least,
            "within": one.within,
            "less_than": one.lowest,
            "reason": one.estimate.reason,
            "ladders": one.estimate.repeats,
            "held": one.held,
            "not_held": one.not_held,
            "plateau": one.plateau,
            "recovery_s": one.recovery_s,
            "recovery": one.recovery,
        }
        for one in _capacities(results)
    ]


def _capacities(results) -> list:
    from wsbench.analysis import ladders

    places = range(len(results.climb.slos))
    return [ladders.of(results, name, cell, place) for cell in results.cells for name in results.names for place in places]


def document(results) -> str:
    return json.dumps({"over": results.climb.over, "answers": rows(results)}, indent=2)


def summary(results) -> None:
    """The answer in a sentence for each server and SLO, the table, and what the last trials showed."""
    from wsbench.analysis.ladders import UNITS
    from wsbench.analysis.until import Precision, standing

    found, unit = _capacities(results), UNITS[results.climb.over]
    for words in dict.fromkeys(Precision(one, 0.0, unit).words for one in found):
        say(words)
    where = ["cell"] if results.swept else []
    headers = ["server", *where, "SLO", f"capacity [{unit}]", "95 % interval", "ladders", "held for longer"]
    body = []
    for one in found:
        estimate = one.estimate
        cell = [" ".join(f"{key}={value}" for key, value in one.cell)] if where else []
        capacity = f"{'≥ ' * estimate.at_least}{_number(estimate.mean)}" if one.lowest is None else f"< {_number(one.lowest)}"
        between = f"{_number(estimate.low)} to {_number(estimate.high)}"
        interval = "–" if None in (estimate.low, estimate.high) or estimate.at_least else between
        held = _number(one.held) if one.not_held is None else f"not {_number(one.not_held)}"
        body.append([one.server, *cell, one.slo.text, capacity, interval, str(estimate.repeats), held])
    first = 2 + len(where)
    table(None, headers, body, right={first, first + 1, first + 2, first + 3}, keys=first)
    for one in found:
        if one.plateau:
            say(f"{one.server}: at {one.slo.text} its capacity lies {one.plateau}")
        if words := _recovered(one):
            say(f"{one.server}: {words}")
        if one.not_held is not None:
            say(f"{one.server}: {one.slo.text} was not kept for {_number(one.not_held)} {unit} in a longer load: take less")
    if any(not one.restarted for one in (trial.record for trial in results.trials)):
        say("a server that runs already keeps its process: the rounds show how it varies, not how its processes differ")
    if results.campaign.until is None:
        return
    if closing := standing(results).closing:
        for line in closing:
            say(line)
        longer = f"--budget {2 * results.campaign.until.budget_s:.0f}s"
        say(f"more rounds make it precise: wsbench run --resume {results.folder.path} {longer}")


def exit_code(results) -> int:
    """0 if a load was shown to be carried. Else: was each SLO broken at the lowest load, or is nothing known?"""
    found = _capacities(results)
    if any(one.estimate.mean is not None for one in found):
        return exits.DONE
    return exits.BREACHED if found and all(one.lowest is not None for one in found) else exits.NOTHING_USABLE


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}" if value < 1000 else f"{float(f'{value:.3g}'):,.0f}"


def _recovered(one) -> str:
    if one.recovery_s is not None:
        return f"recovers from an overload within {math.ceil(one.recovery_s)} s"
    return f"after an overload, {one.recovery}" if (one.recovery or "").startswith("not") else ""
