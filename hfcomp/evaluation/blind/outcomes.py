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

DRAWN = "the captions are drawn, and COCO's say nothing of them; --blind_captions names others."
NO_CAPTIONS = "no caption of {place} is left that the benchmark does not use"


def text_choice_of(benchmark: Benchmark, items: BenchmarkData) -> Benchmark | None:
    """The benchmark with the metrics alone that a score of texts can decide; `None` without such, or images."""
    protocol = None if items.texts_alone == len(items.rows) else benchmark.protocol.text_choice(items)
    return None if protocol is None else replace(benchmark, protocol=protocol)


class BlindRules:
    """The rules that score texts alone, for the benchmarks of a run.

    Args:
        captions: what the user named for the bigram model, see `read_caption_source`.

    Attributes:
        skipped: rule to why it did not run, or title of a benchmark to why none did.
        captions: by title of the benchmark, what the bigram model was counted on.
        not_applicable: titles of benchmarks without a choice among texts of an item.
    """

    def __init__(self, captions: str | Path | None, folders: Folders) -> None:
        self._given, self._folders = captions, folders
        folders.asked.add(FOLDER)  # may be named for its captions alone
        self.skipped: dict[str, str] = {}
        self.captions: dict[str, dict[str, Any]] = {}
        self.not_applicable: list[str] = []

    def score(self, benchmarks: Iterable[tuple[str, Benchmark, BenchmarkData]]) -> list[pd.DataFrame]:
        """Outcomes with the columns of [`hfcomp.evaluation.engine.Report.items`] and the rule as `arm`.

        Benchmarks come with their titles in tables. One whose items cannot be scored is skipped by name.
        """
        choices = [(title, text_choice_of(one, items), items) for title, one, items in benchmarks]
        self.not_applicable = [title for title, choice, _ in choices if choice is None]
        applicable = [(title, choice, items) for title, choice, items in choices if choice is not None]
        source = self._source(applicable) if applicable else None
        found: list[pd.DataFrame] = []
        for title, one, items in applicable:
            try:
                found += self._score(title, one, items, source)
            except Exception as error:  # models go on, and say what is wrong with the items in more words
                self.skipped[title] = f"{type(error).__name__}: {error}"
        return found

    @property
    def facts(self) -> dict[str, Any]:
        """The attributes of `BlindResults` besides outcomes, after `score`."""
        return {"skipped": self.skipped, "captions": self.captions, "not_applicable": self.not_applicable}

    def _source(self, applicable: Sequence[tuple[str, Benchmark, BenchmarkData]]) -> CaptionSource | None:
        # The sandbox's captions have a grammar of their own, which COCO's bigrams do not cover.
        if self._given is None and all(one.synthetic for _, one, _ in applicable):
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
            # Benchmarks of one title, such as parts of one set, are counted side by side.
            self.captions[title] = {**self.captions.get(title, {}), benchmark.name: counts}
            if bigrams is None:
                reason = f"{title}: {NO_CAPTIONS.format(place=source.place)}."
                for rule in (BIGRAM, BIGRAM_SENTENCE):
                    self.skipped[rule] = " ".join(filter(None, (self.skipped.get(rule), reason)))
        found = []
        for rule, scores in text_scores(listing.texts, bigrams).items():
            # Each image has the vector 1, so the protocol scores a text only by the rule, with its usual code.
            chosen = replace(embedded, text_vectors=_ranked(scores))
            found.append(score_items(benchmark, chosen).assign(arm=rule, benchmark=title))
        return found


def prior_outcomes(benchmark: Benchmark, embedded: EmbeddedItems) -> pd.DataFrame | None:
    """What a model chooses without the image: each text is scored with the mean image vector of the benchmark.

    Returns:
        Outcomes as `score_items` gives them; `None` where no metric is a choice among texts of an item.
    """
    choice = text_choice_of(benchmark, embedded.items)
    if choice is None:
        return None
    # The mean image carries no information about a single one: how it ranks texts is the model's prior.
    mean = np.concatenate([one.vectors for one in embedded.images.values()]).mean(axis=0, dtype=np.float64)
    vector = (mean / max(float(np.linalg.norm(mean)), 1e-12)).astype(np.float32)[None]
    images = {
        # A missing image stays -1. Every other image has the mean vector, number 0.
        name: replace(one, vectors=vector, index=np.minimum(one.index, 0))
        for name, one in embedded.images.items()
    }
    return score_items(choice, replace(embedded, images=images))


def _ranked(scores: NDArray[np.float64]) -> Indexed:
    """Vectors `[n, 1]` whose product with the image's is the rank of the score: order and ties survive in fp32."""
    ranks = np.unique(scores, return_inverse=True)[1].reshape(-1)
    return Indexed(ranks.astype(np.float32)[:, None], np.arange(len(scores)), 0, 0)
