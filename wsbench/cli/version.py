"""The output of `wsbench --version`: versions of harness, engine and catalogue."""

from __future__ import annotations

import os

from wsbench import __version__
from wsbench.engine.program import binary
from wsbench.host import installation
from wsbench.host.process import output_of
from wsbench.servers.catalogue import OWN, VARIABLE


def text() -> str:
    said = output_of([str(binary()), "--version"])
    engine = said.text if said.code == 0 else "wsbench-engine: not built"
    own = f" and {os.pathsep.join(map(str, OWN))} ({VARIABLE})" if OWN else ""
    catalogue = f"{installation.revision() or 'unknown'}{own}"
    return f"wsbench {__version__}\n{engine} ({binary()})\ncatalogue {catalogue}"
