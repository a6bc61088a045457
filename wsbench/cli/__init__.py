"""The command line: reads what is asked, calls the room that does it, prints what it returns.

Exit codes: 0 done; 1 something that was asked for did not hold (a check, a build, a load); 2 bad input, one plain line;
3 a threshold was breached (`load`, `compare`); 4 `load`: the measurement is INVALID and judges no threshold; 130 Ctrl-C.
"""

from __future__ import annotations

import sys

from wsbench import load_view
from wsbench.cli import arguments
from wsbench.errors import UserError


def main() -> None:
    try:
        asked = arguments.parser().parse_args()
        sys.exit(asked.command(asked))
    except UserError as error:
        print(f"wsbench: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("wsbench: stopped; every finished trial is kept", file=sys.stderr)
        sys.exit(load_view.INTERRUPTED)
    except BrokenPipeError:
        sys.exit(141)
