"""Rows are checked before anything is encoded, each distinct image and text is asked for once, memory stays small."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import datasets
import numpy as np
import pytest

from hfcomp.evaluation.benchmarks import benchmarks
from hfcomp.evaluation.encoding.embed import Indexed
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, TextTable, embed, run_benchmark, validate
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark, BenchmarkData, Origin
from tests import tiny

CHOICE = Benchmark("choice", "Choice", COMPOSITIONAL, CaptionChoice(), (), "nobody", "none", "")
WIDTH = 512


class Counting:
    """Random vectors, and how many distinct images and texts were asked for."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def index_images(self, images, *, column="image", progress=False) -> Indexed:
        numbers = [int(cell["path"].rpartition("/")[2].removesuffix(".png")) for cell in images]
        return self._index(max(numbers) + 1, np.array(numbers))

    def index_texts(self, texts, *, progress=False) -> Indexed:
        self.texts = list(texts)
        return self._index(len(texts), np.arange(len(texts)))

    def _index(self, number, index) -> Indexed:
        vectors = np.random.default_rng(number).standard_normal((number, WIDTH)).astype(np.float32)
        return Indexed(vectors, index, 0, number)


def rows(number: int, folder, *, images: int = 5, negatives: int = 2, **columns) -> BenchmarkData:
    """Items about a few images, with captions and negatives from a few texts."""
    for index in range(images):
        tiny.image(index).save(folder / f"{index}.png")
    texts = tiny.captions()[:40]
    table = {
        "image": [{"path": str(folder / f"{index % images}.png"), "bytes": None} for index in range(number)],
        "caption": [texts[index % 20] for index in range(number)],
        "negative_captions": [[texts[20 + (index + k) % 20] for k in range(negatives)] for index in range(number)],
    }
    return BenchmarkData(datasets.Dataset.from_dict({**table, **columns}), Origin("memory"))


def test_rows_are_named_where_the_data_does_not(tmp_path):
    items = validate(CHOICE, rows(7, tmp_path))
    assert items.rows["item"][:] == list("0123456") and set(items.rows["subset"]) == {"all"}
    assert items.rows["image_id"][:] == [f"{index % 5}.png" for index in range(7)]
    named = validate(CHOICE, rows(2, tmp_path, image_id=["a", None], subset=["x", "y"], item=[3, 3]))
    assert named.rows["image_id"][:] == ["a", "1.png"] and named.rows["item"][:] == ["3", "3"]


def test_rows_that_cannot_be_scored_are_left_out_and_counted(tmp_path):
    items = rows(8, tmp_path)
    table = items.rows.to_dict()
    table["caption"][1], table["caption"][2] = "  ", ""
    table["negative_captions"][3] = ["", ""]
    table["negative_captions"][4] = ["", "kept"]
    table["image"][5] = {"path": str(tmp_path / "gone.png"), "bytes": None}
    data = validate(CHOICE, replace(items, rows=datasets.Dataset.from_dict(table), left_out={"invalid": 9}))
    assert data.left_out == {"invalid": 9, EMPTY_CAPTION: 3, NO_IMAGE: 1}
    assert data.rows["item"][:] == ["0", "4", "6", "7"]
    report = run_benchmark(CHOICE, data, Counting())
    assert report.items["item"].tolist() == ["0", "4", "6", "7"]
    assert report.items["chance"].tolist() == pytest.approx([1 / 3, 1 / 2, 1 / 3, 1 / 3])


def test_nothing_left_is_an_error(tmp_path):
    items = rows(2, tmp_path)
    table = items.rows.to_dict() | {"caption": ["", ""]}
    with pytest.raises(ValueError, match="choice: memory .*{'empty caption': 2}"):
        validate(CHOICE, replace(items, rows=datasets.Dataset.from_dict(table)))


def test_a_missing_column_names_those_that_are_there(tmp_path):
    items = rows(2, tmp_path)
    with pytest.raises(ValueError, match="no column 'caption'; .*'image', 'negative_captions'"):
        validate(CHOICE, replace(items, rows=items.rows.remove_columns("caption")))


def test_an_item_that_is_there_twice_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="'all/b' in rows 1 and 3"):
        validate(CHOICE, rows(4, tmp_path, item=["a", "b", "c", "b"]))
    assert len(validate(CHOICE, rows(2, tmp_path, item=["a", "a"], subset=["x", "y"])).rows) == 2


def test_items_that_nobody_can_solve_are_counted(tmp_path):
    items = rows(3, tmp_path)
    table = items.rows.to_dict()
    table["negative_captions"][1][1] = table["caption"][1]
    data = validate(CHOICE, replace(items, rows=datasets.Dataset.from_dict(table)))
    assert data.unsolvable == 1
    report = run_benchmark(CHOICE, data, Counting())
    assert report.items["value"][1] == 0


def test_each_distinct_text_is_asked_for_once(tmp_path):
    encoder = Counting()
    report = run_benchmark(CHOICE, validate(CHOICE, rows(200, tmp_path)), encoder)
    assert sorted(encoder.texts) == sorted(tiny.captions()[:40])
    assert (report.images, report.texts) == (5, 40)


def test_lists_of_unequal_length_are_masked():
    table = TextTable()
    column = table.add([["a", "b"], ["c"], [], ["b", "", "a"]])
    assert table.distinct == ["a", "b", "c"]
    assert column.ragged(slice(0, 4)).tolist() == [[0, 1, -1], [2, -1, -1], [-1, -1, -1], [1, -1, 0]]
    assert column.ragged(slice(1, 2)).tolist() == [[2]]


def test_the_first_text_of_a_list_is_the_first_that_is_not_empty(tmp_path):
    items = rows(3, tmp_path)
    table = items.rows.to_dict()
    table["negative_captions"] = [["", "one"], ["two", ""], ["", "", "three"]]
    encoder = Counting()
    embedded = embed(CHOICE, validate(CHOICE, replace(items, rows=datasets.Dataset.from_dict(table))), encoder)
    vectors = embedded.text("negative_captions", slice(0, 3))
    places = [encoder.texts.index(text) for text in ("one", "two", "three")]
    assert (vectors == embedded.text_vectors.vectors[places]).all()


def test_files_of_one_name_that_differ_are_different_photographs(tmp_path):
    cells = []
    for index in range(4):
        file = tmp_path / str(index) / "image.jpg"
        file.parent.mkdir()
        tiny.image(index % 2).save(file)
        cells.append({"bytes": file.read_bytes(), "path": "image.jpg"})
    items = rows(4, tmp_path)
    data = validate(CHOICE, replace(items, images={"image": cells}))
    assert len(set(data.rows["image_id"])) == 2


def test_a_signature_in_a_url_does_not_name_a_photograph(tmp_path):
    urls = [f"https://host/image?number={number}&signature=s3cret" for number in (1, 1, 2, 3)]
    items = replace(rows(4, tmp_path), images={"image": [{"bytes": None, "path": url} for url in urls]})
    ids = validate(CHOICE, items).rows["image_id"][:]
    assert len(set(ids)) == 3 and not any("s3cret" in name for name in ids)


def test_a_metric_that_the_protocol_does_not_declare_is_an_error(tmp_path):
    class Renamed(CaptionChoice):
        def score(self, embedded):
            return (replace(outcome, metric="accuracy") for outcome in super().score(embedded))

    class Undeclared(Renamed):
        metric_names = ()

    items = validate(CHOICE, rows(3, tmp_path))
    with pytest.raises(ValueError, match="choice: .*'accuracy'.*metric_names"):
        run_benchmark(replace(CHOICE, protocol=Renamed()), items, Counting())
    assert set(run_benchmark(replace(CHOICE, protocol=Undeclared()), items, Counting()).items["metric"]) == {
        "accuracy"
    }


def test_a_benchmark_names_its_subsets_and_averages_once():
    averages = (Average("mean", (("a",), ("b",))), Average("pooled", pooled=True))
    assert replace(CHOICE, averages=averages, subsets=("b", "c")).subset_names == ("mean", "pooled", "a", "b", "c")
    assert CHOICE.subset_names == ("all",)


def test_memory_does_not_grow_with_the_items_but_by_their_own_outcomes(tmp_path):
    """6,000 items of 4 negatives and width 512 are 60 MB of vectors, which are never there at once."""
    peaks = {}
    for number in (1000, 6000):
        items = validate(CHOICE, rows(number, tmp_path, negatives=4))
        tracemalloc.start()
        report = run_benchmark(CHOICE, items, Counting())
        peaks[number] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(report.items) == number
    assert peaks[6000] - peaks[1000] < 5000 * 2000


def test_every_benchmark_says_where_it_comes_from():
    for benchmark in benchmarks().values():
        assert benchmark.paper and benchmark.license and benchmark.obtain and benchmark.data, benchmark.name
        assert all(form.layout for form in benchmark.data), benchmark.name
        assert benchmark.version >= 1 and benchmark.title
    for entry in benchmarks().values():
        parts = [other for other in benchmarks().values() if other.title == entry.title]
        assert all((other.averages, other.suite) == (entry.averages, entry.suite) for other in parts), entry.title
        assert len(parts) == 1 or entry.averages
