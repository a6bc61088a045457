"""The source files of a server, and the digest that detects changes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

#: Never part of a server's sources, whatever its manifest says.
MADE = {"build", "target", "node_modules", "bin", "__pycache__"}
#: Files about a server that are not part of it. The commands of server.toml enter the digest separately.
ABOUT = {"server.toml", "README.md"}


def files(folder: Path) -> list[Path]:
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - MADE)
        found += [Path(place, name) for name in sorted(names) if name not in ABOUT]
    return found


def digest(folder: Path, commands: str = "") -> str:
    """SHA-256 of every file's path and content, and of the build commands."""
    made = hashlib.sha256(commands.encode())
    for file in files(folder):
        made.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes() + b"\0")
    return made.hexdigest()
