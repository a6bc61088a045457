"""The load generators compared: how a setting becomes their arguments, and what their output reports.

A contender turns a setting into an argument vector and its output into `Said`. It starts nothing and
reads no clock. The cost of a run comes from the kernel, not from the contender; see compare.py.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wsbench.host.installation import ROOT
from wsbench.host.process import output_of

DOCUMENT_BYTES = 512
K6_SCRIPT = Path(__file__).with_name("echo.k6.js")


class NoNumber(Exception):
    """A run without a number, with the reason: the contender cannot do the request, or did something else."""


@dataclass(frozen=True)
class Setting:
    """The task of every contender: `mode` is echo, connect, keep-alive or close."""

    mode: str
    connections: int
    bytes: int = DOCUMENT_BYTES
    depth: int = 1
    #: The wrapping of messages: "" (none), "tls" or "deflate".
    wrapping: str = ""
    #: Compressors keep their context from message to message.
    context: bool = True

    @property
    def unit(self) -> str:
        return "connection" if self.mode == "connect" else "message"

    @property
    def name(self) -> str:
        connections = f"{self.connections:,} connections"
        if self.mode == "connect":
            return f"connect and upgrade, {connections}"
        if self.mode != "echo":
            return f"HTTP {self.mode}, {self.bytes} B, {connections}"
        power, size_unit = next((p, u) for p, u in ((20, "MiB"), (10, "KiB"), (0, "B")) if self.bytes >> p)
        size = f"{self.bytes >> power} {size_unit}"
        wrapping = {"": "", "tls": " over TLS", "deflate": " with permessage-deflate"}[self.wrapping]
        wrapping += "" if self.context else " without context"
        return f"echo {size}{wrapping}, {connections}, depth {self.depth}"


@dataclass(frozen=True)
class Run:
    """Where and how long: everything that differs between two runs of a setting."""

    setting: Setting
    port: int
    seconds: float
    cpu: int
    folder: Path

    @property
    def url(self) -> str:
        path = "/echo" if self.setting.mode == "echo" else f"/doc?size={self.setting.bytes}"
        return f"{'ws' if self.setting.mode == 'echo' else 'http'}://127.0.0.1:{self.port}{path}"


@dataclass(frozen=True)
class Said:
    """A contender's own report: everything it exchanged (connections, in mode connect), its rate and, if it
    separates them from the set-up, CPU time and messages of the exchange."""

    messages: int
    rate_per_s: float
    window_cpu_ns: float | None = None
    window_messages: int | None = None


class Floor:
    name = "floor"
    modes = ("echo", "connect", "keep-alive", "close")

    #: The floor's mode for an echo that is not wrapped.
    echo = "echo"

    def __init__(self, binary: Path):
        self.binary = binary

    def version(self) -> str | None:
        return f"engine/benches/floor {self.echo}, this revision"

    def command(self, run: Run) -> list[str]:
        setting = run.setting
        numbers = [setting.connections, setting.depth, setting.bytes, run.seconds]
        mode = self.echo if setting.mode == "echo" else setting.mode
        mode = f"echo-{setting.wrapping}" if setting.wrapping else mode
        return [str(self.binary), mode, f"127.0.0.1:{run.port}", *map(str, numbers)]

    def read(self, run: Run, output: str) -> Said:
        said = json.loads(output)
        messages, rate = said["messages"], said["messages"] / said["wall_ns"] * 1e9
        if run.setting.mode == "connect":
            return Said(messages, rate)
        return Said(messages, rate, said["user_ns"] + said["system_ns"], messages)


ENGINE = "wsbench-engine"


class Engine:
    modes = ("echo", "connect", "keep-alive", "close")
    install = "make setup"

    def __init__(self, binary: Path, name: str = ENGINE):
        self.binary = binary
        self.name = name

    @property
    def examples(self) -> Path:
        """Of the contract in the engine's own checkout: an earlier engine has an earlier one."""
        folders = (parent / "protocol/examples" for parent in self.binary.resolve().parents)
        return next(filter(Path.is_dir, folders), ROOT / "protocol/examples")

    def version(self) -> str | None:
        return str(self.binary) if self.binary.exists() else None

    def command(self, run: Run) -> list[str]:
        return self.carry_out(self.plan(run), run.folder)

    def carry_out(self, plan: dict, folder: Path) -> list[str]:
        (folder / "plan.json").write_text(json.dumps(plan))
        return [str(self.binary), str(folder / "plan.json"), str(folder)]

    def plan(self, run: Run) -> dict:
        """The contract's own example, changed to match the setting."""
        setting = run.setting
        websocket = setting.mode in ("echo", "connect")
        plan = json.loads((self.examples / f"plan-{'echo' if websocket else 'doc'}.json").read_text())
        address = f"127.0.0.1:{run.port}"
        path = "/echo" if websocket else f"/doc?size={setting.bytes}"
        plan |= {
            "target": {"address": address, "replicas": [], "host": address, "path": path},
            "connections": setting.connections,
            "warmup": None,
            "measure": {"messages": 1} if setting.mode == "connect" else {"seconds": run.seconds},
            "limits": {"connect_s": 10.0, "reply_s": 10.0, "deadline_s": run.seconds + 60.0},
            "threads": 1,
            "cpus": [run.cpu],
            "source_addresses": ["0.0.0.0"],
        }
        plan["scenario"]["bytes"] = setting.bytes
        if not websocket:
            plan["scenario"]["persistent"] = setting.mode == "keep-alive"
        if setting.depth > 1:
            plan["loop"]["depth"] = setting.depth
        if setting.wrapping == "tls":
            plan["tls"] = {"verify": False, "ca": None}
        elif setting.wrapping == "deflate":
            plan["deflate"] = {f"{side}_context_takeover": setting.context for side in ("client", "server")} | {"level": 6}
        return plan

    def read(self, run: Run, output: str) -> Said:
        events = events_of(run.folder)
        end, last_tick = events[-1], [event for event in events if event["event"] == "tick"][-1]
        if end["outcome"] != "completed" or end["errors"] or last_tick["failed"]:
            raise NoNumber(f"outcome {end['outcome']}, errors {end['errors']}")
        if run.setting.mode == "connect":
            return self._connects(events)
        measured = end["measured"]
        if measured["sent"] != measured["answered"]:
            raise NoNumber(f"{measured['unanswered']} messages were not answered")
        rate = measured["replies_in_window"] / measured["window_ns"] * 1e9
        cpu_ns = sum(thread["cpu_ns"] for thread in end["threads"])
        return Said(last_tick["answered"], rate, cpu_ns, measured["replies_in_window"])

    def _connects(self, events: list[dict]) -> Said:
        begins = {event["phase"]: event["t_ns"] for event in events if event["event"] == "phase"}
        established = events[-1]["connections"]["established"]
        if established != events[-1]["connections"]["asked"]:
            raise NoNumber(f"{established} connections were made")
        return Said(established, established / (begins["measure"] - begins["connect"]) * 1e9)


class Session(Engine):
    """As many bytes as JSON-RPC calls, matched by their numbers: what a session costs above an echo."""

    modes = ("echo",)
    bytes = 128

    def __init__(self, of: Engine):
        super().__init__(of.binary, f"{of.name}, session")

    def plan(self, run: Run) -> dict:
        front, back = '{"jsonrpc":"2.0","method":"echo","params":["', '"],"id":'
        # The postmark, and a number of six digits.
        letters = run.setting.bytes - len(front) - len(back) - 52 - 6 - 1
        call = [{"text": front}, {"postmark": {}}, {"letters": letters}, {"text": back}, {"number": "sequence"}, {"text": "}"}]
        fail = {"kind": "fail", "by": 0, "last": True}
        reply = {"kind": "reply", "by": 0, "marked": True, "last": True}
        plan = super().plan(run)
        plan["scenario"] = {
            "kind": "session",
            "opcode": "text",
            "records": {"kind": "message"},
            "longest": 1 << 20,
            "fields": [{"kind": "json", "path": ["id"]}, {"kind": "json", "path": ["error", "code"]}],
            "rules": [
                {"name": "error", "when": [{"kind": "has", "field": 1}], "does": fail, "captures": []},
                {"name": "result", "when": [{"kind": "has", "field": 0}], "does": reply, "captures": []},
            ],
            "templates": [call],
            "steps": [{"name": "call", "sends": 0, "awaits": {"kind": "rule", "rule": 1}}],
            "setup": 0,
            "keepalives": [],
            "data": None,
            "captured": 0,
            "rooms": None,
            "traced": False,
        }
        return plan


def events_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


class Wrk:
    name = "wrk"
    modes = ("keep-alive", "close")
    install = "apt-get install wrk"

    def version(self) -> str | None:
        return _first_line("wrk", "-v")

    def command(self, run: Run) -> list[str]:
        close = ["-H", "Connection: close"] if run.setting.mode == "close" else []
        seconds = max(1, round(run.seconds))
        return ["wrk", "-t", "1", "-c", str(run.setting.connections), "-d", f"{seconds}s", *close, run.url]

    def read(self, run: Run, output: str) -> Said:
        if wrong := re.search(r"Socket errors.*|Non-2xx.*", output):
            raise NoNumber(wrong.group())
        return Said(
            int(_found(r"(\d+) requests in", output)),
            float(_found(r"Requests/sec:\s+([\d.]+)", output)),
        )


class Ab:
    name = "ab"
    modes = ("keep-alive", "close")
    install = "apt-get install apache2-utils"

    def version(self) -> str | None:
        return _first_line("ab", "-V")

    def command(self, run: Run) -> list[str]:
        keep = ["-k"] if run.setting.mode == "keep-alive" else []
        seconds, enough = max(1, round(run.seconds)), 5_000_000
        numbers = ["-c", str(run.setting.connections), "-t", str(seconds), "-n", str(enough)]
        return ["ab", "-q", *keep, *numbers, run.url]

    def read(self, run: Run, output: str) -> Said:
        if int(_found(r"Failed requests:\s+(\d+)", output)) or "Non-2xx" in output:
            raise NoNumber("ab counts failed requests")
        return Said(
            int(_found(r"Complete requests:\s+(\d+)", output)),
            float(_found(r"Requests per second:\s+([\d.]+)", output)),
        )


class Autocannon:
    name = "autocannon"
    modes = ("keep-alive",)
    install = "npm install --global autocannon"

    def version(self) -> str | None:
        return _first_line("autocannon", "--version")

    def command(self, run: Run) -> list[str]:
        seconds = max(1, round(run.seconds))
        return ["autocannon", "--json", "-c", str(run.setting.connections), "-d", str(seconds), run.url]

    def read(self, run: Run, output: str) -> Said:
        said = json.loads(_found(r"(?m)^(\{.*\})\s*$", output))
        if said["errors"] or said["timeouts"] or said["non2xx"]:
            raise NoNumber(f"errors {said['errors']}, timeouts {said['timeouts']}, not 2xx {said['non2xx']}")
        return Said(said["requests"]["total"], said["requests"]["total"] / said["duration"])


class K6:
    name = "k6"
    modes = ("echo",)
    install = "go install go.k6.io/k6@latest"
    #: It takes 3 MB for a connection, and its own frames: only as much as shows its rank.
    most_connections = 50
    largest_bytes = 125

    def version(self) -> str | None:
        return _first_line("k6", "version")

    def command(self, run: Run) -> list[str]:
        setting = run.setting
        values = {
            "URL": run.url,
            "CONNECTIONS": setting.connections,
            "DEPTH": setting.depth,
            "BYTES": setting.bytes,
            "SECONDS": run.seconds,
        }
        given = [part for name, value in values.items() for part in ("--env", f"{name}={value}")]
        return ["k6", "run", "--quiet", "--no-usage-report", "--address", "", *given, str(K6_SCRIPT)]

    def read(self, run: Run, output: str) -> Said:
        said = json.loads(_found(r"(?m)^(\{.*\})\s*$", output))
        if said["wrong"] or said["connections"] != run.setting.connections:
            raise NoNumber(f"{said['connections']} connections, {said['wrong']} errors")
        return Said(said["messages"], said["messages"] / run.seconds)


def serves(contender, setting: Setting) -> bool:
    if setting.mode not in contender.modes or (setting.wrapping and not isinstance(contender, Engine | Floor)):
        return False
    if isinstance(contender, Floor):
        return setting.context
    if isinstance(contender, Session):
        return setting.bytes == Session.bytes and not setting.wrapping
    if isinstance(contender, K6):
        return setting.connections <= K6.most_connections and setting.bytes <= K6.largest_bytes
    return True


@cache
def _first_line(program: str, *arguments: str) -> str | None:
    """The version that a program reports; None if it is not installed."""
    if shutil.which(program) is None:
        return None
    return next(iter(output_of([program, *arguments]).text.splitlines()), "version not told")


def _found(pattern: str, output: str) -> str:
    match = re.search(pattern, output)
    if match is None:
        raise NoNumber(f"nothing like {pattern!r} in its output: {output[-200:]!r}")
    return match.group(1)
