"""Scores the rows of a page with one or two models, using the encoder and cache of `hfcomp evaluate`."""

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
from hfcomp.modeling import similarity_scale
from hfcomp.options import named_models
from hfcomp.reporting.report import Table

RIGHT, WRONG, TIE = 1, 0, -1
Row = tuple[float | None, list[float | None], float | None, float | None, int | None, int | None]
"""Cosines of the image with the caption and with each negative caption, and of the negative image with the caption and
with the first negative caption. Then two verdicts (`RIGHT`, `WRONG` or `TIE`): whether the caption's cosine is higher
than those of all negative captions, and higher than that of the negative image. `None` for a missing value."""


@dataclass(frozen=True)
class ModelScores:
    name: str
    place: str  # Hub id or folder
    scale: float  # factor from a cosine to a logit
    bias: float  # added to the logit; 0 for CLIP
    rows: Sequence[Row]
    truncated: int  # number of texts that were too long for the text tower


def score_rows(
    shown: ShownRows,
    records: Sequence[Mapping[str, Any]],
    unreadable: Mapping[str, set[int]],
    options: GalleryOptions,
    *,
    progress: bool = False,
) -> list[ModelScores]:
    """Scores the rows with each model, with one model in memory at a time."""
    cache = open_cache(not options.no_cache)
    scores = []
    for name, source in named_models(options.models).items():
        embedder = open_embedder(source, cache=cache, batch_size=options.batch_size, device=options.device)
        scores.append(_score(name, source, shown, records, unreadable, embedder, progress))
        embedder.release()
    cache.trim()
    return scores


def _score(
    name: str,
    source: str,
    shown: ShownRows,
    records: Sequence[Mapping[str, Any]],
    unreadable: Mapping[str, set[int]],
    embedder: Embedder,
    progress: bool,
) -> ModelScores:
    texts, owners = _all_texts(records)
    encoded = embedder.index_texts(texts, progress=progress)

    def cosines(column: str) -> Numbers:
        """Returns cosines `[n]` of each text with the image of its row; NaN if the image is missing."""
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
        source,
        scale=float(similarity_scale(backbone).detach()),
        bias=0.0 if bias is None else float(bias.detach()),
        rows=_rows(records, owners, cosines("image"), cosines("negative_image")),
        truncated=encoded.flagged,
    )


def _all_texts(records: Sequence[Mapping[str, Any]]) -> tuple[list[str], NDArray[np.int64]]:
    """Returns the captions and negative captions of all rows, row by row, and the row number `[n]` of each text."""
    texts, owners = [], []
    for index, record in enumerate(records):
        row_texts = [
            *([record["caption"]] if record["caption"] else []),
            *(negative["text"] for negative in record["negatives"]),
        ]
        texts += row_texts
        owners += [index] * len(row_texts)
    return texts, np.array(owners, dtype=np.int64)


def _rows(records: Sequence[Mapping[str, Any]], owners: NDArray[np.int64], own: Numbers, other: Numbers) -> list[Row]:
    # The texts of a row are adjacent, so they form a slice.
    starts = np.searchsorted(owners, np.arange(len(records) + 1))
    rows = []
    for index, record in enumerate(records):
        part = slice(starts[index], starts[index + 1])
        rows.append(_row(bool(record["caption"]), own[part], other[part]))
    return rows


def _row(has_caption: bool, own: Numbers, other: Numbers) -> Row:
    """Returns a row's scores from the cosines of its texts (the caption first, if any) with its two images."""
    missing = np.nan
    caption, negative_image = (own[0], other[0]) if has_caption else (missing, missing)
    negatives, others = own[int(has_caption) :], other[int(has_caption) :]
    return (
        _number(caption),
        list(map(_number, negatives)),
        _number(negative_image),
        _number(others[0]) if len(others) else None,  # the negative image shows the first negative caption
        _verdict(caption, negatives),
        _verdict(caption, np.array([negative_image])),
    )


def _verdict(caption: float, others: Numbers) -> int | None:
    """Whether a score is higher than all others, by the rule of `hfcomp evaluate`; None if a score is missing."""
    if not len(others) or not np.isfinite([caption, *others]).all():
        return None
    outcome = all_higher(*((np.array([caption]), np.array([other])) for other in others))
    return RIGHT if outcome.correct[0] else TIE if outcome.tie[0] else WRONG


def _number(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 6)


def score_tables(models: Sequence[ModelScores]) -> list[Table]:
    if not models:
        return []
    verdicts = {name: index for index, name in ((4, "by captions"), (5, "by images"))}
    # All models score the same rows, so the first model shows which verdicts exist.
    present = {
        name: index for name, index in verdicts.items() if any(row[index] is not None for row in models[0].rows)
    }
    rows = [[model.name, *(_count(model.rows, index) for index in present.values())] for model in models]
    if len(models) == 2:
        rows.append(["changed between them", *(_changes(models, index) for index in present.values())])
    return [Table("Shown rows that are right", ["", *present], rows)] if present else []


def _count(rows: Sequence[Row], index: int) -> str:
    verdicts = [row[index] for row in rows if row[index] is not None]
    ties = verdicts.count(TIE)
    return f"{verdicts.count(RIGHT):,} of {len(verdicts):,}" + (f", {ties:,} tied" if ties else "")


def _changes(models: Sequence[ModelScores], index: int) -> str:
    pairs = [(first[index], second[index]) for first, second in zip(*(model.rows for model in models), strict=True)]
    changes = [(first == RIGHT, second == RIGHT) for first, second in pairs if None not in (first, second)]
    won, lost = changes.count((False, True)), changes.count((True, False))
    return f"{won:,} won, {lost:,} lost"
