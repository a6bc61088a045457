"""A server's look in every chart: its family has one hue; shade, dash and shape distinguish servers of a family.

Names and languages in, one `Look` each out. Every colour has a contrast of at least 3:1 on both the light and the dark card, so
one drawing serves both. That leaves a narrow band of lightness, hence only three shades per hue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Eight hues in OKLCH, each at relative luminance 0.215, 0.152 and 0.288, as saturated as sRGB allows. List neighbours are far
# apart on the colour wheel and for common colour blindness; where two hues look alike, dash and shape differ.
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
    """The look of each `server@variant` of a campaign, the same in every chart. `languages`: by name, as far as known."""
    servers = [name.rpartition("@")[0] for name in names]
    found = looks(families(servers, [languages.get(name, name) for name in names]))
    return dict(zip(names, found, strict=True))


def families(servers: Sequence[str], languages: Sequence[str]) -> Sequence[str]:
    """The families that share a hue: servers, whose variants then share it, if there are enough hues; else languages."""
    return servers if len(set(servers)) <= len(HUES) else languages


def looks(families: Sequence[str]) -> list[Look]:
    """One look per server, given the families of all servers in order.

    Servers of one hue repeat a shape after eight, a shade with the same dash after fifteen, and all three after 120. A ninth family
    takes the first hue and continues with the looks that are not yet used.
    """
    hue_of = {family: place % len(HUES) for place, family in enumerate(dict.fromkeys(families))}
    seen = [0] * len(HUES)
    found = []
    for family in families:
        hue = hue_of[family]
        place, seen[hue] = seen[hue], seen[hue] + 1
        shades = HUES[hue]
        # Dash and shade change at different intervals, so that neighbours differ in both dash and shape.
        dash, shade = DASHES[place % len(DASHES)], shades[place // len(DASHES) % len(shades)]
        found.append(Look(shade, dash, SHAPES[place % len(SHAPES)]))
    return found
