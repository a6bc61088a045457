"""The output of `wsbench --version`: versions of harness, engine and catalogue."""

from __future__ import annotations

from wsbench import __version__
from wsbench.engine.program import binary
from wsbench.host import installation
from wsbench.host.process import output_of
from wsbench.servers.catalogue import SERVERS, SHIPPED


def text() -> str:
    said = output_of([str(binary()), "--version"])
    engine = said.text if said.code == 0 else "wsbench-engine: not built"
    catalogue = installation.revision() or "unknown" if SERVERS == SHIPPED else f"{SERVERS} (WSBENCH_SERVERS)"
    return f"wsbench {__version__}\n{engine} ({binary()})\ncatalogue {catalogue}"
