"""A made trial with its verdict, and what the verdict says."""

from run_maker import Trial, write_trial

from wsbench.metrics.findings import FAMILIES, Verdict
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import verdict

ALL = dict.fromkeys(FAMILIES, "INVALID")


def found_in(found: Verdict, words: str) -> dict[str, str]:
    """The families affected by the one finding that says this."""
    (one,) = [one for one in found.findings if words in one.seen]
    return one.affects


def said(found: Verdict) -> list[str]:
    """What was seen, the instrument first."""
    return [one.seen for one in (*found.instrument, *found.outcomes)]


def each(kind: str, *families: str) -> dict[str, str]:
    return dict.fromkeys(families, kind)


RATES = ("throughput", "body", "tail")
WITH_CPU = (*RATES, "cpu")
TAKEN = each("INVALID", *WITH_CPU) | {"connect": "SUSPECT"}


def judge(path, **quantities) -> Verdict:
    return judged(path, Trial(**quantities))


def judged(path, trial: Trial) -> Verdict:
    return verdict(trial_of(path / "0001", trial))


def trial_of(path, trial: Trial) -> TrialData:
    folder = write_trial(path, trial)
    return TrialData(folder, folder.record)
