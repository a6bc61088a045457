"""Compact letter display: servers that share a letter are not shown to differ."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def letters(names: Sequence[str], different: Collection[tuple[str, str]]) -> dict[str, str]:
    """The letters of each name. `names` has the best first, whose letter is `a`."""
    place = {name: at for at, name in enumerate(names)}
    found = sorted(sorted(place[name] for name in group) for group in _groups(names, different))
    return {name: "".join(_letter(letter) for letter, group in enumerate(found) if at in group) for name, at in place.items()}


def _groups(names: Sequence[str], different: Collection[tuple[str, str]]) -> list[frozenset[str]]:
    """The largest groups without a differing pair: insert and absorb (Piepho 2004)."""
    groups = [frozenset(names)]
    place = {name: at for at, name in enumerate(names)}
    for one, other in sorted(different, key=lambda pair: [place[name] for name in pair]):
        whole = [group for group in groups if not (one in group and other in group)]
        parts = [group - {name} for group in groups if one in group and other in group for name in (one, other)]
        # No group is inside another, so only new ones need checking.
        groups = whole + [part for part in dict.fromkeys(parts) if not any(part <= group for group in whole)]
    return groups


def _letter(place: int) -> str:
    """a … z, then aa …"""
    return chr(ord("a") + place % 26) * (place // 26 + 1)
