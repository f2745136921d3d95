"""Embeddings of the names of concepts, by which they are merged and mined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hfcomp.factory.magic.options import BY_CAPTIONS
from hfcomp.factory.sources import model_facts

DIMENSIONS = 32
"""Of `CaptionsEncoder`. Our choice."""


class ConceptEncoder(Protocol):
    """Embeds names."""

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """`[n, D]`: a row for each name, of length 1, or 0 for one that is similar to none."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """What identifies it in a manifest: JSON values, nothing of this machine."""
        ...


class SentenceEncoder:
    """A model of sentence-transformers.

    Args:
        model: Hub id or folder, with safetensors; no code of the repository is run.

    Raises:
        ImportError: without sentence-transformers.
    """

    def __init__(self, model: str, device: str | None = None) -> None:
        if find_spec("sentence_transformers") is None:
            raise ImportError(
                'a sentence encoder needs sentence-transformers: pip install "hfcomp[magic]". Or choose --encoder '
                f"{BY_CAPTIONS}, which needs no model."
            )
        self._model, self._device = model, device

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """See `ConceptEncoder`."""
        found = self._network.encode(list(names), normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(found, np.float32)

    def facts(self) -> Mapping[str, Any]:
        """See `ConceptEncoder`; raises OSError for a model that is missing."""
        return {"encoder": model_facts(self._model)}

    @cached_property
    def _network(self) -> Any:
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(
            self._model,
            device=self._device,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )


class CaptionsEncoder:
    """A concept is the words of its captions: TF-IDF, reduced by a truncated SVD (latent semantic analysis)."""

    def __init__(self, captions_of: Callable[[str], Iterable[str]]) -> None:
        self._captions_of = captions_of

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """See `ConceptEncoder`; a concept without a word has a row of zeros."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.utils.extmath import randomized_svd
        from threadpoolctl import threadpool_limits

        vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=r"[^\W\d_]{2,}", dtype=np.float64)
        try:
            words = vectorizer.fit_transform(" ".join(self._captions_of(name)) for name in names)
        except ValueError:  # no caption has a word
            return np.zeros((len(names), 1), np.float32)
        with threadpool_limits(1, "blas"):  # the number of threads moves the last digits of its sums
            left, values, _ = randomized_svd(words, min(DIMENSIONS, *words.shape), random_state=0)
        found = left * values
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        return np.divide(found, lengths, out=np.zeros_like(found), where=lengths > 1e-12).astype(np.float32)

    def facts(self) -> Mapping[str, Any]:
        """See `ConceptEncoder`."""
        return {"encoder": BY_CAPTIONS, "dimensions": DIMENSIONS}
