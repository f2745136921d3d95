"""Blind rules: scores of texts alone, by which a choice among captions is made without the image."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.blind.bigrams import BigramModel

Scores = NDArray[np.float64]
CONSTANT, SHORTER, FULL_STOP = "constant", "shorter", "full stop"
BIGRAM, BIGRAM_SENTENCE, PRIOR = "bigram per word", "bigram sentence", "prior"
BIGRAMS = (BIGRAM, BIGRAM_SENTENCE)

RULES = {
    CONSTANT: "scores every text alike: 0 wherever ties are wrong",
    SHORTER: "the text with fewer characters",
    FULL_STOP: "the text that does not end in a full stop",
    BIGRAM: "the text with the higher mean log probability per word in a bigram model of other captions",
    BIGRAM_SENTENCE: "the text with the higher log probability as a whole in the same model",
    PRIOR: "the text whose embedding is closer to the mean image vector of the benchmark, per model",
}
"""Blind rules by name, with what they choose."""


def prior_of(model: str) -> str:
    """What tables call the prior of a model."""
    return f"{PRIOR} of {model}"


TEXT_RULES: dict[str, Callable[[Sequence[str]], Scores]] = {
    CONSTANT: lambda texts: np.zeros(len(texts)),
    SHORTER: lambda texts: -np.array([len(text) for text in texts], dtype=np.float64),
    FULL_STOP: lambda texts: np.array([not text.rstrip().endswith(".") for text in texts], dtype=np.float64),
}
"""The rules that need nothing but the texts: the higher score is chosen."""


def text_scores(texts: Sequence[str], bigrams: BigramModel | None = None) -> dict[str, Scores]:
    """The scores of texts by every rule, `[n]` each; those of bigrams only where there is a model."""
    found = {name: rule(texts) for name, rule in TEXT_RULES.items()}
    if bigrams is not None:
        scores = bigrams.scores(texts)
        found |= {BIGRAM: scores.per_word, BIGRAM_SENTENCE: scores.sentence}
    return found
