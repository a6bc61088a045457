"""Checksums of the files of a folder, in `SHA256SUMS`, in the format of `sha256sum`: `sha256sum -c SHA256SUMS` verifies them too.

A campaign's folder has one for its own files, and each trial's folder one for all of its files. A folder without one is older than
checksums: its files are read unverified. This module knows no other file name.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from wsbench.records.errors import UserError
from wsbench.records.files import LARGEST_BYTES, is_plain, opened_plain, read_file, write_whole

SUMS = "SHA256SUMS"
#: A line: the checksum, two spaces, and a plain name inside the folder.
LINE = re.compile(rb"([0-9a-f]{64})  (\w[\w.@+-]*(?:/\w[\w.@+-]*)*)\n")
#: The checksums of each file. There are two of a file while it is being replaced, or if that was interrupted.
Listed = dict[str, tuple[str, ...]]


class Altered(UserError):
    """A file is not the one that was written; the message is one line that names it."""


def listed(folder: Path, sums: str = SUMS) -> Listed | None:
    """The checksums of a folder's files by name; None if it has no such file. Altered if a line is not of `sha256sum`."""
    file = folder / sums
    if not os.path.lexists(file):
        return None
    found: Listed = {}
    for line in read_file(file).splitlines(keepends=True):
        if (parts := LINE.fullmatch(line)) is None:
            raise Altered(f"{file}: {line.decode(errors='replace').strip()!r} is not a line of sha256sum; the file was altered")
        name = parts[2].decode()
        found[name] = (*found.get(name, ()), parts[1].decode())
    return found


def of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def of_file(file: Path) -> str:
    """The checksum of a file of any size. UserError if it is a link, or no regular file."""
    with opened_plain(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def read(folder: Path, name: str, most: int = LARGEST_BYTES) -> bytes:
    """The content of a folder's file. Altered unless it has its checksum."""
    sums = listed(folder)
    while True:
        content = read_file(folder / name, most)
        if sums is None or of(content) in sums.get(name, ()):
            return content
        # A campaign that runs replaces its files: the checksums were read before, and the file after.
        before, sums = sums, listed(folder)
        if sums == before:
            raise _altered(folder, name, sums or {})


def require(folder: Path, name: str, lists: Sequence[str] = (SUMS,)) -> None:
    """The same for a large file, without its content. `lists`: the files that may have its checksum; unverified if none exists."""
    for sums in lists:
        if sums != SUMS and is_plain(folder / sums):
            read(folder, sums)
    found = [one for one in (listed(folder, sums) for sums in lists) if one is not None]
    if found and not any(of_file(folder / name) in one.get(name, ()) for one in found):
        raise _altered(folder, name, {key: value for one in found for key, value in one.items()})


def verify(folder: Path, below: str = "") -> None:
    """Altered if a listed file whose name begins with `below` is missing or does not have its checksum."""
    for name, sums in (listed(folder) or {}).items():
        if not name.startswith(below):
            continue
        if not is_plain(folder / name):
            raise Altered(f"{folder / name} is missing, and {folder / SUMS} has its checksum")
        if of_file(folder / name) not in sums:
            raise _altered(folder, name, {name: sums})


def write(folder: Path, contents: Mapping[str, bytes], also: Sequence[str] = ()) -> None:
    """Writes files of a folder in this order, each whole or not at all, and their checksums. A reader at any moment, and after a
    crash, finds a checksum for each file. `also`: files to list as they are if the folder has no checksums yet."""
    with _alone(folder):
        before = listed(folder)
        if before is None:
            before = {name: (of_file(folder / name),) for name in also if name not in contents}
        after = before | {name: (of(content),) for name, content in contents.items()}
        _write(folder, {name: tuple(dict.fromkeys((*before.get(name, ()), *sums))) for name, sums in after.items()})
        for name, content in contents.items():
            write_whole(folder / name, content)
        if before.keys() & contents.keys():
            _write(folder, after)


def write_unlisted(file: Path, content: bytes) -> None:
    """Writes a file whole or not at all. AssertionError if its folder has a checksum of it, which would then be wrong: such a file
    is written by `RunFolder.write` or `TrialFolder.end`."""
    assert file.name not in (listed(file.parent) or {}), f"{file} has a checksum; write it with RunFolder.write"
    write_whole(file, content)


def seal(folder: Path, last: str, content: bytes) -> None:
    """Writes the last file of a folder, after the checksums of all its files."""
    files = sorted(file for file in folder.rglob("*") if is_plain(file))
    names = [str(file.relative_to(folder)) for file in files]
    sums = {name: (of_file(folder / name),) for name in names if name not in (SUMS, last) and LINE.fullmatch(_line("0" * 64, name))}
    _write(folder, sums | {last: (of(content),)})
    write_whole(folder / last, content)


def text(sums: Mapping[str, Sequence[str]]) -> bytes:
    """The content of a file of checksums."""
    return b"".join(_line(one, name) for name, several in sorted(sums.items()) for one in several)


def _write(folder: Path, sums: Listed) -> None:
    write_whole(folder / SUMS, text(sums))


def _line(sum_: str, name: str) -> bytes:
    return f"{sum_}  {name}\n".encode()


def _altered(folder: Path, name: str, sums: Listed) -> Altered:
    if name not in sums:
        return Altered(f"{folder / name} has no checksum in {SUMS}: it was added or renamed afterwards")
    return Altered(f"{folder / name} was altered: it does not have its checksum in {SUMS}; restore it from a copy")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits until no other process writes checksums of the folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
