#!/usr/bin/env python3
"""Runs commands of wsbench and draws what they print, as docs/pictures/NAME.svg: the pictures of README.

    .venv/bin/python scripts/pictures.py load "wsbench load ws://127.0.0.1:8080/ --session chat.toml -c 100 --rate 1k"

The command runs here, for real. What it says while it runs is left out, and its last line, which names a folder.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
COLUMNS = 112


def drawn(command: str) -> str:
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    done = subprocess.run(shlex.split(command), env=environment, stdout=subprocess.PIPE, text=True, check=False)
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ {command}", style="bold"))
    for line in done.stdout.splitlines():
        if not line.startswith("kept in"):
            console.print(Text.from_ansi(line))
    # Nothing is fetched: the reader's own font will do.
    return re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=""), flags=re.DOTALL)


def main() -> int:
    name, command = sys.argv[1:]
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / f"{name}.svg").write_text(drawn(command), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
