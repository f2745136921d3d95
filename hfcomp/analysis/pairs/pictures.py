"""What the figures of sets of pairs show: the paper's Figures 4, 5 and 7."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.analysis.pairs.curves import loess
from hfcomp.analysis.pairs.figures import Panel, draw_panels
from hfcomp.analysis.pairs.gallery import gallery_png
from hfcomp.analysis.pairs.options import AnalyzeOptions
from hfcomp.analysis.pairs.similarity import CAPTION_IMAGE, CAPTION_WRONG_IMAGE, NEGATIVE_IMAGE
from hfcomp.analysis.pairs.summary import CORRELATED, KEYWORD_WORDS, ScoredSet
from hfcomp.metrics.units import Unit
from hfcomp.reporting.format import decimal
from hfcomp.reporting.report import Picture

COSINES = (CAPTION_IMAGE, NEGATIVE_IMAGE, CAPTION_WRONG_IMAGE)
GAPS = ("I2T logit gap", "T2I logit gap")
GALLERY = "gallery.png"
PICTURES = ("concreteness.png", "hardness.png", "keywords.png", "correlations.png", "gap.png", GALLERY)


def draw_pictures(
    sets: Mapping[str, ScoredSet], options: AnalyzeOptions, found: Mapping[str, Any], notes: list[str]
) -> Iterator[Picture]:
    """The figures that have something to show, of the first dual encoder.

    Args:
        sets: Sets with their numbers, by name.
        options: Options of the analysis.
        found: The `contents` of their results.
        notes: receives what is not drawn, where matplotlib is missing.
    """
    models = list(dict.fromkeys(model for one in sets.values() for model in one.models))
    model = models[0] if models else ""
    if len(models) > 1:
        notes.append(f"figures show the dual encoder {model}; tables have all")
    panels = (
        ("Concreteness of keywords (Fig. 5a)", [_density(sets, "concreteness")]),
        ("Similarity of images and hardness (Figs. 5b, 5c)", _hardness(sets, found, model)),
        ("BERTScore and edits by words of the keyword (Fig. 5d)", _keywords(found)),
        ("Similarities of texts and of images (Figs. 5e, 5f)", _correlations(sets, found, model)),
        ("Similarities against concreteness, LOESS (Fig. 4)", _gap(found, model)),
    )
    for name, (title, parts) in zip(PICTURES, panels, strict=False):  # the gallery needs no matplotlib
        try:
            content = draw_panels(name, parts, list(sets))
        except ImportError as error:
            notes.append(str(error))
            break
        if content:
            yield Picture(name, title, content)
    number = options.gallery
    content = gallery_png(sets, number, options.seed, options.caveat) if number else b""
    if content:
        yield Picture(GALLERY, "pairs drawn at random (Fig. 7)", content)


def loess_curves(sets: Mapping[str, ScoredSet], share: float, notes: list[str]) -> list[dict[str, Any]]:
    """Of every set and model, the LOESS curves of cosines and logit gaps against concreteness.

    Args:
        sets: Sets with their numbers, by name.
        share: Share of a set's rated pairs in each fit.
        notes: receives why there are none, where statsmodels is missing.
    """
    found = []
    for name, one in sets.items():
        for model in one.models:
            for quantity in (*COSINES, *GAPS):
                pair = _values(one, model, "concreteness", quantity)
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


def _values(one: ScoredSet, model: str, *names: str) -> list[NDArray[np.float64]] | None:
    """Numbers of the pairs that have all of them; `None` where there are none."""
    found = [one.find(model, name) for name in names]
    if any(values is None for values in found):
        return None
    there = np.logical_and.reduce([np.isfinite(values) for values in found])
    return [values[there] for values in found] if there.any() else None


def _density(sets: Mapping[str, ScoredSet], quantity: str, model: str = "") -> Panel:
    values = {name: _values(one, model, quantity) for name, one in sets.items()}
    return Panel(quantity, (quantity, "density"), densities={name: own[0] for name, own in values.items() if own})


def _hardness(sets: Mapping[str, ScoredSet], found: Mapping[str, Any], model: str) -> list[Panel]:
    classes = _of(found["hardness"], model, "T2I logit gap")
    gap = Panel("T2I logit gap by DINOScore", ("DINOScore", "T2I logit gap"), means=classes)
    return [_density(sets, "DINOScore"), _density(sets, "T2I logit gap", model), gap]


def _of(found: Sequence[Mapping[str, Any]], model: str, quantity: str) -> dict[str, Any]:
    return {one["set"]: one["classes"] for one in found if (one["model"], one["of"]) == (model, quantity)}


def _keywords(found: Mapping[str, Any]) -> list[Panel]:
    panels = []
    for quantity in ("BERTScore", "word edit distance"):
        means: dict[str, list[dict[str, Any]]] = {}
        for one in (one for one in found["keywords"] if quantity in one):
            means.setdefault(one["set"], []).append({"middle": int(one["words"][0]), **one[quantity]})
        ticks = dict(enumerate(KEYWORD_WORDS, start=1))
        panels.append(Panel(quantity, ("words of the keyword", quantity), means=means, ticks=ticks))
    return panels


def _correlations(sets: Mapping[str, ScoredSet], found: Mapping[str, Any], model: str) -> list[Panel]:
    """Points of pairs, with Pearson's correlation of each set above them."""
    panels = []
    for axes in CORRELATED[:2]:
        dots = {name: own for name, one in sets.items() if (own := _values(one, model, *axes))}
        known = {
            one["set"]: decimal(one["pearson"]["value"], Unit(1, 2))
            for one in found["correlations"]
            if (one["model"], one["first"], one["second"]) == (model, *axes)
        }
        title = "r = " + ", ".join(f"{value} ({name})" for name, value in known.items())
        panels.append(Panel(title if known else "", axes, dots=dots))
    return panels


def _gap(found: Mapping[str, Any], model: str) -> list[Panel]:
    def of(*names: str) -> dict[tuple[str, str], Any]:
        own = (one for one in found["curves"] if one["model"] == model and one["of"] in names)
        return {(one["set"], one["of"]): (np.array(one["across"]), np.array(one["up"])) for one in own}

    panels = [Panel("cosines", ("concreteness", "cosine"), curves=of(*COSINES))]
    for gap in GAPS:
        means = _of(found["gaps"], model, gap)
        panels.append(Panel(gap, ("concreteness", gap), means=means, curves=of(gap)))
    return panels
