"""The command line: parses arguments, calls the package that does the work.

In: words of a command line. Out: text and an exit code. May import every package, each only when its command is typed.

Exit codes: 0 done; 1 something that was asked for did not hold (a check, a build, a load), or this machine has no room for it;
2 bad input, one plain line; 3 a threshold was breached (`load`, `compare`, `duel`); 4 nothing that was measured can be used: the
load (`load`) or the campaign (`run`) has no usable number of what it is about; 130 Ctrl-C.
"""

from __future__ import annotations

import signal
import sys

#: What the statistics, the report and the pages need, and a base installation does not have.
OF_REPORT = ("jinja2", "py_mini_racer", "pyarrow", "scipy", "starlette", "statsmodels")
INTERRUPTED = 130


def main() -> None:
    """Whatever happens from here on, Ctrl-C while the rest is imported too, ends with one plain line."""
    try:
        # What a script starts in the background ignores Ctrl-C unless it asks for it.
        signal.signal(signal.SIGINT, _interrupt)
        signal.signal(signal.SIGALRM, _interrupt)
        sys.unraisablehook = _not_lost
        code = _carried_out(sys.argv[1:])
    except BaseException:
        # Libraries make other errors of an interrupt that they meet while they are imported.
        if not _interrupts:
            raise
        code = INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # there is nothing left to interrupt
    # Where an interrupt met a piece of code that `exec` ran, such as a dataclass's, Python would end by the signal although it was
    # caught, unless something is run that way once more.
    exec("")
    if code == INTERRUPTED:
        _say("interrupted; every finished trial is kept")
    sys.exit(code)


_interrupts: list[int] = []


def _interrupt(number: int, _) -> None:
    _interrupts.append(number)
    raise KeyboardInterrupt


def _not_lost(met) -> None:
    """An interrupt that met a callback, where Python lets nothing be raised, comes again a moment later: this is a callback too."""
    if issubclass(met.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.001)
    else:
        sys.__unraisablehook__(met)


def _carried_out(words: list[str]) -> int:
    from importlib import import_module

    from wsbench.cli import arguments
    from wsbench.records.errors import UserError

    try:
        asked = arguments.parser(words).parse_args(words)
        module, _, function = asked.command.partition(":")
        return getattr(import_module(f"wsbench.{module}"), function)(asked)
    except UserError as error:
        for line in error.lines:
            _say(line)
        return 2
    except ModuleNotFoundError as error:
        if (error.name or "wsbench").partition(".")[0] == "wsbench":
            raise
        _say(_needs_extra(error.name))
        return 2
    except BrokenPipeError:
        return 141
    except OSError as error:
        _say(_words_of(error))
        return 1


def _words_of(error: OSError) -> str:
    """What this machine has no room for, and what to do about it."""
    import errno

    what = f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror or str(error)
    todo = {
        errno.ENOSPC: "free space on that disk",
        errno.EDQUOT: "free space on that disk",
        errno.EMFILE: "raise the limit of open files with `ulimit -n`",
        errno.ENFILE: "raise fs.file-max; too many files are open on this machine",
        errno.EAGAIN: "raise the limit of processes with `ulimit -u`",
        errno.ENOMEM: "this machine has run out of memory",
        errno.EROFS: "change to a writable folder; `runs` is created in the current one",
        errno.EACCES: "check its owner and permissions",
    }.get(error.errno)
    return f"{what}; {todo}" if todo else what


def has_report() -> bool:
    return not _missing()


def require_report(otherwise: str = "; or use --no-report and write the report elsewhere") -> None:
    """UserError where the report's packages are missing: before something is measured that could then not be read."""
    from wsbench.records.errors import UserError

    if missing := _missing():
        raise UserError(f"{_needs_extra(missing[0])}{otherwise}")


def _missing() -> list[str]:
    from importlib import util

    return [name for name in OF_REPORT if util.find_spec(name) is None]


def _needs_extra(module: str) -> str:
    return f"this needs {module}, which is not installed: pip install 'wsbench[report]'"


def _say(text: str) -> None:
    from wsbench.records.plain import line

    print(f"wsbench: {line(text)}", file=sys.stderr)
