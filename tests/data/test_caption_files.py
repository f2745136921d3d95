"""Captions of a file, joined to a data set by key (about 1 s)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from datasets import Dataset

from hfcomp.data.caption_files import read_captions, with_captions_of
from hfcomp.data.loading import load_training_set
from tests.evaluation.webdatasets import encoded, write_tar

KEYS = ("000000", "000001", "000010")
TEXTS = {"000000": "a red dog", "000010": 'a "blue" cat, and a man', "000011": "nobody"}


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    """Two archives as img2dataset writes them."""
    folder = tmp_path_factory.mktemp("shards")
    for number, keys in enumerate((KEYS[:2], KEYS[2:])):
        members = {}
        for key in keys:
            members[f"{key}.png"] = encoded(int(key), 0)
            members[f"{key}.json"] = json.dumps({"url": f"http://x/{int(key)}", "caption": "alt"}).encode()
            members[f"{key}.txt"] = b"alt"
        write_tar(folder / f"{number:05d}.tar", members)
    return folder


def lines(*rows: dict) -> str:
    return "\n".join(map(json.dumps, rows))


ROWS = [{"key": key, "caption": text} for key, text in TEXTS.items()]
CSV = 'n,caption,key\n1,a red dog,000000\n2,"a ""blue"" cat, and a man",000010\n3,nobody,000011\n'


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.json", json.dumps(TEXTS)), ("b.json", json.dumps(ROWS)), ("c.jsonl", lines(*ROWS)), ("d.csv", CSV)],
)
def test_every_kind_of_file_gives_the_same(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    assert read_captions(tmp_path / name) == (TEXTS, 0)


def test_parquet_gives_the_same(tmp_path):
    Dataset.from_list(ROWS).to_parquet(tmp_path / "e.parquet")
    assert read_captions(tmp_path / "e.parquet") == (TEXTS, 0)


def join(dataset: Dataset, path: Path, **settings) -> tuple[Dataset, list[str]]:
    told: list[str] = []
    settings = {"key_column": None, "file_columns": None} | settings
    return with_captions_of(dataset, path, tell=told.append, **settings), told


def test_shards_get_captions_by_the_names_of_their_samples(shards, tmp_path):
    path = tmp_path / "short.json"
    path.write_text(json.dumps(TEXTS))
    joined, told = join(load_training_set(str(shards)), path)
    assert joined["caption"][:] == [TEXTS[KEYS[0]], None, TEXTS[KEYS[2]]]
    assert [image.getpixel((0, 0))[0] for image in joined["png"]] == [0, 1, 10]
    assert told == ["captions of short.json, joined by __key__: 2 rows have one; 1 have none and are left out"]


def test_shards_get_captions_by_an_entry_of_their_json(shards, tmp_path):
    path = tmp_path / "short.csv"
    path.write_text("Image Path,short\nhttp://x/10,a cat\nhttp://x/1,a dog\nhttp://x/1,again\nhttp://x/0, \n")
    joined, told = join(load_training_set(str(shards)), path, key_column="json.url", file_columns="Image Path, short")
    assert joined["caption"][:] == [None, "a dog", "a cat"]
    assert told[1:] == ["1 entries of short.csv have the key of an earlier one, which is used"]


def test_captions_of_the_set_give_way(tmp_path):
    path = tmp_path / "new.json"
    path.write_text('{"7": "new"}')
    joined, told = join(
        Dataset.from_dict({"id": [7, None], "caption": ["old", "old"], "concepts": [["a"], []]}), path, key_column="id"
    )
    assert joined.to_dict() == {"id": [7, None], "caption": ["new", None]}
    assert told[-1] == "they take the place of the data set's own caption, concepts"


@pytest.mark.parametrize(
    ("name", "content", "settings", "message"),
    [
        ("a.json", '{"x": "a"}', {}, "none of the 2 rows has its 'id' in a.json: they are as '7' there, and as 'x'"),
        ("a.txt", "", {}, "captions_file=a.txt: expected a .json"),
        ("a.csv", "url,text\n7,a\n", {}, "a.csv has no column 'key'; it has: url, text"),
        ("a.csv", "url,text\n7,a\n", {"file_columns": "url"}, "captions_columns='url': expected two names"),
        ("a.json", '{"7": "a"}', {"key_column": "nr"}, "key_column='nr': the data set has no column 'nr'; it has: id"),
        ("a.json", '{"7": "a"}', {"key_column": "id.nr"}, "column 'id' has no entry 'nr'"),
        ("a.json", '{"7": "a"}', {"column_names": {"caption": "txt"}}, "column_names names a caption"),
    ],
)
def test_what_does_not_fit_is_told(tmp_path, name, content, settings, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        join(Dataset.from_dict({"id": [7, 8]}), tmp_path / name, **({"key_column": "id"} | settings))
