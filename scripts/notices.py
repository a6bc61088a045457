"""The licences of all that is linked into the engine: engine/NOTICES.txt, which every wheel carries.

    python scripts/notices.py            # writes it anew
    python scripts/notices.py --check    # exit 1 where it is not up to date

Both end with 1 where a licence is not permitted, or is not told. What only helps to build (build scripts, procedural macros) is
not linked.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from license_expression import LicenseSymbol, get_spdx_licensing

ROOT = Path(__file__).resolve().parents[1]
ENGINE = ROOT / "engine"
NOTICES = ENGINE / "NOTICES.txt"
#: A program may be passed on with these, whoever receives it, if their texts go with it.
PERMITTED = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}
TEXTS = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)([-._].*)?", re.IGNORECASE)
STANDARD_LIBRARY = "the Rust standard library"
SPDX = get_spdx_licensing()


def main() -> int:
    crates = linked(metadata())
    wrong = [f"{name(one)}: {one['license'] or 'no licence told'}" for one in crates if not permitted(one["license"])]
    if wrong:
        print(f"not permitted: {'; '.join(wrong)} (permitted: {', '.join(sorted(PERMITTED))})", file=sys.stderr)
        return 1
    text = document(crates)
    if "--check" not in sys.argv[1:]:
        NOTICES.write_text(text, encoding="utf-8")
    elif not NOTICES.exists() or NOTICES.read_text(encoding="utf-8") != text:
        print(f"{NOTICES.relative_to(ROOT)} is not up to date: run `{sys.executable} scripts/notices.py`", file=sys.stderr)
        return 1
    print(f"{len(crates)} crates are linked into the engine, each with a licence that is permitted")
    return 0


def metadata() -> dict:
    rustc = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = re.search(r"^host: (.*)$", rustc, re.MULTILINE)[1]
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host]
    command += ["--manifest-path", str(ENGINE / "Cargo.toml")]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def linked(known: dict) -> list[dict]:
    """The crates whose code is in the program, its own aside, by name."""
    packages = {one["id"]: one for one in known["packages"]}
    nodes = {one["id"]: one for one in known["resolve"]["nodes"]}
    root = known["resolve"]["root"]
    reached, new = set(), [root]
    while new:
        one = new.pop()
        if one in reached or is_macro(packages[one]):
            continue
        reached.add(one)
        new += [dep["pkg"] for dep in nodes[one]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
    return sorted((packages[one] for one in reached - {root}), key=lambda one: (one["name"], one["version"]))


def is_macro(package: dict) -> bool:
    return any("proc-macro" in target["kind"] for target in package["targets"])


def permitted(expression: str | None) -> bool:
    """Whether there is a choice of licences that are all permitted."""
    if not expression:
        return False
    # Cargo's older form of OR.
    parsed = SPDX.parse(expression.replace("/", " OR "), simple=False)
    return any(all(one.key in PERMITTED for one in choice) for choice in choices(parsed))


def choices(parsed) -> list[list[LicenseSymbol]]:
    """The sets of licences that an expression lets one choose from."""
    if parsed.__class__.__name__ == "OR":
        return [choice for part in parsed.args for choice in choices(part)]
    if parsed.__class__.__name__ == "AND":
        made = [[]]
        for part in parsed.args:
            made = [before + choice for before in made for choice in choices(part)]
        return made
    return [[parsed]]


def document(crates: list[dict]) -> str:
    texts: dict[str, tuple[str, list[str]]] = {}
    for who, text in texts_of(crates):
        texts.setdefault(" ".join(text.split()), (text, []))[1].append(who)
    listed = [f"  {name(one)}  {one['license']}" for one in crates] + [f"  {STANDARD_LIBRARY}  MIT OR Apache-2.0"]
    parts = [
        "The load engine of wsbench (wsbench-engine) contains the following, each under the licence named.\n\n" + "\n".join(listed)
    ]
    parts += [f"{'-' * 78}\n{', '.join(dict.fromkeys(who))}\n\n{text.strip()}" for text, who in texts.values()]
    return "\n\n".join(parts) + "\n"


def texts_of(crates: list[dict]) -> Iterator[tuple[str, str]]:
    for one in crates:
        folder = Path(one["manifest_path"]).parent
        files = sorted(file for file in folder.rglob("*") if file.is_file() and TEXTS.fullmatch(file.name))
        files = [file for file in files if not file.suffix or file.suffix in (".md", ".txt") or "-" in file.name]
        if not files:
            yield (
                name(one),
                f"(The crate has no text of its licence: {one['license']}, by {', '.join(one['authors']) or 'its authors'}.)",
            )
        for file in files:
            yield name(one), file.read_text(encoding="utf-8", errors="replace")
    ours = (ROOT / "LICENSE").read_text(encoding="utf-8")
    yield STANDARD_LIBRARY, re.sub(r"Copyright.*", "Copyright (c) The Rust Project Contributors", ours, count=1)


def name(package: dict) -> str:
    return f"{package['name']} {package['version']}"


if __name__ == "__main__":
    sys.exit(main())
