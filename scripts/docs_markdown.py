"""Markdown as the documentation needs it: links, headings, anchors, and links moved to another folder."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

CODE = r"(?P<fence>^(?P<ticks>```+|~~~+)[^\n]*\n.*?^(?P=ticks)[ \t]*$)|(?P<code>(?P<run>`+)(?!`).+?(?<!`)(?P=run)(?!`))"
TEXT = r"(?:[^\[\]]|\[[^\[\]]*\](?:\([^()]*\))?)*"
LINK = rf"(?P<inline>(?P<mark>!?)\[(?P<text>{TEXT})\]\((?P<target>[^()\s]+)(?P<title>\s+\"[^\"]*\")?\))"
DEFINITION = r"(?P<definition>^\[(?P<name>[^\]\n]+)\]:[ \t]+(?P<where>\S+)[ \t]*$)"
REFERENCE = r"(?P<reference>\[(?P<words>[^\[\]]+)\](?:\[(?P<label>[^\[\]]*)\])?(?![(:]))"
MARKDOWN = re.compile("|".join((CODE, DEFINITION, LINK, REFERENCE)), re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#{1,6})[ \t]+(.+?)[ \t]*#*$")


def links(text: str) -> Iterator[str]:
    """The target of every link, image and reference definition outside code."""
    for found in MARKDOWN.finditer(text):
        if target := found["target"] or found["where"]:
            yield target
        if found["inline"] and "](" in found["text"]:
            yield from links(found["text"])


def lines_outside_code(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines that are in no fenced block."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        ticks = re.match(r"\s*(```+|~~~+)", line)
        if ticks and fence is None:
            fence = ticks[1]
        elif ticks and line.strip() == fence:
            fence = None
        elif fence is None:
            yield number, line


def slug(heading: str) -> str:
    """The anchor of a heading, as forges and the site make it."""
    plain = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", heading)
    plain = re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", plain)
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Every anchor of a page; that of a repeated heading has a number behind it."""
    found: dict[str, int] = {}
    for _, line in lines_outside_code(text):
        if heading := HEADING.match(line):
            one = slug(heading[2])
            number = found.get(one, -1) + 1
            found[one] = number
            if number:
                found[f"{one}-{number}"] = 0
    return set(found)


def anchored(text: str) -> str:
    """The site takes `<name>` in a heading for a tag: such a heading gets its anchor explicitly."""
    lines = text.splitlines()
    for number, line in lines_outside_code(text):
        if (heading := HEADING.match(line)) and "<" in line:
            lines[number - 1] = f"{line} {{#{slug(heading[2])}}}"
    return "\n".join(lines) + "\n"


def relinked(text: str, before: str, after: str) -> str:
    """The text with its relative links as they are from another folder."""

    def replaced(found: re.Match) -> str:
        target = found["target"]
        if not target or re.match(r"[a-z]+:|#", target):
            return found[0]
        moved = posixpath.relpath(posixpath.join(before, target), after)
        return f"{found['mark']}[{found['text']}]({moved}{found['title'] or ''})"

    return MARKDOWN.sub(replaced, text)
