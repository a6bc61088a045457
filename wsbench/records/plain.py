"""Texts from outside, made harmless where they are shown: control characters move a terminal's cursor, and marks of direction turn
words around on a page as well (Unicode Technical Report 36, "Bidirectional Text Spoofing").

What is kept in files stays as it came.
"""

from __future__ import annotations

import re

#: C0 but for tab and the ends of lines, DEL, C1, marks of direction, halves of surrogate pairs.
_CLASS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
UNSAFE = re.compile(f"[{_CLASS}]")
UNSAFE_IN_LINE = re.compile(f"[{_CLASS}\r\n]")


def line(text: str) -> str:
    """For a terminal, on one line: each of them as its escape, such as `\\x1b`."""
    return UNSAFE_IN_LINE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def visible(text: str) -> str:
    """For a page: each of them as the replacement character."""
    return UNSAFE.sub("\ufffd", text)
