"""Phrases by a language model: what is asked, what is found again in the caption, and what is refused and counted."""

from __future__ import annotations

import json

import pytest
from datasets import load_dataset

from hfcomp.factory.build import build_set
from hfcomp.factory.concepts import make_written_concepts
from hfcomp.factory.options import ConceptOptions
from hfcomp.factory.shards import COUNTS
from hfcomp.factory.writers import backoff
from hfcomp.factory.writers.phrases import locate_phrases
from hfcomp.factory.writers.requests import Refused, Reply, answered_phrases
from hfcomp.testing import write_tiny_llama
from tests.factory.builds import hashes
from tests.factory.writers.endpoint import Answer, completion, serving


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(backoff, "PAUSE", 0.01)


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("1. a red dog\n2. two cats", ["a red dog", "two cats"]),
        ("Here are the phrases:\n\n- a red dog\n* two cats", ["a red dog", "two cats"]),
        ("```\n1) a dog\n```", ["a dog"]),
        ("<think>hm</think>none", []),
        ("1. None.", []),
    ],
)
def test_a_list_in_lines(text, phrases):
    assert answered_phrases(Reply(text), plain=True) == phrases
    assert answered_phrases(Reply(json.dumps({"phrases": phrases})), plain=False) == phrases


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a red dog", "not a list"),
        ("1. a red dog\nI left out the street.", "not a list"),
        ("I'm sorry, I cannot.", "refuses in words"),
        ("1. **a red dog**", "markup"),
        ("1. Caption: a red dog", "repeats the prompt"),
        ("<think>1. a dog", "only reasoning"),
    ],
)
def test_what_is_no_list_is_refused(text, reason):
    with pytest.raises(Refused, match=reason):
        answered_phrases(Reply(text), plain=True)
    for other in ('{"phrases": "a dog"}', '{"phrases": [1]}', '["a dog"]', '{"phrases": [["a dog"]]}'):
        with pytest.raises(Refused, match="not the JSON"):
            answered_phrases(Reply(other), plain=False)


def located(caption: str, *texts: str) -> list[str]:
    """Phrases as the caption has them, which their spans must show."""
    phrases = locate_phrases(caption, texts).phrases
    for phrase in phrases:
        assert " ".join(" ".join(caption[a:b] for a, b in phrase.spans).split()) == phrase.text
    return [phrase.text for phrase in phrases]


@pytest.mark.parametrize(
    ("caption", "texts", "expected"),
    [
        ("A woman in a Red  dress.", ["red dress", "a woman"], ["A woman", "Red dress"]),
        ("a dog by fireplace", ["the fireplace."], ["fireplace"]),
        ("the man’s hat", ["the man's hat"], ["the man’s hat"]),
        ("one red and two blue cups", ["one red cups", "two blue cups"], ["one red cups", "two blue cups"]),
        ("a red, a green and a blue cup", ["a green cup", "a red cup"], ["a red cup", "a green cup"]),
        ("a t-shirt", ["shirt", "a t-shirt"], ["a t-shirt"]),
        ("a (very) odd [dog].*", ["a (very) odd [dog].*"], ["a (very) odd [dog].*"]),
        ("a red dog near and far from the old cat of his aunt", ["a red cat"], None),
        ("a catalog", ["a cat"], None),
        ("a dog", ["a cat", "a bird", "a dog"], "more phrases than words"),
        ("A dog and the cat", ["A", "the", "the cat"], ["the cat"]),  # an article names nothing
        ("it rains", [], []),
    ],
)
def test_only_what_the_caption_contains(caption, texts, expected):
    if isinstance(expected, list):
        assert located(caption, *texts) == expected
    else:
        with pytest.raises(Refused, match=expected or "not in the caption"):
            locate_phrases(caption, texts)


def test_hostile_phrases_take_no_time():
    with pytest.raises(Refused):
        locate_phrases("a and " * 1600, [f"{'a ' * 19}z"] * 100 + ["a " * 4000])


CAPTIONS = ["A man in a red hat and a dog", "a dog near  its own small bed", "it is late", "a cat", "", "a cat"]
WRITTEN = {
    CAPTIONS[0]: ["A man", "a red hat", "a blue dog", "A dog", "a dog"],
    "a dog near its own small bed": ["a dog", "small bed"],
    "it is late": [],
}


def answer(body) -> Answer:
    """What is written, at the second attempt; nothing usable about cats."""
    caption = body["messages"][0]["content"].rpartition("Caption: ")[2].partition("\n")[0]
    is_second = body["temperature"] > 0 or caption == "it is late"
    return Answer(completion(json.dumps({"phrases": WRITTEN.get(caption, ["a bird"]) if is_second else ["the moon"]})))


def build(folder, base_url: str, out: str):
    given = {"writer": "endpoint", "attempts": 2, "retries": 0, "answer_cache": str(folder / "cache")}
    (folder / "rows.jsonl").write_text("".join(json.dumps({"caption": text}) + "\n" for text in CAPTIONS))
    places = {"source": str(folder / "rows.jsonl"), "output": folder / out}
    return build_set(ConceptOptions(**places, **given, base_url=base_url, max_concepts=2), log=lambda _: None)


def test_a_build_asks_again_counts_and_gives_the_same_bytes_from_the_cache(tmp_path):
    pytest.importorskip("openai")
    with serving(answer) as server:
        first = build(tmp_path, server.base_url, "a")
        schema = server.bodies[0]["response_format"]["json_schema"]["schema"]["properties"]
    assert schema == {"phrases": {"type": "array", "items": {"type": "string"}}}
    rows = load_dataset(str(first.folder), split="train")
    assert rows["concepts"][:] == [["A man", "a red hat"], ["a dog", "small bed"], [], [], []]
    manifest = first.chains["default"][0].manifest
    assert manifest["counts"] == {
        "answers refused: not in the caption": 6,  # two of the first attempts, four about the cats
        "captions: without a phrase": 3,
        "captions: without a usable answer": 2,
        "concepts: cut by max_concepts": 1,
        "concepts: written": 4,
        "phrases left out: not in the caption": 1,
        "phrases left out: repeated": 1,
    }
    (stage,) = (stage for stage in manifest["plan"]["stages"].values() if stage["name"] == "concepts")
    assert "Phi-3.5" in json.dumps(stage) and "127.0.0.1" not in json.dumps(manifest)
    with serving(lambda body: Answer(completion("no JSON"))) as server:
        second = build(tmp_path, server.base_url, "b")
        assert not server.bodies
    assert hashes(second.folder) == hashes(first.folder)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"llm": "gpt2"}, "--llm has no effect: --writer parser uses no language model"),
        ({"seed": 1}, "--seed has no effect"),
        ({"device": "cpu"}, "--device needs --writer transformers"),
        ({"writer": "endpoint"}, "needs --base_url.*Or choose --writer parser"),
        ({"writer": "endpoint", "base_url": "http://x/v1", "parser": "rules"}, "--parser needs --writer parser"),
    ],
)
def test_options_without_an_effect_are_refused(tmp_path, given, message):
    with pytest.raises(ValueError, match=message):
        ConceptOptions(source="x", output=tmp_path, **given)


def test_a_small_model_that_knows_nothing_leaves_captions_without_phrases(tmp_path):
    model = write_tiny_llama(tmp_path / "llama")
    given = ConceptOptions(source="x", output=tmp_path, writer="transformers", llm=model, answer_cache=tmp_path / "b")
    stage = make_written_concepts(writer=given.writer_settings(), attempts=2, device="cpu")
    batch = stage({"caption": ["a dog under a table"] * 2})
    assert batch["concepts"] == [[], []] and batch["concept_spans"] == [[], []]
    counts = batch[COUNTS][0]
    assert counts["captions: without a usable answer"] == 2
    assert sum(number for name, number in counts.items() if name.startswith("answers refused: ")) == 4
