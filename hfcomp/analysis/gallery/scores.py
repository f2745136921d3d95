"""What one or two models say of the rows of a page, by the encoder and the cache of `hfcomp evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.analysis.gallery.options import GalleryOptions
from hfcomp.analysis.gallery.rows import ShownRows
from hfcomp.evaluation.cells import CellsWithout
from hfcomp.evaluation.encoding.cache import open_cache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.encoding.embedded import Numbers, indexed_cosines
from hfcomp.evaluation.models import open_embedder
from hfcomp.metrics.choice import all_higher
from hfcomp.options import named_models
from hfcomp.reporting.report import Table

RIGHT, WRONG, TIE = 1, 0, -1
Row = tuple[float | None, list[float | None], float | None, float | None, int | None, int | None]
"""Cosines of image and caption, of the image and each negative caption, of negative image and caption, of negative
image and first negative caption; and whether the caption's is higher than those of all negative captions, and than
that of the negative image: `RIGHT`, `WRONG` or `TIE`. `None` where there is none."""


@dataclass(frozen=True)
class ModelScores:
    name: str
    place: str  # Hub id or folder
    scale: float  # from a cosine to a logit
    bias: float  # added to the logit; 0 for CLIP
    rows: Sequence[Row]
    truncated: int  # number of texts that were longer than the text tower


def score_rows(
    shown: ShownRows,
    records: Sequence[Mapping[str, Any]],
    unreadable: Mapping[str, set[int]],
    options: GalleryOptions,
    *,
    progress: bool = False,
) -> list[ModelScores]:
    """Scores the rows with each of the models, one in memory at a time."""
    cache = open_cache(not options.no_cache)
    found = []
    for name, place in named_models(options.models).items():
        embedder = open_embedder(place, cache=cache, batch_size=options.batch_size, device=options.device)
        found.append(_score(name, place, shown, records, unreadable, embedder, progress))
        embedder.release()
    cache.trim()
    return found


def _score(
    name: str,
    place: str,
    shown: ShownRows,
    records: Sequence[Mapping[str, Any]],
    unreadable: Mapping[str, set[int]],
    embedder: Embedder,
    progress: bool,
) -> ModelScores:
    texts, owners = _all_texts(records)
    encoded = embedder.index_texts(texts, progress=progress)

    def cosines(column: str) -> Numbers:
        """`[n]`: of each text and the image of its row; NaN where there is none."""
        if column not in shown.images:
            return np.full(len(owners), np.nan)
        # Images that the page could not decode would raise here.
        cells = CellsWithout(shown.dataset[column], unreadable[column])
        images = embedder.index_images(cells, column=column, progress=progress)
        return indexed_cosines(images.vectors, images.index[owners], encoded.vectors, encoded.index)

    backbone = embedder.backbone
    # SigLIP has a bias, CLIP has none.
    bias = getattr(backbone, "logit_bias", None)
    return ModelScores(
        name,
        place,
        scale=float(backbone.logit_scale.detach().exp()),
        bias=0.0 if bias is None else float(bias.detach()),
        rows=_rows(records, owners, cosines("image"), cosines("negative_image")),
        truncated=encoded.flagged,
    )


def _all_texts(records: Sequence[Mapping[str, Any]]) -> tuple[list[str], NDArray[np.int64]]:
    """The captions and negative captions of all rows, one row after the other, and `[n]`, the row of each."""
    texts, owners = [], []
    for place, record in enumerate(records):
        own = [*([record["caption"]] if record["caption"] else []), *(one["text"] for one in record["negatives"])]
        texts += own
        owners += [place] * len(own)
    return texts, np.array(owners, dtype=np.int64)


def _rows(records: Sequence[Mapping[str, Any]], owners: NDArray[np.int64], own: Numbers, other: Numbers) -> list[Row]:
    # Texts of one row lie next to each other, so a row's own texts are a slice.
    starts = np.searchsorted(owners, np.arange(len(records) + 1))
    found = []
    for place, record in enumerate(records):
        part = slice(starts[place], starts[place + 1])
        found.append(_row(bool(record["caption"]), own[part], other[part]))
    return found


def _row(has_caption: bool, own: Numbers, other: Numbers) -> Row:
    """A row's scores, from the cosines of its texts, the caption first if there is one, with its two images."""
    nothing = np.nan
    caption, elsewhere = (own[0], other[0]) if has_caption else (nothing, nothing)
    negatives, others = own[int(has_caption) :], other[int(has_caption) :]
    return (
        _number(caption),
        list(map(_number, negatives)),
        _number(elsewhere),
        _number(others[0]) if len(others) else None,  # it shows the first negative caption
        _verdict(caption, negatives),
        _verdict(caption, np.array([elsewhere])),
    )


def _verdict(caption: float, others: Numbers) -> int | None:
    """Whether a score is higher than all others, as `hfcomp evaluate` counts; None where one is missing."""
    if not len(others) or not np.isfinite([caption, *others]).all():
        return None
    outcome = all_higher(*((np.array([caption]), np.array([one])) for one in others))
    return RIGHT if outcome.correct[0] else TIE if outcome.tie[0] else WRONG


def _number(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 6)


def score_tables(models: Sequence[ModelScores]) -> list[Table]:
    if not models:
        return []
    verdicts = {name: place for place, name in ((4, "by captions"), (5, "by images"))}
    # All models score the same rows, so the first one shows which verdicts exist.
    there = {name: place for name, place in verdicts.items() if any(row[place] is not None for row in models[0].rows)}
    rows = [[one.name, *(_count(one.rows, place) for place in there.values())] for one in models]
    if len(models) == 2:
        rows.append(["changed between them", *(_changes(models, place) for place in there.values())])
    return [Table("Rows that are right, of those shown", ["", *there], rows)] if there else []


def _count(rows: Sequence[Row], place: int) -> str:
    known = [row[place] for row in rows if row[place] is not None]
    ties = known.count(TIE)
    return f"{known.count(RIGHT):,} of {len(known):,}" + (f", {ties:,} tied" if ties else "")


def _changes(models: Sequence[ModelScores], place: int) -> str:
    pairs = [(first[place], second[place]) for first, second in zip(*(one.rows for one in models), strict=True)]
    known = [(first == RIGHT, second == RIGHT) for first, second in pairs if None not in (first, second)]
    won, lost = known.count((False, True)), known.count((True, False))
    return f"{won:,} won, {lost:,} lost"
