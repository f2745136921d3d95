"""Benchmarks that are loaded once: whose mistake is an error, and what is noted once (under 2 s)."""

from __future__ import annotations

from dataclasses import replace

import datasets
import numpy as np
import pytest

from hfcomp.evaluation.blind.encoders import BlindEncoder
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.evaluation.items.scored_images import benchmark_images
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.spec import Benchmark, BenchmarkData, Folders, Origin, data_folders
from tests import tiny


class Form:
    """Two items, read from anywhere; `error` is wrong with them."""

    layout = "two items"

    def __init__(self, error: str = "") -> None:
        self.error = error

    def local(self, folder, folders):
        return self.remote(folders)

    def remote(self, folders):
        if self.error:
            raise ValueError(self.error)
        image = datasets.Image().encode_example(tiny.image(0))
        rows = [{"caption": "a red cube", "negative_captions": ["a blue cube"]}] * 2
        return BenchmarkData(datasets.Dataset.from_list(rows), Origin("here"), {"image": [image, image]})


def benchmark(name: str = "odd", error: str = "", **settings) -> Benchmark:
    about = {"title": name.title(), "suite": "compositional", "paper": "", "license": "", "obtain": "Ask for it."}
    return Benchmark(name=name, protocol=CaptionChoice(), data=(Form(error),), **{**about, **settings})


def test_wrong_data_of_others_is_skipped_unless_strict_and_ones_own_never(tmp_path):
    evaluator, wrong = Evaluator([].append), benchmark(error="row 3 has no caption", folder="shared")
    evaluator.load([wrong, benchmark("even")], strict=False)
    assert [entry.title for entry in evaluator.loaded] == ["Even"]
    assert evaluator.skipped == [
        {"benchmark": "odd", "reason": "failed: row 3 has no caption", "how_to_fix": "Ask for it."}
    ]
    with pytest.raises(ValueError, match="row 3 .*no caption"):
        evaluator.load([wrong])
    for name in ("odd", "shared"):
        with pytest.raises(ValueError, match="row 3 .*no caption"):
            evaluator.load([wrong], Folders(own={name: tmp_path}), strict=False)


class Cutting(BlindEncoder):
    """An encoder whose text tower is too short for one of two texts, and which sees one image without an extent."""

    def __init__(self) -> None:
        super().__init__(*[lambda _: np.ones(1, dtype=np.float32)] * 2)

    def index_texts(self, texts, **_):
        return replace(super().index_texts(texts), flagged=1, merged=1)

    def index_images(self, images, **_):
        return replace(super().index_images(images), flagged=1)


def test_what_is_cut_is_noted_once_for_a_benchmark_or_for_each_model_that_is_named():
    log: list[str] = []
    evaluator = Evaluator(log.append)
    evaluator.load([benchmark()])
    for _ in range(2):
        assert len(evaluator(Cutting())) == 2
    tiny_image = "odd: 1 images are one pixel wide or high, as failed downloads are"
    cut = "odd: 1 texts are longer than {} and were cut, 1 of them to the tokens of another text"
    assert log == evaluator.notes == [cut.format("the text tower"), tiny_image]
    for name in ("a", "b"):
        list(evaluator.score(Cutting(), model=name, progress=False))
    assert log[2:] == [cut.format(f"{name}'s text tower") for name in ("a", "b")]


def test_folders_are_there_and_used():
    with pytest.raises(ValueError, match="folders: found 'sugarcrepe=nowhere'.*NAME=DIR"):
        benchmark_images(["sugarcrepe"], {"sugarcrepe": "nowhere"})
    with pytest.raises(ValueError, match="nowhere .*not a folder"):
        benchmark_images(["sugarcrepe"], "nowhere")
    folders = data_folders({"odd": "/", "evn": "/"}, option="data")
    Evaluator([].append).load([benchmark(), benchmark("even")], folders)
    with pytest.raises(ValueError, match="data: .*'evn'.*'even'"):
        folders.check_used("data")
