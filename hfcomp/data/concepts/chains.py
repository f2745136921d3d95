"""Chains of texts from general to specific, with a contradicting text of the same level for each (HierarCaps)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

CHAINABLE = ("level_4", "level_3", "level_2", "level_1", "generalized_caption", "caption")


class Link(NamedTuple):
    """A text of a chain."""

    place: int  # index of its column, from the most general
    text: str


@dataclass(frozen=True)
class DrawnNegatives:
    """Negatives for the texts of several chains.

    Attributes:
        texts: Negatives of each row, one per column of the chain; empty if missing.
        siblings: Number of negatives that follow from the same more general text.
        others: Number of negatives that only have the same level.
        missing: Number of texts without a negative, because all rows have the same text at this level.
    """

    texts: list[list[str]]
    siblings: int
    others: int
    missing: int

    def summary(self) -> str:
        return (
            f"chain negatives: {self.siblings:,} share the previous text, {self.others:,} share only the level, and "
            f"{self.missing:,} texts have no negative."
        )


def chain_of(texts: Sequence[Any], columns: Sequence[str], row: int) -> list[Link]:
    """Makes the chain of a row: its texts, except empty ones and repetitions of the previous text."""
    # A text that equals the previous one is not a step of the chain, because there is no angle between the two.
    links: list[Link] = []
    for place, value in enumerate(texts):
        text = text_of(value, columns[place], row)
        if text and not (links and plain(text) == plain(links[-1].text)):
            links.append(Link(place, text))
    return links


def draw_negatives(
    chains: Sequence[Sequence[Link]], *, columns: int, seed: int, images: Sequence[int] | None = None
) -> DrawnNegatives:
    """For each text of each chain, draws a text that another row has in this place: a sibling if possible.

    Siblings follow from the same text ("dog" and "cat" both from "animal"). The second choice is a text of the same
    level that follows from another text. Texts in the row's own chain or in any chain of its image are excluded.

    The draw is made once: a row keeps its negatives, as in HierarCaps' own data. Chains of one image have equal
    entries in `images`.
    """
    # Dictionaries serve as ordered sets, so texts are drawn from the same order in every process.
    level_texts: dict[int, dict[str, str]] = {}
    child_texts: dict[tuple[int, str], dict[str, str]] = {}
    for chain in chains:
        for link, parent in _with_parents(chain):
            level_texts.setdefault(link.place, {}).setdefault(plain(link.text), link.text)
            child_texts.setdefault((link.place, parent), {}).setdefault(plain(link.text), link.text)
    levels = {key: list(texts.items()) for key, texts in level_texts.items()}
    families = {key: list(texts.items()) for key, texts in child_texts.items()}
    images = range(len(chains)) if images is None else images
    own_texts: dict[int, set[str]] = {}
    for image, chain in zip(images, chains, strict=True):
        own_texts.setdefault(image, set()).update(plain(link.text) for link in chain)
    draw = random.Random(seed)
    siblings = others = missing = 0
    texts = []
    for image, chain in zip(images, chains, strict=True):
        own = own_texts[image]
        drawn = [""] * columns
        for link, parent in _with_parents(chain):
            sibling = _one_of(families[link.place, parent], own, draw)
            drawn[link.place] = sibling or _one_of(levels[link.place], own, draw)
            siblings += bool(sibling)
            others += bool(drawn[link.place]) and not sibling
            missing += not drawn[link.place]
        texts.append(drawn)
    return DrawnNegatives(texts, siblings, others, missing)


def text_of(value: Any, column: str, row: int) -> str:
    """Returns an entry of a column as stripped text; empty if missing."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None or isinstance(value, str):
        return (value or "").strip()
    raise ValueError(
        f"column {column!r}, row {row}: found {value!r}, expected a string, or a list with one string. "
        "Choose one text per row."
    )


def plain(text: str) -> str:
    """Normalizes a text for comparison: case and white space make no difference."""
    return " ".join(text.casefold().split())


def _with_parents(chain: Sequence[Link]) -> Iterable[tuple[Link, str]]:
    parents = ["", *(plain(link.text) for link in chain)]
    return zip(chain, parents[:-1], strict=True)


def _one_of(candidates: list[tuple[str, str]], own: set[str], draw: random.Random) -> str:
    # If the sample has one text more than the row has of its own, at least one of them is not its own. So there is no
    # need to go through all candidates.
    some = draw.sample(candidates, min(len(candidates), len(own) + 1))
    return next((text for key, text in some if key not in own), "")
