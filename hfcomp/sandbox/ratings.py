"""How concrete the sandbox's keywords are said to be: three bands of ours, or a table that is made up.

Human norms are not here. Those of Brysbaert et al. (2014) are listed under CC BY-NC-ND 3.0: values taken out of them
and shipped with this package would be a part of the norms under other terms (NOTICE). They are joined from the user's
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from hfcomp.sandbox.negatives import DRAWABILITY
from hfcomp.sandbox.scenes import SHAPES

# The keywords in the order of human norms, in three classes: people rate each word of a band above each of the next.
# Where the cuts lie is our choice: the upper one keeps the shapes together, the lower one the numbers. Within a band
# nothing is said, and the norms' values do not follow from it.
BANDS: dict[str, tuple[str, ...]] = {
    "concrete": (*SHAPES, "orange"),
    "middle": (
        *("red", "yellow", "pink", "green", "cyan", "blue", "purple"),
        *("striped", "two", "three", "little", "big", "left"),
    ),
    "abstract": ("small", "large", "right", "above", "over", "below", "under", "plain"),
}
# Our numbers: four of the paper's temperatures of 0.15 above its threshold of 4, at it, and four below.
BAND_RATINGS = {"concrete": 4.6, "middle": 4.0, "abstract": 3.4}
BANDS_LABEL = "our bands, in the order of human norms"
SYNTHETIC_LABEL = "made up by us, neither human nor in the order of human norms"
# Made up, not measured on people: ratings that know which of this world's words are hard to draw.
SYNTHETIC_CONCRETENESS = DRAWABILITY

Ratings = Literal["bands", "synthetic"]
# Concreteness of each keyword, 1 (abstract) to 5 (concrete), by the name of the ratings.
TABLES: Mapping[str, Mapping[str, float]] = {
    "bands": {word: BAND_RATINGS[band] for band, words in BANDS.items() for word in words},
    "synthetic": SYNTHETIC_CONCRETENESS,
}
LABELS = {
    "bands": f"{BANDS_LABEL} ({', '.join(f'{band} {rating}' for band, rating in BAND_RATINGS.items())})",
    "synthetic": SYNTHETIC_LABEL,
}


def check_ratings(ratings: str) -> str:
    """The name of ratings; raises for one that is not in `TABLES`."""
    if ratings not in TABLES:
        raise ValueError(
            f"ratings is {ratings!r}, expected one of {', '.join(get_args(Ratings))}. "
            "hfcomp.data.negatives.with_concreteness joins human ratings to the rows, from your file."
        )
    return ratings
