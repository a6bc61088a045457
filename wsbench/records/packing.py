"""Packs a campaign for publication: the trial folders in one archive, next to the files that are read first.

No raw data is left out, so any reader of a published campaign can report, compare and judge it again. This module knows the names
of the trial folders, not their contents.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import lzma
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from wsbench.records import sums
from wsbench.records.errors import UserError
from wsbench.records.files import is_own_folder, is_plain, opened_plain, read_file, whole_folder
from wsbench.records.placeless import Places

ARCHIVE = "trials.tar.xz"
#: The checksum of an archive that is published apart from its campaign.
CHECKSUM = "trials.sha256"
#: What is computed from the trials, for readers.
DATA_SET = ("trials.parquet", "outcomes.parquet", "latencies.parquet")
#: The files of a campaign beside its trials' folders that have checksums. People write the others, or a command draws them anew.
OWN = (
    *("campaign.json", "experiment.toml", "order.json", "servers.json", "machine.json", "machine-after.json"),
    *("hosts.json", "hosts-after.json", *DATA_SET, ARCHIVE, CHECKSUM),
)
BINARY = ".parquet"
#: A log of histograms: base64, in which a short path occurs by chance.
HISTOGRAMS = ".hlog"
#: The temporary folders of unpacked trials, and the age in seconds from which one that is not locked was left behind.
UNPACKED, FRESH_S = "wsbench-trials-", 60.0
#: Bytes of lines that are searched for paths together.
TOGETHER = 1 << 20
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
    places: Places,
    apart: Path | None = None,
    tell: Callable[[int, int], None] = lambda *_: None,
    mended: Callable[[bytes, Places], bytes] = lambda content, _: content,
) -> Path:
    """Copies a campaign to a new folder, with its trials packed and checksums of all files. Links and special files are left out.
    Returns the folder.

    `places` replaces private folders of this machine in the texts of the copy; histograms are never touched. `mended` does so in
    the content of a Parquet file. `apart`: a new file for the trials that are then published elsewhere; the folder has their
    checksum. `tell` receives how many of how many trials are packed. UserError if a folder or file exists; Altered if a file of the
    campaign is not the one that was written.
    """
    if (run / ARCHIVE).exists():
        raise UserError(f"{run} is already packed; copy it instead")
    if apart is not None and (os.path.lexists(apart) or not apart.parent.is_dir()):
        raise UserError(f"{apart}: give a new file in an existing folder")
    with whole_folder(destination) as part:
        folders = sorted(entry for entry in run.iterdir() if entry.name.isdigit() and is_own_folder(entry))
        with tarfile.open(part / ARCHIVE, "w:xz", preset=PRESET) as archive:
            for packed, folder in enumerate(folders, 1):
                _pack_trial(archive, folder, places)
                tell(packed, len(folders))
        for entry in run.iterdir():
            if is_plain(entry) and not entry.name.startswith(".") and entry.name != sums.SUMS:
                content = sums.read(run, entry.name) if entry.name in OWN else read_file(entry)
                (part / entry.name).write_bytes(mended(content, places) if entry.suffix == BINARY else places.in_bytes(content))
        if apart is not None:
            # `sha256sum -c` finds the archive where a reader is to put it: in the campaign's folder.
            (part / CHECKSUM).write_bytes(sums.text({ARCHIVE: [sums.of_file(part / ARCHIVE)]}))
            shutil.move(part / ARCHIVE, apart)
        made = [name for name in OWN if is_plain(part / name)]
        (part / sums.SUMS).write_bytes(sums.text({name: [sums.of_file(part / name)] for name in made}))
    return destination


def _pack_trial(archive: tarfile.TarFile, folder: Path, places: Places) -> None:
    """Adds a trial's files to the archive, and their checksums."""
    sums.verify(folder)
    after = {}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if not is_plain(file) or name == sums.SUMS:
            continue
        with tempfile.TemporaryFile() as content:
            with opened_plain(file) as opened:
                # A path holds no line end; a server's log may have any size.
                while lines := opened.readlines(TOGETHER):
                    content.writelines(lines if file.suffix == HISTOGRAMS else [places.in_bytes(b"".join(lines))])
            _add(archive, file, folder.parent, content)
            content.seek(0)
            after[name] = [hashlib.file_digest(content, "sha256").hexdigest()]
    with tempfile.TemporaryFile() as content:
        content.write(sums.text(after))
        _add(archive, folder / sums.SUMS, folder.parent, content)


def _add(archive: tarfile.TarFile, file: Path, run: Path, content: BinaryIO) -> None:
    """`file`: what the content is a copy of; it need not exist."""
    name = str(file.relative_to(run))
    member = _nobody(archive.gettarinfo(file, name) if file.exists() else tarfile.TarInfo(name))
    member.size = content.tell()
    content.seek(0)
    archive.addfile(member, content)


@lru_cache
def unpacked(archive: Path) -> Path:
    """Unpacks the archive to a temporary folder, which is removed at process exit. UserError if it contains entries that `pack`
    does not write, or is larger than any campaign."""
    remove_leftovers()
    folder = Path(tempfile.mkdtemp(prefix=UNPACKED))
    # Held until this process ends, however it ends: the next one removes a folder that is not locked.
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(held, fcntl.LOCK_EX)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        with _members(archive) as members:
            for packed, member in members:
                _extract(packed, member, folder)
    except UserError:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)
        raise
    return folder


def remove_leftovers() -> None:
    """Removes the unpacked trials of processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{UNPACKED}*"):
        with contextlib.suppress(OSError):
            # A folder of this moment may not be locked yet.
            if folder.is_symlink() or time.time() - folder.lstat().st_mtime < FRESH_S:
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def names_in(archive: Path) -> set[str]:
    """The names of the files in the archive. UserError as in `unpacked`."""
    with _members(archive) as members:
        return {member.name for _, member in members}


@contextlib.contextmanager
def _members(archive: Path) -> Iterator[Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]]:
    try:
        with archive.open("rb") as packed, lzma.open(packed) as stream:
            most = min(LARGEST, max(SMALL, RATIO * os.fstat(packed.fileno()).st_size))
            measured = _Measured(stream, most)
            with tarfile.open(fileobj=measured, mode="r:") as members:
                yield _within(members)
            # The checksum of the content comes last, behind what tarfile reads.
            while measured.read(LONGEST_READ):
                pass
    except (OSError, EOFError, ValueError, lzma.LZMAError, tarfile.TarError) as error:
        raise UserError(f"{archive}: {error}") from error


def _within(members: tarfile.TarFile) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    names = set()
    for number, member in enumerate(members):
        if number >= MOST_FILES:
            raise tarfile.TarError(f"more than {MOST_FILES:,} files")
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or not NAME.fullmatch(member.name):
            raise tarfile.TarError(f"{member.name!r} is not a trial file")
        if member.name in names:
            raise tarfile.TarError(f"two files are named {member.name!r}")
        names.add(member.name)
        yield members, member


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
    """Writes one file. tarfile's own extraction differs between Python versions and follows links in the archive."""
    place = folder / member.name
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("xb") as made:
        shutil.copyfileobj(packed.extractfile(member), made)


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Removes the owner: it is private, and the same trials then give the same archive."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
