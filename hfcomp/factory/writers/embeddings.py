"""Embeddings of names from an OpenAI-compatible endpoint, stored on disk like a language model's answers."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from hfcomp.factory.writers.answer_cache import ASKED, CACHED, AnswerCache
from hfcomp.factory.writers.endpoint import EndpointError, EndpointWriter
from hfcomp.factory.writers.requests import BadBody, Reply, Request, content_hash
from hfcomp.reading import parse_json

# Names per request. Our choice: servers limit it, some of them to 32.
BATCH = 32


class EmbeddingClient:
    """Requests an embedding per name. The first embedding of a name is stored and used from then on.

    Args:
        model: Name of the model on the server.
        base_url: Address such as `http://127.0.0.1:8000/v1`.
        answer_cache: Folder of the embeddings. Defaults to the answers' folder.
        settings: Further settings of `EndpointWriter`.

    Attributes:
        counts: Number of embeddings from the server and from the cache.
    """

    def __init__(self, model: str, *, base_url: str, answer_cache: str | None = None, **settings: Any) -> None:
        self.model = model
        self._writer = EmbeddingWriter(base_url, model=model, **settings)
        self._cache = AnswerCache(answer_cache)
        self.counts: Counter[str] = Counter()

    def embed(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Returns the embeddings `[n, D]` as the server sent them.

        Raises:
            EndpointError: If the endpoint does not work, or sends no embeddings for some names.
            ValueError: If embeddings differ in their size.
        """
        keys = {name: content_hash({"embedding_of": name, "model": self.model}) for name in names}
        texts = {name: reply.text for name, key in keys.items() if (reply := self._cache.get(key)) is not None}
        missing = [name for name in keys if name not in texts]
        self.counts += Counter({CACHED: len(texts), ASKED: len(missing)})
        batches = [missing[start : start + BATCH] for start in range(0, len(missing), BATCH)]
        requests = [Request(json.dumps(batch), seed=0, temperature=0.0, max_tokens=0) for batch in batches]
        for place, reply in self._writer.replies(requests):
            if reply.problem:
                raise EndpointError(
                    f"the endpoint sent no embeddings of {len(batches[place])} names, such as {batches[place][0]!r}: "
                    f"{reply.problem}. Check the server's limits, or pass another --encoder; the others are kept."
                )
            for name, text in zip(batches[place], json.loads(reply.text), strict=True):
                texts[name] = self._cache.put(keys[name], Reply(text)).text
        vectors = [np.frombuffer(b64decode(texts[name]), "<f4") for name in names]
        sizes = sorted({len(vector) for vector in vectors})
        if len(sizes) > 1:
            raise ValueError(
                f"--encoder endpoint:{self.model}: found embeddings of {' and '.join(map(str, sizes))} numbers, so "
                "the model behind this name has changed. Pass another --answer_cache, which requests all again."
            )
        return np.stack(vectors)


class EmbeddingWriter(EndpointWriter):
    """Sends requests whose prompt is a JSON list of names; a reply is the JSON list of their embeddings, in base64."""

    url_option, model_option, key_variable = "encoder_url", "encoder endpoint:", "HFCOMP_ENCODER_API_KEY"
    required, probe = ("model", "input"), '["a dog"]'
    most_bytes, expected = 32_000_000, "embeddings"

    @property
    def _resource(self) -> Any:
        return self._client.embeddings

    def _usual_body(self, request: Request) -> dict[str, Any]:
        return {"model": self._model, "input": parse_json(request.prompt)}

    def _read(self, body: bytes | None, request: Request) -> Reply:
        names = parse_json(request.prompt)
        if body is None:
            raise BadBody(f"more than {self.most_bytes // 10**6} MB for {len(names)} names")
        try:
            entries = _Embeddings.model_validate(parse_json(body)).data
            vectors = {entry.index: _vector(entry.embedding) for entry in entries}
        except (ValueError, ValidationError):
            raise BadBody("expected embeddings", body) from None
        if len(entries) != len(names) or vectors.keys() != {*range(len(names))}:
            raise BadBody(f"{len(entries)} embeddings, expected one for each of {len(names)} names")
        if len({len(vector) for vector in vectors.values()}) > 1 or not len(vectors[0]):
            raise BadBody("embeddings that differ in their size, or are empty")
        if not all(np.isfinite(vector).all() and vector.any() for vector in vectors.values()):
            raise BadBody("embeddings that are not finite, or all zeros")
        return Reply(json.dumps([b64encode(vectors[place].tobytes()).decode() for place in range(len(names))]))


class _Embedding(BaseModel):
    index: int
    embedding: list[float] | str


class _Embeddings(BaseModel):
    """The fields of a reply that are read."""

    data: list[_Embedding]


def _vector(embedding: list[float] | str) -> NDArray[np.float32]:
    """The numbers of an embedding, which a server sends as a list or as float32 in base64."""
    if isinstance(embedding, str):
        return np.frombuffer(b64decode(embedding, validate=True), "<f4")
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, which is an error
        return np.array(embedding, "<f4")
