"""Outcomes of blind rules on the items of benchmarks, and of a model's own prior."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.blind.captions import FOLDER, CaptionSource, read_caption_source
from hfcomp.evaluation.blind.rules import BIGRAM, BIGRAM_SENTENCE, BIGRAMS, text_scores
from hfcomp.evaluation.encoding.embed import Indexed
from hfcomp.evaluation.encoding.embedded import EmbeddedItems
from hfcomp.evaluation.engine import NoModel, embed, score_items
from hfcomp.evaluation.spec import Benchmark, BenchmarkData, Folders, Unavailable

if TYPE_CHECKING:
    import pandas as pd

DRAWN = "the captions are synthetic, so bigrams of COCO captions say nothing about them; see --blind_captions."
NO_CAPTIONS = "the benchmark uses all captions of {place}"


def text_choice_of(benchmark: Benchmark, items: BenchmarkData) -> Benchmark | None:
    """Keeps only the metrics that a score of texts can decide; `None` without such metrics or without images."""
    protocol = None if items.texts_alone == len(items.rows) else benchmark.protocol.text_choice(items)
    return None if protocol is None else replace(benchmark, protocol=protocol)


class BlindRules:
    """The rules that score texts without images, for the benchmarks of a run.

    Args:
        captions: Captions that the user named for the bigram model, see `read_caption_source`.
        folders: Local data folders.

    Attributes:
        skipped: Reason by rule if it did not run, or by title of a benchmark if no rule did.
        captions: Counts of the bigram model's captions, by title of the benchmark.
        not_applicable: Titles of benchmarks without a choice among texts of an item.
    """

    def __init__(self, captions: str | Path | None, folders: Folders) -> None:
        self._given, self._folders = captions, folders
        folders.asked.add(FOLDER)  # a user may name the folder only for its captions
        self.skipped: dict[str, str] = {}
        self.captions: dict[str, dict[str, Any]] = {}
        self.not_applicable: list[str] = []

    def score(self, benchmarks: Iterable[tuple[str, Benchmark, BenchmarkData]]) -> list[pd.DataFrame]:
        """Returns outcomes with the columns of [`hfcomp.evaluation.engine.Report.items`] and the rule as `arm`.

        Each benchmark comes with its title in tables. A benchmark whose items cannot be scored is added to `skipped`.
        """
        choices = [(title, text_choice_of(benchmark, items), items) for title, benchmark, items in benchmarks]
        self.not_applicable = [title for title, choice, _ in choices if choice is None]
        applicable = [(title, choice, items) for title, choice, items in choices if choice is not None]
        source = self._source(applicable) if applicable else None
        tables: list[pd.DataFrame] = []
        for title, benchmark, items in applicable:
            try:
                tables += self._score(title, benchmark, items, source)
            except Exception as error:  # models are still scored, and their errors explain the items in more detail
                self.skipped[title] = f"{type(error).__name__}: {error}"
        return tables

    @property
    def facts(self) -> dict[str, Any]:
        """The attributes of `BlindResults` other than outcomes, after `score`."""
        return {"skipped": self.skipped, "captions": self.captions, "not_applicable": self.not_applicable}

    def _source(self, applicable: Sequence[tuple[str, Benchmark, BenchmarkData]]) -> CaptionSource | None:
        # The sandbox's captions have their own grammar, which COCO's bigrams do not cover.
        if self._given is None and all(benchmark.synthetic for _, benchmark, _ in applicable):
            self.skipped |= dict.fromkeys(BIGRAMS, DRAWN)
            return None
        try:
            return read_caption_source(self._given, self._folders, [items for *_, items in applicable])
        except Unavailable as error:
            self.skipped |= dict.fromkeys(BIGRAMS, f"{error.reason} {error.how_to_fix}")
            return None

    def _score(
        self, title: str, benchmark: Benchmark, items: BenchmarkData, source: CaptionSource | None
    ) -> list[pd.DataFrame]:
        listing = NoModel()
        embedded = embed(benchmark, items, listing)
        bigrams = None
        if source is not None:
            bigrams, counts = source.model_without(items.rows["image_id"][:], listing.texts)
            # Benchmarks with the same title, such as parts of one dataset, each have an entry.
            self.captions[title] = {**self.captions.get(title, {}), benchmark.name: counts}
            if bigrams is None:
                reason = f"{title}: {NO_CAPTIONS.format(place=source.place)}."
                for rule in (BIGRAM, BIGRAM_SENTENCE):
                    self.skipped[rule] = " ".join(filter(None, (self.skipped.get(rule), reason)))
        tables = []
        for rule, scores in text_scores(listing.texts, bigrams).items():
            # Each image has the vector 1, so the protocol's usual code scores a text only by the rule.
            ranked = replace(embedded, text_vectors=_rank_vectors(scores))
            tables.append(score_items(benchmark, ranked).assign(arm=rule, benchmark=title))
        return tables


def prior_outcomes(benchmark: Benchmark, embedded: EmbeddedItems) -> pd.DataFrame | None:
    """Scores a model's choices without the image: each text is scored with the benchmark's mean image vector.

    Returns:
        Outcomes as from `score_items`; `None` if no metric is a choice among texts of an item.
    """
    choice = text_choice_of(benchmark, embedded.items)
    if choice is None:
        return None
    # The mean image has no information about a single image, so its ranking of texts is the model's prior.
    mean = np.concatenate([column.vectors for column in embedded.images.values()]).mean(axis=0, dtype=np.float64)
    vector = (mean / max(float(np.linalg.norm(mean)), 1e-12)).astype(np.float32)[None]
    images = {
        # A missing image stays -1. Every other image has the mean vector, number 0.
        name: replace(column, vectors=vector, index=np.minimum(column.index, 0))
        for name, column in embedded.images.items()
    }
    return score_items(choice, replace(embedded, images=images))


def _rank_vectors(scores: NDArray[np.float64]) -> Indexed:
    """Returns vectors `[n, 1]` whose product with the image's is the score's rank, so fp32 keeps order and ties."""
    ranks = np.unique(scores, return_inverse=True)[1].reshape(-1)
    return Indexed(ranks.astype(np.float32)[:, None], np.arange(len(scores)), 0, 0)
