"""Evaluation on a set of the user's own: items by image, the first existing negative, missing splits early."""

from __future__ import annotations

import json
from dataclasses import replace

import datasets
import numpy as np
import pytest

from hfcomp.evaluation.blind.encoders import BlindEncoder
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.prepare import prepare_concepts, prepare_evaluation
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.study import evaluation_scoring
from tests import tiny


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("own")
    rows = tiny.pairs(9)
    rows = rows.map(lambda row, index: {"image_id": f"image-{index // 3}"}, with_indices=True)
    datasets.DatasetDict({"train": rows, "test": rows}).save_to_disk(folder)
    return str(folder)


def evaluation(source: str, **changes):
    config = ExperimentConfig(objective="x:y", method="m", dataset=source, batch_size=2, evaluation="own", **changes)
    logged: list[str] = []
    return prepare_evaluation(config, column_names=None, seed=0, log=logged.append), logged


def test_retrieval_and_choice_of_the_held_out_split(source, clip):
    evaluate, logged = evaluation(source)
    items = evaluate(Embedder(clip, device="cpu"))
    assert set(items["metric"]) == {"caption choice", "text-to-image recall@1", "image-to-text recall@1"}
    assert items.groupby("metric").size().tolist() == [9, 9, 9]
    assert set(items["image_id"]) == {"image-0", "image-1", "image-2"}
    assert logged == [f"evaluation: 9 rows of {source} (test), 9 with a negative"]


def test_stored_outcomes_know_the_items_that_they_are_of(tmp_path):
    stamps = []
    for caption in ("a red dog", "a red dog", "a red cat"):
        folder = tmp_path / str(len(stamps)) / "own"
        rows = tiny.pairs(2).remove_columns("caption").add_column("caption", [caption, "a horse"])
        datasets.DatasetDict(test=rows).save_to_disk(folder)
        evaluate, _ = evaluation(str(folder))
        recipe = read_recipe("slipform", [])
        stamps.append(evaluation_scoring(recipe.experiment, evaluate, recipe.column_names).stamp)
    assert stamps[0] == stamps[1] != stamps[2]


def test_benchmarks_are_scored_beside_the_sandbox(clip):
    settings = {"objective": "x:y", "method": "m", "dataset": "sandbox", "batch_size": 2, "evaluation_items": 2}
    levels = ["sandbox_levels"]
    config = ExperimentConfig(**settings, evaluation="sandbox+benchmarks", evaluation_benchmarks=levels)
    items = prepare_evaluation(config, column_names=None, seed=0, log=[].append)(Embedder(clip, device="cpu"))
    assert {"sandbox retrieval", "sandbox levels", "sandbox levels, hard"} <= set(items["benchmark"])
    with pytest.raises(ValueError, match=r"sandbox\+benchmarks .*evaluation_benchmarks"):
        ExperimentConfig(**settings, evaluation="sandbox+benchmarks")


def test_a_missing_split_is_told_before_anything_is_trained(source):
    with pytest.raises(ValueError, match="'validation'.*train, test"):
        evaluation(source, evaluation_split="validation")


@pytest.mark.parametrize("empty", ["", None, "  "])
def test_an_empty_caption_is_named_before_anything_is_trained(tmp_path, empty):
    rows = tiny.pairs(3).remove_columns("caption").add_column("caption", ["one", "two", empty])
    datasets.DatasetDict({"test": rows}).save_to_disk(tmp_path)
    with pytest.raises(ValueError, match="'caption', row 2: .*string"):
        evaluation(str(tmp_path))


class Cutting(BlindEncoder):
    """An encoder whose text tower is too short for four texts."""

    def index_texts(self, texts, **_):
        return replace(super().index_texts(texts), flagged=4)


def test_cut_texts_are_told_once_for_all_models(source):
    evaluate, logged = evaluation(source)
    for _ in range(3):
        evaluate(Cutting(*[lambda _: np.ones(1, dtype=np.float32)] * 2))
    assert [line for line in logged if "were cut" in line] == [
        "evaluation: 4 texts are longer than the text tower and were cut"
    ]


@pytest.fixture
def coco(tmp_path) -> str:
    """Two images of COCO val2017, as its authors' files have them: one caption with a color, one with a place."""
    names, texts = ["a.png", "b.png"], ["a red cat", "a cat on the left"]
    entries = {
        "images": [{"id": number, "file_name": name} for number, name in enumerate(names)],
        "annotations": [{"image_id": number, "caption": text} for number, text in enumerate(texts)],
    }
    (tmp_path / "captions_val2017.json").write_text(json.dumps(entries))
    (tmp_path / "val2017").mkdir()
    for name, row in zip(names, tiny.pairs(2), strict=True):
        row["image"].save(tmp_path / "val2017" / name)
    return str(tmp_path)


def concepts(coco: str, *main: str):
    names = ["keywords_coco", "coco2017_retrieval"]
    data = [f"{name}={coco}" for name in names]
    changes = {"evaluation_benchmarks": names, "evaluation_data": data, "evaluation": "benchmarks"}
    config = ExperimentConfig(objective="x:y", method="m", dataset="any", batch_size=2, **changes)
    return prepare_concepts(config, ("color", "location"), main=main, log=lambda note: None)


def test_a_concept_is_scored_on_its_own_items_and_a_brief_evaluation_on_the_main_benchmarks(coco, clip, monkeypatch):
    evaluate, encoded, embedder = concepts(coco, "Keywords, COCO"), [], Embedder(clip, device="cpu")
    index_texts = embedder.index_texts
    monkeypatch.setattr(
        embedder, "index_texts", lambda texts, **more: encoded.append(texts) or index_texts(texts, **more)
    )
    outcomes = evaluate["location"].select_benchmarks(["Keywords, COCO"])(embedder)
    assert {(line["benchmark"], line["subset"], line["item"]) for _, line in outcomes.iterrows()} == {
        ("Keywords, COCO", "location", "b.png/0")
    }
    assert [sorted(texts) for texts in encoded] == [["a cat on the left", "a cat on the right"]]
    whole = evaluate["color"](embedder)
    assert set(whole["benchmark"]) == {"Keywords, COCO", "COCO 2017 retrieval"}
    assert set(whole[whole["benchmark"] == "Keywords, COCO"]["item"]) == {"a.png/0"}


def test_a_main_benchmark_that_is_not_asked_for_is_named_before_anything_is_loaded(coco):
    with pytest.raises(ValueError, match="'Keywords'.*evaluation_benchmarks: Keywords, COCO; COCO 2017 retr"):
        concepts(coco, "Keywords")


def test_a_benchmark_that_is_unavailable_is_skipped_with_its_reason(coco, clip):
    settings = {"objective": "x:y", "method": "m", "dataset": "any", "batch_size": 2, "evaluation": "benchmarks"}
    names, data, logged = ["magic", "coco2017_retrieval"], [f"coco2017_retrieval={coco}"], []
    config = ExperimentConfig(**settings, evaluation_benchmarks=names, evaluation_data=data)
    evaluate = prepare_evaluation(config, column_names=None, seed=0, log=logged.append)
    reason = "evaluation: magic is unavailable: MAGIC is not released."
    assert [note for note in logged if note.startswith(reason) and note.endswith("skipped.")]
    assert set(evaluate(Embedder(clip, device="cpu"))["benchmark"]) == {"COCO 2017 retrieval"}
    with pytest.raises(ValueError, match="evaluation: none .*magic"):
        alone = ExperimentConfig(**settings, evaluation_benchmarks=["magic"])
        prepare_evaluation(alone, column_names=None, seed=0, log=logged.append)


def test_a_main_benchmark_of_a_study_is_not_skipped(coco):
    settings = {"objective": "x:y", "method": "m", "dataset": "any", "batch_size": 2, "evaluation": "benchmarks"}
    names = ["magic", "coco2017_retrieval"]
    config = ExperimentConfig(**settings, evaluation_benchmarks=names, evaluation_data=[f"coco2017_retrieval={coco}"])
    with pytest.raises(ValueError, match="evaluation: magic .*: MAGIC "):
        prepare_concepts(config, (), main=("MAGIC levels",), log=lambda note: None)
