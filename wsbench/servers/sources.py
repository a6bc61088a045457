"""The source files of a server, and the digest that detects changes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

#: Never part of a server's sources, whatever its manifest says.
MADE = {"build", "target", "node_modules", "bin", "__pycache__"}
#: What a program writes beside itself when it runs.
CACHES = {"__pycache__", ".cache"}
#: How the names of wsbench's own notes of a build begin, beside what the build made.
NOTES = "wsbench-"
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


def digest_of_made(places: list[Path]) -> str:
    """SHA-256 of what a build made: files, and folders with all that is in them but caches and wsbench's own notes of the build."""
    made = hashlib.sha256()
    for place in places:
        for file in sorted(_made(place)):
            made.update(str(file.relative_to(place)).encode() + b"\0")
            if file.is_symlink():
                made.update(str(file.readlink()).encode() + b"\0")
            elif file.is_file():
                with file.open("rb") as opened:
                    made.update(hashlib.file_digest(opened, "sha256").digest())
    return made.hexdigest()


def _made(place: Path) -> list[Path]:
    found = [] if place.is_dir() else [place]
    for folder, folders, names in os.walk(place):
        folders[:] = [name for name in folders if name not in CACHES]
        links = [name for name in folders if Path(folder, name).is_symlink()]
        found += [Path(folder, name) for name in (*names, *links) if not name.startswith(NOTES)]
    return found
