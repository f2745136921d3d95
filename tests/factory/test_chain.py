"""Builds that follow one another, and the row groups of sets with large images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, Features, Image, List, Value, load_dataset, load_from_disk

from hfcomp.factory import shards
from hfcomp.factory.chain import join_texts
from hfcomp.factory.runner import Build, run_stages
from hfcomp.factory.shards import SOURCE_ROW
from hfcomp.writing import write_parquet
from tests.factory import builds

TEXTS = Features({"caption": Value("string"), "loud": Value("string"), SOURCE_ROW: Value("int64")})
BYTES = 300_000


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Dataset:
    """40 rows on disk with images of 300 kB."""
    rng = np.random.default_rng(0)
    rows = builds.source(40)
    images = [{"bytes": builds.png(row) + rng.bytes(BYTES), "path": f"{row}.png"} for row in range(40)]
    rows = rows.remove_columns("image").add_column("image", images, feature=Image(decode=False))
    folder = tmp_path_factory.mktemp("source")
    rows.save_to_disk(folder)
    return load_from_disk(folder)


def first_step(source: Dataset, folder: Path, **options) -> Build:
    options = {"stages": builds.loud_stages(), "features": TEXTS} | options
    return run_stages(source, options.pop("stages"), folder, rows_per_shard=16, **options)


def second_step(dataset: Dataset, folder: Path) -> Build:
    features = Features({"image": Image(), "loud": Value("string"), SOURCE_ROW: Value("int64")})
    reads = ("caption", "loud")
    return run_stages(dataset, builds.loud_stages("?"), folder, features=features, reads=reads, rows_per_shard=10)


@pytest.mark.parametrize("kept", [None, range(3, 37), [*range(0, 40, 3), 38, 7]])
def test_texts_stand_beside_the_images_of_their_rows(source, tmp_path, kept):
    source = source if kept is None else source.select(kept)
    first_step(source, tmp_path / "first")
    rows = join_texts(source, tmp_path / "first")
    assert rows[SOURCE_ROW][:] == [number for number, text in enumerate(source["caption"][:]) if text]
    for row in rows:
        assert row["image"] == source[row[SOURCE_ROW]]["image"]
        assert row["loud"] == source[row[SOURCE_ROW]]["caption"].upper() + "!"
    second_step(rows, tmp_path / "second")
    made = load_dataset(str(tmp_path / "second"), split="train").cast_column("image", Image(decode=False))
    assert made[SOURCE_ROW][:] == rows[SOURCE_ROW][:]  # of the first source, through all steps
    assert made[4]["image"] == rows[4]["image"] and made[4]["loud"] == rows[4]["caption"].upper() + "?"


@pytest.mark.parametrize("kept", [range(40), [*range(0, 40, 3), 38, 7]])
def test_joining_copies_no_image(source, tmp_path, kept):
    source = source.select(kept)
    first_step(source, tmp_path / "first")
    before = pa.total_allocated_bytes()
    rows = join_texts(source, tmp_path / "first")
    assert pa.total_allocated_bytes() - before < BYTES
    files = {file["filename"] for file in rows.cache_files} - {file["filename"] for file in source.cache_files}
    assert sum(Path(name).stat().st_size for name in files) < BYTES


def test_a_step_is_begun_anew_when_the_one_before_changed(source, tmp_path):
    first_step(source, tmp_path / "first")
    second_step(join_texts(source, tmp_path / "first"), tmp_path / "second")
    assert second_step(join_texts(source, tmp_path / "first"), tmp_path / "second").kept == 4
    first_step(source, tmp_path / "other", stages=builds.loud_stages("!!"))
    with pytest.raises(ValueError, match=r"other settings: source\.fingerprint"):
        second_step(join_texts(source, tmp_path / "other"), tmp_path / "second")


def make_twice():
    """A stage that makes two rows of each."""
    return lambda batch: {name: values * 2 for name, values in batch.items()} | {"loud": batch["caption"] * 2}


def test_what_does_not_fit_is_refused(source, tmp_path):
    without = Features({name: TEXTS[name] for name in ("caption", "loud")})
    first_step(source, tmp_path / "without", features=without)
    with pytest.raises(ValueError, match="no column 'source_row'.*'source_row'"):
        join_texts(source, tmp_path / "without")
    first_step(source, tmp_path / "first")
    with pytest.raises(ValueError, match="another source.* 39, .* 30 rows"):
        join_texts(source.select(range(30)), tmp_path / "first")
    with pytest.raises(ValueError, match="row twice"):
        join_texts(source.select([*range(39), 2]), tmp_path / "first")
    twice = [shards.Stage("twice", make_twice)]
    first_step(source.select(range(4)), tmp_path / "twice", stages=twice)
    with pytest.raises(ValueError, match="row 0 .*2 times"):
        join_texts(source, tmp_path / "twice")
    negative = load_dataset(str(tmp_path / "first"), split="train").remove_columns(SOURCE_ROW)
    negative.add_column(SOURCE_ROW, [-1, *range(1, len(negative))]).save_to_disk(tmp_path / "negative")
    with pytest.raises(ValueError, match="another source.* row -1, .* 40 rows"):
        join_texts(source, tmp_path / "negative")


def test_row_groups_end_at_a_number_of_bytes(source, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "BYTES_PER_GROUP", 4 * (BYTES + 1000))
    sizes = []
    for name, kept in (("whole", source), ("mapped", source.select([*range(40)][::-1]).select([*range(40)][::-1]))):
        build = run_stages(kept, builds.loud_stages(), tmp_path / name, features=builds.FEATURES, rows_per_shard=30)
        file = pq.ParquetFile(build.folder / build.manifest["shards"][0]["file"])
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        assert [group.num_rows for group in groups] == [4] * 6 + [1]  # of 30 rows, 25 have a text
        assert max(group.total_byte_size for group in groups) < 4 * (BYTES + 1000) + 5000
        sizes.append(builds.hashes(build.folder))
    assert sizes[0] == sizes[1]  # the source's layout in memory changes nothing


def test_bytes_are_counted_by_content(tmp_path):
    features = Features({"text": Value("string"), "images": List(Image(decode=False)), "words": List(Value("string"))})
    image = {"bytes": b"x" * 40, "path": None}
    rows = {
        "text": ["a" * 30, None, "b" * 200, "c", "d", "e"],
        "images": [[image], [image, image], None, [], [image], [image]],
        "words": [["a", "b"], [], ["c"], ["d" * 60], None, ["e"]],
    }
    table = Dataset.from_dict(rows, features=features).with_format("arrow")[:]
    for offset, expected in ((0, [1, 1, 1, 2, 1]), (1, [1, 1, 2, 1])):  # bytes: 72, 80, 201, 61, 41, 42
        write_parquet(tmp_path / "a.parquet", table.slice(offset), rows_per_group=4, bytes_per_group=102)
        file = pq.ParquetFile(tmp_path / "a.parquet")
        assert [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)] == expected
        assert file.read().equals(table.slice(offset))
