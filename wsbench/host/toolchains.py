"""External toolchains: which are installed, which packages provide the others, and their installation.

In: names from toolchains.toml and required versions. Out: their folders, or the reason why there is none. Availability depends on
what apt offers, not on a list of distribution releases. Uses only the standard library, because `make setup` runs it first:

    python3 -m wsbench.host.toolchains install rust=1.88 c      # installs the missing ones
    python3 -m wsbench.host.toolchains path rust=1.88           # prints a PATH that includes them
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wsbench.host import installation
from wsbench.host.process import output_of
from wsbench.records.errors import UserError

TABLE = Path(__file__).with_name("toolchains.toml")
INSTALL_S = 1800.0


@dataclass(frozen=True)
class Tool:
    """An entry of toolchains.toml; the fields are documented there."""

    key: str
    name: str
    ask: tuple[str, ...]
    packages: tuple[tuple[str, ...], ...]
    bin: tuple[str, ...] = ()
    pypi: str | None = None
    sha256: tuple[str, ...] = ()
    advice: str | None = None


@dataclass(frozen=True)
class Found:
    """An installed tool: its version, and its folder if it is not on the PATH."""

    version: str
    folder: Path | None


@cache
def table() -> dict[str, Tool]:
    entries = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {key: Tool(key, **{name: _frozen(value) for name, value in entry.items()}) for key, entry in entries.items()}


def _frozen(value):
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value


# ---- installed tools -------------------------------------------------------------------------------------------------


@cache
def found(key: str, at_least: str = "") -> Found | None:
    """The tool in a sufficient version, otherwise in any version installed. None if it is not installed."""
    tool, here = table()[key], []
    for folder in (None, *_folders(tool)):
        version = version_of(tool.ask, folder)
        if version is not None:
            here.append(Found(version, folder))
            if numbers(version) >= numbers(at_least):
                return here[-1]
    return here[0] if here else None


def _folders(tool: Tool) -> Iterator[Path]:
    for place in tool.bin:
        pattern = installation.expanded(place.format(tools=installation.tools_folder()) if "{tools}" in place else place)
        if pattern is not None:
            yield from sorted(Path("/").glob(str(pattern.relative_to("/"))), reverse=True)


def version_of(ask: tuple[str, ...], folder: Path | None = None) -> str | None:
    """The first version number in the command's output. None if the command fails."""
    output = output_of([*ask] if folder is None else [str(folder / ask[0]), *ask[1:]])
    match = re.search(r"\d+(\.\d+)+|\b\d+\b", output.text) if output.code == 0 else None
    return match.group() if match else None


def lacks(key: str, at_least: str) -> str | None:
    """Why the installed tool does not suffice, in words. None if it does."""
    here = found(key, at_least)
    if here is not None and numbers(here.version) >= numbers(at_least):
        return None
    wanted = f"{table()[key].name} ≥ {at_least}" if at_least else table()[key].name
    return f"needs {wanted}, found {here.version if here else 'none'}"


def path(wanted: dict[str, str]) -> str:
    """The PATH, preceded by the folders of those tools that it lacks in the required version."""
    places = [found(key, at_least) for key, at_least in wanted.items()]
    folders = dict.fromkeys(str(one.folder) for one in places if one is not None and one.folder is not None)
    return os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


# ---- missing tools ---------------------------------------------------------------------------------------------------


def install(wanted: Iterable[tuple[str, str]], say=print) -> list[str]:
    """Installs the missing tools and reports progress through `say`. Returns a line for each tool that is not available.

    Two versions of one tool are independent: if the newer is not available, the older is still installed. Sources are the
    distribution's packages, else PyPI, into `installation.tools_folder()`. UserError if an installation fails.
    """
    missing = [one for one in dict.fromkeys(wanted) if lacks(*one) is not None]
    if not missing:
        return []
    if apt := shutil.which("apt-get") is not None:
        _as_root(["apt-get", "update", "-qq"])
    packages: list[str] = []
    wheels: list[Tool] = []
    for key, at_least in missing:
        if apt and (offered := packages_for(key, at_least)):
            packages += offered
        elif table()[key].pypi is not None:
            wheels.append(table()[key])
    if packages:
        packages = list(dict.fromkeys(packages))
        say(f"installing {' '.join(packages)}")
        options = ["-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
        _as_root(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", *options, *packages])
    for tool in dict.fromkeys(wheels):
        say(f"installing {tool.pypi} from PyPI in {installation.tools_folder()}")
        _install_wheel(tool)
    forget()
    return [f"{problem}{_advice(key)}" for key, at_least in missing if (problem := lacks(key, at_least))]


def forget() -> None:
    """Clears the cache after an installation."""
    found.cache_clear()


def packages_for(key: str, at_least: str) -> list[str]:
    """The distribution's packages that provide the tool in that version. Empty if there are none."""
    for alternative in table()[key].packages:
        for first, number in _named(alternative[0]):
            version = _candidate(first)
            if version is not None and numbers(version) >= numbers(at_least):
                return [first, *(one.replace("*", number) for one in alternative[1:])]
    return []


def _named(pattern: str) -> list[tuple[str, str]]:
    """The packages that match a name with `*`, newest first, each with the number that replaces the `*`."""
    before, star, after = pattern.partition("*")
    if not star:
        return [(pattern, "")]
    names = output_of(["apt-cache", "pkgnames", before]).text.split()
    matches = [re.fullmatch(f"{re.escape(before)}([0-9.]+){re.escape(after)}", name) for name in names]
    return sorted(((one[0], one[1]) for one in matches if one), key=lambda one: numbers(one[1]), reverse=True)


def _candidate(package: str) -> str | None:
    """The upstream version that apt would install, without the epoch and the distribution's suffix."""
    match = re.search(r"Candidate: (?:\d+:)?(\d+(?:\.\d+)*)", output_of(["apt-cache", "policy", package]).text)
    return match[1] if match else None


def _install_wheel(tool: Tool) -> None:
    folder = installation.tools_folder()
    if not (folder / "bin" / "python").exists():
        _run([sys.executable, "-m", "venv", str(folder)])
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pinned:
        pinned.write(f"{tool.pypi} {' '.join(f'--hash=sha256:{one}' for one in tool.sha256)}\n")
        pinned.flush()
        options = ["--quiet", "--require-hashes", "--no-deps", "--only-binary", ":all:"]
        _run([str(folder / "bin" / "python"), "-m", "pip", "install", *options, "-r", pinned.name])


def _advice(key: str) -> str:
    advice = table()[key].advice
    return f"; not in this system's packages{f': {advice}' if advice else ''}"


def _as_root(argv: list[str]) -> None:
    if os.geteuid() != 0 and shutil.which("sudo") is None:
        raise UserError(f"this command needs root or sudo: {' '.join(argv)}")
    _run(argv if os.geteuid() == 0 else ["sudo", *argv])


def _run(argv: list[str]) -> None:
    done = output_of(argv, timeout_s=INSTALL_S)
    if done.code != 0:
        last = (done.text.splitlines() or ["no output"])[-1]
        raise UserError(f"`{' '.join(argv)}` failed with exit code {done.code}: {last}")


def main(words: list[str]) -> int:
    if not words or words[0] not in ("install", "path"):
        print("usage: python3 -m wsbench.host.toolchains install|path TOOL[=VERSION] …", file=sys.stderr)
        return 2
    command, *named = words
    wanted = {key: at_least for key, _, at_least in (word.partition("=") for word in named)}
    if unknown := [key for key in wanted if key not in table()]:
        print(f"unknown tool {unknown[0]!r}; known tools: {', '.join(table())}", file=sys.stderr)
        return 2
    if command == "path":
        print(path(wanted))
        return 0
    try:
        problems = install(wanted.items())
    except UserError as error:
        problems = [str(error)]
    for problem in problems:
        print(f"wsbench: {problem}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
