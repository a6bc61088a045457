"""The findings of the verdict that concern the answer, grouped: how many trials, what was seen, what to do.

A trial that is left out changes the answer, so it is always named. Trials that count although they are SUSPECT are named only as
far as the answer would be another one without them.
"""

from __future__ import annotations

from wsbench.analysis import stats, wording
from wsbench.analysis.dataset import TrialResult
from wsbench.analysis.results import Results
from wsbench.metrics import METRICS
from wsbench.metrics.findings import Kind

FEW = 3


def left_out(results: Results) -> list[str]:
    """One sentence or two per kind of finding that made the leading metric INVALID."""
    return [f"Left out: {text}" for text in _grouped(results, "INVALID")]


def suspect(results: Results) -> tuple[str, bool] | None:
    """What the SUSPECT trials of the leading metric do to the answer, and whether that changes it. None if there are none."""
    trials = _contending(results)
    number = sum(trial.kind(results.leading) == "SUSPECT" for trial in trials)
    if not number:
        return None
    counted = f"{number:,} of {wording.count(len(trials), 'trial')} {'is' if number == 1 else 'are'} SUSPECT and counted"
    them = "it" if number == 1 else "them"
    with_, without = results.best(_where(results), results.leading), _without(results)
    if with_.reason is not None:
        return f"{counted}.", False
    if without.reason is not None:
        return f"{counted}; without {them} too little is left to compare. {' '.join(_grouped(results, 'SUSPECT'))}", True
    if without.first != with_.first:
        names = _listed(list(map(results.label, without.first)), " or ")
        answer = f"{names} {'is' if len(without.first) == 1 else 'may be'} the best"
        return f"{counted}; without {them} {answer}. {' '.join(_grouped(results, 'SUSPECT'))}", True
    return f"{counted}; without {them} the answer is the same.", False


def _contending(results: Results) -> list[TrialResult]:
    """The trials that ran, of the servers that can be the best."""
    return [trial for trial in results.trials if trial.record.outcome != "failed" and trial.record.name in results.contenders]


def _where(results: Results):
    return results.cells[0] if len(results.cells) == 1 else None


def _without(results: Results) -> stats.Decided:
    """The decision without the SUSPECT trials of those that are compared."""
    metric = results.leading

    def series(cell) -> dict:
        return {
            name: {
                results.block(trial): trial.value(metric)
                for trial in results.counted(name, cell, metric)
                if trial.kind(metric) == "VALID" or name not in results.contenders
            }
            for name in [*results.names, *filter(None, [results.control])]
        }

    found = [series(cell) for cell in results.cells]
    one = len(found) == 1
    lost = {name: {at for cell in results.cells for at in results.lost(name, cell, metric)} for name in found[0]}
    prior = results.prior(metric) if one else None
    asked = stats.Best(results.contenders)
    return stats.decide(found[0] if one else stats.overall(found), asked, results.rules(metric), lost, prior)


def _grouped(results: Results, kind: Kind) -> list[str]:
    """`3 trials (ws): a worker waited for a CPU in 12 % of the window. Give it one.`, the most frequent finding first."""
    groups: dict[str, list[tuple[TrialResult, str, str]]] = {}
    for trial in _contending(results):
        for name, found in {one.name: one for one in trial.verdict.because(METRICS[results.leading].family, kind)}.items():
            groups.setdefault(name, []).append((trial, found.seen, found.remedy))
    said = []
    for found in sorted(groups.values(), key=len, reverse=True):
        trials = [trial for trial, *_ in found]
        servers = list(dict.fromkeys(results.label(trial.record.name) for trial in trials))
        seen, remedy = found[0][1:]
        example = "" if len({text for _, text, _ in found}) == 1 else "for example, "
        said.append(f"{wording.count(len(trials), 'trial')} ({_listed(servers)}): {example}{seen}. {remedy}".strip())
    return said


def _listed(names: list[str], last: str = " and ") -> str:
    if len(names) > FEW:
        return wording.count(len(names), "server")
    return wording.listed(names).replace(" and ", last)
