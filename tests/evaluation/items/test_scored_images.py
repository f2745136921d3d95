"""The images of benchmarks that the guard against overlap is given."""

from __future__ import annotations

import datasets

from hfcomp.data.overlap import without_overlap
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.cells import Crop, Fitted, Inset
from hfcomp.evaluation.engine import validate
from hfcomp.evaluation.items.scored_images import benchmark_images, scored_images
from hfcomp.evaluation.loaded import Loaded
from hfcomp.evaluation.spec import BenchmarkData, Origin
from tests import tiny
from tests.data.photographs import encode, resize, texture
from tests.evaluation import small_sugarcrepe


def cell(seed: int) -> dict:
    return {"bytes": encode(texture(seed)), "path": None}


def test_a_training_set_is_freed_of_a_benchmarks_images(tmp_path):
    root = small_sugarcrepe.write(tmp_path)
    for index in range(20):
        texture(index).save(root / "val2017" / f"{index}.png")
    images = [{"bytes": encode(resize(texture(seed), 100)), "path": None} for seed in range(18, 24)]
    rows = tiny.pairs(6).remove_columns("image").add_column("image", images)
    rows = rows.cast_column("image", datasets.Image(decode=False))
    scored = benchmark_images(["sugarcrepe"], folders=root)
    kept, overlap = without_overlap(rows, scored, folder=tmp_path / "hashes", progress=False)
    assert overlap.rows.tolist() == [0, 1] and kept["image_id"][:] == [f"tiny-{row}" for row in range(2, 6)]
    assert (overlap.scored, overlap.shown, overlap.ways["look"]) == (20, 2, 2)
    assert find_same(
        benchmark_images(["sugarcrepe"], {"sugarcrepe": root / "sugarcrepe", "val2017": root / "val2017"})
    )


def find_same(scored: list) -> bool:
    return [entry.name for entry in scored] == ["SugarCrepe"] and len(scored[0].cells) == 35


def test_of_a_part_the_whole_of_several_columns_all_and_of_texts_alone_nothing():
    (winoground,) = find_benchmarks(["winoground"])
    rows = datasets.Dataset.from_list(
        [{"caption": f"a {n}", "negative_captions": [f"b {n}"], "item": str(n), "source": "Shop"} for n in range(2)]
    )
    whole = cell(1)
    others = [Fitted(cell(3), 64), Inset(cell(4), 2)]
    images = {"image": [Crop(whole, (0, 0, 9, 9)), cell(2)], "negative_image": others}
    items = validate(winoground, BenchmarkData(rows, Origin("here"), images))
    first, second = scored_images(Loaded(winoground, items))
    assert (first.name, second.name) == ("Winoground", "Winoground, negative_image")
    assert first.cells[0] == whole and list(first.sources) == ["Shop", "Shop"] and second.ids is None
    assert list(second.cells) == [cell(3), cell(4)]
    (twice,) = find_benchmarks(["sugarcrepe_pp"])
    rows = rows.add_column("positive_captions", [["c"], ["d"]]).add_column("image_id", ["1.jpg", "2.jpg"])
    items = validate(twice, BenchmarkData(rows, Origin("here"), {"image": [None, cell(2)]}))
    (images,) = scored_images(Loaded(twice, items))
    assert len(images.cells) == 1 and list(images.ids) == ["2.jpg"] and images.cells[0] == cell(2)


def test_names_of_files_in_cocos_folders_are_cocos():
    (sugarcrepe,) = find_benchmarks(["sugarcrepe"])
    rows = datasets.Dataset.from_list(
        [
            {"caption": "a", "negative_captions": ["b"], "subset": "add_att", "item": name, "image_id": name}
            for name in ("000000000285.jpg", "other.jpg")
        ]
    )
    items = validate(sugarcrepe, BenchmarkData(rows, Origin("here"), {"image": [cell(1), cell(2)]}))
    (images,) = scored_images(Loaded(sugarcrepe, items))
    assert images.sources == ["COCO", None]
