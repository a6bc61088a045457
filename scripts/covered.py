#!/usr/bin/env python3
"""Prints the lines and branches of the judging packages that the unit tests reach: `make coverage`.

.venv/bin/python scripts/covered.py [PYTEST OPTIONS]        # such as --all, for every test
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JUDGING = ("wsbench/analysis/stats", "wsbench/metrics", "wsbench/run", "wsbench/checks")


def main() -> int:
    coverage = [sys.executable, "-m", "coverage"]
    sources = ",".join(str(ROOT / folder) for folder in JUDGING)
    options = sys.argv[1:] or ["-m", "not system"]
    tests = subprocess.run([*coverage, "run", "--branch", f"--source={sources}", "-m", "pytest", "-n0", *options], cwd=ROOT)
    for folder in JUDGING:
        print(f"\n{folder}")
        subprocess.run([*coverage, "report", "--skip-covered", f"--include={folder}/*"], cwd=ROOT)
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main())
