"""Rows with several captions: which are passed over, and which rows share an image."""

from __future__ import annotations

import pytest
from datasets import Dataset

from hfcomp.data.image_ids import shared_rows
from hfcomp.data.several_captions import every_caption, longest_caption


def test_empty_captions_beside_others_are_passed_over():
    dataset = Dataset.from_dict({"image_id": ["a", "b"], "caption": [["", None, "One."], ["Two words.", ""]]})
    assert longest_caption(dataset, log=lambda note: None)["caption"][:] == ["One.", "Two words."]


def test_captions_that_no_text_function_takes_are_passed_over_and_counted():
    dataset = Dataset.from_dict(
        {"image_id": ["a", "b"], "caption": [["a dog runs", "x " * 3000], ["One.", "Two words."]]}
    )
    logged: list[str] = []
    assert longest_caption(dataset, log=logged.append)["caption"][:] == ["a dog runs", "Two words."]
    assert logged[-1].startswith("1 captions are skipped; the first is in row 0: caption too long: 3,000 words")


@pytest.mark.parametrize("ids", [["7", None, ""], [7, None, 0]], ids=["texts", "numbers"])
def test_captions_of_a_row_without_an_id_are_of_one_image(ids):
    lists = [["A dog.", "A cat."], ["A bus.", "A car."], ["A cup."]]
    dataset = every_caption(Dataset.from_dict({"n": [0, 1, 2], "caption": lists, "image_id": ids}), lambda note: None)
    last = str(ids[2]) or "row 2"
    kept = [row for row, caption in enumerate(dataset["caption"]) if caption]
    assert dataset.select(kept)["image_id"][:] == ["7", "row 1", last, "7", "row 1"]
    assert shared_rows(dataset.select(kept)["image_id"][:]) == 4
