"""ConcreteBatch as a builder of `datasets`: prepared, streamed, exported, and with ratings that no set holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from datasets import load_dataset

from hfcomp.data.loading import load_training_set
from hfcomp.data.negatives import with_concreteness
from hfcomp.factory.builder import find_builder
from tests.hub.built import write_build

ConcreteBatch = find_builder("concretebatch").dataset_class()

RATINGS = "Word\tConc.M\tDom_Pos\ndog\t4.7\tNoun\ndogs\t1.0\tNoun\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Never write into it."""
    place = tmp_path_factory.mktemp("concretebatch")
    write_build(place / "high_concreteness", word="cats")
    write_build(place / "random", word="things", rows=4)
    return place


@pytest.fixture
def ratings(tmp_path) -> str:
    (tmp_path / "ratings.txt").write_text(RATINGS)
    return str(tmp_path / "ratings.txt")


def prepare(folder: Path, cache: Path, **settings):
    builder = ConcreteBatch(cache_dir=str(cache), data_dir=str(folder), **settings)
    builder.download_and_prepare()
    return builder.as_dataset("train")


def test_a_configuration_is_prepared_as_it_was_built(folder, tmp_path):
    rows = prepare(folder, tmp_path)
    assert rows.features == load_training_set(str(folder / "high_concreteness")).features
    assert rows["caption"][:] == [f"{row} dogs on a large table" for row in range(7)]
    assert rows["negative_captions"][2] == ["2 cats on a large table"]
    assert [row["image"].getpixel((0, 0))[0] for row in rows] == list(range(7))
    assert prepare(folder, tmp_path, config_name="random")["negative_captions"][3] == ["3 things on a large table"]
    assert len(prepare(folder / "random", tmp_path, config_name="random")) == 4


def test_ratings_are_joined_by_the_word_that_the_build_found(folder, tmp_path, ratings):
    rows = prepare(folder, tmp_path, concreteness_ratings=ratings)
    assert rows["negative_concreteness"][:] == [[4.7]] * 7
    streamed = ConcreteBatch(cache_dir=str(tmp_path), data_dir=str(folder), concreteness_ratings=ratings)
    first = next(iter(streamed.as_streaming_dataset("train")))
    assert first["negative_concreteness"] == [4.7] and first["image"].size == (4, 4)
    logged: list[str] = []
    joined = with_concreteness(load_training_set(str(folder / "random")), ratings, logged.append)
    assert joined["negative_concreteness"][:] == [[4.7]] * 4


def test_the_page_on_building_prepares_it(folder, tmp_path, ratings):
    page = (Path(__file__).parents[3] / "docs/building.md").read_text()
    (block,) = re.findall(r"```python\n(from hfcomp.factory.builder.*?)```", page, flags=re.DOTALL)
    for old, new in {"data/concretebatch": str(folder), "ratings.txt": ratings}.items():
        block = block.replace(old, new)
    names: dict = {}
    exec(block.replace("data_dir=", f"cache_dir={str(tmp_path)!r}, data_dir="), names)
    assert names["rows"][0]["negative_concreteness"] == [4.7]


def test_the_cache_is_of_the_content(tmp_path, ratings):
    cats, birds = (
        write_build(tmp_path / "one/random", word="cats"),
        write_build(tmp_path / "other/random", word="birds"),
    )
    assert prepare(cats.parent, tmp_path, config_name="random")["negative_captions"][0] == ["0 cats on a large table"]
    cats.rename(tmp_path / "before")
    birds.rename(cats)
    assert prepare(cats.parent, tmp_path, config_name="random")["negative_captions"][0] == ["0 birds on a large table"]
    settings = {"config_name": "random", "concreteness_ratings": ratings}
    assert prepare(cats.parent, tmp_path, **settings)["negative_concreteness"][0] == [4.7]
    Path(ratings).write_text(RATINGS.replace("4.7", "2.5"))
    assert prepare(cats.parent, tmp_path, **settings)["negative_concreteness"][0] == [2.5]


def test_it_is_exported_as_parquet_with_its_images(folder, tmp_path):
    builder = ConcreteBatch(cache_dir=str(tmp_path / "cache"), data_dir=str(folder))
    builder.download_and_prepare(str(tmp_path / "out"), file_format="parquet")
    rows = load_dataset("parquet", data_files=str(tmp_path / "out/*.parquet"), split="train")
    assert rows.features == builder.info.features and rows[6]["image"].getpixel((0, 0)) == (6, 6, 6)


def test_where_no_set_is_the_error_says_what_is_expected(folder, tmp_path):
    with pytest.raises(ValueError, match="'random' .*data_dir.*`hfcomp build"):
        ConcreteBatch(config_name="random")
    with pytest.raises(ValueError, match="`hfcomp build concretebatch` .*low_con"):
        ConcreteBatch(config_name="low_concreteness", data_dir=str(folder))
    place = write_build(tmp_path / "random")
    (place / "data/train-00001-of-00003.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match="train-00001-of-00003.parquet .*damaged"):
        prepare(place, tmp_path / "cache", config_name="random")


def test_the_folder_of_another_configuration_is_refused(folder):
    with pytest.raises(ValueError, match="random .*'random', not 'low_concreteness'.*config_"):
        ConcreteBatch(config_name="low_concreteness", data_dir=str(folder / "random"))


def test_ratings_that_cannot_be_read_are_named_before_any_row(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="none.txt .*ratings"):
        ConcreteBatch(data_dir=str(folder), concreteness_ratings=str(tmp_path / "none.txt"))
    (tmp_path / "words.txt").write_text("Word\tRating\n")
    with pytest.raises(ValueError, match="words.txt .*'Conc.M'"):
        ConcreteBatch(data_dir=str(folder), concreteness_ratings=str(tmp_path / "words.txt"))
