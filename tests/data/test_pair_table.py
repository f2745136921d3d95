"""One reading of rows with captions and negatives: which caption of a list, which texts are pairs."""

from __future__ import annotations

import json

import pytest
from datasets import Dataset, Value

from hfcomp.analysis.audit.options import AuditOptions
from hfcomp.analysis.audit.reading import read_audit_set
from hfcomp.analysis.gallery.options import GalleryOptions
from hfcomp.analysis.gallery.rows import choose_rows, read_set, row_record
from hfcomp.analysis.pairs.items import read_pairs
from hfcomp.analysis.pairs.options import DataOptions
from hfcomp.data import load_training_set
from hfcomp.data.image_ids import shared_rows, with_column
from hfcomp.data.pair_table import check_entries, choose_captions, every_caption, pair_table, texts_of
from hfcomp.evaluation.benchmarks.own import own_benchmark
from hfcomp.evaluation.loaded import load_benchmark
from hfcomp.factory.text_negatives import make_captions
from tests import tiny

LISTS = [["a dog", "a brown dog runs"], ["one cat sits there", "a cat"], ["a bus"]]
CHOSEN = {
    "longest": ["a brown dog runs", "one cat sits there", "a bus"],
    "first": ["a dog", "one cat sits there", "a bus"],
    "all": ["a dog", "one cat sits there", "a bus", "a brown dog runs", "a cat"],
}


def ignore(line):
    pass


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A set with lists of captions, each with a negative, and no `image_id`."""
    folder = tmp_path_factory.mktemp("lists")
    for number in range(3):
        tiny.image(number).save(folder / f"{number}.png")
    rows = [
        {"image": f"{number}.png", "caption": captions, "negative_captions": [f"not {number}"]}
        for number, captions in enumerate(LISTS)
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / "pairs.jsonl")


@pytest.mark.parametrize("choice", CHOSEN)
def test_every_reader_takes_the_same_caption_of_a_list(place, choice):
    captions = CHOSEN[choice]
    assert read_pairs("own", place, DataOptions(caption_choice=choice), None).items["caption"].tolist() == captions
    data = read_audit_set(place, AuditOptions(caption_choice=choice))
    assert data.pairs["caption"].tolist() == captions
    scored = load_benchmark(own_benchmark(place, caption_choice=choice)).data.rows
    assert scored["caption"][:] == captions
    assert data.image_ids == scored["image_id"][:] == [f"{number % 3}.png" for number in range(len(captions))]
    assert {*data.texts["text"]} == {text for texts in LISTS for text in texts}
    built = make_captions(which=choice)({"caption": LISTS, "image": [0, 1, 2]})
    assert sorted(built["caption"]) == sorted(captions)
    if choice != "all":
        options = GalleryOptions(caption_choice=choice)
        records = [row_record(row, 0) for row in choose_rows(read_set(place, options), place, options)]
        assert [record["caption"] for record in records] == captions
        others = [[text for text in texts if text != caption] for texts, caption in zip(LISTS, captions, strict=True)]
        assert [record["positives"] for record in records] == others


def test_every_reader_takes_the_longest_by_default(place):
    readings = [
        read_pairs("own", place, DataOptions(), None).items["caption"].tolist(),
        read_audit_set(place, AuditOptions()).pairs["caption"].tolist(),
        load_benchmark(own_benchmark(place)).data.rows["caption"][:],
        choose_rows(read_set(place, GalleryOptions()), place, GalleryOptions()).dataset["caption"][:],
        choose_captions(load_training_set(place), "longest", ignore)["caption"][:],
    ]
    assert readings == [CHOSEN["longest"]] * 5


def test_empty_captions_beside_others_are_passed_over():
    dataset = Dataset.from_dict({"image_id": ["a", "b"], "caption": [["", None, "One."], ["Two words.", ""]]})
    for choice in ("longest", "first"):
        assert choose_captions(dataset, choice, ignore)["caption"][:] == ["One.", "Two words."]


def test_captions_that_no_text_function_takes_are_passed_over_and_counted():
    dataset = Dataset.from_dict(
        {"image_id": ["a", "b"], "caption": [["a dog runs", "x " * 3000], ["One.", "Two words."]]}
    )
    logged: list[str] = []
    assert choose_captions(dataset, "longest", logged.append)["caption"][:] == ["a dog runs", "Two words."]
    assert logged[-1].startswith("1 captions are skipped; the first is in row 0: caption too long: 3,000 words")


def test_a_row_without_a_caption_is_an_error_or_none():
    dataset = Dataset.from_dict({"caption": [["a", "b"], [" "]], "positive_captions": [["c"], None]})
    with pytest.raises(ValueError, match=r"'caption', row 1: found \[' '\]"):
        choose_captions(dataset, "first", ignore)
    rows = choose_captions(dataset, "first", ignore, keep_others=True, allow_missing=True)
    assert rows["caption"][:] == ["a", None] and rows["positive_captions"][:] == [["b", "c"], []]


@pytest.mark.parametrize("ids", [["7", None, ""], [7, None, 0]], ids=["texts", "numbers"])
def test_captions_of_a_row_without_an_id_are_of_one_image(ids):
    lists = [["A dog.", "A cat."], ["A bus.", "A car."], ["A cup."]]
    dataset = Dataset.from_dict({"n": [0, 1, 2], "caption": lists, "image_id": ids})
    last = str(ids[2]) or "row 2"
    chosen = choose_captions(dataset, "all", ignore)
    assert chosen["image_id"][:] == ["7", "row 1", last, "7", "row 1"]
    assert chosen["caption"][:] == ["A dog.", "A bus.", "A cup.", "A cat.", "A car."]
    assert shared_rows(chosen["image_id"][:]) == 4
    assert None in every_caption(dataset, ignore)["caption"][:]  # until all columns are there


def test_a_column_of_selected_rows_is_added_without_copying_the_others(place):
    rows = load_training_set(place).select([2, 0])
    dataset = with_column(rows, "caption", ["x", "y"], Value("string"))
    assert dataset["caption"][:] == ["x", "y"] and len(dataset.data) == 3
    assert choose_captions(rows, "longest", ignore)["caption"][:] == ["a bus", "a brown dog runs"]


def test_pairs_are_of_texts_and_have_the_facts_of_their_places():
    columns = {
        "caption": ["a dog", "  ", "a cat", "a bus"],
        "positive_captions": ["a pup", None, [], [None, "a coach"]],
        "negative_captions": [["", "a cow", None], ["a hen"], "a car", None],
        "negative_kinds": [["swap_att", "add_obj"], None, "other", []],
    }
    table = pair_table(columns, list("abcd"))
    pairs = table.pairs[["row", "place", "image_id", "caption", "negative", "kind"]].to_numpy().tolist()
    assert pairs == [[0, 1, "a", "a dog", "a cow", "add_obj"], [2, 0, "c", "a cat", "a car", "other"]]
    assert table.pairs["keyword"].isna().all() and table.without_caption == [1] and table.masked == 3
    assert table.texts.to_numpy().tolist() == [
        [0, "a", "a dog"],
        [0, "a", "a pup"],
        [2, "c", "a cat"],
        [3, "d", "a bus"],
        [3, "d", "a coach"],
    ]


@pytest.mark.parametrize(
    ("column", "value", "match"),
    [
        ("caption", 7, "place, .*'caption', row 0: found 7"),
        ("negative_captions", [7], r"place, .*'negative_captions', row 0: found \[7\]"),
        ("negative_kinds", ["a", "b"], "'negative_kinds', row 0: .* 1 "),
    ],
)
def test_entries_that_do_not_fit_are_named(column, value, match):
    columns = {"caption": ["a dog"], "negative_captions": ["a cat"], "negative_kinds": [None]}
    check_entries(columns, "place")
    with pytest.raises(ValueError, match=match):
        check_entries(columns | {column: [value]}, "place")


def test_an_entry_is_a_text_a_list_or_nothing():
    assert [texts_of(value) for value in (None, " ", "a", ["a", "", None, 1], ("b",))] == [[], [], ["a"], ["a"], ["b"]]
