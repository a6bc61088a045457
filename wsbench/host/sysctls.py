"""Kernel settings that were changed on request, and how they were before: they are put back by `restore`, whenever that is.

The values from before stand in one file of the user's, together with the boot they belong to: after a restart the machine has
its own again.
"""

from __future__ import annotations

import os
from pathlib import Path

from wsbench.records.errors import UserError
from wsbench.records.frozen import Frozen, read_json, write_json

PROC = Path("/proc/sys")
BOOT = Path("/proc/sys/kernel/random/boot_id")


class Change(Frozen):
    name: str
    before: str
    after: str


class Changes(Frozen):
    boot: str
    changes: list[Change] = []


def kept_in() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "wsbench" / "sysctls.json"


def put(wanted: dict[str, str]) -> list[Change]:
    """Changes these; what they were is on disk before the first is another. UserError where that is not allowed."""
    known = {change.name: change for change in _known()}
    made = [Change(name=name, before=_read(name), after=value) for name, value in wanted.items()]
    # What was there before the first change of all is what `restore` goes back to.
    kept = known | {
        new.name: new.model_copy(update={"before": known[new.name].before}) if new.name in known else new
        for new in made
    }
    _keep(list(kept.values()))
    for change in made:
        try:
            _write(change.name, change.after)
        except UserError:
            _keep([one for one in kept.values() if _read(one.name) == one.after])
            raise
    return made


def restore() -> tuple[list[Change], list[Change]]:
    """Puts back what was there before: what was put back, and what somebody else has changed since, which stays."""
    back, left = [], []
    for change in _known():
        if _read(change.name) == change.after:
            _write(change.name, change.before)
            back.append(change)
        else:
            left.append(change)
    kept_in().unlink(missing_ok=True)
    return back, left


def _known() -> list[Change]:
    if not kept_in().exists():
        return []
    kept = read_json(Changes, kept_in())
    return kept.changes if kept.boot == BOOT.read_text().strip() else []


def _keep(changes: list[Change]) -> None:
    if not changes:
        return kept_in().unlink(missing_ok=True)
    kept_in().parent.mkdir(parents=True, exist_ok=True)
    write_json(kept_in(), Changes(boot=BOOT.read_text().strip(), changes=changes))


def _file(name: str) -> Path:
    return PROC / name.replace(".", "/")


def _read(name: str) -> str:
    return " ".join(_file(name).read_text().split())


def _write(name: str, value: str) -> None:
    try:
        _file(name).write_text(value)
    except OSError as error:
        raise UserError(f"{name} cannot be changed: {error.strerror}; as root: sysctl -w {name}='{value}'") from error
