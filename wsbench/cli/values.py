"""Checks of single words of a command line: text in, a value out, or `argparse.ArgumentTypeError` with what was found and what is
allowed. Light: nothing is imported that takes time.
"""

from __future__ import annotations

import argparse
import re

#: PID_MAX_LIMIT of 64-bit kernels.
LAST_PID = 1 << 22
#: RFC 9110 §5.6.2.
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def port(text: str) -> int:
    if not _is_number(text) or not 1024 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: 1024 to 65535")
    return int(text)


def count(text: str) -> int:
    if not _is_number(text):
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: 0, 1, 2, …")
    return int(text)


def share(text: str) -> float:
    """`5` and `5%` are 0.05."""
    try:
        number = float(text.strip().removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: a percentage such as 5")
    return number / 100


def positive(text: str) -> int:
    if not _is_number(text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: a whole number from 1")
    return int(text)


def host(text: str) -> str:
    """An address of this machine, or a name of one; what is empty would be all of them."""
    import socket

    try:
        socket.getaddrinfo(text, None)
    except (OSError, UnicodeError) as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: an address of this machine, such as ::1") from error
    return text


def seed(text: str) -> int:
    if not _is_number(text) or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: a whole number from 0 to {2**63 - 1}")
    return int(text)


def pid(text: str) -> int:
    if not _is_number(text) or not 1 <= int(text) <= LAST_PID:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: the number of a process, 1 to {LAST_PID}")
    return int(text)


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
    return _number(text, least=1e-3, most=1e8, allowed="a number from 0.001 to 100000000")


def from_zero(text: str) -> float:
    return _number(text, least=0.0, most=1e8, allowed="a number from 0 to 100000000")


def fraction(text: str) -> float:
    return _number(text, least=0.0, most=1.0, allowed="a number from 0 to 1")


def header(text: str) -> tuple[str, str]:
    name, colon, value = (part.strip(" \t") for part in text.partition(":"))
    if not colon or not TOKEN.fullmatch(name) or not all(" " <= letter <= "~" or letter == "\t" for letter in value):
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: 'Name: value', in ASCII and on one line")
    return name, value


def _is_number(text: str) -> bool:
    """A whole one; digits of other scripts, which `int` would take or refuse by its own rules, are none."""
    return text.isascii() and text.isdigit() and len(text) < 20


def _number(text: str, least: float, most: float, allowed: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: {allowed}")
    return value
