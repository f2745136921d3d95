"""A set with several generalized captions per image: its rows, splits and card, and what reads it (about 5 s)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp.analysis.hierarchy.page import read_members
from hfcomp.data.loading import load_training_set
from hfcomp.data.pair_table import every_caption
from hfcomp.evaluation.benchmarks.papers.magic import MAGIC_CAPTIONS
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Folders
from tests.factory.magic.sets import PER_CONCEPT, WORDS, build_magic

IMAGES = len(WORDS) * PER_CONCEPT


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return build_magic(tmp_path_factory.mktemp("magic"), captions_per_image=3).folder


def test_an_image_has_a_row_with_a_list_in_one_split(folder):
    splits = [load_training_set(str(folder), split=split, config="levels") for split in ("train", "test")]
    rows = [row for split in splits for row in split.remove_columns("image")]
    assert len(rows) == len({row["image_id"] for row in rows}) == IMAGES
    # an image of the source has two captions
    assert all(len({*row["generalized_caption"]}) == len(row["generalized_caption"]) == 2 for row in rows)
    card = (folder / "README.md").read_text()
    assert f"| image-caption pairs | {2 * IMAGES} | 81,602 |" in card and "--captions_per_image 3" in card
    assert any(all(f"| {text} | {row['level_1']} |" in card for text in row["generalized_caption"]) for row in rows)


def test_training_has_a_row_per_pair_and_shares_the_images_id(folder):
    rows = load_training_set(str(folder), column_names={"caption": "generalized_caption"})
    pairs = every_caption(rows, lambda line: None)
    assert len(pairs) == 2 * len(rows) and pairs["image_id"][:] == 2 * rows["image_id"][:]
    assert pairs["group"][:] == 2 * rows["group"][:]
    assert set(zip(pairs["image_id"][:], pairs["caption"][:], strict=True)) == {
        (image, text) for image, texts in zip(rows["image_id"][:], rows["caption"][:], strict=True) for text in texts
    }


def test_analysis_counts_pairs_and_the_benchmark_takes_the_first(folder):
    members = read_members(folder, thumbnails=0)
    assert members.pairs == 2 * IMAGES
    assert all(len(own.captions) == len({*own.captions}) == 4 for own in members.concepts.values())
    scored = load_items(MAGIC_CAPTIONS, Folders(own={"magic": folder})).rows
    test = load_training_set(str(folder), split="test")
    assert scored["caption"][:] == [texts[0] for texts in test["generalized_caption"][:]]
