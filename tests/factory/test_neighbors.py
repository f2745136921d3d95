"""The column of hard images from a model's embeddings; about 3 seconds."""

from __future__ import annotations

import os
import re
import time

import numpy as np
import pytest
from datasets import Dataset, Features, Image, Value

from hfcomp.data.loading import undecoded
from hfcomp.evaluation.encoding import neighbors
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.encoding.neighbors import with_neighbors
from hfcomp.negatives.neighbors import nearest_neighbors
from tests import tiny


@pytest.fixture(scope="module")
def rows():
    return tiny.pairs(12)


def add_neighbors(dataset, clip, **settings):
    logged: list[str] = []
    settings = {"number": 3, **settings}
    return with_neighbors(dataset, place=clip, log=logged.append, device="cpu", **settings), logged


def test_the_neighbors_are_those_of_the_models_embeddings(rows, clip):
    dataset, logged = add_neighbors(rows, clip)
    expected = nearest_neighbors(Embedder(clip, device="cpu").images(undecoded(rows)["image"]), number=3)
    assert dataset["neighbor_ids"][:] == [[f"tiny-{other}" for other in near] for near in expected]
    assert dataset.column_names == [*rows.column_names, "neighbor_ids"]
    assert logged == [f"12 images, each with the 3 nearest by image ({clip}, exact)"]


def test_the_neighbors_of_captions_are_others(rows, clip):
    dataset, logged = add_neighbors(rows, clip, by="caption")
    expected = nearest_neighbors(Embedder(clip, device="cpu").texts(rows["caption"][:]).vectors, number=3)
    assert dataset["neighbor_ids"][:] == [[f"tiny-{other}" for other in near] for near in expected]
    assert dataset["neighbor_ids"][:] != add_neighbors(rows, clip)[0]["neighbor_ids"][:]


def several_captions(rows) -> Dataset:
    """Every image twice, each with a caption of its own and no id."""
    images = [image for image in undecoded(rows)["image"] for _ in range(2)]
    columns = {"image": images, "caption": [f"caption {row}" for row in range(24)]}
    return Dataset.from_dict(columns, features=Features({"image": Image(), "caption": Value("string")}))


@pytest.mark.parametrize("by", ["image", "caption"])
def test_rows_with_the_same_image_get_the_same_id_and_are_no_neighbors(rows, clip, by):
    dataset, _ = add_neighbors(several_captions(rows), clip, by=by)
    ids = dataset["image_id"][:]
    assert ids[::2] == ids[1::2] and len({*ids}) == 12
    for row, near in enumerate(dataset["neighbor_ids"]):
        assert len(set(near)) == 3 and dataset["image_id"][row] not in near
        assert near == dataset["neighbor_ids"][row ^ 1]


def test_copies_under_other_ids_are_no_neighbors(rows, clip):
    ids = [f"photo-{row}" for row in range(24)]
    dataset, _ = add_neighbors(several_captions(rows).add_column("image_id", ids), clip, number=30)
    assert all(f"photo-{row ^ 1}" not in near for row, near in enumerate(dataset["neighbor_ids"]))
    assert {len(near) for near in dataset["neighbor_ids"]} == {22}


def test_own_neighbors_of_the_set_are_replaced_and_logged(rows, clip):
    dataset, logged = add_neighbors(rows.add_column("neighbor_ids", [["x"]] * 12), clip)
    assert "x" not in sum(dataset["neighbor_ids"][:], [])
    assert any("own neighbor_ids" in line for line in logged)


def test_a_second_process_reads_what_the_first_one_computed(rows, clip, tmp_path, monkeypatch):
    first, _ = add_neighbors(rows, clip, cache=EmbeddingCache(tmp_path))

    def fail_on_search(*args, **kwargs):
        raise AssertionError("searched again")

    with monkeypatch.context() as patch:
        patch.setattr(neighbors, "neighbor_columns", fail_on_search)
        patch.setattr(Embedder, "backbone", property(fail_on_search))
        second, _ = add_neighbors(rows, clip, cache=EmbeddingCache(tmp_path))
        with pytest.raises(AssertionError, match="searched again"):
            add_neighbors(rows, clip, number=2, cache=EmbeddingCache(tmp_path))
    assert second["neighbor_ids"][:] == first["neighbor_ids"][:] == add_neighbors(rows, clip)[0]["neighbor_ids"][:]


def test_neighbors_that_are_read_count_as_used(rows, clip, tmp_path):
    add_neighbors(rows, clip, cache=EmbeddingCache(tmp_path))
    (path,) = tmp_path.glob("neighbors/*.json")
    os.utime(path, (0, 0))
    add_neighbors(rows, clip, cache=EmbeddingCache(tmp_path))
    assert time.time() - path.stat().st_mtime < 60


def test_the_search_keeps_the_cache_within_its_limit(rows, clip, tmp_path):
    add_neighbors(rows, clip, cache=EmbeddingCache(tmp_path))
    old = tmp_path / "0123456789abcdef" / f"{0:032x}.safetensors"
    for number in (2, 2):  # a search that is stored now, then read
        old.parent.mkdir(exist_ok=True)
        old.write_bytes(bytes(10**6))
        os.utime(old, (0, 0))
        _, logged = add_neighbors(rows, clip, cache=EmbeddingCache(tmp_path, limit=10**6), number=number)
        assert not old.exists() and any(re.search(r": 1 \(1\.0 MB\)", line) for line in logged)


def test_the_column_is_stored_as_any_other(rows, clip, tmp_path):
    add_neighbors(rows, clip)[0].to_parquet(tmp_path / "rows.parquet")
    again = Dataset.from_parquet(str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path / "cache"))
    assert again["neighbor_ids"][:] == add_neighbors(rows, clip)[0]["neighbor_ids"][:]
    assert np.asarray(again[0]["image"]).shape == (32, 32, 3)


def test_slow_searches_name_the_faster_package(monkeypatch):
    assert neighbors._describe_method(100) == "exact"
    monkeypatch.setattr(neighbors, "default_method", lambda images: "exact")
    assert "pip install 'hfcomp[neighbors]'" in neighbors._describe_method(30_000)


def test_what_cannot_be_compared_is_refused(rows, clip):
    with pytest.raises(ValueError, match="by: found 'text'.* image, caption"):
        add_neighbors(rows, clip, by="text")
    with pytest.raises(ValueError, match="needs the column 'image'"):
        add_neighbors(rows.remove_columns("image"), clip)
    missing = rows.to_list()
    missing[5]["image"] = None
    with pytest.raises(ValueError, match="'image', row 5 .*empty"):
        add_neighbors(Dataset.from_list(missing, features=rows.features), clip)
    missing = rows.to_list()
    missing[4]["image_id"] = None  # then its image says which it is
    assert None not in add_neighbors(Dataset.from_list(missing, features=rows.features), clip)[0]["image_id"][:]
    missing[4]["image"] = None
    with pytest.raises(ValueError, match="'image_id', row 4 .* no image"):
        add_neighbors(Dataset.from_list(missing, features=rows.features), clip, by="caption")
