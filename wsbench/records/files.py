"""Files that may be anybody's, and files written whole: how wsbench reads and writes.

A campaign may come from elsewhere: no link is followed, nothing but a file is read, and none without a limit. What is written is
there whole or not at all, and never in the place of something else. It knows no file by name and no type of one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from wsbench.records.errors import UserError

#: An hour of samples, four a second, of which each is 300 bytes long, is 5 MB.
LARGEST_BYTES = 256 << 20


def read_file(file: Path, most: int = LARGEST_BYTES, links: bool = False) -> bytes:
    """What is in a file; UserError where it is a link and `links` are not wanted, no file, larger than `most` or not to be read."""
    try:
        # A pipe is opened without waiting for its other end.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))
        with os.fdopen(descriptor, "rb") as opened:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise UserError(f"{file} is not a plain file")
            # As much as there is, lest room be made for the most that is allowed; a file that grows is read on.
            content = opened.read(min(found.st_size, most) + 1)
            if len(content) > found.st_size:
                content += opened.read(most + 1 - len(content))
    except OSError as error:
        raise UserError(
            f"{file}: {'is a link' if error.errno == errno.ELOOP and not links else error.strerror}"
        ) from error
    if len(content) > most:
        raise UserError(f"{file} is larger than {most >> 20} MiB, which no such file of ours is")
    return content


def read_text(file: Path, most: int = LARGEST_BYTES, links: bool = False) -> str:
    """The same as text; UserError where it is not UTF-8."""
    try:
        return read_file(file, most, links).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8: {error.reason} at byte {error.start}") from error


def is_plain(file: Path) -> bool:
    """Whether it is there and a file, not a link to one."""
    with contextlib.suppress(OSError):
        return stat.S_ISREG(file.lstat().st_mode)
    return False


def is_own_folder(folder: Path) -> bool:
    """Whether it is there and a folder, not a link to one."""
    return folder.is_dir() and not folder.is_symlink()


def require_writable(name: str, file: Path) -> None:
    """UserError where this file, which an option of this name asks for, could not be written after all the work."""
    if not file.name or file.is_dir():
        raise UserError(f"{name} {str(file)!r}: give the name of a file")
    if not file.parent.is_dir():
        raise UserError(f"{name} {file}: there is no folder {file.parent}")
    try:
        probe = _beside(file)
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        probe.unlink()
    except OSError as error:
        raise UserError(f"{name} {file}: it cannot be written there: {error.strerror}") from error


@contextlib.contextmanager
def named(file: Path) -> Iterator[None]:
    """What the system says of a write tells which file it was."""
    try:
        yield
    except OSError as error:
        error.filename = str(file) if error.filename is None else error.filename
        raise


def write_whole(file: Path, content: bytes) -> None:
    """A reader never sees half a file, also after a power cut, and two who write it at once do not meet."""
    part = _beside(file)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with named(file), os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(descriptor)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Where a new folder is made: it gets its name when all of it is there, and else nothing is left. UserError where the name is
    taken."""
    if os.path.lexists(folder):
        raise UserError(f"{folder} exists; give a folder that is not there yet")
    part = _beside(folder)
    try:
        part.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"{folder}: it cannot be made there: {error.strerror}") from error
    try:
        yield part
        if os.path.lexists(folder):
            raise UserError(f"{folder} has come into being meanwhile; give a folder that is not there yet")
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def new_folder(parent: Path, stem: str) -> Path:
    """A folder of this name, or with a number behind it where that is taken; no two who ask at once get the same."""
    parent.mkdir(parents=True, exist_ok=True)
    for number in range(1, 10_000):
        made = parent / (stem if number == 1 else f"{stem}-{number}")
        with contextlib.suppress(FileExistsError):
            made.mkdir()
            return made
    raise UserError(f"{parent} has ten thousand folders called {stem}")


def _beside(place: Path) -> Path:
    """A name that nobody else has."""
    return place.with_name(f".{place.name}.{secrets.token_hex(4)}.part")
