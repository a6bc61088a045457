"""`wsbench session`: checks a session file, writes one from what a browser did, or carries it out with one user and prints every
message in both directions."""

from __future__ import annotations

import argparse
import base64
import json
import shutil
from dataclasses import replace
from pathlib import Path

from wsbench.analysis import wording
from wsbench.cli import load_options, reading
from wsbench.cli.exits import BREACHED, DONE, NOTHING_USABLE
from wsbench.cli.terminal import console, shown
from wsbench.cli.values import positive
from wsbench.metrics.trial_data import TrialData
from wsbench.records.errors import NothingUsable, UserError
from wsbench.records.files import read_text
from wsbench.records.plain import time_text
from wsbench.records.session_table import Exchange, Session
from wsbench.report.loaded import examples
from wsbench.run import load
from wsbench.sessions import compiling, from_har, har, session_file

TASKS = {
    "check": "name every fault of a file",
    "try": "carry it out with one user and print every message",
    "from-har": "write a session from what a browser did",
}
#: Characters of a message that are shown.
MOST_SHOWN = 160


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", choices=list(TASKS), help="; ".join(f"{name}: {text}" for name, text in TASKS.items()))
    parser.add_argument("file", metavar="NAME|FILE", help="a session or its file; for from-har the archive, FILE.har")
    parser.add_argument("url", nargs="?", help="try: the server, such as ws://127.0.0.1:8080/chat")
    parser.add_argument("-n", "--messages", type=positive, help="try: end after this many messages (default: two of each step)")
    parser.add_argument("--entry", metavar="PART", help="from-har: the WebSocket whose URL has this part (default: the busiest)")
    parser.add_argument("--json", action="store_true", help="check: print the table that the engine gets")
    load_options.add_session(parser)
    for name in ("--subprotocol", "--mine"):
        parser.add_argument(name, action="append", default=[], help="try: as of `wsbench load`")


def run(arguments) -> int:
    return {"check": _check, "try": _try, "from-har": _from_har}[arguments.task](arguments)


def _choice(arguments) -> compiling.Choice:
    return load_options.choice(arguments, session_file.path_of(arguments.file))


def _check(arguments) -> int:
    path = session_file.path_of(arguments.file)
    made = compiling.compiled(path, _choice(arguments), connections=max(2, arguments.room_size or 2))
    if arguments.json:
        print(json.dumps(made.model_dump(), indent=1, ensure_ascii=False))
    else:
        steps = [wording.count(made.setup, "step"), wording.count(len(made.steps) - made.setup, "step")]
        console.print(f"{arguments.file} is right: {steps[0]} of setup, {steps[1]}, {wording.count(len(made.rules), 'rule')}")
    return 0


def _from_har(arguments) -> int:
    text = read_text(Path(arguments.file), links=True)
    try:
        print(from_har.session_of(har.chosen(har.archive_of(text), arguments.entry)), end="")
    except UserError as error:
        raise UserError(f"{arguments.file}: {error}") from error
    return 0


def _try(arguments) -> int:
    """DONE if every request was answered, NOTHING_USABLE if none was, else BREACHED."""
    if arguments.url is None:
        raise UserError("session try needs a URL, such as ws://127.0.0.1:8080/chat")
    choice = replace(_choice(arguments), traced=True)
    steps = compiling.compiled(session_file.path_of(arguments.file), choice, connections=1).steps
    words = ["-c", "1", "-n", str(arguments.messages or max(1, 2 * len(steps))), "--warmup", "0", "--threads", "1"]
    for name in ("subprotocol", "mine"):
        words += [word for value in getattr(arguments, name) for word in (f"--{name}", value)]
    parser = argparse.ArgumentParser()
    load_options.add(parser)
    asked = load_options.request(parser.parse_args([arguments.url, *words]))
    asked = replace(asked, session=session_file.path_of(arguments.file), choice=choice, preflight=False)
    folder = load.claimed(reading.RUNS)
    try:
        done = load.carry_out(asked, folder, lambda *_: None)
        return _tell(TrialData(folder, done.record))
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)


def _tell(trial: TrialData) -> int:
    if trial.end is None or trial.plan is None or not isinstance(trial.plan.scenario, Session):
        raise NothingUsable(trial.record.reason or "the engine wrote no result")
    began = trial.begins["connect"]
    for event in trial.events:
        if isinstance(event, Exchange):
            arrow, what = ("→" if event.sent else "←"), event.what or "no rule"
            line = f"{time_text(event.t_ns - began):>8}  {arrow}  {what:<12}  {_content(event.content)}"
            console.print(shown(line), soft_wrap=True)
    for kind, (count, example) in examples(trial).items():
        console.print(f"[red]{kind}[/]: {count} ({shown(example)})", soft_wrap=True)
    measured = trial.end.measured
    console.print(f"{measured.sent:,} sent, {measured.answered:,} answered, {measured.failed:,} failed")
    if not measured.answered:
        return NOTHING_USABLE
    return BREACHED if trial.end.errors or measured.answered < measured.sent else DONE


def _content(encoded: str) -> str:
    """Text as it is, other bytes as hexadecimal digits; cut to one line."""
    content = base64.b64decode(encoded)
    try:
        text = content.decode().replace("\r", "␍").replace("\n", "␊").replace("\0", "␀").replace("\x1e", "␞")
    except UnicodeDecodeError:
        text = content.hex(" ")
    if not text.isprintable():
        text = content.hex(" ")
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}… ({len(content):,} bytes)"
