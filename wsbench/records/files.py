"""File access for untrusted input, and atomic writes.

A campaign may come from an untrusted source. Reads follow no links, accept only regular files, and are limited in size. Writes are
all or nothing and never overwrite something else. This module knows no file name and no file type.
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

#: For comparison: one hour of samples (four per second, 300 bytes each) takes 5 MB.
LARGEST_BYTES = 256 << 20


def read_file(file: Path, most: int = LARGEST_BYTES, links: bool = False) -> bytes:
    """The file's content. UserError if it is a link (unless `links`), not a regular file, over `most` bytes or unreadable."""
    try:
        # O_NONBLOCK: opening a pipe must not wait for the other end.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))
        with os.fdopen(descriptor, "rb") as opened:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise UserError(f"{file} is not a plain file")
            # Read the current size first, so that no buffer of `most` bytes is allocated; then read on if the file has grown.
            content = opened.read(min(found.st_size, most) + 1)
            if len(content) > found.st_size:
                content += opened.read(most + 1 - len(content))
    except OSError as error:
        raise UserError(f"{file}: {'is a link' if error.errno == errno.ELOOP and not links else error.strerror}") from error
    if len(content) > most:
        raise UserError(f"{file} is larger than {most >> 20} MiB, the limit for wsbench files")
    return content


def read_text(file: Path, most: int = LARGEST_BYTES, links: bool = False) -> str:
    """Same as `read_file`, as text. UserError if it is not UTF-8."""
    try:
        return read_file(file, most, links).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8: {error.reason} at byte {error.start}") from error


def is_plain(file: Path) -> bool:
    """Whether the path is an existing regular file and not a link."""
    with contextlib.suppress(OSError):
        return stat.S_ISREG(file.lstat().st_mode)
    return False


def is_own_folder(folder: Path) -> bool:
    """Whether the path is an existing folder and not a link."""
    return folder.is_dir() and not folder.is_symlink()


def require_writable(name: str, file: Path) -> None:
    """Checks before any work that the file given by option `name` can be written. UserError if not."""
    if not file.name or file.is_dir():
        raise UserError(f"{name} {str(file)!r}: expected a file name")
    if not file.parent.is_dir():
        raise UserError(f"{name} {file}: folder {file.parent} does not exist")
    try:
        probe = _beside(file)
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        probe.unlink()
    except OSError as error:
        raise UserError(f"{name} {file}: cannot write there: {error.strerror}") from error


@contextlib.contextmanager
def named(file: Path) -> Iterator[None]:
    """Adds the file name to an OSError of a write."""
    try:
        yield
    except OSError as error:
        error.filename = str(file) if error.filename is None else error.filename
        raise


def write_whole(file: Path, content: bytes) -> None:
    """Writes atomically: a reader never sees a partial file, even after a power failure. Concurrent writers do not collide."""
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
    """Yields a temporary folder that is renamed to `folder` on success and removed on failure. UserError if `folder` exists."""
    if os.path.lexists(folder):
        raise UserError(f"{folder} exists; choose a new folder")
    part = _beside(folder)
    try:
        part.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot create it: {error.strerror}") from error
    try:
        yield part
        if os.path.lexists(folder):
            raise UserError(f"{folder} was created in the meantime; choose a new folder")
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def new_folder(parent: Path, stem: str) -> Path:
    """Creates folder `stem`, with a number appended if the name is taken. Concurrent callers get different folders."""
    parent.mkdir(parents=True, exist_ok=True)
    for number in range(1, 10_000):
        made = parent / (stem if number == 1 else f"{stem}-{number}")
        with contextlib.suppress(FileExistsError):
            made.mkdir()
            return made
    raise UserError(f"{parent} already has ten thousand folders named {stem}")


def _beside(place: Path) -> Path:
    """A unique temporary name in the same folder."""
    return place.with_name(f".{place.name}.{secrets.token_hex(4)}.part")
