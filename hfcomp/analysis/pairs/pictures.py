"""Prepares the figures of pair datasets: the paper's Figures 4, 5 and 7, the last one a gallery of shared images."""

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
"""Fraction of the range within which values share a fit; otherwise the time would be quadratic in the pairs."""
ROW_FEATURES = Features(
    {
        **{column: Image(decode=False) for column in IMAGES},
        **{"image_id": Value("string"), "caption": Value("string")},
        **{name: kind for name, kind in NEGATIVE_FEATURES.items() if name != "negative_spans"},
    }
)
TRIES = 10
"""Candidates per requested pair, because some images may be unreadable."""


def pair_figures(sets: Mapping[str, ScoredSet], record: Mapping[str, Any], share: float) -> Iterator[Figure]:
    """Yields the figures that are not empty, for the first dual encoder."""
    model = next((model for scored in sets.values() for model in scored.models), "")
    fits = (
        f"Curves: robust LOESS; each fit uses the nearest {100 * share:.0f}% of a dataset's rated pairs. Fits are "
        f"{100 * STEP:g}% of the ratings' range apart and joined by straight lines, so the time does not grow with "
        "the number of ratings."
    )
    medians, bars = "Dotted: medians.", "Bars: 95% intervals."
    dots = f"Points: a random sample of at most {DOTS:,} pairs per dataset; r is computed on all pairs."
    panels = (
        ("Concreteness of keywords (Fig. 5a)", [_density(sets, "concreteness")], medians),
        ("Similarity of images and hardness (Figs. 5b, 5c)", _hardness(sets, record, model), f"{medians} {bars}"),
        ("BERTScore and edits by words of the keyword (Fig. 5d)", _keywords(record), bars),
        ("Similarities of texts and of images (Figs. 5e, 5f)", _correlations(sets, record, model), dots),
        ("Similarities against concreteness, LOESS (Fig. 4)", _gap(record, model), f"{fits} {bars}"),
    )
    for name, (title, parts, caption) in zip(FIGURES, panels, strict=True):
        figure = Figure(name, title, parts, caption)
        if figure.nonempty_panels():
            yield figure


def loess_curves(sets: Mapping[str, ScoredSet], share: float, notes: list[str]) -> list[dict[str, Any]]:
    """Returns the LOESS curves of cosines and logit gaps against concreteness for every dataset and model."""
    curves = []
    for name, scored in sets.items():
        for model in scored.models:
            for quantity in (*COSINES, *GAPS):
                pair = scored.find_all(model, "concreteness", quantity)
                if pair is None:
                    continue
                try:
                    across, up = loess(*pair, share)
                except ImportError as error:
                    notes.append(str(error))
                    return []
                curve = {"across": across.tolist(), "up": up.tolist()}
                curves.append({"set": name, "model": model, "of": quantity, **curve})
    return curves


def loess(
    across: NDArray[np.float64], up: NDArray[np.float64], share: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fits a robust LOESS curve with statsmodels.

    Source: Cleveland, "Robust locally weighted regression", JASA 74, 1979.

    Args:
        across: Values `[n]` of the horizontal axis.
        up: Values `[n]` of the vertical axis.
        share: Share of the pairs used by each fit.

    Returns:
        The curve's points, `[k]` across and `[k]` up; empty for fewer than 10 pairs or 3 different values.
    """
    try:
        from statsmodels.nonparametric.smoothers_lowess import lowess
    except ImportError as error:
        raise ImportError("the LOESS curve needs statsmodels: pip install 'hfcomp[plots]'") from error
    if len(across) < FEWEST_PAIRS or len(np.unique(across)) < FEWEST_VALUES:
        return np.zeros(0), np.zeros(0)
    # Ratings repeat. Interpolating between fits one step apart keeps the time linear in the pairs.
    width = float(np.ptp(across))
    with np.errstate(invalid="ignore", divide="ignore"):  # a fit of equal values is NaN and left out
        fitted = lowess(up, across, frac=share, delta=STEP * width, return_sorted=True)
    fitted = fitted[np.isfinite(fitted).all(axis=1)]
    if not len(fitted):
        return np.zeros(0), np.zeros(0)
    # `np.interp` requires increasing positions.
    places, first = np.unique(fitted[:, 0], return_index=True)
    grid = np.linspace(places[0], places[-1], POINTS)
    return grid, np.interp(grid, places, fitted[first, 1])


def _density(sets: Mapping[str, ScoredSet], quantity: str, model: str = "") -> Plot:
    values = {name: scored.find_all(model, quantity) for name, scored in sets.items()}
    return Plot(quantity, (quantity, "density"), densities={name: own[0] for name, own in values.items() if own})


def _hardness(sets: Mapping[str, ScoredSet], record: Mapping[str, Any], model: str) -> list[Plot]:
    classes = _class_means(record["hardness"], model, "T2I logit gap")
    gap = Plot("T2I logit gap by DINOScore", ("DINOScore", "T2I logit gap"), means=classes)
    return [_density(sets, "DINOScore"), _density(sets, "T2I logit gap", model), gap]


def _class_means(groups: Sequence[Mapping[str, Any]], model: str, quantity: str) -> dict[str, Any]:
    return {
        entry["set"]: [(part["middle"], part) for part in entry["classes"]]
        for entry in groups
        if (entry["model"], entry["of"]) == (model, quantity)
    }


def _keywords(record: Mapping[str, Any]) -> list[Plot]:
    panels = []
    for quantity in BY_KEYWORD:
        means: dict[str, list[tuple[float, Any]]] = {}
        for group in (group for group in record["keywords"] if quantity in group):
            means.setdefault(group["set"], []).append((int(group["words"][0]), group[quantity]))
        ticks = dict(enumerate(KEYWORD_WORDS, start=1))
        panels.append(Plot(quantity, ("words of the keyword", quantity), means=means, ticks=ticks))
    return panels


def _correlations(sets: Mapping[str, ScoredSet], record: Mapping[str, Any], model: str) -> list[Plot]:
    """Returns scatter plots of pairs, with each dataset's Pearson correlation in the title."""
    panels = []
    # The paper only draws the first two.
    for axes in CORRELATED[:2]:
        dots = {name: tuple(points) for name, scored in sets.items() if (points := scored.find_all(model, *axes))}
        coefficients = {
            row["set"]: decimal(row["pearson"]["value"], Unit(1, 2))
            for row in record["correlations"]
            if (row["model"], row["first"], row["second"]) == (model, *axes)
        }
        title = "r = " + ", ".join(f"{value} ({name})" for name, value in coefficients.items())
        panels.append(Plot(title if coefficients else "", axes, dots=dots))
    return panels


def _gap(record: Mapping[str, Any], model: str) -> list[Plot]:
    panels = []
    for quantity in (*COSINES, *GAPS):
        model_curves = (curve for curve in record["curves"] if (curve["model"], curve["of"]) == (model, quantity))
        curves = {curve["set"]: (np.array(curve["across"]), np.array(curve["up"])) for curve in model_curves}
        means = _class_means(record["gaps"], model, quantity)
        axes = "concreteness", "cosine" if quantity in COSINES else quantity
        panels.append(Plot(quantity, axes, means=means, curves=curves))
    return panels


def gallery_png(sets: Mapping[str, ScoredSet], number: int, seed: int = 0, heading: str = "") -> bytes:
    """Returns a PNG of randomly sampled images that all datasets share, with the pair of each dataset side by side.

    If the datasets share no image, each shows its own images. Pairs with unreadable images are left out; the result is
    empty if no pair is left.
    """
    selected = _choose_rows(sets, number, seed)
    pairs = [
        (name, row) for rows in zip(*selected.values(), strict=True) for name, row in zip(selected, rows, strict=True)
    ]
    if not pairs:
        return b""
    rows = [_gallery_row(sets[name], row) for name, row in pairs]
    labels = [_label(name, row, cells["image_id"]) for (name, row), cells in zip(pairs, rows, strict=True)]
    # `draw_gallery` writes a file, but the report needs its bytes.
    with tempfile.TemporaryDirectory() as folder:
        path = draw_gallery(
            Dataset.from_list(rows, features=ROW_FEATURES),
            Path(folder) / "gallery.png",
            rows=range(len(rows)),
            columns=max(len(selected), 2),  # datasets side by side
            labels=labels,
            heading=heading,
        )
        return path.read_bytes()


def _label(name: str, row: int, image: str | None) -> str:
    return f"{name}, row {row}" + (f", image {image}" if image else "")


def _choose_rows(sets: Mapping[str, ScoredSet], number: int, seed: int) -> dict[str, list[int]]:
    """Returns the same number of rows per dataset; rows at the same position share an image if the datasets do."""
    tables = {
        name: scored.pairs.items.drop_duplicates("image_id").set_index("image_id")["row"]
        for name, scored in sets.items()
    }
    # Sort to make the choice depend on the seed and not on the row order of a dataset.
    shared = sorted(set.intersection(*(set(table.index) for table in tables.values())))
    generator, wanted = np.random.default_rng(seed), max(1, number // len(sets))
    readable = {name: _readability(scored) for name, scored in sets.items()}
    if shared:
        # Try more than wanted, because some images may be unreadable.
        ids = [shared[place] for place in generator.permutation(len(shared))[: TRIES * wanted]]
        whole = (image for image in ids if all(readable[name](int(table[image])) for name, table in tables.items()))
        images = list(islice(whole, wanted))
        return {name: [int(table[image]) for image in images] for name, table in tables.items()}
    rows_by_set = {}
    for name, table in tables.items():
        rows = (int(row) for row in generator.permutation(table.to_numpy())[: TRIES * wanted])
        rows_by_set[name] = list(islice(filter(readable[name], rows), wanted))
    # Datasets are shown side by side, so each shows the same number of pairs.
    least = min(map(len, rows_by_set.values()))
    return {name: rows[:least] for name, rows in rows_by_set.items()}


def _readability(scored: ScoredSet) -> Callable[[int], bool]:
    """Returns a function that tells whether a row's images are readable. A missing negative image is accepted."""
    images, dataset = PairImages(scored.pairs), scored.pairs.dataset

    def is_readable(row: int) -> bool:
        without = (
            {"negative_image"} if "negative_image" in images.columns and not dataset[row]["negative_image"] else set()
        )
        return "image" in images.columns and all(images.readable(name, row) for name in set(images.columns) - without)

    return is_readable


def _gallery_row(scored: ScoredSet, row: int) -> dict[str, Any]:
    """Returns a row with the drawn columns and its rating."""
    own = scored.pairs.dataset[row]
    items = scored.pairs.items[scored.pairs.items["row"] == row]
    cells = {column: own.get(column) for column in ROW_FEATURES}
    cells["image_id"] = None if own.get("image_id") is None else str(own["image_id"])
    for column, kind in NEGATIVE_FACTS.items():
        if column in ROW_FEATURES:
            cells[column] = [None if pd.isna(value) else value for value in items[kind]]
    return cells | {"negative_captions": items["negative_caption"].tolist()}
