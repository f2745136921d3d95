"""Chains of texts from general to specific, and for each text one of its level that contradicts it (HierarCaps)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

CHAINABLE = ("level_4", "level_3", "level_2", "level_1", "generalized_caption", "caption")


class Link(NamedTuple):
    """A text of a chain."""

    place: int  # of its column, from the most general
    text: str


@dataclass(frozen=True)
class DrawnNegatives:
    """Negatives of the texts of a set of chains.

    Attributes:
        texts: per row, one for each column of the chain; empty if missing.
        siblings: number of them that follow from the same more general text.
        others: number of them that are only of the same level.
        missing: number of texts that got none, because all rows say the same at their level.
    """

    texts: list[list[str]]
    siblings: int
    others: int
    missing: int

    def summary(self) -> str:
        return (
            f"negatives of chains: {self.siblings:,} share the text before them, {self.others:,} only the level, "
            f"{self.missing:,} texts have none."
        )


def chain_of(texts: Sequence[Any], columns: Sequence[str], row: int) -> list[Link]:
    """The chain of a row: its texts, without those that are empty or repeat the one before."""
    # A text equal to the previous one is not a step of a chain: there is no angle between the two.
    links: list[Link] = []
    for place, value in enumerate(texts):
        text = text_of(value, columns[place], row)
        if text and not (links and plain(text) == plain(links[-1].text)):
            links.append(Link(place, text))
    return links


def draw_negatives(
    chains: Sequence[Sequence[Link]], *, columns: int, seed: int, images: Sequence[int] | None = None
) -> DrawnNegatives:
    """Draws for each text of each chain one that another row has in its place: a sibling where there is one.

    Siblings follow from the same text as it does (both "dog" and "cat" from "animal"). A text of the same level that
    follows from another one is second choice. Texts in the row's own chain or in a chain of its image are excluded.

    The draw is made once: a row keeps its negatives, as in HierarCaps' own data. `images` are equal for one image.
    """
    # Dictionaries serve as ordered sets: the order from which a text is drawn is the same in every process.
    of_level: dict[int, dict[str, str]] = {}
    of_parent: dict[tuple[int, str], dict[str, str]] = {}
    for chain in chains:
        for link, parent in _with_parents(chain):
            of_level.setdefault(link.place, {}).setdefault(plain(link.text), link.text)
            of_parent.setdefault((link.place, parent), {}).setdefault(plain(link.text), link.text)
    levels = {key: list(found.items()) for key, found in of_level.items()}
    families = {key: list(found.items()) for key, found in of_parent.items()}
    images = range(len(chains)) if images is None else images
    said: dict[int, set[str]] = {}
    for image, chain in zip(images, chains, strict=True):
        said.setdefault(image, set()).update(plain(link.text) for link in chain)
    draw = random.Random(seed)
    siblings = others = missing = 0
    texts = []
    for image, chain in zip(images, chains, strict=True):
        own = said[image]
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
    """An entry of a column as a text, stripped; empty if missing."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None or isinstance(value, str):
        return (value or "").strip()
    raise ValueError(
        f"column {column!r}, row {row}: found {value!r}, expected a text, or a list with one. Choose one "
        "text for each row."
    )


def plain(text: str) -> str:
    """A text by which equal ones are known: upper case and white space make no difference."""
    return " ".join(text.casefold().split())


def _with_parents(chain: Sequence[Link]) -> Iterable[tuple[Link, str]]:
    parents = ["", *(plain(link.text) for link in chain)]
    return zip(chain, parents[:-1], strict=True)


def _one_of(candidates: list[tuple[str, str]], own: set[str], draw: random.Random) -> str:
    # Among one more text than the row has of its own, at least one is not its own, so there is no need to go through
    # all candidates.
    some = draw.sample(candidates, min(len(candidates), len(own) + 1))
    return next((text for key, text in some if key not in own), "")
