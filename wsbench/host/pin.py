"""The pin: keeps processes that run already on some CPUs while wsbench lives, and puts them back however wsbench ends.

Run as `python -I -S pin.py CPUS PID…`. It moves every thread of these process trees to CPUS, writes `pinned`, and waits until its
standard input closes (wsbench is done, or has ended, also by kill -9). Then every thread gets the CPUs that it had before. A
thread that began in between gets those of its process. A thread that chose other CPUs meanwhile keeps them. It imports only the
standard library.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path

#: Threads begin while others are moved. They inherit the CPUs of their creator, so that a few passes reach all of them.
PASSES = 50


class Pin:
    def __init__(self, cpus: set[int], roots: list[int]) -> None:
        self._cpus, self._roots = cpus, roots
        #: (thread, its start) → its CPUs before; the start distinguishes a thread from a later one with the same number.
        self._before: dict[tuple[int, str], set[int]] = {}
        self._of_process: dict[int, set[int]] = {}

    def move(self) -> None:
        """OSError if a process may not be moved; what was moved is then put back by `put_back`."""
        for number in range(PASSES):
            new = [one for one in self._threads() if (one[0], one[2]) not in self._before]
            if not new:
                return
            for thread, process, start in new:
                with contextlib.suppress(ProcessLookupError):
                    had = os.sched_getaffinity(thread)
                    if number and had == self._cpus:  # it began during the last pass and inherited them
                        had = self._of_process.get(process, had)
                    os.sched_setaffinity(thread, self._cpus)
                    self._before[thread, start] = had
                    self._of_process.setdefault(process, had)

    def put_back(self) -> None:
        done: set[tuple[int, str]] = set()
        for _ in range(PASSES):
            known = [(thread, None, start) for thread, start in self._before if _stat(thread)[1] == start]
            left = [one for one in [*self._threads(), *known] if (one[0], one[2]) not in done]
            if not left:
                return
            for thread, process, start in left:
                done.add((thread, start))
                had = self._before.get((thread, start)) or self._of_process.get(process)
                with contextlib.suppress(OSError):
                    if had is not None and os.sched_getaffinity(thread) == self._cpus:
                        os.sched_setaffinity(thread, had)

    def _threads(self) -> list[tuple[int, int, str]]:
        """Every thread of the trees: its number, its process, its start. A new process takes the CPUs of its parent."""
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                children.setdefault(_stat(int(entry.name))[0], []).append(int(entry.name))
        found, new = [], list(self._roots)
        while new:
            process = new.pop()
            for child in children.get(process, []):
                if child not in self._of_process and process in self._of_process:
                    self._of_process[child] = self._of_process[process]
                new.append(child)
            with contextlib.suppress(OSError):
                threads = [int(entry.name) for entry in Path(f"/proc/{process}/task").iterdir()]
                found += [(thread, process, _stat(thread)[1]) for thread in threads]
        return found


def _stat(thread: int) -> tuple[int, str]:
    """Its parent and its start in ticks since the boot; 0 and no text once it has ended."""
    try:
        fields = Path(f"/proc/{thread}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, ""
    return int(fields[1]), fields[19]


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with wsbench, and never before the threads are back
    pin = Pin({int(cpu) for cpu in sys.argv[1].split(",")}, [int(pid) for pid in sys.argv[2:]])
    try:
        pin.move()
        print("pinned", flush=True)
        sys.stdin.read()
        return 0
    except OSError as error:
        print(error.strerror, flush=True)
        return 1
    finally:
        pin.put_back()


if __name__ == "__main__":
    sys.exit(main())
