"""A fault of wsbench in one part of a larger work: that part is missing with a reason, the rest is done, and the log says where.

For what is computed beside many others: a metric, a check of the verdict, a figure, a claim. What the user or the machine has to
mend is not contained: bad input, a server's failure, a full disk, memory that has run out, a package that is not installed.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from wsbench.records import plain
from wsbench.records.errors import TrialFailed, UserError

Part = TypeVar("Part")
PACKAGE = Path(__file__).parents[1]
PASSED_ON = (UserError, TrialFailed, OSError, MemoryError, ModuleNotFoundError)
#: With this variable nothing is contained: the exception ends the program with its traceback. The tests set it.
STRICT = "WSBENCH_STRICT"
LETTERS = 200
_told: set[str] = set()


def part(name: str, make: Callable[[], Part], otherwise: Callable[[str], Part]) -> Part:
    """What `make` returns. If it raises what nobody expects: `otherwise(reason)`, and a line on standard error, once for each name
    and place. `name` is that of the part in words: `metric messages_per_s`."""
    try:
        return make()
    except Exception as error:
        return otherwise(fault(name, error))


def fault(name: str, error: Exception) -> str:
    """The reason for the part's absence, after the line on standard error. Raises what is not contained."""
    if isinstance(error, PASSED_ON) or os.environ.get(STRICT):
        raise error
    reason = f"wsbench failed: {_words(error)}"
    line = f"{name}: {reason}"
    if line not in _told:
        _told.add(line)
        print(f"wsbench: {line}; please report it", file=sys.stderr)
    return reason


def _words(error: Exception) -> str:
    """`KeyError: 'connect' (metrics/trial_data.py:90)`: the innermost place in wsbench."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames[1:] if Path(frame.filename).is_relative_to(PACKAGE)] or frames
    file = Path(own[-1].filename)
    place = file.relative_to(PACKAGE) if file.is_relative_to(PACKAGE) else file.name
    text = plain.line(f"{type(error).__name__}: {error}".rstrip(": "))
    return f"{text[:LETTERS]} ({place}:{own[-1].lineno})"
