"""How a server looks in every chart: its family gives the hue; shade, dash and shape tell the servers of a family apart.

Names and languages in, a `Look` each out. Every colour has a contrast of 3:1 or more on the light and on the dark card alike,
so that one drawing serves both; that leaves a narrow band of lightness, hence no more than three shades of a hue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Eight hues in OKLCH, each at relative luminance 0.215, 0.152 and 0.288, as saturated as sRGB allows. Neighbours in the list
# are far apart on the wheel and for the usual kinds of colour blindness; where two hues look alike, dash and shape do not.
HUES = (
    ("#147fef", "#046cd0", "#3893fe"),
    ("#ca6308", "#ad5301", "#e5720e"),
    ("#019443", "#097e39", "#08a94e"),
    ("#c951b4", "#b33b9f", "#de64c8"),
    ("#937f0e", "#7e6c00", "#a89206"),
    ("#9067ea", "#7e52d3", "#a37aff"),
    ("#038d99", "#147882", "#06a2af"),
    ("#e24855", "#cb3042", "#f85d67"),
)
DASHES = ((1, 0), (6, 3), (2, 2), (9, 2, 2, 2), (12, 4))
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")


@dataclass(frozen=True)
class Look:
    colour: str
    dash: tuple[int, ...]
    shape: str


def looks_by_name(names: Sequence[str], languages: Mapping[str, str]) -> dict[str, Look]:
    """The look of each `server@variant` of a campaign, the same in every chart; `languages` has that of each of them it knows."""
    servers = [name.rpartition("@")[0] for name in names]
    found = looks(families(servers, [languages.get(name, name) for name in names]))
    return dict(zip(names, found, strict=True))


def families(servers: Sequence[str], languages: Sequence[str]) -> Sequence[str]:
    """What servers share a hue by: a name of a server whose variants take part, where there are hues for all; else the language."""
    return servers if len(set(servers)) <= len(HUES) else languages


def looks(families: Sequence[str]) -> list[Look]:
    """A look for each server, given the families of all, in order.

    Two with the same hue share a shape only after eight, a shade with the same dash only after fifteen, all three never before
    120. A ninth family takes the first hue, and goes on where the servers of that hue have come to.
    """
    hue_of = {family: place % len(HUES) for place, family in enumerate(dict.fromkeys(families))}
    seen = [0] * len(HUES)
    found = []
    for family in families:
        hue = hue_of[family]
        place, seen[hue] = seen[hue], seen[hue] + 1
        shades = HUES[hue]
        # Dash and shade change at different paces, so that neighbours differ in both dash and shape.
        dash, shade = DASHES[place % len(DASHES)], shades[place // len(DASHES) % len(shades)]
        found.append(Look(shade, dash, SHAPES[place % len(SHAPES)]))
    return found
