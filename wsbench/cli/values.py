"""Types of command-line arguments: text in, a value out, or `argparse.ArgumentTypeError` with the text and what is allowed."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil

#: The largest number that the engine and every file take.
LARGEST = 2**63 - 1
#: PID_MAX_LIMIT of 64-bit kernels.
LAST_PID = 1 << 22
DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(ms|s|m|min|h)", re.ASCII)
SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
THOUSANDS = re.compile(r"(\d+\.?\d*|\.\d+)([kM])", re.ASCII)
SIZE = re.compile(r"(\d+\.?\d*|\.\d+)([kKM])(iB)?", re.ASCII)
#: RFC 9110 §5.6.2.
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def port(text: str) -> int:
    if not _is_number(text) or not 1024 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: 1024 to 65535")
    return int(text)


def count(text: str) -> int:
    """`0`, `1000`, `1k`, `1.5M`."""
    whole = _in_thousands(text)
    if not _is_number(whole) or int(whole) > LARGEST:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: 0 to {LARGEST}, such as 1000 or 1k")
    return int(whole)


def size(text: str) -> int:
    """Bytes: `4096`, `64k`, `1M`, `1.5MiB`. As in most tools, k is 1024 here."""
    found = SIZE.fullmatch(text.strip())
    whole = f"{float(found[1]) * {'k': 1 << 10, 'M': 1 << 20}[found[2].replace('K', 'k')]:.12g}" if found else text
    if not _is_number(whole):
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: bytes, such as 4096, 64k (65536) or 1M")
    return int(whole)


def size_above_zero(text: str) -> int:
    found = size(text)
    if found == 0:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: bytes from 1 on, such as 1024 or 1k")
    return found


def share(text: str) -> float:
    """`5` and `5%` are 0.05."""
    try:
        number = float(text.strip().removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: a percentage such as 5")
    return number / 100


def margin(text: str) -> float:
    """A share between 0 and 1: `3` and `3%` are 0.03."""
    found = share(text.replace(" ", ""))
    if not 0 < found < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: a percentage above 0 and below 100, such as 3")
    return found


def path(text: str) -> str:
    """The target of a request."""
    if not text.startswith("/") or not text.isascii() or not text.isprintable() or {" ", "#"} & set(text):
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: a path such as /ws")
    return text


def positive(text: str) -> int:
    """`1000`, `1k`, `1.5M`."""
    whole = _in_thousands(text)
    if not _is_number(whole) or not 1 <= int(whole) <= LARGEST:
        most = f" to {LARGEST}" if _is_number(whole) and int(whole) > LARGEST else ""
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: a whole number from 1{most}, such as 1000 or 1k")
    return int(whole)


def host(text: str) -> str:
    """An address of this machine, or a name of one; what is empty would be all of them."""
    import socket

    try:
        socket.getaddrinfo(text, None)
    except (OSError, UnicodeError) as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: an address of this machine, such as ::1") from error
    return text


def seed(text: str) -> int:
    if not _is_number(text) or int(text) > LARGEST:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: a whole number from 0 to {LARGEST}")
    return int(text)


def pid(text: str) -> int:
    if not _is_number(text) or not 1 <= int(text) <= LAST_PID:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: the number of a process, 1 to {LAST_PID}")
    return int(text)


def pid_of(text: str) -> tuple[str, int]:
    """`A=123` or `B=123`."""
    letter, _, number = text.partition("=")
    if letter not in ("A", "B"):
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: A=PID or B=PID")
    return letter, pid(number)


def command(text: str) -> tuple[str, ...]:
    """A command line, split as a shell does, whose program exists. Nothing else of a shell is understood."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}: {str(error).lower()}") from error
    if not words:
        raise argparse.ArgumentTypeError("found no words, allowed: a program and its arguments")
    if shutil.which(words[0]) is None:
        raise argparse.ArgumentTypeError(
            f"found no program {words[0]!r}; it is started without a shell, so use `sh -c '…'` for one"
        )
    return tuple(words)


def cpus(text: str) -> list[int]:
    parts = text.split(",")
    if not all(map(_is_number, parts)):
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: numbers of CPUs, such as 1,3")
    return [int(part) for part in parts]


def level(text: str) -> int:
    if not _is_number(text) or int(text) > 9:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: 0 to 9")
    return int(text)


def above_zero(text: str) -> float:
    """A rate: `20000`, `20k`."""
    return _number(_in_thousands(text), text, 1e-3, 1e8, "a number from 0.001 to 100000000, such as 500 or 20k")


def seconds(text: str) -> float:
    """`2`, `2s`, `500ms`, `5m`, `1h`."""
    found = DURATION.fullmatch(text.strip())
    number = f"{float(found[1]) * SECONDS[found[2]]:.12g}" if found else text
    return _number(number, text, 0.0, 1e8, "seconds from 0 to 100000000, such as 10, 500ms or 5m")


def seconds_above_zero(text: str) -> float:
    return _number(str(seconds(text)), text, 1e-3, 1e8, "seconds from 0.001 to 100000000, such as 10, 500ms or 5m")


def from_zero(text: str) -> float:
    return _number(_in_thousands(text), text, 0.0, 1e8, "a number from 0 to 100000000")


def fraction(text: str) -> float:
    """`0.1` and `10%`."""
    percent = text.strip().endswith("%")
    found = _number(text.strip().removesuffix("%"), text, 0.0, 100.0 if percent else 1.0, "a number from 0 to 1, or a percentage")
    return found / 100 if percent else found


def factor(text: str) -> float:
    """`0.1`, `2`, `50%`."""
    percent = text.strip().endswith("%")
    found = _number(text.strip().removesuffix("%"), text, 1e-9, 1e9, "a number above 0, such as 0.1 or 50%")
    return found / 100 if percent else found


def header(text: str) -> tuple[str, str]:
    name, colon, value = (part.strip(" \t") for part in text.partition(":"))
    if not colon or not TOKEN.fullmatch(name) or not all(" " <= letter <= "~" or letter == "\t" for letter in value):
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: 'Name: value', in ASCII and on one line")
    return name, value


def _is_number(text: str) -> bool:
    """A whole one; digits of other scripts, which `int` would take or refuse by its own rules, are none."""
    return text.isascii() and text.isdigit() and len(text) < 20


def _in_thousands(text: str) -> str:
    """`1k` and `1.5M` as plain digits; any other text as it is."""
    if not (found := THOUSANDS.fullmatch(text.strip())):
        return text
    return f"{float(found[1]) * {'k': 1_000, 'M': 1_000_000}[found[2]]:.12g}"


def _number(text: str, typed: str, least: float, most: float, allowed: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"found {typed!r}, allowed: {allowed}")
    return value
