"""A linear classifier on frozen image embeddings, fitted on the benchmark's own training rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hfcomp.evaluation.encoding.embedded import EmbeddedItems
from hfcomp.evaluation.probes.linear import Labels, LinearProbe
from hfcomp.evaluation.protocols.classes import accuracies, accuracy_names
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.average_precision import average_precision, map_influence

Fit = Callable[..., LinearProbe]


@dataclass(frozen=True)
class Probe(ScoringProtocol):
    """Columns `image` and `label`, a number, or `labels`, a list of them; rows to fit on in `BenchmarkData.train`.

    An encoder that gives every image the same vector scores 0: by the biases alone, which say how frequent a class was
    in training, one class would be right.

    Attributes:
        fit: `fit_adamw10` or `fit_lbfgs` of `hfcomp.evaluation.probes`.
        top: of top-k accuracy, with one label per image.
    """

    fit: Fit
    top: tuple[int, ...] = (1, 5)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The accuracies, of one label an image, and the mAP, of several."""
        return (*accuracy_names(self.top), "mAP")

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """Top-k accuracy and the mean over classes; with several labels an image, the mAP.

        The item values of mAP are first-order terms with the mAP as their mean; see
        `hfcomp.metrics.average_precision`.

        Raises:
            ValueError: without training rows, or when an image of theirs is missing.
        """
        items = embedded.items
        _check_training(embedded)
        classes = number_of_classes(items)
        train = embedded.train.take(slice(None))
        probe = self.fit(train, labels(items.train, classes), classes=classes, allow_missing=True)
        test, true = embedded.image("image", slice(None)), labels(items, classes)
        scores = probe.scores(test)
        if len(test) > 1 and (test == test[0]).all():
            scores[:] = 0
        if true.ndim == 1:
            yield from accuracies(scores, true, classes, self.top)
            return
        chance = average_precision(scores, true).mean_chance
        yield Measured("mAP", map_influence(scores, true), np.zeros(len(true), dtype=bool), chance)


def number_of_classes(items: BenchmarkData) -> int:
    """Of the named classes, or else of those that occur, in training too."""
    if items.classes:
        return len(items.classes)
    column = "labels" if "labels" in items.rows.column_names else "label"
    return 1 + max(int(np.max(one, initial=0)) for part in (items, items.train) for one in part.rows[column])


def labels(items: BenchmarkData, classes: int) -> Labels:
    """`[n]` numbers, or `[n, C]` bool where rows have the column `labels`."""
    if "labels" not in items.rows.column_names:
        return np.asarray(items.rows["label"][:])
    found = np.zeros((len(items.rows), classes), dtype=bool)
    for row, numbers in enumerate(items.rows["labels"]):
        found[row, numbers] = True
    return found


def _check_training(embedded: EmbeddedItems) -> None:
    place = embedded.items.origin.place
    if embedded.train is None:
        raise ValueError(f"{place}: a probe needs training rows, but the data has none.")
    missing = np.flatnonzero(embedded.train.index < 0)
    if len(missing):
        raise ValueError(
            f"{place}: {len(missing)} of {len(embedded.train.index)} training images are missing, the first in row "
            f"{missing[0]}. Fitting on a part would give a different probe: add the images or remove their rows."
        )
