"""Packs a campaign for publication: the trial folders in one archive, next to the files that are read first.

No raw data is left out, so any reader of a published campaign can report, compare and judge it again. This module knows the names
of the trial folders, not their contents.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import lzma
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from wsbench.records.errors import UserError
from wsbench.records.files import is_own_folder, is_plain, read_file, whole_folder

ARCHIVE = "trials.tar.xz"
#: The checksum of an archive that is published apart from its campaign.
CHECKSUM = "trials.sha256"
BINARY = ".parquet"
#: File names in the archive: the trial's number, then plain names that do not begin with a dot.
NAME = re.compile(r"[0-9]+(/\w[\w.@+-]*)+")
#: 10,000 trials are 100,000 files. Output of servers and engines packs to about a tenth, with xz to a fiftieth at best. Up to SMALL
#: bytes the ratio is not checked.
MOST_FILES = 500_000
RATIO, SMALL, LARGEST = 200, 256 << 20, 64 << 30
#: Largest single read: a member's header and name. Contents are read in smaller pieces.
LONGEST_READ = 4 << 20
#: Most of a trial is histograms, which are compressed already. The highest preset takes nine times as long for a tenth less.
PRESET = 1


def pack(
    run: Path,
    destination: Path,
    words: Mapping[str, str],
    apart: Path | None = None,
    tell: Callable[[int, int], None] = lambda *_: None,
) -> Path:
    """Copies a campaign to a new folder, with its trials packed. Links and special files are left out. Returns the folder.

    `words` maps private folders of this machine to placeholders that replace them in the copy. `apart`: a new file for the trials
    that are then published elsewhere; the folder has their checksum. `tell` receives how many of how many trials are packed.
    UserError if a folder or file exists.
    """
    if (run / ARCHIVE).exists():
        raise UserError(f"{run} is already packed; copy it instead")
    if apart is not None and (os.path.lexists(apart) or not apart.parent.is_dir()):
        raise UserError(f"{apart}: give a new file in an existing folder")
    with whole_folder(destination) as part:
        folders = sorted(entry for entry in run.iterdir() if entry.name.isdigit() and is_own_folder(entry))
        with tarfile.open(part / ARCHIVE, "w:xz", preset=PRESET) as archive:
            for packed, folder in enumerate(folders, 1):
                for file in sorted(folder.rglob("*")):
                    if is_plain(file):
                        content = _placeless(file, words)
                        member = _nobody(archive.gettarinfo(file, str(file.relative_to(run))))
                        member.size = len(content)
                        archive.addfile(member, io.BytesIO(content))
                tell(packed, len(folders))
        for entry in run.iterdir():
            if is_plain(entry) and not entry.name.startswith("."):
                (part / entry.name).write_bytes(_placeless(entry, words))
        if apart is not None:
            # `sha256sum -c` finds the archive where a reader is to put it: in the campaign's folder.
            with (part / ARCHIVE).open("rb") as made:
                sum_ = hashlib.file_digest(made, "sha256").hexdigest()
            (part / CHECKSUM).write_text(f"{sum_}  {ARCHIVE}\n")
            shutil.move(part / ARCHIVE, apart)
    return destination


@lru_cache
def unpacked(archive: Path) -> Path:
    """Unpacks the archive to a temporary folder, which is removed at process exit. UserError if it contains entries that `pack`
    does not write, or is larger than any campaign."""
    folder = Path(tempfile.mkdtemp(prefix="wsbench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        with archive.open("rb") as packed, lzma.open(packed) as stream:
            most = min(LARGEST, max(SMALL, RATIO * os.fstat(packed.fileno()).st_size))
            measured = _Measured(stream, most)
            with tarfile.open(fileobj=measured, mode="r:") as members:
                for number, member in enumerate(members):
                    if number >= MOST_FILES:
                        raise tarfile.TarError(f"more than {MOST_FILES:,} files")
                    _extract(members, member, folder)
            # The checksum of the content comes last, behind what tarfile reads.
            while measured.read(LONGEST_READ):
                pass
    except (OSError, EOFError, ValueError, lzma.LZMAError, tarfile.TarError) as error:
        raise UserError(f"{archive}: {error}") from error
    return folder


class _Measured:
    """A stream that rejects reads beyond the limits per read and in total: a small archive can unpack to a large size."""

    def __init__(self, stream: lzma.LZMAFile, most: int):
        self._stream, self._most = stream, most

    def read(self, size: int) -> bytes:
        if size > LONGEST_READ:
            raise tarfile.TarError(f"a header of {size:,} bytes")
        if self._stream.tell() + size > self._most:
            raise tarfile.TarError(f"expands beyond {self._most >> 20:,} MiB, too much for its packed size")
        return self._stream.read(size)

    def seek(self, position: int) -> int:
        if position > self._most:
            raise tarfile.TarError(f"expands beyond {self._most >> 20:,} MiB, too much for its packed size")
        return self._stream.seek(position)

    def tell(self) -> int:
        return self._stream.tell()


def _extract(packed: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Writes one file whose name matches those that `pack` gives. tarfile's own extraction differs between Python versions and
    follows links in the archive."""
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or not NAME.fullmatch(member.name):
        raise tarfile.TarError(f"{member.name!r} is not a trial file")
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
    """Removes the owner: it is private, and the same trials then give the same archive."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
