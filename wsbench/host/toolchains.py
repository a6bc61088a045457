"""The programs that wsbench does not bring along: which are here, which packages have the others, and their installation.

In: names of toolchains.toml and the versions they are needed in. Out: where they lie, or why not. Nothing knows a release of a
distribution: what apt offers decides. A leaf of the standard library, because `make setup` runs it before anything is installed:

    python3 -m wsbench.host.toolchains install rust=1.88 c      # installs what is missing of these
    python3 -m wsbench.host.toolchains path rust=1.88           # prints a PATH on which they are found
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
    """An entry of toolchains.toml, which says what each field means."""

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
    """A tool that is here: its version, and its folder where the PATH does not lead to it."""

    version: str
    folder: Path | None


@cache
def table() -> dict[str, Tool]:
    entries = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {key: Tool(key, **{name: _frozen(value) for name, value in entry.items()}) for key, entry in entries.items()}


def _frozen(value):
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value


# ---- what is here ----------------------------------------------------------------------------------------------------


@cache
def found(key: str, at_least: str = "") -> Found | None:
    """The tool in the version that is needed, or else as it is here; None where there is none at all."""
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
        pattern = Path(place.format(tools=installation.tools_folder())).expanduser()
        yield from sorted(Path("/").glob(str(pattern.relative_to("/"))), reverse=True)


def version_of(ask: tuple[str, ...], folder: Path | None = None) -> str | None:
    """The first thing like a version in what the command prints; None where it cannot be run."""
    output = output_of([*ask] if folder is None else [str(folder / ask[0]), *ask[1:]])
    match = re.search(r"\d+(\.\d+)+|\b\d+\b", output.text) if output.code == 0 else None
    return match.group() if match else None


def lacks(key: str, at_least: str) -> str | None:
    """What is wrong with the tool here, in words; None where it will do."""
    here = found(key, at_least)
    if here is not None and numbers(here.version) >= numbers(at_least):
        return None
    wanted = f"{table()[key].name} ≥ {at_least}" if at_least else table()[key].name
    return f"needs {wanted}, found {here.version if here else 'none'}"


def path(wanted: dict[str, str]) -> str:
    """The PATH, with the folders of those tools in front that it does not lead to in the version needed."""
    places = [found(key, at_least) for key, at_least in wanted.items()]
    folders = dict.fromkeys(str(one.folder) for one in places if one is not None and one.folder is not None)
    return os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


# ---- what is not -----------------------------------------------------------------------------------------------------


def install(wanted: Iterable[tuple[str, str]], say=print) -> list[str]:
    """Installs what is missing of these tools and versions, and says what it does; a line for each that cannot be had. One tool in
    two versions is two wishes: that the newer cannot be had takes nothing from the older.

    From the distribution's packages, else from PyPI into `installation.tools_folder()`. UserError where that fails.
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
    """What is here has changed."""
    found.cache_clear()


def packages_for(key: str, at_least: str) -> list[str]:
    """The distribution's packages that have the tool in that version; none where it offers none."""
    for alternative in table()[key].packages:
        for first, number in _named(alternative[0]):
            version = _candidate(first)
            if version is not None and numbers(version) >= numbers(at_least):
                return [first, *(one.replace("*", number) for one in alternative[1:])]
    return []


def _named(pattern: str) -> list[tuple[str, str]]:
    """The packages that a name with `*` stands for, the newest first, each with the number in place of the `*`."""
    before, star, after = pattern.partition("*")
    if not star:
        return [(pattern, "")]
    names = output_of(["apt-cache", "pkgnames", before]).text.split()
    matches = [re.fullmatch(f"{re.escape(before)}([0-9.]+){re.escape(after)}", name) for name in names]
    return sorted(((one[0], one[1]) for one in matches if one), key=lambda one: numbers(one[1]), reverse=True)


def _candidate(package: str) -> str | None:
    """The upstream version that apt would install: without epoch and the distribution's own suffix."""
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
    return f"; this system's packages do not have it{f': {advice}' if advice else ''}"


def _as_root(argv: list[str]) -> None:
    if os.geteuid() != 0 and shutil.which("sudo") is None:
        raise UserError(f"this needs root or sudo: {' '.join(argv)}")
    _run(argv if os.geteuid() == 0 else ["sudo", *argv])


def _run(argv: list[str]) -> None:
    done = output_of(argv, timeout_s=INSTALL_S)
    if done.code != 0:
        last = (done.text.splitlines() or ["it said nothing"])[-1]
        raise UserError(f"`{' '.join(argv)}` ended with {done.code}: {last}")


def main(words: list[str]) -> int:
    if not words or words[0] not in ("install", "path"):
        print("usage: python3 -m wsbench.host.toolchains install|path TOOL[=VERSION] …", file=sys.stderr)
        return 2
    command, *named = words
    wanted = {key: at_least for key, _, at_least in (word.partition("=") for word in named)}
    if unknown := [key for key in wanted if key not in table()]:
        print(f"no tool is called {unknown[0]!r}; there are: {', '.join(table())}", file=sys.stderr)
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
