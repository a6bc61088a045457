"""The output of `wsbench --version`: versions of harness, engine and catalogue."""

from __future__ import annotations

import os

from wsbench import __version__
from wsbench.engine.program import binary
from wsbench.host import installation
from wsbench.host.process import output_of
from wsbench.servers.catalogue import VARIABLE, own


def text() -> str:
    said = output_of([str(binary()), "--version"])
    engine = said.text if said.code == 0 else "wsbench-engine: not built"
    folders = own()
    more = f" and {os.pathsep.join(map(str, folders))} ({VARIABLE})" if folders else ""
    catalogue = f"{installation.revision() or 'unknown'}{more}"
    return f"wsbench {__version__}\n{engine} ({binary()})\ncatalogue {catalogue}"
