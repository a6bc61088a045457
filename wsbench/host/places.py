"""The folders of this machine that no record names, and the words in their place."""

from __future__ import annotations

import tempfile
from pathlib import Path

from wsbench.host import installation
from wsbench.records.placeless import Places


def of(runs: Path) -> Places:
    """Those of this wsbench, of its runs, of the user and of temporary files. `runs`: the folder that holds the run folders."""
    words = {tempfile.gettempdir(): "TMP"}
    if (home := installation.home()) is not None:
        words[str(home)] = "HOME"
    words |= {str(runs.resolve()): "RUNS", str(installation.PACKAGE): "WSBENCH/wsbench", str(installation.ROOT): "WSBENCH"}
    return Places(words)
