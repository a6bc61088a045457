"""Autobahn|Testsuite, the public collection of RFC 6455 cases, against `/echo` of a running server.

In: who carries the cases out, and an address. Out: what each case came to. Two can do it: the suite's own `wstest`, which needs
Python 2, and kosoku, another runner for the suite's case files. The first that is found does. Both write the suite's report:
`index.json` and a page a case.
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

#: Cases of permessage-deflate, which no server agrees to unasked and these are not about.
EXCLUDED = ("12.*", "13.*")
TIMEOUT_S = 1200.0
ADVICE = (
    "neither `wstest` nor `kosoku` was found: `pip install 'wsbench[autobahn]'`, or, in a checkout, `scripts/autobahn.sh`, "
    "which installs the suite itself where there is a Python 2.7"
)


@dataclass(frozen=True)
class Suite:
    """Who carries the cases out, and the command; `{spec}`, `{url}` and `{folder}` stand for what is known later."""

    name: str
    argv: list[str]


@dataclass(frozen=True)
class Cases:
    """What the cases came to: outcome → how many, and those that were not right, `5.15: FAILED`."""

    by: str
    counts: dict[str, int]
    wrong: dict[str, str]
    report: Path

    @property
    def text(self) -> str:
        return ", ".join(
            f"{count} {outcome}" for outcome, count in sorted(self.counts.items(), key=lambda one: -one[1])
        )


def find(folder: Path) -> Suite:
    """Who is there; UserError with what to do if nobody is. `folder`: where `scripts/autobahn.sh` puts the suite."""
    for wstest in (folder / "bin" / "wstest", shutil.which("wstest")):
        if wstest and Path(wstest).exists():
            return Suite("wstest", [str(wstest), "-m", "fuzzingclient", "-s", "{spec}"])
    for kosoku in (Path(sys.executable).with_name("kosoku"), shutil.which("kosoku")):
        if kosoku and Path(kosoku).exists():
            excluded = [word for case in EXCLUDED for word in ("--exclude", case)]
            return Suite("kosoku", [str(kosoku), *excluded, "--outdir", "{folder}", "{url}"])
    raise UserError(ADVICE)


def run(suite: Suite, agent: str, url: str, folder: Path) -> Cases:
    """Every case but the excluded; the suite's own report stays in `folder`. TrialFailed if there is none at the end."""
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
    """The suite's report of one server. A case has two outcomes, of the messages and of the close: the worse one counts."""
    try:
        (cases,) = json.loads(index.read_text()).values()
        outcomes = {name: _worse(case["behavior"], case["behaviorClose"]) for name, case in cases.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrialFailed(f"{index} is no report of one server: {error}") from error
    in_order = sorted(outcomes, key=lambda name: [int(part) for part in name.split(".")])
    wrong = {name: outcomes[name] for name in in_order if outcomes[name] not in RIGHT}
    return Cases(by, dict(Counter(outcomes.values())), wrong, index.with_suffix(".html"))


#: Best first. NON-STRICT is a way that the RFC allows but the suite would not choose; INFORMATIONAL has no right or wrong.
ORDER = ("OK", "INFORMATIONAL", "UNIMPLEMENTED", "NON-STRICT", "WRONG CODE", "UNCLEAN", "FAILED BY CLIENT", "FAILED")
RIGHT = {"OK", "INFORMATIONAL", "UNIMPLEMENTED", "NON-STRICT"}


def _worse(behaviour: str, close: str) -> str:
    return max(behaviour, close, key=lambda outcome: ORDER.index(outcome) if outcome in ORDER else len(ORDER))
