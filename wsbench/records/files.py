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
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from wsbench.records.errors import UserError
from wsbench.records.plain import line

#: For comparison: one hour of samples (four per second, 300 bytes each) takes 5 MB.
LARGEST_BYTES = 256 << 20
#: As many as Linux follows.
MOST_LINKS = 40


@contextlib.contextmanager
def opened_plain(file: Path, links: bool = False) -> Iterator[BinaryIO]:
    """The file, opened for reading. UserError if it is a link (unless `links`), not a regular file, or unreadable."""
    try:
        # O_NONBLOCK: opening a pipe must not wait for the other end.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UserError(f"{file} is not a plain file")
            yield opened
    except OSError as error:
        raise UserError(f"{file}: {'is a link' if error.errno == errno.ELOOP and not links else error.strerror}") from error


def read_file(file: Path, most: int = LARGEST_BYTES, links: bool = False) -> bytes:
    """The file's content. UserError if it is a link (unless `links`), not a regular file, over `most` bytes or unreadable."""
    with opened_plain(file, links) as opened:
        size = os.fstat(opened.fileno()).st_size
        # Read the current size first, so that no buffer of `most` bytes is allocated; then read on if the file has grown.
        content = opened.read(size + 1) if size <= most else b""
        if len(content) > size:
            content += opened.read(most + 1 - len(content))
    if max(size, len(content)) > most:
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
    """Checks before any work that `write_output` can write the file given by option `name`. UserError if not."""
    if not file.name:
        raise UserError(f"{name} {str(file)!r}: expected a file name")
    if _descriptor(file) is not None:
        return
    try:
        place, regular = _place(file)
        if not place.parent.is_dir():
            raise UserError(f"folder {place.parent} does not exist")
        if regular:
            probe = _beside(place)
            os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            probe.unlink()
        elif not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except UserError as error:
        raise UserError(f"{name} {file}: {error}") from error
    except OSError as error:
        raise UserError(f"{name} {file}: cannot write there: {error.strerror}") from error


def write_output(file: Path, content: bytes) -> None:
    """Writes a file that the user named, and replaces nothing but a regular file.

    A new or regular file is written atomically. A link is followed to one and stays. A character device, a FIFO and an open
    descriptor (`/dev/stdout`) are written into. UserError for anything else, such as a folder, a disk or a link to nothing.
    """
    if (descriptor := _descriptor(file)) is not None:
        # Its path may be forbidden to open, begins at the start of a redirected file, and cannot be opened for a socket.
        sys.stdout.flush()
        sys.stderr.flush()
        into = os.dup(descriptor)
    else:
        place, regular = _place(file)
        if regular:
            write_whole(place, content)
            return
        with named(file):
            into = _opened_to_write(file)
    with named(file), os.fdopen(into, "wb") as out:
        out.write(content)


def _opened_to_write(file: Path) -> int:
    """A descriptor of a character device or a FIFO. Waits for the reader of a FIFO, and says so: a user may have started none."""
    flags = os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC
    try:
        opened = os.open(file, flags | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO or not stat.S_ISFIFO(file.stat().st_mode):
            raise
        print(f"wsbench: {line(str(file))}: nobody reads this pipe; waiting for a reader", file=sys.stderr, flush=True)
        return os.open(file, flags)
    os.set_blocking(opened, True)
    return opened


def _place(file: Path) -> tuple[Path, bool]:
    """Where the content of a named output goes, and whether that is a new or regular file. UserError if it can go nowhere."""
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        if file.is_symlink():
            raise UserError(f"{file} is a link to {file.readlink()}, which does not exist") from None
        return file, True
    if stat.S_ISREG(mode):
        if not file.is_symlink():
            return file, True
        # The kernel refuses to follow another user's link in /tmp only to programs that open it.
        os.close(os.open(file, os.O_WRONLY | os.O_CLOEXEC))
        return file.resolve(), True
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
        return file, False
    kind = "a folder" if stat.S_ISDIR(mode) else "a disk" if stat.S_ISBLK(mode) else "a socket"
    raise UserError(f"{file} is {kind}; expected a file name")


def _descriptor(file: Path) -> int | None:
    """The descriptor of this process that a path names, such as 1 for /dev/stdout; None for other paths."""
    for _ in range(MOST_LINKS):
        if file.name.isdecimal() and os.path.realpath(file.parent) == f"/proc/{os.getpid()}/fd":
            return int(file.name)
        if not file.is_symlink():
            break
        file = file.parent / file.readlink()
    return None


@contextlib.contextmanager
def named(file: Path) -> Iterator[None]:
    """Adds the file name to an OSError of a write."""
    try:
        yield
    except OSError as error:
        error.filename = str(file) if error.filename is None else error.filename
        raise


def write_whole(file: Path, content: bytes) -> None:
    """Writes atomically: a reader never sees a partial file, even after a power failure. Concurrent writers do not collide.

    UserError if there is something else than a regular file, such as a link: it would be replaced.
    """
    if os.path.lexists(file) and not is_plain(file):
        raise UserError(f"{file} is not a plain file, and is not replaced; move it away")
    part = _beside(file)
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        error.filename = str(file)
        raise
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
