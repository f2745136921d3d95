"""A language model from settings."""

from __future__ import annotations

import json

import pytest
from datasets import load_dataset

from hfcomp import cli
from hfcomp.factory.options import NegativeOptions
from hfcomp.factory.text_negatives import TextNegatives, check_kinds
from hfcomp.factory.writer_options import WriterOptions
from hfcomp.factory.writers.llm_client import build_llm_client
from tests.factory.writers.endpoint import Answer, completion, serving, text


@pytest.mark.parametrize("writer", ["substitute", "vllm"])
def test_a_writer_that_is_no_language_model_is_refused(writer, tmp_path):
    settings = WriterOptions(answer_cache=str(tmp_path)).writer_settings() | {"writer": writer}
    with pytest.raises(ValueError, match=f"writer '{writer}'"):
        build_llm_client(**settings)


pytest.importorskip("openai")
CAPTIONS = ["A red dog on a blue mat.", "A man under an old tree", "A red dog on a blue mat."]
ANSWERS = {
    "Replace one object": lambda caption: caption.replace("mat", "bed").replace("tree", "bridge"),
    "Replace one attribute": lambda caption: caption.replace("red", "green").replace("old", "young"),
    "Replace one relation": lambda caption: caption.replace(" on ", " beside ").replace("under", "above"),
    "Let two objects": lambda caption: caption.replace("dog", "DOG").replace("mat", "dog").replace("DOG", "mat"),
    "Let two attributes": lambda caption: caption.replace("red", "R").replace("blue", "red").replace("R", "blue"),
    "Add one object": lambda caption: f"{caption.rstrip('.')} with a hat",
    "Add one visible": lambda caption: caption.replace("dog", "striped dog").replace("man", "bald man"),
}


def edit(body) -> Answer:
    prompt = body["messages"][0]["content"]
    caption = prompt.rpartition("Caption: ")[2].partition("\n")[0]
    (way,) = [way for words, way in ANSWERS.items() if f"Change: {words}" in prompt]
    return Answer(completion(json.dumps({"caption": way(caption)})))


def make_negatives(folder, address, **settings):
    options = NegativeOptions(
        source="x", output=folder, kinds=("llm",), base_url=address, answer_cache=str(folder / "answers"), retries=0
    )
    settings = {"kinds": ["llm"], "num_negatives": 7, "writer": options.writer_settings(), **settings}
    columns = TextNegatives(**settings)({"caption": list(CAPTIONS)})
    pairs = zip(columns["negative_captions"], columns["negative_kinds"], strict=True)
    return [[(answer, kind) for answer, kind in zip(*row, strict=True) if answer] for row in pairs], columns


def test_each_part_is_asked_in_turn(tmp_path):
    with serving(edit) as server:
        rows, columns = make_negatives(tmp_path, server.base_url)
    assert {kind for _, kind in rows[0]} == {
        *("replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att", "add_obj", "add_att")
    }
    assert rows[0] == rows[2]
    assert ("A blue dog on a red mat.", "swap_att") in rows[0]
    assert ("A striped man under an old tree", "add_att") not in rows[1]
    assert len(rows[1]) == 5  # nothing to swap: the caption came back
    assert columns["_counts"][0]["answers refused: the caption itself"] > 0


def test_fewer_are_the_first_of_more(tmp_path):
    with serving(edit) as server:
        most, _ = make_negatives(tmp_path, server.base_url)
        for number in (1, 3):
            assert make_negatives(tmp_path, server.base_url, num_negatives=number)[0] == [row[:number] for row in most]


def test_a_model_that_is_always_wrong_costs_a_bounded_number_of_questions(tmp_path):
    with serving(text("no")) as server:
        rows, columns = make_negatives(tmp_path, server.base_url, num_negatives=2, attempts=2)
    assert rows == [[], [], []] and len(server.bodies) == 2 * 2  # two captions, and one of them twice
    assert columns["_counts"][0]["answers refused: not the JSON that was asked for"] == 4


def test_from_the_command_line(tmp_path, capsys):
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join(json.dumps({"caption": caption}) for caption in CAPTIONS))
    with serving(edit) as server:
        words = ["--source", str(source), "--kinds", "llm:replace_obj,keyword:color", "--num_negatives", "2"]
        words += ["--base_url", server.base_url, "--llm", "m", "--answer_cache", str(tmp_path / "answers")]
        cli.main(["build", "negatives", *words, "--output", str(tmp_path / "set")])
    rows = load_dataset(str(tmp_path / "set"), split="train")
    assert rows["negative_kinds"][0] == ["replace_obj", "keyword_color"]
    assert rows["negative_captions"][0][0] == "A red dog on a blue bed."
    stage = json.loads((tmp_path / "set" / "manifest.json").read_text())["plan"]["stages"]["1 negatives"]
    assert stage["llm"] == "m" and stage["prompts"].startswith("negatives.yaml sha256:") and stage["attempts"] == 3
    card = (tmp_path / "set" / "README.md").read_text()
    assert "127.0.0.1" not in card and "--kinds llm:replace_obj,keyword:color" in card


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs --base_url"),
        ({"base_url": "nothing"}, "expected an address"),
        ({"base_url": "http://a:b@c/v1"}, "a user or password"),
        ({"writer": "substitute"}, "--kinds keyword"),
        ({"writer": "transformers", "base_url": "http://c/v1"}, "--base_url .*--writer endpoint"),
        ({"base_url": "http://c/v1", "temperature": -1.0}, "temperature"),
        ({"base_url": "http://c/v1", "llm_timeout": 0.0}, "llm_timeout"),
        ({"base_url": "http://c/v1", "concurrency": 0}, "concurrency"),
        ({"kinds": ("keyword",), "base_url": "http://c/v1"}, "base_url .*llm"),
    ],
)
def test_options_that_do_not_fit(tmp_path, given, message):
    with pytest.raises(ValueError, match=message):
        NegativeOptions(**{"source": "x", "output": tmp_path, "kinds": ("llm",), **given})


def test_unknown_parts_are_named():
    with pytest.raises(ValueError, match="replace_obj"):
        check_kinds(["llm:replace_object"])
