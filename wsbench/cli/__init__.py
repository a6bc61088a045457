"""The command line: reads what is asked, calls the room that does it, prints what it returns.

Exit codes: 0 done; 1 something that was asked for did not hold (a check, a build, a load); 2 bad input, one plain line;
3 a threshold was breached (`load`, `compare`); 4 `load`: the measurement is INVALID and judges no threshold; 130 Ctrl-C.
"""

from __future__ import annotations

import sys
from importlib import import_module, util

from wsbench.cli import arguments
from wsbench.errors import UserError

INTERRUPTED = 130
#: What the statistics, the report and the pages need, and a base installation does not have.
OF_REPORT = ("jinja2", "py_mini_racer", "pyarrow", "scipy", "starlette", "statsmodels", "vl_convert")


def main() -> None:
    try:
        asked = arguments.parser(sys.argv[1:]).parse_args()
        module, _, function = asked.command.partition(":")
        sys.exit(getattr(import_module(f"wsbench.{module}"), function)(asked))
    except UserError as error:
        _say(str(error))
        sys.exit(2)
    except ModuleNotFoundError as error:
        if (error.name or "wsbench").partition(".")[0] == "wsbench":
            raise
        _say(_needs_extra(error.name))
        sys.exit(2)
    except KeyboardInterrupt:
        _say("stopped; every finished trial is kept")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(141)


def has_report() -> bool:
    return not _missing()


def require_report() -> None:
    """UserError where the report's packages are missing: before something is measured that could then not be read."""
    if missing := _missing():
        raise UserError(f"{_needs_extra(missing[0])}; or give --no-report, and make the report elsewhere")


def _missing() -> list[str]:
    return [name for name in OF_REPORT if util.find_spec(name) is None]


def _needs_extra(module: str) -> str:
    return f"this needs {module}, which is not installed: pip install 'wsbench[report]'"


def _say(line: str) -> None:
    print(f"wsbench: {line}", file=sys.stderr)
