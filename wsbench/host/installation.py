"""The location and revision of this wsbench: a checkout, or an installed wheel.

A wheel's `shipped/` contains the engine and what a checkout has at its top level (catalogue, experiments, protocol). This module
uses only the standard library, because `make setup` runs it before anything is installed.
"""

from __future__ import annotations

import os
import resource
from functools import cache
from pathlib import Path

from wsbench.host.process import output_of
from wsbench.records.errors import UserError

PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = PACKAGE / "shipped"
IS_CHECKOUT = not SHIPPED.is_dir()
#: Contains servers/, experiments/, sessions/ and protocol/.
ROOT = PACKAGE.parent if IS_CHECKOUT else SHIPPED

#: What V8 reserves of addresses, with room to spare: with a limit of 140 GiB it ends the program, with 300 GiB it runs.
DRAWING_ADDRESSES = 300 << 30


def home() -> Path | None:
    """The user's home directory. None without HOME and without an entry of the user in the password file."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def folder_of(variable: str, otherwise: str) -> Path:
    """wsbench's part of one of the user's folders (XDG): that of the variable, or `otherwise` in the home directory."""
    if os.environ.get(variable):
        return Path(os.environ[variable]) / "wsbench"
    if (own := home()) is None:
        raise UserError(f"this user has no home directory: set HOME, or {variable}")
    return own / otherwise / "wsbench"


def cache_folder() -> Path:
    """The folder in which a wheel builds servers and keeps tools: the user's cache (XDG)."""
    return folder_of("XDG_CACHE_HOME", ".cache")


def expanded(place: str) -> Path | None:
    """A path that may begin with `~/`. None if it does and the user has no home directory."""
    if not place.startswith("~/"):
        return Path(place)
    return None if (own := home()) is None else own / place[2:]


def tools_folder() -> Path:
    """A virtual environment for build tools from PyPI. It can be deleted at any time."""
    return ROOT / ".venv" / "tools" if IS_CHECKOUT else cache_folder() / "tools"


def extra(name: str) -> str:
    """The command that installs optional packages. wsbench is in no index: it comes as a wheel or as a clone."""
    return f"pip install --editable '{ROOT}[{name}]'" if IS_CHECKOUT else f"pip install 'PATH/TO/wsbench.whl[{name}]'"


def require_addresses() -> None:
    """UserError if `ulimit -v` leaves too few addresses for V8, which draws the report: it would end the whole program."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < DRAWING_ADDRESSES:
        raise UserError(
            f"`ulimit -v` is {soft >> 10:,} KiB, too little for the drawings of a report, which reserve addresses and no memory: "
            "`ulimit -v unlimited`"
        )


@cache
def revision() -> str | None:
    """The commit of the catalogue and the harness, marked if there are local changes. None if unknown."""
    if not IS_CHECKOUT:
        return (SHIPPED / "revision").read_text(encoding="utf-8").strip() or None
    # safe.directory: root may run a checkout that another user owns; its Python code runs anyway.
    git = ["git", "-c", f"safe.directory={ROOT}", "-c", "core.fsmonitor=false", "-C", str(ROOT)]
    commit = output_of([*git, "rev-parse", "HEAD"])
    if commit.code != 0:
        return None
    changed = output_of([*git, "status", "--porcelain", "--untracked-files=no"])
    return commit.text + (" with local changes" if changed.text else "")
