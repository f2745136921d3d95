"""A set of the user's own: what is right for what, the first negative that exists, and errors that name the row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from hfcomp.evaluation import own_benchmark
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.encoding.embed import Embedder, Indexed
from hfcomp.evaluation.engine import run_benchmark, validate
from hfcomp.evaluation.loaded import Loaded
from hfcomp.evaluation.protocols.retrieval import same_image_or_caption
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import BenchmarkData
from tests import tiny

IDS = ["a", "a", "b", "b", "c", "c"]
TEXTS = ["one", "two", "three", "four", "five", "one"]


def save_rows(folder: Path, **columns: Any) -> str:
    """The split `test` of six rows, with other columns."""
    rows = tiny.pairs(6).remove_columns([name for name in columns if name in tiny.pairs(6).column_names])
    for name, values in columns.items():
        rows = rows.add_column(name, values)
    datasets.DatasetDict({"test": rows}).save_to_disk(folder)
    return str(folder)


def load(source: str, **options: Any) -> BenchmarkData:
    benchmark = own_benchmark(source, **options)
    return validate(benchmark, load_items(benchmark))


class Scripted:
    """An encoder of given vectors, by row and by text."""

    def __init__(self, image: Any, texts: dict[str, list[float]]) -> None:
        self.image, self.by_text = np.asarray(image, dtype=np.float32), texts

    def index_images(self, images: Any, *, column: str = "image", progress: bool = False) -> Indexed:
        return Indexed(self.image, np.arange(len(self.image)), 0, 0)

    def index_texts(self, texts: Any, *, progress: bool = False) -> Indexed:
        vectors = np.asarray([self.by_text.get(text, [0.0, 0.0, 0.0]) for text in texts], dtype=np.float32)
        return Indexed(vectors, np.arange(len(texts)), 0, 0)


def score(source: str, encoder: Any) -> Any:
    benchmark = own_benchmark(source)
    return run_benchmark(benchmark, validate(benchmark, load_items(benchmark)), encoder).items


def test_the_values_are_those_of_the_scores(tmp_path, clip):
    source = save_rows(tmp_path, image_id=IDS)
    items, embedder = score(source, Embedder(clip, device="cpu")), Embedder(clip, device="cpu")
    assert items.groupby("metric", sort=False).size().to_dict() == {
        "caption choice": 6,
        "text-to-image recall@1": 6,
        "image-to-text recall@1": 6,
    }
    assert items.groupby("metric")["aspect"].first().to_dict() == {
        "caption choice": "composition",
        "text-to-image recall@1": "general",
        "image-to-text recall@1": "general",
    }
    value, rows = items.set_index(["metric", "item"])["value"], tiny.pairs(6)
    image, text = embedder.images(rows["image"][:]), embedder.texts(rows["caption"][:]).vectors
    negative = embedder.texts([texts[0] for texts in rows["negative_captions"]]).vectors
    for row in range(6):
        assert value["caption choice", str(row)] == float(image[row] @ text[row] > image[row] @ negative[row])
        assert value["image-to-text recall@1", str(row)] == float(IDS[np.argmax(text @ image[row])] == IDS[row])


def test_rows_that_share_an_image_or_a_caption_are_right_for_each_other():
    positive = same_image_or_caption(IDS, TEXTS)
    for row, (name, text) in enumerate(zip(IDS, TEXTS, strict=True)):
        for other in range(6):
            assert positive[row, other] >= (name == IDS[other] or text == TEXTS[other])
    assert positive[0].tolist() == [True, True, False, False, True, True]  # "one" is of a and of c
    assert positive[1].tolist() == [True, True, False, False, False, False]


def test_copies_of_an_image_cost_no_recall_and_chance_counts_them(tmp_path):
    place = {"a": [1, 0, 0], "b": [0, 1, 0], "c": [0, 0, 1]}
    by_text = {text: place[name] for name, text in zip(IDS, TEXTS, strict=True)}
    items = score(save_rows(tmp_path, image_id=IDS, caption=TEXTS), Scripted([place[name] for name in IDS], by_text))
    recall = items[items["metric"].str.contains("recall")]
    assert recall["value"].all()
    assert set(recall["chance"]) == {same_image_or_caption(IDS, TEXTS).mean()}


def test_a_constant_model_has_no_recall_on_rows_that_share_images(tmp_path):
    items = score(save_rows(tmp_path, image_id=IDS, caption=TEXTS), Scripted(np.zeros((6, 3)), {}))
    assert not items["value"].any()


def test_a_row_without_an_id_is_of_its_file_and_one_without_a_negative_has_no_choice(tmp_path):
    negatives = [["x"], ["", "y", "z"], [], [""], ["x", "y"], None]
    data = load(save_rows(tmp_path, image_id=["a", None, "b", "b", None, "c"], negative_captions=negatives))
    ids = data.rows["image_id"][:]
    assert [ids[row] for row in (0, 2, 3, 5)] == ["a", "b", "b", "c"] and len(set(ids)) == 5
    assert data.rows["negative_captions"][:] == [["x"], ["y"], [], [], ["x"], []]
    assert data.notes[-1].endswith("3 with a negative")
    items = score(str(tmp_path), Scripted(np.zeros((6, 3)), {}))
    assert list(items[items["metric"] == "caption choice"]["item"]) == ["0", "1", "4"]


def test_the_longest_of_several_captions_is_used(tmp_path):
    benchmark = own_benchmark(save_rows(tmp_path, caption=[[text, f"{text} and more"] for text in TEXTS]))
    data = validate(benchmark, load_items(benchmark))
    assert data.rows["caption"][:] == [f"{text} and more" for text in TEXTS]
    assert any("using the longest" in remark for remark in Loaded(benchmark, data).remarks())


@pytest.mark.parametrize("empty", ["", None, "  "])
def test_an_empty_caption_is_named(tmp_path, empty):
    source = save_rows(tmp_path, caption=[*TEXTS[:2], empty, *TEXTS[3:]])
    with pytest.raises(ValueError, match=rf"{source} \(test\), .*'caption', row 2: "):
        load(source)


def test_a_list_without_a_caption_is_named(tmp_path):
    source = save_rows(tmp_path, caption=[["one"], [""], ["three"], ["four"], ["five"], ["six"]])
    with pytest.raises(ValueError, match=rf"{source} \(test\), .*'caption', row 1"):
        load(source)


def test_a_missing_column_and_a_missing_split_are_named(tmp_path):
    source = save_rows(tmp_path, text=TEXTS)
    missing = datasets.load_from_disk(source)["test"].remove_columns("caption")
    datasets.DatasetDict({"test": missing}).save_to_disk(tmp_path / "other")
    with pytest.raises(ValueError, match=r"other \(test\) .*column 'caption'.*'text'.*column_names"):
        load(str(tmp_path / "other"))
    named = load(str(tmp_path / "other"), column_names={"caption": "text"})
    assert named.rows["caption"][:] == TEXTS
    with pytest.raises(ValueError, match="'validation'.* test"):
        load(source, split="validation")


@pytest.fixture
def listing(tmp_path) -> Path:
    """A JSON-lines file of three rows beside its images."""
    lines = []
    for number, row in enumerate(tiny.pairs(3)):
        row["image"].save(tmp_path / f"{number}.png")
        lines.append({"image": f"{number}.png", "caption": row["caption"], "negative_captions": ["something else"]})
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path / "mine.jsonl"


def test_a_file_is_a_benchmark_by_its_path(listing, clip):
    (benchmark,) = find_benchmarks([str(listing)])
    report = run_benchmark(benchmark, validate(benchmark, load_items(benchmark)), Embedder(clip, device="cpu"))
    assert benchmark.title == "mine" and set(report.items["benchmark"]) == {"mine"}
    assert report.items.groupby("metric").size().to_dict() == {
        "caption choice": 3,
        "image-to-text recall@1": 3,
        "text-to-image recall@1": 3,
    }
    parquet = listing.with_name("rows.parquet")
    tiny.pairs(4).to_parquet(parquet)
    (other,) = find_benchmarks([str(parquet)])
    assert len(validate(other, load_items(other)).rows) == 4


def test_a_missing_image_is_named(listing):
    (listing.parent / "1.png").unlink()
    with pytest.raises(ValueError, match="'image', row 1: .*1.png .*not exist"):
        load(str(listing))


@pytest.mark.parametrize("name", ["nothing.parquet", "./nothing", "some/where/else", "/nothing/here.csv"])
def test_a_path_that_does_not_exist_is_told_before_anything_is_asked_of_the_hub(name, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the Hub was asked"))
    with pytest.raises(ValueError, match=f"^{name}: no such"):
        find_benchmarks([name])


def test_what_may_be_an_id_of_the_hub_is_looked_for_here_first(monkeypatch):
    monkeypatch.setattr("hfcomp.data.sources.load_dataset", lambda *_, **__: (_ for _ in ()).throw(OSError("gone")))
    with pytest.raises(ValueError, match="^user/set: no such .*: gone"):
        load("user/set", split="test")
