"""Damaged Parquet files, and names and texts that are not Unicode: one line with the file's name, for every reader."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hfcomp.cli import main
from hfcomp.data.loading import load_training_set
from hfcomp.evaluation.score_files import ScoreFile
from tests import tiny

COLUMNS = ("image", "caption", "negative_captions", "image_id")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "rows.parquet"
    tiny.pairs(8, ragged=False).select_columns(list(COLUMNS)).to_parquet(path)
    return path


def with_bytes(path: Path, place: Path, column: str) -> Path:
    """A copy in which a text of row 3 is not UTF-8, which pyarrow neither writes nor reads as an error."""
    table = pq.read_table(path)
    texts = table[column].combine_chunks()
    values = texts.flatten() if pa.types.is_list(texts.type) else texts
    broken = [b"a \xff dog" if number == 3 else text.encode() for number, text in enumerate(values.to_pylist())]
    array = pa.Array.from_buffers(pa.string(), len(broken), pa.array(broken, pa.binary()).buffers())
    if pa.types.is_list(texts.type):
        array = pa.ListArray.from_arrays(texts.offsets, array)
    pq.write_table(table.set_column(table.column_names.index(column), column, array), place)
    return place


def cut(path: Path, place: Path) -> Path:
    place.write_bytes(path.read_bytes()[:-100])
    return place


def page_header(path: Path, place: Path) -> Path:
    content = bytearray(path.read_bytes())
    content[10] ^= 0xFF
    content[12] ^= 0xFF
    place.write_bytes(content)
    return place


def use(path: Path, clip: Path, output: Path, command: str) -> None:
    words = {
        "build": ["build", "negatives", "--source", path, "--output", output, "--kinds", "swap", "--parser", "rules"],
        "evaluate": ["evaluate", clip, "--benchmarks", path, "--output_dir", output],
        "audit": ["audit", path, "--output_dir", output],
        "gallery": ["gallery", path, "--output", output],
        "train": ["train", "negclip/own", "--dataset", path, "--model", clip, "--output_dir", output, "--dry_run"],
    }
    main(list(map(str, words[command])))


COMMANDS = ("build", "evaluate", "audit", "gallery", "train")
DAMAGES: dict[str, Callable[[Path, Path], Path]] = {
    "text": lambda path, place: with_bytes(path, place, "caption"),
    "list": lambda path, place: with_bytes(path, place, "negative_captions"),
    "cut": cut,
    "page header": page_header,
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("damage", ["text", "page header"])
def test_each_command_names_the_damaged_file_in_one_line(whole, clip, tmp_path, command, damage):
    path = DAMAGES[damage](whole, tmp_path / "damaged.parquet")
    with pytest.raises(SystemExit) as caught:
        use(path, clip, tmp_path / "out", command)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", DAMAGES)
def test_python_names_the_damaged_file(whole, tmp_path, damage):
    path = DAMAGES[damage](whole, tmp_path / "damaged.parquet")
    with pytest.raises(ValueError, match="damaged.parquet") as caught:
        load_training_set(str(path))
    assert "\n" not in str(caught.value)


def test_column_and_row_of_a_text_are_named(whole, tmp_path):
    path = with_bytes(whole, tmp_path / "damaged.parquet", "caption")
    with pytest.raises(ValueError, match=r"damaged\.parquet: .*'caption', row 3: .*UTF-8"):
        load_training_set(str(path))
    path = with_bytes(whole, tmp_path / "other.parquet", "negative_captions")
    with pytest.raises(ValueError, match=r"other\.parquet: .*'negative_captions', row 1: .*UTF-8"):
        load_training_set(str(path))


@pytest.mark.parametrize("damage", ["text", "cut", "page header"])
def test_files_of_captions_and_scores_are_named(whole, tmp_path, damage):
    path = DAMAGES[damage](whole, tmp_path / "damaged.parquet")
    with pytest.raises(ValueError, match=r"damaged\.parquet"):
        ScoreFile(path)
    if damage == "page header":
        return  # of a column that captions need not
    words = ["--source", whole, "--captions_file", path, "--captions_columns", "image_id,caption", "--key_column"]
    words += ["image_id", "--output", tmp_path / "out", "--kinds", "swap", "--parser", "rules"]
    with pytest.raises(SystemExit, match=r"damaged\.parquet"):
        main(["build", "negatives", *map(str, words)])


def test_no_flip_in_a_parquet_file_is_a_raw_error(whole, tmp_path):
    content, draws = whole.read_bytes(), random.Random(0)
    path = tmp_path / "damaged.parquet"
    for _ in range(25):
        damaged = bytearray(content)
        damaged[draws.randrange(len(content))] ^= 1 << draws.randrange(8)
        path.write_bytes(damaged)
        try:
            load_training_set(str(path)).select_columns(["caption", "negative_captions"]).to_list()
        except (ValueError, OSError) as error:
            assert "damaged.parquet" in str(error) and "\n" not in str(error)


@pytest.mark.skipif(os.name == "nt", reason="file names are bytes elsewhere")
@pytest.mark.parametrize("kind", ["texts", "table", "file"])
def test_a_file_name_that_is_not_unicode_is_named(whole, tmp_path, kind):
    folder = tmp_path / "photos"
    folder.mkdir()
    name = os.fsdecode(b"caf\xe9")
    for place in ("a", name):
        tiny.image(0).save(folder / f"{place}.png")
        if kind == "texts":
            (folder / f"{place}.txt").write_text("a dog on a chair")
    if kind == "table":
        (folder / "metadata.csv").write_text("file_name,caption\na.png,a dog on a chair\n")
    if kind == "file":
        folder = tmp_path / f"{name}.parquet"
        folder.write_bytes(whole.read_bytes())
    try:
        rows = load_training_set(str(folder))
        assert rows[0]["caption"]
    except ValueError as error:
        assert "caf" in str(error) and "\n" not in str(error)
        str(error).encode()
