"""Blocks and claims: what a study adds to the page of its campaign, between the answer and the results.

A function from `Results` to a list of `Block`s makes them; the page escapes their texts and puts them in as they come. A block
has words, and a table or a figure or both; the figure's numbers are in the table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Column headings and rows of texts, the first of each row its heading."""

    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class ClaimRow:
    """A published statement beside what was found: verdict and reason by set of versions, and its numbers beside ours.

    `verdicts` is versions → (holds, does not hold or undecided; why). `figures` has (what, published, versions → ours).
    """

    id: str
    says: str
    published: str
    means: str
    verdicts: dict[str, tuple[str, str]]
    figures: list[tuple[str, str, dict[str, str]]]


@dataclass(frozen=True)
class Block:
    """`id` is its anchor in the page; `figure` is a value of `figure_drawing`."""

    id: str
    title: str
    text: str
    table: Table | None = None
    figure: dict | None = None
