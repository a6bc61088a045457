"""A lock that a process holds on a file until it ends. Whether it is held can be asked without taking it.

It is a lock of the open file (fcntl(2), F_OFD_SETLK): the kernel releases it however the process ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from wsbench.records.errors import UserError
from wsbench.records.files import is_plain

#: struct flock of 64-bit Linux: type, from (0: the beginning), start, length (0: all of the file), pid.
FLOCK = struct.Struct("@hhqqi4x")


@contextlib.contextmanager
def holding(file: Path, otherwise: str) -> Iterator[None]:
    """Holds the lock. UserError with the text `otherwise` if another process has it, or if the file is not a plain one."""
    if os.path.lexists(file) and not is_plain(file):
        raise UserError(f"{file} is not a plain file; remove it")
    with file.open("w") as opened:
        try:
            fcntl.fcntl(opened, fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise UserError(otherwise) from error
        yield


def is_held(file: Path) -> bool:
    """Whether a process holds the lock."""
    if not is_plain(file):
        return False
    with file.open("rb") as opened:
        found = fcntl.fcntl(opened, fcntl.F_OFD_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    return FLOCK.unpack(found)[0] != fcntl.F_UNLCK
