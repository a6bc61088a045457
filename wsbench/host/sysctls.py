"""Changes kernel settings on request and keeps their old values, which `restore` puts back at any later time.

The old values are in one file of the user, together with the boot ID: a reboot resets the settings anyway.
"""

from __future__ import annotations

from pathlib import Path

from wsbench.host import installation
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
    return installation.folder_of("XDG_STATE_HOME", ".local/state") / "sysctls.json"


def put(wanted: dict[str, str]) -> list[Change]:
    """Changes settings, after saving the old values to disk. UserError if a change is not permitted."""
    known = {change.name: change for change in _known()}
    made = [Change(name=name, before=_read(name), after=value) for name, value in wanted.items()]
    # `restore` goes back to the value before the first of all changes.
    kept = known | {
        new.name: new.model_copy(update={"before": known[new.name].before}) if new.name in known else new for new in made
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
    """Restores the old values. Returns the restored changes, and those left alone because the value was changed again since."""
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
