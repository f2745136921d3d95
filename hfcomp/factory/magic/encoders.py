"""Encoders of concept names: sentence-transformers, a CLIP's text tower, an embeddings endpoint, or the captions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hfcomp.data.publishing import without_local_paths
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.encoding.other_folders import is_sentence_transformer
from hfcomp.factory.magic.options import BY_CAPTIONS, ENDPOINT
from hfcomp.factory.magic.similarity import Vectors
from hfcomp.factory.sources import model_facts
from hfcomp.factory.writers.embeddings import EmbeddingClient
from hfcomp.modeling import base_of_adapter, read_config
from hfcomp.modeling.backbones import is_dual_encoder
from hfcomp.remote_code import find_file

# Size of the vectors of `CaptionsEncoder`. Our choice.
DIMENSIONS = 32


class ConceptEncoder(Protocol):
    """Embeds names."""

    def encode(self, names: Sequence[str]) -> Vectors:
        """Returns `[n, D]`: a row per name, of length 1, or of length 0 for a name that is similar to no other."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """Returns what identifies the encoder in a manifest: JSON values, without local paths."""
        ...


def open_encoder(
    name: str, *, device: str | None = None, server: Mapping[str, Any], log: Callable[[str], None]
) -> ConceptEncoder:
    """Opens an encoder by its name in `MagicOptions`, except for `BY_CAPTIONS`.

    Args:
        server: Settings of `EmbeddingClient`, except for the model.
        log: Function that receives a line on a server's embeddings.
    """
    if name.startswith(ENDPOINT):
        return EndpointEncoder(EmbeddingClient(name.removeprefix(ENDPOINT), **server), log)
    return TextTower(name, device) if _has_text_tower(name) else SentenceEncoder(name, device)


def _has_text_tower(place: str) -> bool:
    """Whether a Hub id or folder is a dual encoder, which may also have the files of sentence-transformers."""
    try:
        if is_sentence_transformer(place):
            return False
        if base_of_adapter(place) is not None:
            return True
        return find_file(place, "config.json") is not None and is_dual_encoder(place, read_config(place))
    except OSError:  # no such model, which `facts` reports
        return False


class SentenceEncoder:
    """A sentence-transformers model.

    Args:
        model: Hub id or folder with safetensors. Code in the repository is not run.
    """

    def __init__(self, model: str, device: str | None = None) -> None:
        if find_spec("sentence_transformers") is None:
            raise ImportError(
                'a sentence encoder needs sentence-transformers: pip install "hfcomp[magic]". Or choose --encoder '
                f"{BY_CAPTIONS}, which needs no model."
            )
        self._model, self._device = model, device

    def encode(self, names: Sequence[str]) -> Vectors:
        vectors = self._network.encode(list(names), normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(vectors, np.float32)

    def facts(self) -> Mapping[str, Any]:
        return {"encoder": model_facts(self._model)}

    @cached_property
    def _network(self) -> Any:
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(
            self._model, device=self._device, trust_remote_code=False, model_kwargs={"use_safetensors": True}
        )


class TextTower:
    """The text tower of a dual encoder, which reads only the name.

    Args:
        model: Hub id or folder that `hfcomp.Embedder` loads, or an adapter for such a model.
    """

    def __init__(self, model: str, device: str | None = None) -> None:
        self._model, self._device = model, device

    def encode(self, names: Sequence[str]) -> Vectors:
        return Embedder(self._model, device=self._device).texts(list(names)).vectors

    def facts(self) -> Mapping[str, Any]:
        return {"encoder": model_facts(self._model), "tower": "text"}


class EndpointEncoder:
    """The embeddings of an OpenAI-compatible server."""

    def __init__(self, client: EmbeddingClient, log: Callable[[str], None]) -> None:
        self._client, self._log = client, log

    def encode(self, names: Sequence[str]) -> Vectors:
        vectors = self._client.embed(names)
        counts = ", ".join(f"{name}: {number:,}" for name, number in sorted(self._client.counts.items()))
        self._log(f"embeddings of {vectors.shape[1]:,} numbers; {counts}")
        return _unit_length(vectors.astype(np.float64))

    def facts(self) -> Mapping[str, Any]:
        return {"encoder": f"{ENDPOINT}{without_local_paths(self._client.model)}"}


class CaptionsEncoder:
    """Represents a concept by its captions' words: TF-IDF, reduced by a truncated SVD (latent semantic analysis)."""

    def __init__(self, captions_of: Callable[[str], Iterable[str]]) -> None:
        self._captions_of = captions_of

    def encode(self, names: Sequence[str]) -> Vectors:
        """See `ConceptEncoder`. A concept without words has a row of zeros."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.utils.extmath import randomized_svd
        from threadpoolctl import threadpool_limits

        vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=r"[^\W\d_]{2,}", dtype=np.float64)
        try:
            words = vectorizer.fit_transform(" ".join(self._captions_of(name)) for name in names)
        except ValueError:  # no caption has a word
            return np.zeros((len(names), 1), np.float32)
        with threadpool_limits(1, "blas"):  # the number of threads changes the last digits of sums
            left, values, _ = randomized_svd(words, min(DIMENSIONS, *words.shape), random_state=0)
        return _unit_length(left * values)

    def facts(self) -> Mapping[str, Any]:
        return {"encoder": BY_CAPTIONS, "dimensions": DIMENSIONS}


def _unit_length(vectors: NDArray[np.float64]) -> Vectors:
    """Vectors of length 1; those of length 0 stay as they are."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 1e-12).astype(np.float32)
