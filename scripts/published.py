#!/usr/bin/env python3
"""Runs the campaigns of results/campaigns.toml and publishes them in results/, one after another.

    .venv/bin/python scripts/published.py              # all of them: days
    .venv/bin/python scripts/published.py capacity rpc # these
    .venv/bin/python scripts/published.py --list       # how long each is expected to take

A campaign that ends becomes `results/DATE-NAME`. The archive of its trials goes to release/, and its checksum into the folder.
After Ctrl-C, `wsbench run --resume` continues the campaign. `--pack RUN NAME` then publishes it as `results/DATE-NAME`.
"""

from __future__ import annotations

import argparse
import datetime
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from wsbench.records.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
RESULTS, RELEASE, RUNS = ROOT / "results", ROOT / "release", ROOT / "runs"


@dataclass(frozen=True)
class Campaign:
    """`before` and `after`: commands of wsbench around it, such as kernel settings."""

    name: str
    command: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def campaigns(text: str) -> list[Campaign]:
    """UserError for a name that stands twice, or an unknown key."""
    try:
        made = [
            Campaign(**{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()})
            for row in tomllib.loads(text)["campaign"]
        ]
    except (KeyError, TypeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"campaigns.toml: {error}") from error
    names = [one.name for one in made]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"campaigns.toml: {', '.join(sorted(twice))} stands twice")
    return made


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("names", nargs="*")
    asked.add_argument("--list", action="store_true")
    asked.add_argument("--pack", nargs=2, metavar=("RUN", "NAME"))
    options = asked.parse_args()
    try:
        known = campaigns((RESULTS / "campaigns.toml").read_text(encoding="utf-8"))
        if unknown := set(options.names) - {one.name for one in known}:
            raise UserError(f"no campaign {', '.join(sorted(unknown))}; known: {', '.join(one.name for one in known)}")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    if options.pack:
        return publish(Path(options.pack[0]), options.pack[1])
    chosen = [one for one in known if not options.names or one.name in options.names]
    if options.list:
        return max((wsbench("plan", *shlex.split(one.command)[1:]) for one in chosen), default=0)
    for one in chosen:
        if code := run(one):
            return code
    print("Now make the tables again: .venv/bin/python scripts/docs.py --tables")
    return 0


def run(one: Campaign) -> int:
    before = set(RUNS.glob("*"))
    try:
        for command in one.before:
            if code := wsbench(*shlex.split(command)):
                return code
        code = wsbench(*shlex.split(one.command), "--no-report", "--install")
    finally:
        for command in one.after:
            wsbench(*shlex.split(command))
    made = sorted(set(RUNS.glob("*")) - before)
    return code or publish(made[-1], one.name)


def publish(run_: Path, name: str) -> int:
    """Writes the report, and packs the campaign."""
    if code := wsbench("report", str(run_)):
        return code
    RELEASE.mkdir(parents=True, exist_ok=True)
    dated = f"{datetime.date.today():%Y-%m-%d}-{name}"
    return wsbench("pack", str(run_), str(RESULTS / dated), "--trials", str(RELEASE / f"{dated}.tar.xz"))


def wsbench(*words: str) -> int:
    return subprocess.run([str(Path(sys.executable).parent / "wsbench"), *words], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
