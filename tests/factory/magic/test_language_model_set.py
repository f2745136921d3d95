"""A whole set by a language model on loopback: wrong answers, and the same bytes from the cache (about 10 s)."""

from __future__ import annotations

import json
import random
import re

import pytest

from hfcomp.data.loading import load_training_set
from hfcomp.factory.build import build_set
from hfcomp.factory.magic.hierarchy import read_hierarchy
from hfcomp.factory.writers import backoff
from tests.factory.builds import hashes
from tests.factory.magic.sets import WORDS, options, source
from tests.factory.writers.endpoint import Answer, completion, serving

pytest.importorskip("openai")

PARENTS = {
    "dog": "pet",
    "cat": "dog's friend",
    "誕生日会": "celebration",
    "pizza": "meal",
    "pet": "Pets",  # the concept itself, each time: it leads nowhere
    "dog's friend": "Animals",
    "celebration": "dessert",
    "meal": "dessert",
    "animal": "cat",  # a name that comes again below it
    "dessert": "food",
}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(backoff, "PAUSE", 0.01)


class Model:
    """Answers by the script, but now and then with a list, a sentence or no JSON, as it is drawn."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __call__(self, body) -> Answer:
        prompt = body["messages"][0]["content"]
        if self._random.random() < 0.3:
            wrong = ['{"concept": "dog, cat"}', '["dog"]', '{"concept": "This is a dog."}', "a dog", '{"concept": 3}']
            return Answer(completion(self._random.choice(wrong)))
        if "More general concept:" in prompt:
            content = {"concept": PARENTS[re.findall(r"^Concept: (.*)$", prompt, re.MULTILINE)[-1]]}
        elif "Generalised caption:" in prompt:
            content = {"caption": f"An image of kind {self._random.randrange(100)}."}
        else:
            word = next(candidate for candidate in reversed(re.findall(r"\w+", prompt)) if candidate in WORDS)
            content = {
                "concept": "誕生日会" if word == "cake" else self._random.choice([word, f"{word}s", f"The {word}."])
            }
        return Answer(completion(json.dumps(content)))


def test_wrong_answers_are_asked_again_and_the_cache_gives_the_same_bytes(tmp_path):
    place = source(tmp_path / "source", per_concept=5)
    given = {"writer": "endpoint", "taxonomy": None, "attempts": 12, "retries": 0, "llm": "m", "prompts": "ours"}
    given["answer_cache"] = str(tmp_path / "cache")
    with serving(Model(0)) as server:
        first = build_set(options(place, tmp_path / "first", base_url=server.base_url, **given), log=lambda _: None)
        asked = len(server.bodies)
    hierarchy = read_hierarchy(first.folder)
    assert {concept.name: concept.chain[1:] for concept in hierarchy.concepts} == {
        "誕生日会": ("celebration", "dessert", "food"),
        "pizza": ("meal", "dessert", "food"),
    }
    assert {removal.name: removal.reason for removal in hierarchy.removed} == {
        "cat": "no parent on level 4",
        "dog": "no parent on level 3",
    }
    assert [(cut.name, cut.parent) for cut in hierarchy.cuts] == [("animal", "cat")]
    assert hierarchy.refused["the concept itself"] > 3 and hierarchy.refused["a list of names"]
    assert first.rows == 10
    with serving(Model(1)) as server:  # would answer otherwise
        again = {**given, "concurrency": 1}
        second = build_set(options(place, tmp_path / "second", base_url=server.base_url, **again), log=lambda _: None)
        assert not server.bodies and asked > 50
    assert hashes(second.folder) == hashes(first.folder)


def test_a_set_by_the_released_prompts_with_several_captions_per_image(tmp_path):
    def answer(body) -> Answer:
        _, _, end = body["messages"][0]["content"].rpartition("Captions:\n")
        if concept := re.search(r"General idea of (.*):$", end):
            return Answer(completion(json.dumps({"concept": f"{concept[1]} kind"})))
        if caption := re.search(r"Caption to paraphrase: (.*)$", end, re.MULTILINE):
            return Answer(completion(json.dumps({"caption": f"In general: {caption[1]}"})))
        return Answer(completion(json.dumps({"concept": next(word for word in WORDS if word in end).title()})))

    place = source(tmp_path / "source", per_concept=5)
    given = {"writer": "endpoint", "taxonomy": None, "llm": "m", "answer_cache": str(tmp_path / "cache")}
    with serving(answer) as server:
        settings = {**given, "base_url": server.base_url, "captions_per_image": 5}
        built = build_set(options(place, tmp_path / "set", **settings), log=lambda _: None)
    chains = [concept.chain for concept in read_hierarchy(built.folder).concepts]
    assert chains == [tuple(f"{word}{' kind' * level}" for level in range(4)) for word in sorted(WORDS)]
    parents = [prompt for body in server.bodies if "Concepts so far" in (prompt := body["messages"][0]["content"])]
    # about each concept with the captions of its first image
    expected = {f"- A red {word} on the table\n- the {word} number {row}\nC" for row, word in enumerate(WORDS)}
    assert (
        len(parents) == 12
        and {prompt.rpartition("Captions:\n")[2].partition("oncepts so")[0] for prompt in parents} == expected
    )
    for row in load_training_set(str(built.folder)):
        assert row["generalized_caption"] == [f"In general: {caption}" for caption in row["caption"]]
    assert "concepts_released.yaml sha256:" in (built.folder / "README.md").read_text()
