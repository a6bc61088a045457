"""Checks of single words of a command line: text in, a value out, or `argparse.ArgumentTypeError` with what was found and what is
allowed. Light: nothing is imported that takes time.
"""

from __future__ import annotations

import argparse


def port(text: str) -> int:
    if not text.isdigit() or not 1024 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: 1024 to 65535")
    return int(text)


def count(text: str) -> int:
    if not text.isdigit():
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
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: a whole number from 1")
    return int(text)


def cpus(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: numbers of CPUs, such as 1,3")
    return [int(part) for part in parts]


def level(text: str) -> int:
    if not text.isdigit() or int(text) > 9:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: 0 to 9")
    return int(text)


def above_zero(text: str) -> float:
    return _number(text, least=1e-3, most=1e8, allowed="a number from 0.001 to 100000000")


def from_zero(text: str) -> float:
    return _number(text, least=0.0, most=1e8, allowed="a number from 0 to 100000000")


def fraction(text: str) -> float:
    return _number(text, least=0.0, most=1.0, allowed="a number from 0 to 1")


def header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: 'Name: value'")
    return name.strip(), value.strip()


def _number(text: str, least: float, most: float, allowed: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: {allowed}")
    return value
