"""Two wordings of one caption: do they find the same image?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hfcomp.evaluation.encoding.embedded import EmbeddedItems
from hfcomp.evaluation.spec import Measured, ScoringProtocol


@dataclass(frozen=True)
class WordingAgreement(ScoringProtocol):
    """Columns `image`, `caption` and `positive_captions`, the first of which is the other wording."""

    texts = ("caption", "positive_captions")
    all_pairs = True

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return ("same image found",)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """The metric "same image found": whether both wordings have the same best image, right or wrong."""
        everyone = slice(None)
        image = embedded.image("image", everyone)
        first, other = ((embedded.text(name, everyone) @ image.T).argmax(axis=1) for name in self.texts)
        yield Measured("same image found", first == other, np.zeros(len(image), dtype=bool), 1 / len(image))
