"""A campaign small enough to publish: the trials' folders in one archive, everything that is read first beside it.

Nothing raw is left out, so that a published campaign can be reported, compared and judged anew by whoever reads it. It knows
the trials' folders by their names and nothing of what is in them.
"""

from __future__ import annotations

import atexit
import io
import lzma
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from wsbench.records.errors import UserError
from wsbench.records.files import is_own_folder, is_plain, read_file, whole_folder

ARCHIVE = "trials.tar.xz"
BINARY = ".parquet"
#: Of a file in the archive: the trial's number, then plain names; none begins with a point.
NAME = re.compile(r"[0-9]+(/\w[\w.@+-]*)+")
#: Ten thousand trials are a hundred thousand files. What servers and engines write becomes a tenth when packed, by xz at its best a
#: fiftieth; below SMALL nobody need ask.
MOST_FILES = 500_000
RATIO, SMALL, LARGEST = 200, 256 << 20, 64 << 30
#: A member's header and its name; contents are read in smaller pieces.
LONGEST_READ = 4 << 20


def pack(run: Path, destination: Path, words: Mapping[str, str]) -> Path:
    """Copies a campaign to a new folder, its trials packed; links and whatever is no file are left out. UserError where the folder
    exists. Returns the folder.

    `words` has a word for each folder of this machine that is nobody's business; it stands in the copy in the folder's place.
    """
    if (run / ARCHIVE).exists():
        raise UserError(f"{run} is packed already: copy it")
    with whole_folder(destination) as part:
        with tarfile.open(part / ARCHIVE, "w:xz", preset=9) as archive:
            for folder in sorted(entry for entry in run.iterdir() if entry.name.isdigit() and is_own_folder(entry)):
                for file in sorted(folder.rglob("*")):
                    if is_plain(file):
                        content = _placeless(file, words)
                        member = _nobody(archive.gettarinfo(file, str(file.relative_to(run))))
                        member.size = len(content)
                        archive.addfile(member, io.BytesIO(content))
        for entry in run.iterdir():
            if is_plain(entry) and not entry.name.startswith("."):
                (part / entry.name).write_bytes(_placeless(entry, words))
    return destination


@lru_cache
def unpacked(archive: Path) -> Path:
    """The archive's trials in a temporary folder, which goes when the process ends. UserError where it holds what `pack` would not
    have put there, or more than a campaign can."""
    folder = Path(tempfile.mkdtemp(prefix="wsbench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        with archive.open("rb") as packed, lzma.open(packed) as stream:
            most = min(LARGEST, max(SMALL, RATIO * os.fstat(packed.fileno()).st_size))
            with tarfile.open(fileobj=_Measured(stream, most), mode="r:") as members:
                for number, member in enumerate(members):
                    if number >= MOST_FILES:
                        raise tarfile.TarError(f"more than {MOST_FILES:,} files")
                    _extract(members, member, folder)
    except (OSError, EOFError, ValueError, lzma.LZMAError, tarfile.TarError) as error:
        raise UserError(f"{archive}: {error}") from error
    return folder


class _Measured:
    """A stream that ends a reader who takes too much of it, at once or in all: what is small packed may be large unpacked."""

    def __init__(self, stream: lzma.LZMAFile, most: int):
        self._stream, self._most = stream, most

    def read(self, size: int) -> bytes:
        if size > LONGEST_READ:
            raise tarfile.TarError(f"a header of {size:,} bytes")
        if self._stream.tell() + size > self._most:
            raise tarfile.TarError(f"more than {self._most >> 20:,} MiB of it, which no campaign packs so small")
        return self._stream.read(size)

    def seek(self, position: int) -> int:
        if position > self._most:
            raise tarfile.TarError(f"more than {self._most >> 20:,} MiB of it, which no campaign packs so small")
        return self._stream.seek(position)

    def tell(self) -> int:
        return self._stream.tell()


def _extract(packed: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """One file, made anew under a name of the kind that `pack` gives. The library's own extraction differs from Python to Python,
    and follows links that an archive brings along."""
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or not NAME.fullmatch(member.name):
        raise tarfile.TarError(f"{member.name!r} is no file of a trial")
    place = folder / member.name
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("xb") as made:
        shutil.copyfileobj(packed.extractfile(member), made)


def _placeless(file: Path, words: Mapping[str, str]) -> bytes:
    content = read_file(file)
    if file.suffix == BINARY:
        return content
    for folder in sorted(words.keys() - {"/"}, key=len, reverse=True):
        content = re.sub(re.escape(folder.encode()) + rb"(?![\w.-])", words[folder].encode(), content)
    return content


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Who packed it is nobody's business, and the same trials make the same archive."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
