"""The training set of a recipe: filter, longest caption, keyword negatives, joined ratings, lost rows told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hfcomp.experiments.data import training_rows
from hfcomp.experiments.recipes import ExperimentConfig
from tests import tiny

CAPTIONS = [
    ["A dog.", "A red dog under a small table."],
    ["Nothing here.", "Words without any."],
    ["The bus is large."],
]


@pytest.fixture
def listing(tmp_path: Path) -> str:
    rows = []
    for index, captions in enumerate(CAPTIONS):
        tiny.image(index).save(tmp_path / f"{index}.png")
        rows.append({"image": f"{index}.png", "texts": captions, "held_out": index == 2})
    path = tmp_path / "photographs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def rows(dataset: str, **changes):
    config = ExperimentConfig(objective="x:y", method="m", dataset=dataset, batch_size=2, **changes)
    told: list[str] = []
    return training_rows(config, column_names={"caption": "texts"}, seed=0, tell=told.append), told


def test_the_longest_of_several_captions_is_used(listing):
    dataset, told = rows(listing)
    assert dataset["caption"][:] == ["A red dog under a small table.", "Words without any.", "The bus is large."]
    assert "several captions per image: the longest is used" in told


def test_filtered_rows_are_counted(listing):
    dataset, told = rows(listing, dataset_filter="held_out=false")
    assert len(dataset) == 2
    assert "2 of them have held_out=false; 1 are left out" in told


def test_a_filter_on_a_missing_column_names_those_that_exist(listing):
    with pytest.raises(ValueError, match="no column 'heldout'; has: .*held_out"):
        rows(listing, dataset_filter="heldout=false")


def test_captions_without_a_keyword_take_part_without_a_negative(listing):
    dataset, told = rows(listing, keyword_negatives=["color", "size"])
    texts = [row[0] for row in dataset["negative_captions"]]
    assert texts[1] == ""
    assert all(text and text != caption for text, caption in zip(texts[::2], dataset["caption"][::2], strict=True))
    assert dataset["negative_image"][:] == [None, None, None]
    assert any("2 captions have a keyword" in line and "1 take part without" in line for line in told)


def test_ratings_are_joined_to_keywords_and_missing_ones_counted(listing, tmp_path):
    header = "Word\tBigram\tConc.M\tConc.SD\tUnknown\tTotal\tPercent_known\tSUBTLEX\tDom_Pos"
    path = tmp_path / "ratings.txt"
    path.write_bytes(f"{header}\r\nlarge\t0\t3.2\t1\t0\t30\t1\t9\tAdjective\r\n".encode())
    dataset, told = rows(listing, keyword_negatives=["size"], concreteness_ratings=str(path))
    by_keyword = {
        words[0]: ratings[0]
        for words, ratings in zip(dataset["negative_keywords"], dataset["negative_concreteness"], strict=True)
    }
    assert by_keyword == {"small": None, "": None, "large": 3.2}
    assert any(line.startswith("concreteness of negatives' keywords: 1 of 2") for line in told)
