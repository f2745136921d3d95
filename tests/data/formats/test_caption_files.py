"""Captions of a file, joined to a dataset by key (about 2 s)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from datasets import Dataset

from hfcomp.data.formats.caption_files import FileCaptions, read_captions, with_captions_of
from hfcomp.data.loading import load_training_set
from tests.evaluation.webdatasets import encode_image, write_tar

KEYS = ("000000", "000001", "000010")
TEXTS = {"000000": "a red dog", "000010": 'a "blue" cat, and a man', "000011": "nobody"}


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    """Two archives as img2dataset writes them."""
    folder = tmp_path_factory.mktemp("shards")
    for number, keys in enumerate((KEYS[:2], KEYS[2:])):
        members = {}
        for key in keys:
            members[f"{key}.png"] = encode_image(int(key), 0)
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
    assert read_captions(tmp_path / name) == FileCaptions(TEXTS)
    (tmp_path / name).write_text(f"\ufeff{content}", encoding="utf-8")
    assert read_captions(tmp_path / name) == FileCaptions(TEXTS)


def test_parquet_gives_the_same(tmp_path):
    Dataset.from_list(ROWS).to_parquet(tmp_path / "e.parquet")
    assert read_captions(tmp_path / "e.parquet") == FileCaptions(TEXTS)


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.json", '{"7": "7", "8": "", "7": "later", "7": "last"}', "entry 2"),
        ("a.csv", "key,caption\n7,7\n\n,text\n7,later\n7,last\n", "line 5"),
        ("a.jsonl", lines(*({"key": key, "caption": f"{key}"} for key in (7, 7, None, 7))), "line 2"),
    ],
)
def test_of_several_captions_the_first_is_used_and_blank_ones_are_counted(tmp_path, name, content, place):
    (tmp_path / name).write_text(content)
    assert read_captions(tmp_path / name) == FileCaptions({"7": "7"}, 2, f"{place}, '7'", 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"key,caption\n7,a dog, a cat\n", r"a.csv, line 2: found 3 .*\['7', 'a dog', ' a cat'\]"),
        ("a.csv", b"key,caption\n7\n", r"a.csv, line 2: found 1 "),
        ("a.csv", b'key,caption\n7,"a dog\n8,a cat\n', "a.csv, line 3: unexpected end"),
        ("a.csv", b'key,caption\n7,a\n8,"a" dog\n', "a.csv, line 3: .*Double every quote"),
        ("a.csv", b"key,caption\n7,caf\xe9\n", "a.csv, line 2: .*caf.* UTF-8"),
        ("a.csv", b"", "a.csv .*'key'; .*: none"),
        ("a.jsonl", b'{"key": "7", "caption": "a"}\n\n{"key', "a.jsonl, line 3: .*JSON"),
        ("a.jsonl", b"[7]", r"a.jsonl, line 1: found \[7\]"),
        ("a.jsonl", b'{"key": "7", "captions": "a"}', "line 1: .*'caption'; .*: key, captions"),
        ("a.jsonl", b'{"key": 7.0, "caption": "a"}', "line 1: .*key .*7.0"),
        ("a.jsonl", b'{"key": 7, "caption": ["a"]}', r"line 1: .*caption .*\['a'\]"),
        ("a.json", b'{"6": "a", "7": {"text": "a"}}', "entry 1: .*caption .*{'text': 'a'}"),
        ("a.json", b'{"7": "a"}\n{"8": "b"}', "a.json, line 2, column 1: not JSON .*jsonl"),
        ("a.json", b"7", "a.json: found 7"),
        ("a.parquet", b"no", "a.parquet .*Parquet"),
    ],
)
def test_what_cannot_be_read_is_named_by_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_captions(tmp_path / name)


def join(dataset: Dataset, path: Path, **settings) -> tuple[Dataset, list[str]]:
    logged: list[str] = []
    settings = {"key_column": None, "file_columns": None} | settings
    return with_captions_of(dataset, path, log=logged.append, **settings), logged


def test_shards_get_captions_by_the_names_of_their_samples(shards, tmp_path):
    path = tmp_path / "short.json"
    path.write_text(json.dumps(TEXTS))
    joined, logged = join(load_training_set(str(shards)), path)
    assert joined["caption"][:] == [TEXTS[KEYS[0]], None, TEXTS[KEYS[2]]]
    assert [image.getpixel((0, 0))[0] for image in joined["png"]] == [0, 1, 10]
    assert logged == [
        "captions from short.json, joined by __key__: 2 rows have one; 1 have none and are left out",
        "captions from short.json without a row: 1",
    ]


def test_shards_get_captions_by_an_entry_of_their_json(shards, tmp_path):
    path = tmp_path / "short.csv"
    path.write_text("Image Path,short\nhttp://x/10,a cat\nhttp://x/1,a dog\nhttp://x/1,again\nhttp://x/0, \n")
    joined, logged = join(
        load_training_set(str(shards)), path, key_column="json.url", file_columns="Image Path, short"
    )
    assert joined["caption"][:] == [None, "a dog", "a cat"]
    assert logged[1:] == [
        "1 entries of short.csv have the same key as an earlier entry, whose caption is used; the first: line 4, "
        "'http://x/1'",
        "1 entries of short.csv have no key or no caption",
    ]


def test_rows_of_one_key_share_a_caption_and_are_told(tmp_path):
    path = tmp_path / "new.json"
    path.write_text('{"7": "new"}')
    rows = [{"json": {"url": "7"}}, {"json": None}, {"json": {"url": "7"}}]
    joined, logged = join(Dataset.from_list(rows).select([2, 1, 0]), path, key_column="json.url")
    assert joined["caption"][:] == ["new", None, "new"] and joined["json"][2] == {"url": "7"}
    assert logged[1:] == ["1 of these rows repeat the json.url of an earlier row and share its caption"]


def test_captions_of_the_set_give_way(tmp_path):
    path = tmp_path / "new.json"
    path.write_text('{"7": "new"}')
    joined, logged = join(
        Dataset.from_dict({"id": [7, None], "caption": ["old", "old"], "concepts": [["a"], []]}), path, key_column="id"
    )
    assert joined.to_dict() == {"id": [7, None], "caption": ["new", None]}
    assert logged[-1] == "they replace the dataset's own caption, concepts"


@pytest.mark.parametrize(
    ("name", "content", "settings", "message"),
    [
        ("a.json", '{"x": "a"}', {}, "'id' .*2 rows .*a.json: .*'7' .*'x'"),
        ("a.json", "{}", {}, "'7' .*None "),
        ("a.txt", "", {}, "captions_file: found a.txt, expected .*json"),
        ("a.csv", "url,text\n7,a\n", {}, "a.csv .*'key'; .*: url, text"),
        (
            "a.csv",
            "url,text\n7,a\n",
            {"file_columns": "url"},
            "captions_columns: found 'url', expected .*'url,caption'",
        ),
        ("a.json", '{"7": "a"}', {"key_column": "nr"}, "key_column='nr': .*'nr'; .*: id"),
        ("a.json", '{"7": "a"}', {"key_column": "id.nr"}, "'id' .*'nr'"),
        ("a.json", '{"7": "a"}', {"column_names": {"caption": "txt"}}, "column_names .*'caption'"),
    ],
)
def test_what_does_not_fit_is_told(tmp_path, name, content, settings, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        join(Dataset.from_dict({"id": [7, 8]}), tmp_path / name, **({"key_column": "id"} | settings))
