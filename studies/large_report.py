"""What a report of many trials costs: makes a campaign of 40 servers, builds its report and opens it in Chromium.

    python studies/large_report.py FOLDER [CELLS]

50 cells (the default) are 10,000 trials, 5 are 1,000. A folder that is there already is not made again. It prints the CPU time of
building, of all processes, the size of the page, and the time until it is painted first and until its first chart is live.
"""

from __future__ import annotations

import math
import random
import resource
import sys
import time
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from browsing import ARGUMENTS, chromium
from playwright.sync_api import sync_playwright
from run_maker import Server, Trial, make_run, write_trial

from wsbench.records.rundir import RunFolder
from wsbench.report import document

LANGUAGES = ("Java", "Rust", "Go", "C", "JavaScript", "Python", "C++", "Elixir", "PHP")
SERVERS = (
    Server("reference", "Rust", 40_000, 6),
    *(Server(f"server-{place}", LANGUAGES[place % 9], 900 * (place + 1), 20 + 5 * place) for place in range(1, 40)),
)
ROUNDS = 5


def cells(number: int) -> tuple[dict, ...]:
    sizes = (10, 40, 160, 640, 2560)
    if number <= len(sizes):
        return tuple({"connections": connections} for connections in sizes[:number])
    return tuple({"connections": size, "payload": 16 * (step + 1)} for size in sizes for step in range(number // 5))


def write(task) -> None:
    folder, planned = task
    server = next(one for one in SERVERS if one.name == planned.server)
    connections = planned.cell["connections"]
    noise = math.exp(random.Random(planned.number).gauss(0, 0.02))
    rate = server.rate * (1 - math.exp(-connections / 24)) * noise
    trial = Trial(rate=rate, connections=connections, rss_mib=server.rss_mib + connections * 0.03)
    write_trial(folder / f"{planned.number:04}", trial, planned)


def made(folder: Path, number: int) -> RunFolder:
    if folder.exists():
        return RunFolder.open(folder)
    all_of_them = len(SERVERS) * number * ROUNDS
    run = make_run(folder, SERVERS, cells(number), ROUNDS, unfinished=all_of_them)
    with Pool() as pool:
        pool.map(write, [(folder, planned) for planned in run.order], chunksize=50)
    return run


def cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    run = made(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50)
    began, used = time.monotonic(), cpu_s()
    page = document.build(run)
    print(f"{len(run.order):,} trials: built in {cpu_s() - used:.1f} s of CPU time, {time.monotonic() - began:.1f} s by the clock")
    print(f"{page.stat().st_size / 1e6:.2f} MB")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        for _ in range(3):
            opened = browser.new_page(viewport={"width": 1280, "height": 800})
            began = time.monotonic()
            opened.goto(page.resolve().as_uri(), wait_until="commit")
            opened.wait_for_selector("[data-figures][data-state=live]", timeout=60_000)
            live = time.monotonic() - began
            first = opened.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            print(f"opened: first paint after {first / 1e3:.2f} s, first chart live after {live:.2f} s")
            opened.close()
        browser.close()


if __name__ == "__main__":
    main()
