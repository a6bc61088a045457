"""`wsbench capacity` on the terminal: its arguments, and its answers as text or JSON. It starts nothing."""

from __future__ import annotations

import json
import math

from wsbench.cli import exits, load_options, values
from wsbench.cli.terminal import duration, say, table


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
        metavar="PROMISE",
        help="what the server is to keep, such as 'response.p99 < 20ms' or 'p99 < 5ms and lost = 0'; up to three, in one search",
    )
    made.add_argument("--over", choices=("rate", "connections"), default="rate", help="what is searched for (default: rate)")
    made.add_argument("-c", "--connections", type=values.positive, default=50, help="over the rate: connections (default: 50)")
    made.add_argument(
        "--rate-each", type=values.above_zero, metavar="RATE", help="over connections: messages/s of each connection, such as 0.1"
    )
    made.add_argument("--rate", type=values.above_zero, metavar="RATE", help="over connections: messages/s of all together")
    made.add_argument("--push", action="store_true", help="broadcasts in place of echoes; --rate is their rate")
    made.add_argument("--rpc", action="store_true", help="requests in each server's own protocol in place of echoes")
    made.add_argument(
        "--session", metavar="NAME|FILE", help="commands and URLs answer requests in this session (`wsbench list sessions`)"
    )
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
    made.add_argument("--start", type=values.above_zero, metavar="LOAD", help="the first load (default: 1000)")
    made.add_argument("--most", type=values.above_zero, metavar="LOAD", help="no load is higher than this")
    made.add_argument(
        "--within",
        type=values.margin,
        default=0.05,
        metavar="PERCENT",
        help="end at this half width of the interval (default: 5%%)",
    )
    made.add_argument(
        "--budget",
        type=values.seconds_above_zero,
        default=300.0,
        metavar="TIME",
        help="end each server's search after this wall time (default: 5m); the last, longer trials come after it",
    )
    made.add_argument(
        "--probe", type=values.seconds_above_zero, default=5.0, metavar="TIME", help="measured time of a probe (default: 5s)"
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
        help="count probes that the host disturbed, instead of repeating them: the answer is then about this host as it is",
    )
    made.add_argument("--rounds", type=values.positive, default=1, help="independent searches of each server (default: 1)")
    made.add_argument(
        "--path", type=values.path, help="path of commands and of URLs without one (default: /echo, or that of the session)"
    )
    made.add_argument("--pid", type=values.pid, metavar="PID", help="the process behind a URL")
    made.add_argument("--seed", type=values.seed, help="seed of all random choices")
    made.add_argument("--json", action="store_true", help="print one JSON document instead of tables")


def rows(results) -> list[dict]:
    """The answers: server, cell, promise, capacity and its interval, what ended the search, response times at half of the first
    promise's capacity, and recovery from an overload."""
    from wsbench.analysis.capacity import answers

    found = []
    for (name, cell, number), one in sorted(answers.searches(results.data, results.searched).items()):
        for place, answer in enumerate(one.answers):
            found.append(
                {
                    "server": name,
                    "cell": dict(cell),
                    "round": number,
                    "promise": answer.promise.text,
                    "capacity": answer.found.estimate,
                    "low": answer.found.low,
                    "high": answer.found.high,
                    "within": answer.found.within,
                    "held": answer.held,
                    "ended": one.ended(place),
                    "gone": one.gone,
                    "generator": answer.generator,
                    "probes": len(one.tried),
                    "disturbed": sum(tried.disturbed for tried in one.tried),
                    "seconds": one.spent_s,
                    **{name: one.at_half(of) for name, of in answers.AT_HALF.items()},
                    "recovery_s": None if one.recovery is None else one.recovery.value("recovery_s"),
                    "recovery": None if one.recovery is None else one.recovery.reason("recovery_s"),
                }
            )
    return found


def document(results) -> str:
    return json.dumps({"over": results.searched.capacity.over, "answers": rows(results)}, indent=2)


def summary(results) -> None:
    """The table of answers, and what the last probes showed."""
    from wsbench.analysis.capacity.answers import AT_HALF, ENDED, UNITS
    from wsbench.analysis.wording import scale

    found = rows(results)
    unit = UNITS[results.searched.capacity.over]
    several = len({one["round"] for one in found}) > 1
    where = ["cell"] if results.swept else []
    headers = ["server", *where, *(["round"] if several else []), "promise", f"capacity [{unit}]", "held", "probes", "ended"]
    body = []
    for one in found:
        cell = [" ".join(f"{key}={value}" for key, value in one["cell"].items())] if where else []
        number = [str(one["round"])] if several else []
        body.append(
            [
                one["server"],
                *cell,
                *number,
                one["promise"],
                interval(one),
                _number(one["held"]),
                str(one["probes"]),
                ENDED[one["ended"]],
            ]
        )
    first = 1 + len(where) + several
    table(None, headers, body, right={first + 1, first + 2, first + 3}, keys=first + 1)
    # What is said of a whole search stands in the row of each of its promises.
    searches = {(one["server"], str(one["cell"]), one["round"]): one for one in found}.values()
    for one in searches:
        if one["half_response_us_p99"] is not None:
            p50, p99 = (scale("µs", [value]).with_unit(value) for value in map(one.get, AT_HALF))
            say(f"{one['server']}: at half of its capacity p50 is {p50} and p99 {p99}")
        if words := _recovered(one):
            say(f"{one['server']}: {words}")
        if one["gone"]:
            say(gone(one))
    took = f"the searches took {duration(sum(one['seconds'] for one in searches))} in trials"
    disturbed, probes = (sum(one[key] for one in searches) for key in ("disturbed", "probes"))
    how = "counted: the answers are about this host as it is" if results.searched.capacity.disturbed == "count" else "repeated"
    say(took + (f"; the host disturbed {disturbed} of {probes} probes, which were {how}" if disturbed else ""))
    if any(one["ended"] == "budget" and None in (one["low"], one["high"]) for one in found):
        asked = results.searched.capacity
        longer = f"--budget {2 * asked.budget_s:.0f}s" + ("" if asked.probes is None else f" --probes {2 * asked.probes}")
        say(f"more probes can show the ends that are missing: wsbench run --resume {results.folder.path} {longer}")


def gone(one: dict) -> str:
    """Why no further load was tried, in one line."""
    return f"{one['server']}: {one['gone']} (the search ended after {one['probes']} probe{'s' * (one['probes'] != 1)})"


def exit_code(found: list[dict]) -> int:
    """0 if a load was shown to be carried. Else: was each promise broken at the lowest load, or is nothing known?"""
    if any(one["low"] is not None for one in found):
        return exits.DONE
    return exits.BREACHED if found and all(one["ended"] == "least" for one in found) else exits.NOTHING_USABLE


def interval(one: dict) -> str:
    """`7,700 (7,400 to 8,000)`; a bound where only one end is shown."""
    low, high = (_number(one[end]) for end in ("low", "high"))
    if one["low"] is not None and one["high"] is not None and one["capacity"] is not None:
        return f"{_number(one['capacity'])} ({low} to {high})"
    if one["low"] is not None:
        return f"at least {low}" if one["high"] is None else f"{low} to {high}"
    if one["high"] is not None:
        return f"at most {high}"
    return "–" if one["capacity"] is None else f"near {_number(one['capacity'])}, no interval"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}" if value < 1000 else f"{float(f'{value:.4g}'):,.0f}"


def _recovered(one: dict) -> str:
    if one["recovery_s"] is not None:
        return f"recovers from an overload within {math.ceil(one['recovery_s'])} s"
    return f"after an overload, {one['recovery']}" if (one["recovery"] or "").startswith("not") else ""
