"""Autobahn|Testsuite, the public collection of RFC 6455 cases, against `/echo` of a running server.

In: a runner and an address. Out: the outcome of each case. There are two runners: the suite's own `wstest`, which needs
Python 2, and kosoku, which runs the suite's case files. wsbench uses the first one it finds. Both write the suite's
report: `index.json` and one page per case.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from wsbench.host.process import run_logged
from wsbench.records.errors import TrialFailed, UserError

#: Cases of permessage-deflate: no server negotiates it unless the client offers it, and wsbench does not measure it.
EXCLUDED = ("12.*", "13.*")
TIMEOUT_S = 1200.0
ADVICE = (
    "neither `wstest` nor `kosoku` was found: run `pip install kosoku`, or, in a checkout with Python 2.7, "
    "install the suite itself with `scripts/autobahn.sh`"
)


@dataclass(frozen=True)
class Suite:
    """A runner and its command. `run` fills in `{spec}`, `{url}` and `{folder}`."""

    name: str
    argv: list[str]


@dataclass(frozen=True)
class Cases:
    """Results of the suite. `counts`: cases per outcome. `wrong`: outcome by case, e.g. `5.15: FAILED`. `by`: the runner."""

    by: str
    counts: dict[str, int]
    wrong: dict[str, str]
    report: Path

    @property
    def text(self) -> str:
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.counts.items(), key=lambda one: -one[1]))


def find(folder: Path) -> Suite:
    """The runner to use; UserError with advice if there is none. `folder`: where `scripts/autobahn.sh` installs the suite."""
    for wstest in (folder / "bin" / "wstest", shutil.which("wstest")):
        if wstest and Path(wstest).exists():
            return Suite("wstest", [str(wstest), "-m", "fuzzingclient", "-s", "{spec}"])
    for kosoku in (Path(sys.executable).with_name("kosoku"), shutil.which("kosoku")):
        if kosoku and Path(kosoku).exists():
            excluded = [word for case in EXCLUDED for word in ("--exclude", case)]
            return Suite("kosoku", [str(kosoku), *excluded, "--outdir", "{folder}", "{url}"])
    raise UserError(ADVICE)


def run(suite: Suite, agent: str, url: str, folder: Path) -> Cases:
    """Runs every case that is not excluded and writes the suite's report to `folder`. TrialFailed if there is no report."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    spec = folder / "spec.json"
    spec.write_text(
        json.dumps(
            {
                "outdir": str(folder),
                "servers": [{"agent": agent, "url": url}],
                "cases": ["*"],
                "exclude-cases": list(EXCLUDED),
                "exclude-agent-cases": {},
            }
        )
    )
    known = {"{spec}": str(spec), "{url}": url}
    argv = [known.get(word, word.replace("{folder}", str(folder))) for word in suite.argv]
    code = run_logged(argv, folder, folder / "log.txt", {}, TIMEOUT_S)
    index = folder / "index.json"
    if not index.exists():
        raise TrialFailed(f"{suite.name} ended with {code} and no report; see {folder / 'log.txt'}")
    return read(suite.name, index)


def read(by: str, index: Path) -> Cases:
    """Reads a report of one server. A case has two outcomes, of its messages and of its close: the worse one counts."""
    try:
        (cases,) = json.loads(index.read_text()).values()
        outcomes = {name: _worse(case["behavior"], case["behaviorClose"]) for name, case in cases.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrialFailed(f"{index} is not a report of one server: {error}") from error
    in_order = sorted(outcomes, key=lambda name: [int(part) for part in name.split(".")])
    wrong = {name: outcomes[name] for name in in_order if outcomes[name] not in RIGHT}
    return Cases(by, dict(Counter(outcomes.values())), wrong, index.with_suffix(".html"))


#: Best first. NON-STRICT: allowed by the RFC, but not what the suite prefers. INFORMATIONAL: neither right nor wrong.
ORDER = ("OK", "INFORMATIONAL", "UNIMPLEMENTED", "NON-STRICT", "WRONG CODE", "UNCLEAN", "FAILED BY CLIENT", "FAILED")
RIGHT = {"OK", "INFORMATIONAL", "UNIMPLEMENTED", "NON-STRICT"}


def _worse(behaviour: str, close: str) -> str:
    return max(behaviour, close, key=lambda outcome: ORDER.index(outcome) if outcome in ORDER else len(ORDER))
