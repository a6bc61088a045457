"""A campaign small enough to publish: the trials' folders in one archive, everything that is read first beside it.

Nothing raw is left out, so that a published campaign can be reported, compared and judged anew by whoever reads it. It knows
the trials' folders by their names and nothing of what is in them.
"""

from __future__ import annotations

import atexit
import io
import re
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from wsbench.errors import UserError

ARCHIVE = "trials.tar.xz"
LEFT_OUT = {".lock"}
BINARY = ".parquet"
#: Of a file in the archive: the trial's number, then plain names; none begins with a point.
NAME = re.compile(r"[0-9]+(/\w[\w.@+-]*)+")


def pack(run: Path, destination: Path, words: Mapping[str, str]) -> Path:
    """Copies a campaign to a new folder, its trials packed. UserError where the folder exists. Returns the folder.

    `words` has a word for each folder of this machine that is nobody's business; it stands in the copy in the folder's place.
    """
    if destination.exists():
        raise UserError(f"{destination} exists; give a folder that is not there yet")
    part = destination.with_name(destination.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    folders = sorted(entry for entry in run.iterdir() if _is_trial(entry))
    if (run / ARCHIVE).exists():
        raise UserError(f"{run} is packed already: copy it")
    with tarfile.open(part / ARCHIVE, "w:xz", preset=9) as archive:
        for folder in folders:
            for file in sorted(folder.rglob("*")):
                if file.is_file():
                    content = _placeless(file, words)
                    member = _nobody(archive.gettarinfo(file, str(file.relative_to(run))))
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    for entry in run.iterdir():
        if entry.is_file() and entry.name not in LEFT_OUT:
            (part / entry.name).write_bytes(_placeless(entry, words))
    part.rename(destination)
    return destination


@lru_cache
def unpacked(archive: Path) -> Path:
    """The archive's trials in a temporary folder, which goes when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="wsbench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        with tarfile.open(archive) as packed:
            for member in packed:
                _extract(packed, member, folder)
    except (OSError, tarfile.TarError) as error:
        raise UserError(f"{archive}: {error}") from error
    return folder


def _extract(packed: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """One file, made anew under a name of the kind that `pack` gives. The library's own extraction differs from Python to Python,
    and follows links that an archive brings along."""
    if not member.isfile() or not NAME.fullmatch(member.name):
        raise tarfile.TarError(f"{member.name!r} is no file of a trial")
    place = folder / member.name
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("xb") as made:
        shutil.copyfileobj(packed.extractfile(member), made)


def _placeless(file: Path, words: Mapping[str, str]) -> bytes:
    content = file.read_bytes()
    if file.suffix == BINARY:
        return content
    for folder in sorted(words.keys() - {"/"}, key=len, reverse=True):
        content = re.sub(re.escape(folder.encode()) + rb"(?![\w.-])", words[folder].encode(), content)
    return content


def _is_trial(entry: Path) -> bool:
    return entry.is_dir() and entry.name.isdigit()


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Who packed it is nobody's business, and the same trials make the same archive."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
