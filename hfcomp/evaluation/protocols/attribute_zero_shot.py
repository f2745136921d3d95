"""Classification by words, attribute by attribute: is the image nearest to the prompts of its own class?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hfcomp.evaluation.encoding.embedded import EmbeddedItems
from hfcomp.evaluation.protocols.zero_shot import class_embeddings, zero_shot
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol


@dataclass(frozen=True)
class AttributeZeroShot(ScoringProtocol):
    """Columns `image` and one for each attribute of `BenchmarkData.prompts`, which holds the name of a class."""

    def prompts(self, items: BenchmarkData) -> list[str]:
        """Those of every class of every attribute."""
        return [text for classes in items.prompts.values() for texts in classes.values() for text in texts]

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return ("accuracy",)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """The metric "accuracy", with a subset per attribute; a class is the mean of its prompts."""
        image, vectors = embedded.image("image", slice(None)), embedded.prompts
        for attribute, prompts in embedded.items.prompts.items():
            index = np.repeat(np.arange(len(prompts)), [len(texts) for texts in prompts.values()])
            own, vectors = vectors[: len(index)], vectors[len(index) :]
            number = {name: place for place, name in enumerate(prompts)}
            label = np.array([number[name] for name in embedded.items.rows[attribute]])
            outcome = zero_shot(image, class_embeddings(own, index), label)
            yield Measured("accuracy", outcome.correct, outcome.tie, 1 / len(prompts), subset=attribute)
