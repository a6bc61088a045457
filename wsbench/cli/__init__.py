"""The command line: parses arguments, calls the package that does the work.

In: words of a command line. Out: text and an exit code. May import every package, each only when its command is typed.
The exit codes are those of `exits`.
"""

from __future__ import annotations

import signal
import sys

from wsbench.cli import exits

#: What the reports and the pages of campaigns need, and a base installation does not have.
OF_REPORT = ("prometheus_client", "py_mini_racer", "pyarrow", "ruptures", "starlette", "uvicorn")


def main() -> None:
    """Whatever happens from here on, Ctrl-C while the rest is imported too, ends with one plain line."""
    goes_on = []
    try:
        # What a script starts in the background ignores Ctrl-C unless it asks for it.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, _interrupt)
        _open_output()
        sys.unraisablehook = _not_lost
        code = _flushed(carried_out(sys.argv[1:]))
    except BaseException as met:
        # Libraries make other errors of an interrupt that they meet while they are imported.
        if not _interrupts:
            raise
        code, goes_on = exits.INTERRUPTED, getattr(met, "__notes__", [])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # there is nothing left to interrupt
    # Where an interrupt met a piece of code that `exec` ran, such as a dataclass's, Python would end by the signal although it was
    # caught, unless something is run that way once more.
    exec("")
    if code == exits.INTERRUPTED:
        _say("; ".join(["interrupted; every finished trial is kept", *goes_on]))
    sys.exit(exits.TERMINATED if code == exits.INTERRUPTED and signal.SIGTERM in _interrupts else code)


def _flushed(code: int) -> int:
    """The exit code once everything is written: Python would otherwise meet a closed pipe or a full disk after the end."""
    import os

    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return exits.PIPE_CLOSED
        _say(_words_of(error))
        return exits.FAULT
    return code


def _open_output() -> None:
    """Standard streams that can be written to: a closed one goes nowhere, and one that knows only ASCII gets `\\u` for the rest."""
    import codecs
    import os

    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
    for number, name in enumerate(("stdout", "stderr"), 1):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        codecs.register_error("as_json", _as_json)
        getattr(sys, name).reconfigure(errors="as_json")


def _as_json(error: UnicodeError) -> tuple[str, int]:
    """Characters that an encoding lacks, as a JSON text would escape them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)), error.end


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


def carried_out(words: list[str]) -> int:
    """Does what the words of a command line ask for, as `main` does, and returns the exit code. Changes no signal handler and ends
    no process; `--help` and `--version` raise SystemExit."""
    from importlib import import_module

    from wsbench.cli import arguments
    from wsbench.records.errors import NothingUsable, UserError

    try:
        asked = arguments.parsed(words)
        module, _, function = asked.command.partition(":")
        return getattr(import_module(f"wsbench.{module}"), function)(asked)
    except UserError as error:
        for line in error.lines:
            _say(line)
        return exits.NOTHING_USABLE if isinstance(error, NothingUsable) else exits.BAD_INPUT
    except ModuleNotFoundError as error:
        if (error.name or "wsbench").partition(".")[0] == "wsbench":
            raise
        _say(_needs_extra(error.name))
        return exits.BAD_INPUT
    except BrokenPipeError:
        return exits.PIPE_CLOSED
    except OSError as error:
        _say(_words_of(error))
        return exits.FAULT
    except ValueError as error:
        if type(error).__name__ != "ValidationError":
            raise
        from wsbench.records.frozen import one_line

        _say(one_line(error))
        return exits.BAD_INPUT


def _words_of(error: OSError) -> str:
    """What this machine has no room for, and what to do about it."""
    import errno

    what = f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror or str(error)
    todo = {
        errno.ENOSPC: "free space on that disk",
        errno.EDQUOT: "free space on that disk",
        errno.EMFILE: "raise the limit of open files with `ulimit -n`",
        errno.ENFILE: "raise fs.file-max; too many files are open on this machine",
        errno.EAGAIN: "raise the limit of processes with `ulimit -u`, or pids.max of the control group",
        errno.ENOMEM: "this machine has run out of memory",
        errno.EROFS: "change to a writable folder, in which `runs` is created; of a campaign, make a copy there",
        errno.EACCES: "check its owner and permissions",
    }.get(error.errno)
    return f"{what}; {todo}" if todo else what


def require_report(otherwise: str = "; or use --no-report and write the report elsewhere") -> None:
    """UserError where the report's packages are missing: before something is measured that could then not be read."""
    from wsbench.records.errors import UserError

    if missing := _missing():
        raise UserError(f"{_needs_extra(missing[0])}{otherwise}")


def _missing() -> list[str]:
    from importlib import util

    return [name for name in OF_REPORT if util.find_spec(name) is None]


def _needs_extra(module: str) -> str:
    from wsbench.host import installation

    return f"this needs {module}, which is not installed: {installation.extra('report')}"


def _say(text: str) -> None:
    from wsbench.records.plain import line

    print(f"wsbench: {line(text)}", file=sys.stderr)
