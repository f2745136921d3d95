"""Embeddings of names from a server on loopback: batches, the cache, and replies that cannot be used (about 3 s)."""

from __future__ import annotations

import json
import math
from base64 import b64encode

import numpy as np
import pytest

from hfcomp.factory.writers import backoff
from hfcomp.factory.writers.embeddings import BATCH, EmbeddingClient
from hfcomp.factory.writers.endpoint import EndpointError
from tests.factory.writers.endpoint import Answer, serving

pytest.importorskip("openai")
NAMES = [f"name {number}" for number in range(2 * BATCH + 5)]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(backoff, "PAUSE", 0.01)


def numbers(name: str) -> list[float]:
    """The embedding of a name, which float32 holds exactly."""
    return [float(len(name)), float(ord(name[-1])), 0.5]


def entries(names: list[str]) -> list[dict]:
    return [{"index": place, "embedding": numbers(name)} for place, name in enumerate(names)]


def embeds(body: dict) -> Answer:
    """A reply in reverse order: the index counts."""
    return Answer({"data": entries(body["input"])[::-1]})


def in_base64(body: dict) -> Answer:
    data = [b64encode(np.array(numbers(name), "<f4").tobytes()).decode() for name in body["input"]]
    return Answer({"data": [{"index": place, "embedding": text} for place, text in enumerate(data)]})


def client(base_url: str, cache, model: str = "m", **settings) -> EmbeddingClient:
    return EmbeddingClient(model, base_url=base_url, answer_cache=str(cache), retries=0, timeout=10.0, **settings)


@pytest.mark.parametrize("answer", [embeds, in_base64])
def test_names_are_sent_in_batches_and_each_one_once(answer, tmp_path):
    with serving(answer) as server:
        vectors = client(server.base_url, tmp_path).embed([*NAMES, NAMES[3]])
        np.testing.assert_array_equal(vectors, np.array([numbers(name) for name in [*NAMES, NAMES[3]]], np.float32))
        assert sorted(len(body["input"]) for body in server.bodies) == [5, BATCH, BATCH]
        assert {body["model"] for body in server.bodies} == {"m"}
        assert sorted(name for body in server.bodies for name in body["input"]) == sorted(NAMES)
        again = client(server.base_url, tmp_path)
        np.testing.assert_array_equal(again.embed([*NAMES, "new", NAMES[3]])[:-2], vectors[:-1])
        assert [body["input"] for body in server.bodies[3:]] == [["new"]]
        assert dict(again.counts) == {"answers from the model": 1, "answers from the cache": len(NAMES)}
        client(server.base_url, tmp_path, model="another").embed(NAMES[:1])
        assert len(server.bodies) == 5


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lambda names: entries(names)[1:], "0 embeddings, expected one for each of 1 names"),
        (lambda names: [*entries(names), *entries(names)], "2 embeddings, expected one"),
        (lambda names: [{"index": 7, "embedding": [1.0]}], "1 embeddings, expected one"),
        (lambda names: [{"index": 0, "embedding": []}], "differ in their size, or are empty"),
        (lambda names: [{"index": 0, "embedding": [1.0, 1e39]}], "not finite"),
        (lambda names: [{"index": 0, "embedding": [0.0, 0.0]}], "all zeros"),
        (lambda names: [{"index": 0, "embedding": "no base64"}], "expected embeddings, found"),
        (lambda names: [{"index": 0, "embedding": [[1.0]]}], "expected embeddings, found"),
        (lambda names: "text", "expected embeddings, found"),
    ],
)
def test_replies_that_are_no_embeddings_stop_the_build_and_are_not_kept(data, said, tmp_path, monkeypatch):
    monkeypatch.setenv("HFCOMP_ENCODER_API_KEY", "secret-123")
    monkeypatch.setenv("HFCOMP_LLM_API_KEY", "of-the-writer")
    with serving(lambda body: Answer({"data": data(body["input"])})) as server:
        checked = r".*--encoder_url, --encoder endpoint:m and HFCOMP_ENCODER_API_KEY; answers so far are kept"
        with pytest.raises(EndpointError, match=f"{said}{checked}") as error:
            client(server.base_url, tmp_path).embed(["a"])
    assert "secret" not in str(error.value) and not list(tmp_path.rglob("*.json"))
    assert {headers["authorization"] for headers in server.headers} == {"Bearer secret-123"}


def test_nan_in_a_list_is_no_number(tmp_path):
    body = json.dumps({"data": [{"index": 0, "embedding": [math.nan]}]}).encode()
    with serving(lambda _: Answer(body)) as server, pytest.raises(EndpointError):
        client(server.base_url, tmp_path).embed(["a"])


@pytest.mark.follows("hfcomp/factory/writers/embeddings.py", "limits, or pass another --encoder;")
def test_a_batch_that_the_server_refuses_names_a_name_and_the_others_are_kept(tmp_path):
    def answer(body):
        is_refused = body["model"] == "m" and "name 40" in body["input"]
        return Answer({"error": {"message": "too long"}}, 413) if is_refused else embeds(body)

    with serving(answer) as server:
        with pytest.raises(EndpointError, match="no embeddings of 32 names, such as 'name 32': .*code 413"):
            client(server.base_url, tmp_path, concurrency=1).embed(NAMES)
        before = len(server.bodies)
        client(server.base_url, tmp_path).embed(NAMES[:BATCH])
        assert len(server.bodies) == before
        assert len(client(server.base_url, tmp_path, model="another").embed(NAMES)) == len(NAMES)


@pytest.mark.follows("hfcomp/factory/writers/embeddings.py", "Pass another --answer_cache, which requests all again.")
def test_a_model_that_changes_its_size(tmp_path, advice):
    with serving(embeds) as server:
        client(server.base_url, tmp_path / "a").embed(["a"])
    with serving(lambda body: Answer({"data": [{"index": 0, "embedding": [1.0]}]})) as server:
        advice.of(client(server.base_url, tmp_path / "a").embed, ["a", "b"])
        assert client(server.base_url, tmp_path / "b").embed(["b"]).shape == (1, 1)
