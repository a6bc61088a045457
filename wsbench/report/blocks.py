"""Blocks and claims: the parts that a study adds to the page of its campaign, between the answer and the results.

Functions from `Results` to lists of `Block`s create them; the page escapes their texts and shows them in that order. A block has
text and a table, a figure or both. The table contains the figure's numbers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Column headings and rows of texts; the first text of a row is its heading."""

    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class ClaimRow:
    """A published claim and our result: verdict and reason per set of versions, and published numbers next to ours.

    `verdicts`: versions → (holds, does not hold or undecided; reason). `figures`: (name, published, versions → ours).
    """

    id: str
    says: str
    published: str
    means: str
    verdicts: dict[str, tuple[str, str]]
    figures: list[tuple[str, str, dict[str, str]]]


@dataclass(frozen=True)
class Block:
    """`id` is its anchor in the page; `figure` is a value made by `figure_drawing`."""

    id: str
    title: str
    text: str
    table: Table | None = None
    figure: dict | None = None
