"""CSV and TSV files as training sets: every cell is the text that is written, in whatever way the table is found."""

from __future__ import annotations

import json
import logging

import datasets
import pandas as pd
import pytest

from hfcomp.data import load_training_set
from hfcomp.data.loading import load_training_stream
from hfcomp.data.sources import load_source
from tests import tiny

WORDS = ["null", "NA", "None", "a yellow ball", "nan", "n/a", "1984", "007", "1e5", "True", "2001-01-01"]


def table(folder, name="rows.csv", captions=WORDS, column="image", sep=","):
    lines = [f"{column}{sep}caption", *(f"{index}.png{sep}{text}" for index, text in enumerate(captions))]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def as_file(folder):
    return table(folder)


def as_tsv(folder):
    return table(folder, "rows.tsv", sep="\t")


def as_folder(folder):
    table(folder)
    return folder


def beside_images(folder):
    tiny.image(0).save(folder / "0.png")
    return as_folder(folder)


def as_metadata(folder):
    for index in range(len(WORDS)):
        tiny.image(index).save(folder / f"{index}.png")
    table(folder, "metadata.csv", column="file_name")
    return folder


def as_nested_metadata(folder):
    (folder / "a/b").mkdir(parents=True)
    as_metadata(folder / "a/b")
    return folder


def as_configuration(folder):
    (folder / "tables").mkdir()
    table(folder / "tables")
    (folder / "README.md").write_text("---\nconfigs:\n- config_name: own\n  data_files: tables/*.csv\n---\n")
    return folder


@pytest.mark.parametrize(
    "write", [as_file, as_tsv, as_folder, beside_images, as_metadata, as_nested_metadata, as_configuration]
)
def test_words_and_numbers_stay_texts(write, tmp_path):
    rows = load_training_set(str(write(tmp_path)))
    assert rows["caption"][:] == WORDS


def test_an_empty_cell_is_missing(tmp_path):
    path = table(tmp_path, captions=["a", "", '""', "b"])
    assert load_training_set(str(path))["caption"][:] == ["a", None, None, "b"]


def test_numbers_that_turn_into_words_late_are_texts_from_the_start(tmp_path):
    captions = [*map(str, range(10_500)), "a dog"]
    assert load_training_set(str(table(tmp_path, captions=captions)))["caption"][:] == captions


def test_a_title_that_begins_with_a_quote_is_said_once_a_load(tmp_path, caplog):
    titles = ["a red ball", '"stop line', "a blue ball", 'shop "main street"', "a purple ball"]
    path = table(tmp_path, "pairs.tsv", captions=titles, sep="\t")
    for _ in range(2):  # the second comes from the cache
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert load_training_set(str(path))["caption"][:] == titles
        (line,) = [message for message in caplog.messages if "pairs.tsv" in message]
        assert "quotes are read as ordinary characters" in line


def test_another_delimiter_is_said(tmp_path, caplog):
    path = table(tmp_path, captions=["a red ball", "a green ball"], sep=";")
    assert load_training_set(str(path))["caption"][:] == ["a red ball", "a green ball"]
    assert "a semicolon instead" in caplog.text


def test_an_error_is_one_line_with_the_files_name(tmp_path):
    path = table(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"yellow", b"caf\xe9"))
    with pytest.raises(ValueError, match=r"^\S+/rows.csv, line 5: .* row 3 .*0xE9 .* \d+ .*copy\.$"):
        load_training_set(str(path))
    rows = load_training_set(str(path), encoding="cp1252")
    assert rows["caption"][3] == "a café ball"


def test_options_of_pandas_are_left_to_pandas(tmp_path):
    path = table(tmp_path)
    assert load_training_set(str(path), skiprows=[1, 2, 3])["caption"][:2] == ["a yellow ball", None]


@pytest.mark.follows("hfcomp/data/formats/own_builders.py", "All tables of a dataset need the same columns.")
def test_tables_of_one_set_with_other_columns_are_named(tmp_path):
    table(tmp_path, "train-1.csv", captions=["a", "b"])
    path = tmp_path / "train-2.csv"
    path.write_text("title,image\nc,9.png\n")
    with pytest.raises(ValueError, match=r"train-2\.csv .*title, image, .*\S+train-1\.csv .*image"):
        load_training_set(str(tmp_path))
    path.write_text("caption,image\nc,9.png\n")
    rows = load_training_set(str(tmp_path))
    assert rows["caption"][:] == ["a", "b", "c"]


def test_a_changed_file_is_read_anew(tmp_path):
    path = table(tmp_path, captions=["a"])
    assert load_training_set(str(path))["caption"][:] == ["a"]
    table(tmp_path, captions=["a", "b"])
    assert load_training_set(str(path))["caption"][:] == ["a", "b"]


def test_types_that_a_card_states_are_kept(tmp_path):
    (tmp_path / "rows.csv").write_text("caption,score\nnull,0.50\nNA,2\n")
    features = [{"name": "caption", "dtype": "string"}, {"name": "score", "dtype": "float64"}]
    card = {"configs": [{"config_name": "default", "data_files": "rows.csv"}], "dataset_info": {"features": features}}
    (tmp_path / "README.md").write_text(f"---\n{json.dumps(card)}\n---\n")
    rows = load_source(str(tmp_path))
    assert rows.to_dict() == {"caption": ["null", "NA"], "score": [0.5, 2.0]}


def test_a_stream_gives_the_same(tmp_path):
    table(tmp_path)
    assert [row["caption"] for row in load_training_stream(str(tmp_path))] == WORDS


def test_lists_and_ids_are_those_of_the_contract(tmp_path):
    negatives = {"negative_captions": [["x", "y"]], "negative_concreteness": [[3.5, None]]}
    frame = {"image": ["0.png"], "caption": ["a"], "image_id": ["007"]}
    written = {name: [json.dumps(value) for value in values] for name, values in negatives.items()}
    pd.DataFrame({**frame, **written}).to_csv(tmp_path / "rows.csv", index=False)
    rows = load_training_set(str(tmp_path / "rows.csv"))
    assert rows["image_id"][:] == ["007"] and rows["negative_captions"][:] == [["x", "y"]]
    assert rows["negative_concreteness"][:] == [[3.5, None]]
    assert rows.features["negative_concreteness"] == datasets.List(datasets.Value("float64"))


def test_what_datasets_guessed_before_is_not_taken_over(tmp_path):
    table(tmp_path, captions=["1984", "2001"])
    guessed = datasets.load_dataset(str(tmp_path), split="train")
    assert guessed["caption"][:] == [1984, 2001]
    assert load_training_set(str(tmp_path))["caption"][:] == ["1984", "2001"]
