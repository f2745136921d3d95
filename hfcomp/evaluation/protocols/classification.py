"""Image classification: zero-shot by class names, zero-shot per attribute, and linear probes on embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.encoding.embedded import EmbeddedItems
from hfcomp.evaluation.probes.linear import Labels, LinearProbe
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.average_precision import average_precision, map_influence
from hfcomp.metrics.choice import ChoiceOutcome, choose, pair_scores
from hfcomp.metrics.classification import Scores, class_scores, top_k


def accuracy_names(top: Sequence[int]) -> tuple[str, ...]:
    names = tuple("accuracy" if k == 1 else f"top-{k} accuracy" for k in top)
    return (*names, *(("mean per class",) if 1 in top else ()))


def accuracies(scores: Scores, label: NDArray[np.integer], classes: int, top: Sequence[int]) -> Iterator[Measured]:
    """Yields the metrics "accuracy", "top-5 accuracy" and "mean per class".

    "Mean per class" has the outcomes of "accuracy" with the classes as strata, so it is the mean of their accuracies.

    Args:
        scores: `[n, C]`, or a function that returns some of its rows.
        label: `[n]`, true class of each image.
        classes: Number of classes C.
        top: Values of k for top-k accuracy; any k of C or more is dropped.
    """
    for k in top:
        # Among k or fewer classes, every answer would be right.
        if k < classes:
            outcome = top_k(scores, label, k)
            yield Measured("accuracy" if k == 1 else f"top-{k} accuracy", outcome.correct, outcome.tie, k / classes)
            if k == 1:
                yield Measured("mean per class", outcome.correct, outcome.tie, k / classes, strata=label)


def class_embeddings(prompts: NDArray[np.float32], classes: Sequence[int]) -> NDArray[np.float32]:
    """Returns each class's mean prompt vector `[C, D]`, normalized again (Radford et al. 2021, section 3.1.4)."""
    index = np.asarray(classes)
    sums = np.zeros((index.max() + 1, prompts.shape[1]), dtype=np.float64)
    # The sum has the direction of the mean, and only the direction is left after normalizing.
    np.add.at(sums, index, prompts)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    if not norms.all():
        raise ValueError(f"class {int(np.flatnonzero(norms[:, 0] == 0)[0])} has no prompt, or prompts that cancel.")
    return (sums / norms).astype(np.float32)


def zero_shot(image: NDArray[np.float32], classes: NDArray[np.float32], label: NDArray[np.integer]) -> ChoiceOutcome:
    """Tests whether an image's own class scores strictly higher than every other class, in fp32.

    Returns:
        Correct and tied items. Chance is 1/C.
    """
    scores = np.stack([pair_scores(image, np.broadcast_to(vector, image.shape)) for vector in classes], axis=1)
    own = np.arange(len(classes)) == label[:, None]
    return choose(scores[own], scores, ~own)


@dataclass(frozen=True)
class ZeroShot(ScoringProtocol):
    """Columns `image` and `label`: the nearest class by the mean of its prompts, built from the items' templates.

    Attributes:
        top: Values of k for top-k accuracy.
    """

    all_pairs = True

    top: tuple[int, ...] = (1, 5)

    def prompts(self, items: BenchmarkData) -> list[str]:
        """Returns every template with every class, class by class."""
        if not items.classes or not items.templates:
            raise ValueError(
                f"{items.origin.place}: found {len(items.classes)} class names and {len(items.templates)} templates; "
                "zero-shot classification needs both. Set `BenchmarkData.classes` and `BenchmarkData.templates`."
            )
        return [template.replace("{c}", name) for name in items.classes for template in items.templates]

    @property
    def metric_names(self) -> tuple[str, ...]:
        return accuracy_names(self.top)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        items = embedded.items
        # Prompts are ordered class by class, see `prompts`.
        index = np.repeat(np.arange(len(items.classes)), len(items.templates))
        classes = class_embeddings(embedded.prompts, index)
        scores = class_scores(embedded.image("image", slice(None)), classes)
        yield from accuracies(scores, np.asarray(items.rows["label"][:]), len(items.classes), self.top)


@dataclass(frozen=True)
class AttributeZeroShot(ScoringProtocol):
    """Columns `image` and, for each attribute of `BenchmarkData.prompts`, a column with the name of a class."""

    metric_names = ("accuracy",)

    def prompts(self, items: BenchmarkData) -> list[str]:
        return [text for classes in items.prompts.values() for texts in classes.values() for text in texts]

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """Yields the metric "accuracy" with one subset per attribute. A class is the mean of its prompts."""
        image, vectors = embedded.image("image", slice(None)), embedded.prompts
        for attribute, prompts in embedded.items.prompts.items():
            index = np.repeat(np.arange(len(prompts)), [len(texts) for texts in prompts.values()])
            # Prompts were encoded attribute by attribute, in the order of `prompts`.
            own, vectors = vectors[: len(index)], vectors[len(index) :]
            number = {name: place for place, name in enumerate(prompts)}
            label = np.array([number[name] for name in embedded.items.rows[attribute]])
            outcome = zero_shot(image, class_embeddings(own, index), label)
            yield Measured("accuracy", outcome.correct, outcome.tie, 1 / len(prompts), subset=attribute)


Fit = Callable[..., LinearProbe]


@dataclass(frozen=True)
class Probe(ScoringProtocol):
    """Columns `image` and `label`, a number, or `labels`, a list of numbers; training rows in `BenchmarkData.train`.

    An encoder that gives every image the same vector scores 0. Otherwise the biases, which reflect the class
    frequencies in training, would get one class right.

    Attributes:
        fit: `fit_adamw10` or `fit_lbfgs` of `hfcomp.evaluation.probes`.
        top: Values of k for top-k accuracy, with one label per image.
    """

    fit: Fit
    top: tuple[int, ...] = (1, 5)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The accuracies, for one label per image, and mAP, for several labels."""
        return (*accuracy_names(self.top), "mAP")

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """Yields top-k accuracy and the mean over classes, or mAP for several labels per image.

        The item values of mAP are first-order terms whose mean is the mAP; see `hfcomp.metrics.average_precision`.
        """
        items = embedded.items
        _check_training(embedded)
        classes = number_of_classes(items)
        train = embedded.train.take(slice(None))
        probe = self.fit(train, labels(items.train, classes), classes=classes, allow_missing=True)
        test, true = embedded.image("image", slice(None)), labels(items, classes)
        scores = probe.scores(test)
        # With equal vectors, only the biases would decide, and images of the most frequent class would be right.
        if len(test) > 1 and (test == test[0]).all():
            scores[:] = 0
        if true.ndim == 1:
            yield from accuracies(scores, true, classes, self.top)
            return
        chance = average_precision(scores, true).mean_chance
        yield Measured("mAP", map_influence(scores, true), np.zeros(len(true), dtype=bool), chance)


def number_of_classes(items: BenchmarkData) -> int:
    """Counts the named classes or, without names, those that occur in test or training rows."""
    if items.classes:
        return len(items.classes)
    column = "labels" if "labels" in items.rows.column_names else "label"
    # Classes that occur only in training count too, because a model may choose them.
    return 1 + max(int(np.max(label, initial=0)) for part in (items, items.train) for label in part.rows[column])


def labels(items: BenchmarkData, classes: int) -> Labels:
    """Returns the labels as `[n]` numbers, or `[n, C]` bool if rows have the column `labels`."""
    if "labels" not in items.rows.column_names:
        return np.asarray(items.rows["label"][:])
    is_label = np.zeros((len(items.rows), classes), dtype=bool)
    for row, numbers in enumerate(items.rows["labels"]):
        is_label[row, numbers] = True
    return is_label


def _check_training(embedded: EmbeddedItems) -> None:
    place = embedded.items.origin.place
    if embedded.train is None:
        raise ValueError(f"{place}: a probe needs training rows, but the data has none.")
    missing = np.flatnonzero(embedded.train.index < 0)
    if len(missing):
        raise ValueError(
            f"{place}: {len(missing)} of {len(embedded.train.index)} training images are missing, the first in row "
            f"{missing[0]}. Fitting on a part would give a different probe. Add the images or remove their rows."
        )
