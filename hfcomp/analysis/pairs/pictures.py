"""What the figures of sets of pairs show: the paper's Figures 4, 5 and 7, the last a gallery of the same images."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset, Features, Image, Value
from numpy.typing import NDArray

from hfcomp.analysis.pairs.items import IMAGES
from hfcomp.analysis.pairs.similarity import CAPTION_IMAGE, CAPTION_WRONG_IMAGE, NEGATIVE_IMAGE, PairImages
from hfcomp.analysis.pairs.summary import BY_KEYWORD, CORRELATED, KEYWORD_WORDS, ScoredSet
from hfcomp.data.columns import NEGATIVE_FEATURES
from hfcomp.data.pair_table import NEGATIVE_FACTS
from hfcomp.metrics.units import Unit
from hfcomp.reporting.figures import Figure
from hfcomp.reporting.format import decimal
from hfcomp.reporting.plots import DOTS, Plot
from hfcomp.reporting.row_pictures import draw_gallery

COSINES = (CAPTION_IMAGE, NEGATIVE_IMAGE, CAPTION_WRONG_IMAGE)
GAPS = ("I2T logit gap", "T2I logit gap")
GALLERY = "gallery.png"
FIGURES = ("concreteness.png", "hardness.png", "keywords.png", "correlations.png", "gap.png")
PICTURES = (*FIGURES, GALLERY)
POINTS = 60
FEWEST_PAIRS, FEWEST_VALUES = 10, 3
STEP = 0.01
"""Of the range: values nearer to each other than that share a fit, without which time would be quadratic in pairs."""
ROW_FEATURES = Features(
    {
        **{column: Image(decode=False) for column in IMAGES},
        **{"image_id": Value("string"), "caption": Value("string")},
        **{name: kind for name, kind in NEGATIVE_FEATURES.items() if name != "negative_spans"},
    }
)
TRIES = 10
"""Times the number of pairs wanted that are tried, where images cannot be read."""


def pair_figures(sets: Mapping[str, ScoredSet], found: Mapping[str, Any], share: float) -> Iterator[Figure]:
    """The figures that have something to show, of the first dual encoder."""
    model = next((model for one in sets.values() for model in one.models), "")
    fits = (
        f"Curves: robust LOESS, each fit over the nearest {100 * share:.0f} % of a set's rated pairs. Fits are "
        f"{100 * STEP:g} % of the ratings' range apart and joined by straight lines: without that, time would grow "
        "with the number of ratings."
    )
    medians, bars = "Dotted: medians.", "Bars: 95% intervals."
    dots = f"Points: {DOTS:,} pairs of a set at most, drawn at random; r is of all pairs."
    panels = (
        ("Concreteness of keywords (Fig. 5a)", [_density(sets, "concreteness")], medians),
        ("Similarity of images and hardness (Figs. 5b, 5c)", _hardness(sets, found, model), f"{medians} {bars}"),
        ("BERTScore and edits by words of the keyword (Fig. 5d)", _keywords(found), bars),
        ("Similarities of texts and of images (Figs. 5e, 5f)", _correlations(sets, found, model), dots),
        ("Similarities against concreteness, LOESS (Fig. 4)", _gap(found, model), f"{fits} {bars}"),
    )
    for name, (title, parts, caption) in zip(FIGURES, panels, strict=True):
        figure = Figure(name, title, parts, caption)
        if figure.nonempty_panels():
            yield figure


def loess_curves(sets: Mapping[str, ScoredSet], share: float, notes: list[str]) -> list[dict[str, Any]]:
    """Of every set and model, the LOESS curves of cosines and logit gaps against concreteness."""
    found = []
    for name, one in sets.items():
        for model in one.models:
            for quantity in (*COSINES, *GAPS):
                pair = one.find_all(model, "concreteness", quantity)
                if pair is None:
                    continue
                try:
                    across, up = loess(*pair, share)
                except ImportError as error:
                    notes.append(str(error))
                    return []
                curve = {"across": across.tolist(), "up": up.tolist()}
                found.append({"set": name, "model": model, "of": quantity, **curve})
    return found


def loess(
    across: NDArray[np.float64], up: NDArray[np.float64], share: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A robust LOESS curve (Cleveland, "Robust locally weighted regression", JASA 74, 1979), by statsmodels.

    Args:
        share: of the pairs that each fit takes in.

    Returns:
        The curve's points, `[k]` across and `[k]` up; none for fewer than 10 pairs or 3 different values.
    """
    try:
        from statsmodels.nonparametric.smoothers_lowess import lowess
    except ImportError as error:
        raise ImportError("the LOESS curve needs statsmodels: pip install 'hfcomp[plots]'") from error
    if len(across) < FEWEST_PAIRS or len(np.unique(across)) < FEWEST_VALUES:
        return np.zeros(0), np.zeros(0)
    # Ratings repeat: fits within one step of each other are interpolated, which keeps the time linear in the pairs.
    width = float(np.ptp(across))
    with np.errstate(invalid="ignore", divide="ignore"):  # a fit of equal values is NaN, and left out
        fitted = lowess(up, across, frac=share, delta=STEP * width, return_sorted=True)
    fitted = fitted[np.isfinite(fitted).all(axis=1)]
    if not len(fitted):
        return np.zeros(0), np.zeros(0)
    # `np.interp` needs increasing places.
    places, first = np.unique(fitted[:, 0], return_index=True)
    grid = np.linspace(places[0], places[-1], POINTS)
    return grid, np.interp(grid, places, fitted[first, 1])


def _density(sets: Mapping[str, ScoredSet], quantity: str, model: str = "") -> Plot:
    values = {name: one.find_all(model, quantity) for name, one in sets.items()}
    return Plot(quantity, (quantity, "density"), densities={name: own[0] for name, own in values.items() if own})


def _hardness(sets: Mapping[str, ScoredSet], found: Mapping[str, Any], model: str) -> list[Plot]:
    classes = _class_means(found["hardness"], model, "T2I logit gap")
    gap = Plot("T2I logit gap by DINOScore", ("DINOScore", "T2I logit gap"), means=classes)
    return [_density(sets, "DINOScore"), _density(sets, "T2I logit gap", model), gap]


def _class_means(found: Sequence[Mapping[str, Any]], model: str, quantity: str) -> dict[str, Any]:
    return {
        one["set"]: [(part["middle"], part) for part in one["classes"]]
        for one in found
        if (one["model"], one["of"]) == (model, quantity)
    }


def _keywords(found: Mapping[str, Any]) -> list[Plot]:
    panels = []
    for quantity in BY_KEYWORD:
        means: dict[str, list[tuple[float, Any]]] = {}
        for one in (one for one in found["keywords"] if quantity in one):
            means.setdefault(one["set"], []).append((int(one["words"][0]), one[quantity]))
        ticks = dict(enumerate(KEYWORD_WORDS, start=1))
        panels.append(Plot(quantity, ("words of the keyword", quantity), means=means, ticks=ticks))
    return panels


def _correlations(sets: Mapping[str, ScoredSet], found: Mapping[str, Any], model: str) -> list[Plot]:
    """Points of pairs, with Pearson's correlation of each set above them."""
    panels = []
    # The paper draws only the first two.
    for axes in CORRELATED[:2]:
        dots = {name: tuple(own) for name, one in sets.items() if (own := one.find_all(model, *axes))}
        known = {
            one["set"]: decimal(one["pearson"]["value"], Unit(1, 2))
            for one in found["correlations"]
            if (one["model"], one["first"], one["second"]) == (model, *axes)
        }
        title = "r = " + ", ".join(f"{value} ({name})" for name, value in known.items())
        panels.append(Plot(title if known else "", axes, dots=dots))
    return panels


def _gap(found: Mapping[str, Any], model: str) -> list[Plot]:
    panels = []
    for quantity in (*COSINES, *GAPS):
        own = (one for one in found["curves"] if (one["model"], one["of"]) == (model, quantity))
        curves = {one["set"]: (np.array(one["across"]), np.array(one["up"])) for one in own}
        means = _class_means(found["gaps"], model, quantity)
        axes = "concreteness", "cosine" if quantity in COSINES else quantity
        panels.append(Plot(quantity, axes, means=means, curves=curves))
    return panels


def gallery_png(sets: Mapping[str, ScoredSet], number: int, seed: int = 0, heading: str = "") -> bytes:
    """The PNG of pairs drawn at random: of images that all sets have, each with its pair of every set.

    Where the sets share no image, each shows its own. Only pairs whose images can be read are shown; empty where
    there are none.
    """
    chosen = _choose(sets, number, seed)
    pairs = [
        (name, row) for rows in zip(*chosen.values(), strict=True) for name, row in zip(chosen, rows, strict=True)
    ]
    if not pairs:
        return b""
    rows = [_shown(sets[name], row) for name, row in pairs]
    labels = [_label(name, row, shown["image_id"]) for (name, row), shown in zip(pairs, rows, strict=True)]
    # `draw_gallery` writes a file, but the report needs its bytes.
    with tempfile.TemporaryDirectory() as folder:
        drawn = draw_gallery(
            Dataset.from_list(rows, features=ROW_FEATURES),
            Path(folder) / "gallery.png",
            rows=range(len(rows)),
            columns=max(len(chosen), 2),  # sets side by side
            labels=labels,
            heading=heading,
        )
        return drawn.read_bytes()


def _label(name: str, row: int, image: str | None) -> str:
    return f"{name}, row {row}" + (f", image {image}" if image else "")


def _choose(sets: Mapping[str, ScoredSet], number: int, seed: int) -> dict[str, list[int]]:
    """By set the rows, as many of each; those in one place are of one image where sets share some."""
    tables = {
        name: one.pairs.items.drop_duplicates("image_id").set_index("image_id")["row"] for name, one in sets.items()
    }
    # Sorted, so the choice depends on the seed and not on the order of a set's rows.
    shared = sorted(set.intersection(*(set(table.index) for table in tables.values())))
    generator, wanted = np.random.default_rng(seed), max(1, number // len(sets))
    shows = {name: _looks(one) for name, one in sets.items()}
    if shared:
        # More than wanted are tried, because some images may be unreadable.
        ids = [shared[place] for place in generator.permutation(len(shared))[: TRIES * wanted]]
        whole = (one for one in ids if all(shows[name](int(table[one])) for name, table in tables.items()))
        kept = list(islice(whole, wanted))
        return {name: [int(table[one]) for one in kept] for name, table in tables.items()}
    found = {}
    for name, table in tables.items():
        rows = (int(row) for row in generator.permutation(table.to_numpy())[: TRIES * wanted])
        found[name] = list(islice(filter(shows[name], rows), wanted))
    # Sets stand side by side, so each shows the same number of pairs.
    least = min(map(len, found.values()))
    return {name: rows[:least] for name, rows in found.items()}


def _looks(one: ScoredSet) -> Callable[[int], bool]:
    """Whether the images of a row can be read; a missing negative image is shown as such."""
    images, dataset = PairImages(one.pairs), one.pairs.dataset

    def look(row: int) -> bool:
        without = (
            {"negative_image"} if "negative_image" in images.columns and not dataset[row]["negative_image"] else set()
        )
        return "image" in images.columns and all(images.readable(name, row) for name in set(images.columns) - without)

    return look


def _shown(one: ScoredSet, row: int) -> dict[str, Any]:
    """A row with the columns that are drawn, and its rating joined."""
    own = one.pairs.dataset[row]
    items = one.pairs.items[one.pairs.items["row"] == row]
    found = {column: own.get(column) for column in ROW_FEATURES}
    found["image_id"] = None if own.get("image_id") is None else str(own["image_id"])
    for column, kind in NEGATIVE_FACTS.items():
        if column in ROW_FEATURES:
            found[column] = [None if pd.isna(value) else value for value in items[kind]]
    return found | {"negative_captions": items["negative_caption"].tolist()}
