#!/usr/bin/env python3
"""Prints the lines and branches of the judging packages that tests reach, in commands that they start too: `make coverage`.

.venv/bin/python scripts/covered.py [PYTEST OPTIONS]        # such as --all, for every test
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JUDGING = ("wsbench/analysis/stats", "wsbench/metrics", "wsbench/run", "wsbench/checks")
SETTINGS = """
[run]
branch = true
source = wsbench
data_file = {folder}/data
parallel = true
patch = subprocess, _exit
sigterm = true
"""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="wsbench-covered-") as folder:
        settings = Path(folder) / "coveragerc"
        settings.write_text(SETTINGS.format(folder=folder), encoding="utf-8")
        environment = {**os.environ, "COVERAGE_RCFILE": str(settings)}

        def coverage(*words: str) -> int:
            return subprocess.run([sys.executable, "-m", "coverage", *words], cwd=ROOT, env=environment).returncode

        failed = coverage("run", "-m", "pytest", *(sys.argv[1:] or ["-m", "not system"]))
        coverage("combine", "--quiet")
        for include in (*JUDGING, "wsbench"):
            print(f"\n{include}", flush=True)
            coverage("report", *(["--skip-covered"] if include in JUDGING else ["--format=total"]), f"--include={include}/*")
    return failed


if __name__ == "__main__":
    sys.exit(main())
