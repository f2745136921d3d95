"""The keywords of each concept and what may replace them: Table 6 of Rösch et al. 2024 (arXiv:2403.02875)."""

from __future__ import annotations

from collections.abc import Sequence

OBJECTS = (
    *("person", "bicycle", "car", "motorbike", "aeroplane", "bus", "train", "truck", "boat", "traffic light"),
    *("fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow"),
    *("elephant", "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee"),
    *("skis", "snowboard", "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard"),
    *("tennis racket", "bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich"),
    *("orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "sofa", "potted plant", "bed"),
    *("dining table", "toilet", "tv monitor", "laptop", "mouse", "remote", "keyboard", "cell phone", "microwave"),
    *("oven", "toaster", "sink", "refrigerator", "book", "clock", "vase", "scissors", "teddy bear", "hair drier"),
    "toothbrush",
)
COLORS = ("blue", "red", "green", "yellow", "black", "white", "brown", "gray", "orange")
LOCATION_PAIRS = (
    ("left", "right"),
    ("above", "below"),
    ("under", "over"),
    ("foreground", "background"),
    ("in front of", "behind"),
    ("back", "front"),
)
SIZE_PAIRS = (("large", "small"), ("little", "big"), ("tall", "short"), ("thin", "fat"))
SIZE_ONE_WAY = (("long", "short"), ("huge", "tiny"), ("giant", "tiny"))


def _any_other(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    return {word: tuple(other for other in words if other != word) for word in words}


def _both_ways(pairs: Sequence[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    return {word: (other,) for pair in pairs for word, other in (pair, pair[::-1])}


REPLACEMENTS: dict[str, dict[str, tuple[str, ...]]] = {
    "object": _any_other(OBJECTS),
    "color": _any_other(COLORS),
    "location": _both_ways(LOCATION_PAIRS),
    "size": {**_both_ways(SIZE_PAIRS), **{word: (other,) for word, other in SIZE_ONE_WAY}},
}
CONCEPTS = tuple(REPLACEMENTS)
CATEGORIES = {"object": "object", "color": "attribute", "location": "relation", "size": "attribute"}
