"""Classification by words: is the image nearest to its own class's name?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.encoding.embedded import EmbeddedItems
from hfcomp.evaluation.protocols.classes import accuracies, accuracy_names
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.choice import ChoiceOutcome, choose, pair_scores
from hfcomp.metrics.classification import class_scores


def class_embeddings(prompts: NDArray[np.float32], classes: Sequence[int]) -> NDArray[np.float32]:
    """The mean of each class's prompts, normalised again (Radford et al. 2021, section 3.1.4).

    Args:
        prompts: `[m, D]`, L2-normalised.
        classes: `[m]`, each prompt's class, 0 to C - 1; every class has at least one.

    Returns:
        `[C, D]`, L2-normalised.

    Raises:
        ValueError: for a class without prompts.
    """
    index = np.asarray(classes)
    sums = np.zeros((index.max() + 1, prompts.shape[1]), dtype=np.float64)
    np.add.at(sums, index, prompts)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    if not norms.all():
        raise ValueError(f"class {int(np.flatnonzero(norms[:, 0] == 0)[0])} has no prompt, or prompts that cancel.")
    return (sums / norms).astype(np.float32)


def zero_shot(image: NDArray[np.float32], classes: NDArray[np.float32], label: NDArray[np.integer]) -> ChoiceOutcome:
    """Whether an image's own class scores strictly higher than every other, in fp32.

    Args:
        image: `[n, D]`, L2-normalised.
        classes: `[C, D]`, L2-normalised, C at least 2.
        label: `[n]`, 0 to C - 1.

    Returns:
        Correct and tied items. Chance is 1/C.
    """
    scores = np.stack([pair_scores(image, np.broadcast_to(one, image.shape)) for one in classes], axis=1)
    own = np.arange(len(classes)) == label[:, None]
    return choose(scores[own], scores, ~own)


@dataclass(frozen=True)
class ZeroShot(ScoringProtocol):
    """Columns `image` and `label`: nearest class by the mean of its prompts, made of the items' templates.

    Attributes:
        top: of top-k accuracy.
    """

    all_pairs = True

    top: tuple[int, ...] = (1, 5)

    def prompts(self, items: BenchmarkData) -> list[str]:
        """Every template with every class, class by class.

        Raises:
            ValueError: without classes or templates.
        """
        if not items.classes or not items.templates:
            raise ValueError(
                f"{items.origin.place}: found {len(items.classes)} class names and {len(items.templates)} templates; "
                "zero-shot classification needs both. Give `BenchmarkData.classes` and `BenchmarkData.templates`."
            )
        return [template.replace("{c}", name) for name in items.classes for template in items.templates]

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return accuracy_names(self.top)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """Top-k accuracy, and the mean of the classes' accuracies."""
        items = embedded.items
        index = np.repeat(np.arange(len(items.classes)), len(items.templates))
        classes = class_embeddings(embedded.prompts, index)
        scores = class_scores(embedded.image("image", slice(None)), classes)
        yield from accuracies(scores, np.asarray(items.rows["label"][:]), len(items.classes), self.top)
