"""Where this wsbench lies and which one it is: a checkout, or a wheel that was installed.

A wheel carries in `shipped/` what a checkout has at its top (the catalogue, the experiments, the protocol) and the engine. A leaf
of the standard library, because `make setup` runs it before anything is installed.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from wsbench.host.process import output_of

PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = PACKAGE / "shipped"
IS_CHECKOUT = not SHIPPED.is_dir()
#: Holds servers/, experiments/ and protocol/.
ROOT = PACKAGE.parent if IS_CHECKOUT else SHIPPED


def cache_folder() -> Path:
    """Where a wheel builds servers and keeps tools: the user's cache, as XDG has it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wsbench"


def tools_folder() -> Path:
    """A virtual environment for build tools from PyPI; deleting it loses nothing."""
    return ROOT / ".venv" / "tools" if IS_CHECKOUT else cache_folder() / "tools"


@cache
def revision() -> str | None:
    """The commit that catalogue and harness are of, and whether they were changed since; None where nothing tells."""
    if not IS_CHECKOUT:
        return (SHIPPED / "revision").read_text(encoding="utf-8").strip() or None
    # By root too, in a checkout of somebody else's, whose Python is being run anyhow.
    git = ["git", "-c", f"safe.directory={ROOT}", "-c", "core.fsmonitor=false", "-C", str(ROOT)]
    commit = output_of([*git, "rev-parse", "HEAD"])
    if commit.code != 0:
        return None
    changed = output_of([*git, "status", "--porcelain", "--untracked-files=no"])
    return commit.text + (" with local changes" if changed.text else "")
