"""A metric that a trial has no value for."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


class Unmeasured(Exception):
    """The trial has no value for a metric; the message is the reason."""


def known(value: Value | None, otherwise: str) -> Value:
    """The value. If it is None: Unmeasured with that reason."""
    if value is None:
        raise Unmeasured(otherwise)
    return value
