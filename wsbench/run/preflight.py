"""Before a load: one connection and one exchange, as the load will make them.

A wrong path, a missing token, a server that does not echo: such a load measures nothing, and one exchange shows why.
In: the plan of a load. Out: one sentence with what to type, or None if the exchange succeeded.
"""

from __future__ import annotations

import base64
import contextlib
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from wsbench.engine import program, shards
from wsbench.metrics import cause
from wsbench.metrics.findings import Finding
from wsbench.metrics.trial_data import TrialData
from wsbench.records.engine_files import Closed, Echo, Idle, Limits, Messages, NoLoop, Open, Ping, Plan, Push, Seconds, Segment
from wsbench.records.rundir import TrialFolder, TrialRecord
from wsbench.records.session_table import Exchange, Session
from wsbench.sessions import compiling, session_file

#: Time limit of each step: to connect, and to answer; and of a second try of a server that was too slow for that.
PATIENCE_S, MORE_S = 1.0, 4.0
TOO_SLOW = {"timeout", "setup_timeout", "connect_timeout", "handshake_timeout"}
#: Members of a room.
MEMBERS = 3
#: How long a connection is held that only has to stay open, and how long is listened to a server that does not echo.
HELD_S, LISTENED_S = 0.05, 1.0
#: Broadcasts a second for that long: one.
BROADCASTS_PER_S = 20.0
#: Paths that many protocols have.
COMMON_PATHS = {"/", "/ws"}
#: Characters that are shown of what a server said.
MOST_SHOWN = 60
#: Sends a text, if it has a step, and accepts whatever comes.
ANYTHING = """
about  = "whatever a server says"
source = "https://www.rfc-editor.org/rfc/rfc6455"
[rules]
anything = { begins = "", reply = true }
"""
SAYS = """
[[steps]]
name  = "say"
send  = "${text}"
await = "anything"
"""
NEVERTHELESS = "`--no-preflight` sends the load nevertheless"


def problem(plan: Plan) -> str | None:
    """Why a load by this plan would measure nothing."""
    for patience_s in (PATIENCE_S, MORE_S):
        with _carried_out(of_one(plan, patience_s)) as folder:
            trial = TrialData(folder, TrialRecord.alone(server=""))
            why = cause.of_server(trial)
            if why is None:
                return None
            kinds = cause.errors(trial).keys()
        if not kinds & TOO_SLOW:
            break
    return _words(plan, why, kinds)


@contextlib.contextmanager
def _carried_out(plan: Plan) -> Iterator[TrialFolder]:
    """What the engine wrote. TrialFailed if it did not carry the plan out."""
    with tempfile.TemporaryDirectory(prefix="wsbench-preflight-") as place:
        folder = TrialFolder(Path(place))
        with shards.Engines(plan, 1, folder, shards.ThisHost(program.require_binary())) as running:
            running.carry_out(lambda: None)
        yield folder


def of_one(plan: Plan, patience_s: float = PATIENCE_S) -> Plan:
    """The plan of one exchange on one connection or, if its session has rooms, in one room."""
    scenario, loop, measure, connections = plan.scenario, Closed(), Messages(messages=1), 1
    if isinstance(scenario, Idle) or isinstance(plan.loop, NoLoop):
        loop, measure = NoLoop(), Seconds(seconds=HELD_S)
    elif isinstance(scenario, Push):
        rate = Segment(from_per_s=BROADCASTS_PER_S, to_per_s=BROADCASTS_PER_S, for_s=0)
        loop, measure = Open(rate=[rate]), Seconds(seconds=HELD_S)
    elif isinstance(scenario, Session) and (rooms := scenario.rooms) is not None:
        connections = min(MEMBERS, -(-plan.connections // rooms.count))
        fewer = {"count": 1, "publishers": rooms.publishers and min(rooms.publishers, connections)}
        scenario = scenario.model_copy(update={"rooms": rooms.model_copy(update=fewer)})
    changed = {
        "scenario": scenario,
        "connections": connections,
        "connect": plan.connect.model_copy(update={"per_s": None}),
        "stages": None,
        "loop": loop,
        "warmup": None,
        "measure": measure,
        "drain_s": patience_s,
        "limits": Limits(connect_s=patience_s, reply_s=patience_s, deadline_s=4 * patience_s),
        "threads": 1,
        "cpus": plan.cpus[:1],
        "busy_poll": False,
        "source_addresses": plan.source_addresses[:1],
    }
    return plan.model_copy(update=changed)


def _words(plan: Plan, why: Finding, kinds: Collection[str]) -> str:
    if why.name == "no_connection":
        return f"{why.seen.partition(': ')[2]}. {why.remedy}".rstrip()
    if not isinstance(plan.scenario, Echo | Ping) or plan.transport != "websocket":
        return _said(why)
    if isinstance(plan.scenario, Echo) and "reply_opcode" in kinds:
        if plan.scenario.opcode == "text":
            return f"the server answers a text message by a binary one: add --binary. {NEVERTHELESS}."
        return f"the server answers a binary message by a text one: omit --binary. {NEVERTHELESS}."
    first = heard(plan)
    # A message that is longer than any echo ends the connection, too.
    if first is None and why.name == "died" and not {"timeout", "oversized"} & set(kinds):
        return _said(why)
    sent = "hello" if isinstance(plan.scenario, Echo) else "Ping"
    said = first or heard(plan, sent)
    name = recognised(urlsplit(plan.target.path).path, said or "")
    asks = "name its session with --session (`wsbench list sessions`)"
    remedy = f"it seems to speak {name}: add --session {name}" if name else asks
    if first is not None:
        return f"the server speaks first, {_quoted(first)}; {remedy}"
    answers = "no answer" if said is None else _quoted(said)
    if isinstance(plan.scenario, Ping):
        return f"the server answers the text `Ping` by {answers}, and not by `Pong`; {remedy}. {NEVERTHELESS}."
    answers = "no answer to a message" if said is None else f"{answers} as the answer to a message"
    return f"the server does not echo: it sends {answers}; {remedy}. {NEVERTHELESS}."


def _said(why: Finding) -> str:
    return " ".join(filter(None, [f"{why.seen}.", why.remedy, f"{NEVERTHELESS}."]))


def heard(plan: Plan, text: str | None = None) -> str | None:
    """The first message of the server on a new connection, by itself or after this text; None if there is none in time."""
    table = ANYTHING if text is None else ANYTHING + SAYS.replace("${text}", text)
    session = compiling.compiled_text(table, Path("preflight"), compiling.Choice(traced=True), connections=1)
    changed = {"scenario": session, "fragment_bytes": None}
    if text is None:
        changed |= {"loop": NoLoop(), "measure": Seconds(seconds=LISTENED_S)}
    with _carried_out(of_one(plan.model_copy(update=changed))) as folder:
        received = (event for event in folder.events() if isinstance(event, Exchange) and not event.sent)
        return next((base64.b64decode(event.content).decode(errors="replace") for event in received), None)


def recognised(path: str, said: str) -> str | None:
    """The session whose path this is, or one of whose rules is about a message that begins so."""
    for name in session_file.known():
        file = session_file.read(session_file.path_of(name))
        if path not in COMMON_PATHS and path == urlsplit(file.path).path:
            return name
        fronts = (rule.begins for rule in file.rules.values() if rule.begins)
        if any(len(front) > 1 and "$" not in front and said.startswith(front) for front in fronts):
            return name
    return None


def _quoted(said: str) -> str:
    line = said if said.isprintable() else said.encode("unicode_escape").decode()
    return f"`{line[:MOST_SHOWN]}{'…' if len(line) > MOST_SHOWN else ''}`"
