"""Plain text for display: a time with its unit, and untrusted text, escaped.

Control characters can move a terminal's cursor, and direction marks can reorder words, also on a page (Unicode Technical Report 36,
"Bidirectional Text Spoofing"). Files keep the original text.
"""

from __future__ import annotations

import math
import re

#: C0 except tab and line ends, DEL, C1, direction marks, unpaired surrogates.
_CLASS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
UNSAFE = re.compile(f"[{_CLASS}]")
UNSAFE_IN_LINE = re.compile(f"[{_CLASS}\r\n]")


def line(text: str) -> str:
    """For one line of a terminal: unsafe characters become escapes such as `\\x1b`."""
    return UNSAFE_IN_LINE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def visible(text: str) -> str:
    """For a page: unsafe characters become the replacement character."""
    return UNSAFE.sub("\ufffd", text)


def time_text(value_ns: float) -> str:
    """Three digits in a suitable unit: `42.7 ms`."""
    unit, size = next((one for one in (("s", 1e9), ("ms", 1e6)) if value_ns >= one[1]), ("µs", 1e3))
    digits = max(0, 2 - math.floor(math.log10(max(value_ns / size, 0.1)))) if value_ns else 0
    return f"{value_ns / size:,.{min(digits, 2)}f} {unit}"
