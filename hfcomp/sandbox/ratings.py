"""Concreteness ratings of the sandbox's keywords: three bands of our own, or a made-up table.

Human norms are not included. Those of Brysbaert et al. (2014) are listed under CC BY-NC-ND 3.0, so shipping values
from them with this package would redistribute part of the norms under other terms (NOTICE). They are added from the
user's file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from hfcomp.sandbox.negatives import DRAWABILITY
from hfcomp.sandbox.scenes import SHAPES

# Keywords in three bands in the order of human norms: people rate every word of a band above every word of the next.
# The cuts are our choice: the upper one keeps the shapes together, the lower one the numbers. The order within a band
# has no meaning, and the values of the norms cannot be derived from the bands.
BANDS: dict[str, tuple[str, ...]] = {
    "concrete": (*SHAPES, "orange"),
    "middle": (
        *("red", "yellow", "pink", "green", "cyan", "blue", "purple"),
        *("striped", "two", "three", "little", "big", "left"),
    ),
    "abstract": ("small", "large", "right", "above", "over", "below", "under", "plain"),
}
# Our choice: the paper's threshold of 4, and four of its temperatures of 0.15 above and below it.
BAND_RATINGS = {"concrete": 4.6, "middle": 4.0, "abstract": 3.4}
BANDS_LABEL = "our bands, in the order of human norms"
SYNTHETIC_LABEL = "made up by us, neither human nor in the order of human norms"
# Made-up ratings, not measured on people, that reflect which words of this world are hard to draw.
SYNTHETIC_CONCRETENESS = DRAWABILITY

Ratings = Literal["bands", "synthetic"]
# Concreteness of each keyword, from 1 (abstract) to 5 (concrete), by the name of the ratings.
TABLES: Mapping[str, Mapping[str, float]] = {
    "bands": {word: BAND_RATINGS[band] for band, words in BANDS.items() for word in words},
    "synthetic": SYNTHETIC_CONCRETENESS,
}
LABELS = {
    "bands": f"{BANDS_LABEL} ({', '.join(f'{band} {rating}' for band, rating in BAND_RATINGS.items())})",
    "synthetic": SYNTHETIC_LABEL,
}


def check_ratings(ratings: str) -> str:
    """Returns the name of ratings, or raises if it is not in `TABLES`."""
    if ratings not in TABLES:
        raise ValueError(
            f"ratings: found {ratings!r}, expected one of {', '.join(get_args(Ratings))}. To add human ratings from "
            "your file to the rows, use hfcomp.data.negatives.with_concreteness."
        )
    return ratings
