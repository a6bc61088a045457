"""An experiment: a TOML file that opens with the question it answers, read as a frozen value, and the cells of its sweep.

The file has no loops, conditions or templates. Unknown keys are errors. This module knows no server and starts nothing.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from pathlib import Path
from statistics import median
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from wsbench.experiments.choice import Choice
from wsbench.experiments.claims import written
from wsbench.experiments.claims.written import Claim, Versions
from wsbench.experiments.figure_table import FigureTable
from wsbench.experiments.load import SWEPT, Load
from wsbench.host import installation
from wsbench.records.engine_files import Closed, Messages, Seconds, Segment, Stage
from wsbench.records.errors import UserError, nearest
from wsbench.records.files import read_text
from wsbench.records.frozen import Frozen, one_line, read_toml
from wsbench.records.rundir import Arrangement, CellValue, FollowUp, Ladder
from wsbench.servers.settings import RuntimeName, RuntimeTable

EXPERIMENTS = installation.ROOT / "experiments"
Scaled = Literal["connections", "messages", "heap"]
#: A warm-up has this share of the load in question.
WARMING = 0.5
#: A trial of recovery: the overload and how long it lasts, then the light load, as shares of the load in question.
OVERLOAD, OVERLOAD_S, RELIEF = 1.5, 4.0, 0.5
#: Rungs and the gaps behind them last whole ticks of the engine, whose histograms are told apart. A gap as a share of its rung.
RUNG_TICK_S, GAP = 0.2, 0.5
#: results/instrument.md shows what other lengths give.
SLICE_S, LEAD_S = 0.05, 0.02
#: After a slice its replies are awaited, and its server may finish what it has begun.
TAIL_S = 0.01


#: A server on the JVM is warm after so many messages: until then the compiler took CPU time from Jetty 12.1. How long it may take.
WARM, COLDEST_S = 200_000, 60.0
#: Duration in seconds.
Warmup = Annotated[float, Field(ge=0, le=3600)]


class Timing(Frozen):
    """Duration of the warm-up and the measurement in seconds, and the number of rounds.

    `measure_s` is left out if `load.messages` ends the measurement, or if it lasts as long as `load.stages`. A disturbed trial
    (`verdict.disturbed`) is rerun at the end of its round, at most `again` times.
    """

    warmup_s: Warmup = 0
    #: With ladders: another warm-up for servers with this runtime, such as the JVM, which compiles their code meanwhile. It takes
    #: as long as WARM messages take, at most COLDEST_S.
    warmup_of: dict[RuntimeName, Warmup] = {}
    #: In slices: the length of one, and for how long it sends before it counts. A lead is longer than a reply takes.
    slice_s: Annotated[float, Field(ge=0.01, le=60)] = SLICE_S
    lead_s: Annotated[float, Field(ge=0.001, le=60)] = LEAD_S
    #: In slices and with ladders: what the host disturbed is left out, or it counts. The result is then about this host as it is.
    disturbed: Literal["leave out", "count"] = "leave out"
    #: Together: the time between the starts of two servers' loads, so that their steps do not coincide.
    apart_s: Annotated[float, Field(ge=0, le=600)] = 0
    measure_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    #: The engine's counters and latencies are kept for every stretch of this length.
    tick_s: Annotated[float, Field(ge=0.05, le=1)] = 1.0
    rounds: Annotated[int, Field(ge=1, le=1000)] = 5
    again: Annotated[int, Field(ge=0, le=100)] = 1


class Stop(Frozen):
    """Ends a trial while it is still connecting, because the server cannot keep up. Its outcome is then `stopped`.

    Conditions: fewer than `connects_per_s` connections per second over the last `over_s` seconds, failures above the share `errors`
    of all connections, or a server that has ended.
    """

    connects_per_s: Annotated[float, Field(gt=0)]
    over_s: Annotated[float, Field(ge=1)]
    errors: Annotated[float, Field(gt=0, le=1)]


class Climb(Frozen):
    """With `loop = "ladder"`: what a server is to keep, such as "response.p99 < 20ms and lost = 0", and the ladder of loads that
    each process of it carries. A rung lasts `timing.measure_s`, or as long as it takes to send enough messages.

    `over`: the loads are rates, or numbers of connections with `each_per_s` messages per second each. `start`: where the first
    ladder begins, `most`: the highest load of all. The first is coarse, and doubles from rung to rung. Later ladders have `rungs`
    loads around what was found: rates in random order; connections only grow. `span`: how far, as a logarithm.
    """

    slos: Annotated[list[str], Field(min_length=1, max_length=3)]
    over: Literal["rate", "connections"] = "rate"
    each_per_s: Annotated[float, Field(gt=0)] | None = None
    start: Annotated[float, Field(gt=0)] = 2000.0
    most: Annotated[float, Field(gt=0)] | None = None
    rungs: Annotated[int, Field(ge=4, le=40)] = 8
    span: Annotated[float, Field(gt=0, le=2)] = 0.35

    def per_s(self, load: float) -> float:
        """Messages per second in all."""
        return load if self.over == "rate" else self.each_per_s * load


class Experiment(Frozen):
    question: str
    reading: str
    servers: list[str]
    scenario: Literal["doc", "echo", "ping", "idle", "push", "rooms", "rpc"]
    loop: Literal["closed", "open", "none", "ladder"]
    headline: str
    #: Differences below this share do not matter. None: the 3 % of METHODOLOGY.md.
    margin: Annotated[float, Field(gt=0, lt=1)] | None = None
    load: Load = Load()
    sweep: dict[str, Annotated[list[CellValue], Field(min_length=1)]] = {}
    runtime: RuntimeTable = RuntimeTable()
    #: How the trials of a round run: one after another; alternately in short slices, with all servers alive; or all at once.
    arrangement: Arrangement = "trials"
    timing: Timing = Timing()
    ladder: Climb | None = None
    #: What `--scale` changes. Empty: the experiment has only one size. With `heap`, the processes of a server share it.
    scales: list[Scaled] = []
    stop: Stop | None = None
    figure: list[FigureTable] = []
    choice: list[Choice] = []
    versions: Versions = {}
    claim: list[Claim] = []

    @property
    def served(self) -> str:
        """The scenario that the server must support. Scenario idle uses connections of echo."""
        return "echo" if self.scenario == "idle" else self.scenario

    def cells(self) -> list[dict[str, CellValue]]:
        """Every combination of swept values, in the order of the file."""
        return [dict(zip(self.sweep, values, strict=True)) for values in itertools.product(*self.sweep.values())]

    def load_of(self, cell: dict[str, CellValue]) -> Load:
        return Load.model_validate({**self.load.model_dump(), **cell})

    def climbing(self, cell: dict[str, CellValue], runtime: RuntimeName | None, ladder: Ladder) -> Experiment:
        """This experiment with the warm-up, the rungs and the gaps of one ladder as its load."""
        # The first connections of a ladder have the lowest rate, and where the capacity of a coarse one lies is not known.
        known = not ladder.coarse and ladder.connections is None
        warmup_s, steps = self._warmed(runtime, WARMING * (median if known else min)(ladder.rates), ladder.coarse)
        for rate in ladder.rates:
            steps += [(ladder.relief_per_s, ladder.open_s), (rate, ladder.rung_s), (ladder.relief_per_s, ladder.gap_s)]
        measure_s = len(ladder.rates) * ladder.step_s
        if ladder.connections is None:
            return self._under(self.load_of(cell), steps, warmup_s, measure_s)
        # Stages begin with the measured window: the warm-up is a part of it.
        stages, before_s = [], warmup_s
        for number in ladder.connections:
            stages += [Stage(to=number, over_s=ladder.open_s), Stage(to=number, over_s=before_s + ladder.rung_s + ladder.gap_s)]
            before_s = 0.0
        opening = [(steps[0][0], ladder.open_s), *steps[:1], *steps[2:]] if warmup_s else steps
        load = self.load_of(cell).model_copy(update={"connections": max(ladder.connections), "stages": stages})
        return self._under(load, opening, 0.0, warmup_s + measure_s)

    def following(self, cell: dict[str, CellValue], runtime: RuntimeName | None, asked: FollowUp) -> Experiment:
        """This experiment with the load of a trial after the rounds."""
        load, per_s = self.load_of(cell), self.ladder.per_s(asked.load)
        if self.ladder.over == "connections":
            load = load.model_copy(update={"connections": round(asked.load)})
        warmup_s, steps = self._warmed(runtime, WARMING * per_s)
        steps += [(per_s, asked.seconds)]
        if asked.purpose == "recovery":
            steps[-1:] = [(OVERLOAD * per_s, OVERLOAD_S), (RELIEF * per_s, asked.seconds - OVERLOAD_S)]
        return self._under(load, steps, warmup_s, asked.seconds)

    def _warmed(self, runtime: RuntimeName | None, per_s: float, coarse: bool = False) -> tuple[float, list[tuple[float, float]]]:
        """The duration of a warm-up at this rate, and its step of the load. At a part of the rate, so that the backlog of a cold
        server is not measured. `coarse`: what does not count need not be as warm."""
        warmup_s = self.timing.warmup_s
        if runtime in self.timing.warmup_of:
            warmup_s = max(self.timing.warmup_of[runtime], 0.0 if coarse else min(WARM / per_s, COLDEST_S))
        return warmup_s, [(per_s, warmup_s)] if warmup_s else []

    def _under(self, load: Load, steps: list[tuple[float, float]], warmup_s: float, measure_s: float) -> Experiment:
        """With a load whose rate goes through these steps, each a rate and its duration in seconds."""
        rate = [Segment(from_per_s=per_s, to_per_s=per_s, for_s=for_s) for per_s, for_s in steps if for_s]
        timing = self.timing.model_copy(update={"warmup_s": warmup_s, "measure_s": measure_s, "tick_s": RUNG_TICK_S})
        return self.model_copy(update={"load": load.model_copy(update={"rate": rate}), "sweep": {}, "timing": timing})

    def measure_of(self, load: Load) -> Seconds | Messages:
        if load.messages is not None:
            return Messages(messages=load.messages)
        return Seconds(seconds=self.timing.measure_s or staged_s(load))

    @property
    def measure_s(self) -> float | None:
        """Duration of the measured phase in seconds. None if a message count ends it."""
        return self.timing.measure_s or staged_s(self.load)


def staged_s(load: Load) -> float | None:
    """Total duration of the stages in seconds. None without stages."""
    return None if load.stages is None else sum(stage.over_s for stage in load.stages)


#: Limit in bytes; file names have at most 255.
LONGEST_NAME = 200
#: For comparison: the largest experiment in the repository has six.
MOST_CELLS = 10_000


def path_of(name: str) -> Path:
    """The file of an experiment, given by name or by a path that ends in .toml."""
    if name.endswith(".toml"):
        return Path(name)
    if (path := in_catalogue(name)) is None:
        near = nearest(name, (file.stem for file in EXPERIMENTS.glob("*.toml")))
        raise UserError(
            f"no experiment {name[:LONGEST_NAME]!r}{near} (see `wsbench list experiments`, or give a path to a .toml file)"
        )
    return path


def in_catalogue(name: str) -> Path | None:
    """The file of the catalogue's experiment of this name; None if it has none. The name may come from a foreign campaign."""
    path = EXPERIMENTS / f"{name}.toml"
    return path if "/" not in name and len(name.encode()) <= LONGEST_NAME and path.exists() else None


@cache
def of_catalogue(name: str) -> Experiment | None:
    """The catalogue's experiment of this name; None if it has none."""
    return None if (path := in_catalogue(name)) is None else read(path)


def read(path: Path) -> Experiment:
    """Reads and checks an experiment. UserError: path, key, what was found, what is allowed."""
    experiment = read_toml(Experiment, path)
    for key in experiment.sweep:
        if key not in SWEPT:
            raise UserError(f"{path}: 'sweep.{key}' cannot be swept; allowed: {', '.join(SWEPT)}")
    cells = math.prod(map(len, experiment.sweep.values()))
    if cells > MOST_CELLS:
        raise UserError(f"{path}: 'sweep' makes {cells:,} cells, allowed: {MOST_CELLS:,}")
    try:
        for cell in experiment.cells():
            _require_end(path, experiment, cell)
        require_arranged(path, experiment)
    except ValidationError as error:
        raise UserError(f"{path}: {one_line(error)}") from error
    if experiment.timing.apart_s and experiment.arrangement != "together":
        raise UserError(f"{path}: 'timing.apart_s' needs arrangement 'together'")
    if experiment.timing.disturbed == "count" and experiment.arrangement != "slices" and experiment.ladder is None:
        raise UserError(f"{path}: 'timing.disturbed' needs arrangement 'slices' or loop 'ladder'")
    _check_claims(path, experiment)
    for one in experiment.choice:
        if one.at not in experiment.cells():
            raise UserError(f"{path}: 'choice.at': found {one.at}, allowed: a cell of the sweep, such as {experiment.cells()[0]}")
    return experiment


def _require_end(path: Path, experiment: Experiment, cell: dict) -> None:
    """Checks that a cell's load and loop are valid and that one thing ends it. ValidationError (pydantic) for a bad swept value."""
    load = experiment.load_of(cell)
    rooms = experiment.scenario == "rooms"
    if rooms != (load.room_size is not None) or (load.publishers is not None and not rooms):
        raise UserError(f"{path}: scenario 'rooms' needs 'load.room_size' and may have 'load.publishers'; no other has them")
    if rooms and (load.room_size > load.connections or (load.publishers or 1) > load.room_size):
        raise UserError(f"{path}: 'load.room_size' is {load.room_size}, allowed: from 'load.publishers' to 'load.connections'")
    ends = [load.messages, experiment.timing.measure_s]
    both, neither = None not in ends, ends == [None, None]
    if both or (neither and load.stages is None):
        raise UserError(f"{path}: give exactly one of 'load.messages' and 'timing.measure_s', or neither with 'load.stages'")
    if experiment.scenario != "echo" and (load.content != "letters" or load.deflate):
        raise UserError(f"{path}: 'load.content' and 'load.deflate' need scenario 'echo'")
    if experiment.scenario != "push" and load.copies_per_s is not None:
        raise UserError(f"{path}: 'load.copies_per_s' needs scenario 'push'")
    load.loop(experiment.loop)
    _require_ladder(path, experiment, load)


def _require_ladder(path: Path, experiment: Experiment, load: Load) -> None:
    """UserError unless a ladder has what it needs, and nothing else has a part of it."""
    asked = experiment.ladder
    if (asked is not None) != (experiment.loop == "ladder"):
        raise UserError(f"{path}: loop 'ladder' needs a table [ladder], and no other loop has one")
    if asked is None:
        if experiment.timing.warmup_of:
            raise UserError(f"{path}: 'timing.warmup_of' needs loop 'ladder'")
        return
    timed = experiment.timing.measure_s is not None and load.stages is None and experiment.stop is None
    if experiment.scenario not in ("echo", "ping", "push", "rooms", "rpc") or experiment.arrangement != "trials" or not timed:
        raise UserError(f"{path}: loop 'ladder' needs messages, 'timing.measure_s' and arrangement 'trials'")
    if any(one is not None for one in (load.rate, load.rate_per_s, load.copies_per_s)):
        raise UserError(f"{path}: loop 'ladder' brings its own rates: 'load' has none")
    if (asked.over == "connections") != (asked.each_per_s is not None):
        raise UserError(f"{path}: over connections, 'ladder.each_per_s' is needed; over the rate, it means nothing")
    if asked.over == "connections" and experiment.scenario in ("push", "rooms"):
        raise UserError(f"{path}: a ladder over connections needs messages with replies: scenario 'echo', 'ping' or 'rpc'")


def require_arranged(path: Path, experiment: Experiment) -> None:
    """UserError if a cell's load cannot be measured in the experiment's arrangement."""
    for cell in experiment.cells():
        load = experiment.load_of(cell)
        if (needed := _unarranged(experiment, load)) is not None:
            raise UserError(f"{path}: arrangement {experiment.arrangement!r} needs {needed}")


def _unarranged(experiment: Experiment, load: Load) -> str | None:
    """What the arrangement needs and this load is not; None if it fits."""
    loop, timed = load.loop(experiment.loop), experiment.timing.measure_s is not None and experiment.stop is None
    think = isinstance(loop, Closed) and loop.think is not None
    if experiment.arrangement == "slices":
        asks = experiment.scenario in ("echo", "ping", "doc", "rpc")
        if not (timed and asks and not think and load.stages is None):
            return "a steady closed or open loop of messages, ended by 'timing.measure_s'"
    if experiment.arrangement == "together":
        ends = timed or (load.stages is not None and experiment.stop is None)
        if not (ends and (think or experiment.loop in ("open", "none"))):
            return "a light load that ends by time: users who think, a rate, or idle connections"
    return None


def text_of(path: Path) -> str:
    """The text of an experiment's file, after it has been read and checked."""
    read(path)
    return read_text(path, links=True)


def _check_claims(path: Path, experiment: Experiment) -> None:
    try:
        written.check(experiment.claim, experiment.versions, list(experiment.sweep))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
