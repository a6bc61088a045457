"""The result of a duel in words: one sentence a metric, Markdown for a pull request, JSON for programs.

In: the results of a campaign that compared a pair until decided. Everything is about B, the new one, against A, the base.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from wsbench import metrics
from wsbench.analysis import stats, titles, until, wording
from wsbench.analysis.gates import Gate
from wsbench.analysis.results import Results
from wsbench.analysis.until import Comparison, Standing

#: Metrics that a sentence has a verb for: (verb, unit).
RATES = {
    "messages_per_s": ("carries", "messages/s"),
    "requests_per_s": ("answers", "requests/s"),
    "capacity_per_s": ("carries", "messages/s under its SLO"),
}


@dataclass(frozen=True)
class Duel:
    """`base` and `new` are the contenders in the user's words."""

    results: Results
    base: str
    new: str

    @cached_property
    def standing(self) -> Standing:
        return until.standing(self.results)

    @cached_property
    def usable(self) -> bool:
        """Whether a metric has a usable number of both, or a decision without one."""
        return any(one.decided or None not in self.means(one) for one in self.standing.comparisons)

    def means(self, one: Comparison) -> list[float | None]:
        """Of A and of B."""
        return [self.results.estimate(name, one.cell, one.metric).mean for name in self.results.campaign.until.pair]

    @property
    def sentences(self) -> list[str]:
        return [sentence(one, self.standing, self.results.margin) for one in self.standing.comparisons]

    @property
    def notes(self) -> list[str]:
        """What a reader has to know about the numbers."""
        left_out, turns = self.results.turns
        notes = []
        if self.standing.disturbed is not None:
            notes.append(f"nothing is decided: {self.standing.disturbed}. {until.AS_IT_IS}")
        elif turns:
            as_is = any(planned.as_is for planned in self.results.order)
            became = "counted: the result is about this host as it is" if as_is else "left out"
            notes.append(f"{left_out:,} of {turns:,} turns were disturbed by the host and {became}")
        if self.results.control is not None:
            notes.append("A and B are the same server, run twice: every difference is noise")
        running = [row.running for row in self.results.servers if row.running is not None]
        if running:
            notes.append(
                "one process each was compared and not restarted, because it ran already: " + ", ".join(r.url for r in running)
            )
        trials = self.results.every_trial
        for one in self.standing.comparisons:
            unusable = [trial for trial in trials if not trial.counts_for(one.metric)]
            if unusable:
                share = f"{len(unusable)} of {len(trials)} trials have no usable {one.metric}"
                notes.append(f"{share}, for example: {self._why(unusable[0], one.metric)}")
        return notes

    @staticmethod
    def _why(trial, metric: str) -> str:
        if trial.record.reason:
            return f"{trial.record.name}: {trial.record.reason}"
        because = trial.verdict.because(metrics.METRICS[metric].family)
        return because[0].text if because else "no number"

    def judged(self, gates: list[Gate]) -> list[tuple[Gate, str, Comparison | None]]:
        """Every gate with *breached*, *held* or *undecided*, and what it was about."""
        of = {one.metric: one for one in self.standing.comparisons}
        return [(gate, gate.judge(None if (found := of.get(gate.metric)) is None else found.decision), found) for gate in gates]


def sentence(one: Comparison, standing: Standing, margin: float) -> str:
    """`B carries 5.1 % fewer messages/s (4.2–6.0 %) after 48 s: relevant, beyond 3 %`, equal, or undecided with the reason."""
    after = f" after {wording.lasting(standing.spent_s)}"
    verb, unit = RATES.get(one.metric, (None, titles.title(one.metric, inside=True)))
    found = one.decision
    if found is None or (found.ratio is None and found.says == "undecided"):
        reason = one.reason if found is None else found.reason
        return f"{unit}: undecided{after}: {reason}"
    if found.says == "equal":
        return f"{unit}: equal within {percent(margin)} %{_changes(found)}{after}"
    if found.says == "undecided":
        return f"{unit}: undecided{_changes(found)}{after}: {_open(found, standing)}"
    if found.ratio is None:
        return f"{unit}: B is {found.says}{after}: {found.reason}"
    up = found.ratio > 1
    size = f"{percent(abs(found.ratio - 1))} %"
    ends = "" if found.low is None else sorted((abs(found.low - 1), abs(found.high - 1)))
    interval = f" ({percent(ends[0])}–{percent(ends[1])} %)" if ends else ""
    weight = f"relevant, beyond {percent(margin)} %" if found.relevant else ""
    said = ": " + "; ".join(filter(None, (weight, found.reason)))
    if verb is not None:
        return f"B {verb} {size} {'more' if up else 'fewer'} {unit}{interval}{after}{said}"
    return f"B's {unit} is {size} {'higher' if up else 'lower'}{interval}{after}{said}"


def _open(found: stats.Decision, standing: Standing) -> str:
    if standing.rounds < standing.first:
        return f"{standing.first} rounds are needed"
    return standing.campaign_of(found.rounds) or found.reason


def _changes(found: stats.Decision) -> str:
    if found.low is None:
        return ""
    return f" ({signed(found.low - 1)} to {signed(found.high - 1)} %)"


def percent(share: float) -> str:
    """Two digits, at most one decimal: `0.4`, `3.1`, `42`."""
    number = 100 * share
    return f"{number:.1f}".removesuffix(".0") if number < 10 else f"{number:,.0f}"


def signed(share: float) -> str:
    """With its sign: `−0.9`, `+1.2`."""
    text = percent(abs(share))
    return text if text == "0" else ("−" if share < 0 else "+") + text


HEADERS = ["metric", "A", "B", "B against A"]


def rows(duel: Duel) -> list[list[str]]:
    """Texts in the order of HEADERS: both means and the sentence's decision."""
    found = []
    for one in duel.standing.comparisons:
        means = duel.means(one)
        scale = wording.scale(metrics.METRICS[one.metric].unit, means)
        says = "undecided" if one.decision is None else one.decision.says
        ratio = "" if one.decision is None or one.decision.ratio is None else f"{signed(one.decision.ratio - 1)} %"
        interval = "" if one.decision is None else _changes(one.decision)
        found.append([one.metric, *map(scale.with_unit, means), f"{says}: {ratio}{interval}" if ratio else says])
    return found


def gate_words(duel: Duel, gates: list[Gate]) -> list[str]:
    return [
        f"--fail-if {gate.text!r}: {says}" + (f", B against A{_changes(one.decision)}" if one is not None and one.decision else "")
        for gate, says, one in duel.judged(gates)
    ]


def markdown(duel: Duel, gates: list[Gate]) -> str:
    """For a pull request: the sentences, the table, and the notes folded away."""
    head = f"**A** {_code(duel.base)} against **B** {_code(duel.new)}"
    parts = [head, "\n".join(f"- {wording.escaped(line)}" for line in duel.sentences), wording.grid(HEADERS, rows(duel))]
    if gates:
        parts.append("\n".join(f"- {wording.escaped(line)}" for line in gate_words(duel, gates)))
    if duel.standing.disturbed is not None:
        parts.insert(1, wording.escaped(duel.notes[0]))
    took = wording.count(duel.standing.rounds, "round")
    notes = [f"{took}, {wording.lasting(duel.standing.spent_s)}", *duel.notes]
    listed = "\n".join(f"- {wording.escaped(line)}" for line in notes)
    parts.append(f"<details><summary>Measurement</summary>\n\n{listed}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def document(duel: Duel, gates: list[Gate]) -> dict:
    """For programs. Ratios are B over A; `judged` has the gates."""
    left_out, turns = duel.results.turns
    return {
        "format": "wsbench-duel-2",
        "a": duel.base,
        "b": duel.new,
        "folder": str(duel.results.folder.path),
        "rounds": duel.standing.rounds,
        "planned_rounds": duel.standing.until.planned,
        "spent_s": duel.standing.spent_s,
        "usable": duel.usable,
        "turns": {"all": turns, "disturbed": left_out},
        "notes": duel.notes,
        "metrics": [
            {
                "metric": one.metric,
                "unit": metrics.METRICS[one.metric].unit,
                "a": duel.means(one)[0],
                "b": duel.means(one)[1],
                "says": "undecided" if one.decision is None else one.decision.says,
                "ratio": None if one.decision is None else one.decision.ratio,
                "low": None if one.decision is None else one.decision.low,
                "high": None if one.decision is None else one.decision.high,
                "margin": duel.results.margin,
                "relevant": one.decision is not None and one.decision.relevant,
                "rounds_for_8_of_10": None if one.decision is None else one.decision.rounds,
                "sentence": text,
            }
            for one, text in zip(duel.standing.comparisons, duel.sentences, strict=True)
        ],
        "judged": [{"text": gate.text, "says": says} for gate, says, _ in duel.judged(gates)],
    }


def _code(text: str) -> str:
    return "`" + text.replace("`", "'").replace("\n", " ") + "`"
