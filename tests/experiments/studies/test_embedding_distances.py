"""Distances between embeddings: means over rows, and what changes between checkpoints."""

from __future__ import annotations

import pandas as pd
import pytest

from hfcomp.experiments.studies.embedding_distances import PAIRS, HeldOutRows, by_row, middle_step, summarize_paths


def test_the_middle_is_the_scored_step_nearest_to_half_of_training():
    assert middle_step([0, 25, 50, 75, 100]) == 50
    assert middle_step([0, 3, 6, 7]) == 3  # 3 and 4 are as near: the earlier
    assert middle_step([0, 4]) is None


def test_every_row_counts_the_same_whatever_its_number_of_negatives():
    """Row 0 has two negatives, of which one is nearer to the image than its text; row 1 has one."""
    table = pd.DataFrame({"row": [0, 0, 1], "slot": [0, 1, 0], "nearer": [True, False, True]})
    for name in PAIRS:
        table[name] = [0.2, 0.4, 0.9]
    assert by_row(table)["image, negative text"].tolist() == pytest.approx([0.3, 0.9])
    assert by_row(table)["nearest"].tolist() == [0, 1]
    rows = HeldOutRows([None] * 2, ["a", "b"], ["one", "two"], [["x", "y"], ["z"]], "drawn", "")
    later = table.assign(**dict.fromkeys(PAIRS, 1.0), nearer=False)
    summary = summarize_paths({"all": {0: table, 5: later}}, rows, examples=2)["all"]
    assert [point["step"] for point in summary["points"]] == [0, 5]
    assert summary["points"][0]["text, negative text"]["value"] == pytest.approx(0.6)
    assert summary["points"][0]["nearest"]["value"] == 0.5
    assert summary["change"]["image, text"]["value"] == pytest.approx(0.4)
    assert summary["change"]["nearest"]["value"] == -0.5
    example = summary["examples"][0]
    assert (example["caption"], example["negative_caption"]) == ("one", "x")
    assert [point["image, text"] for point in example["points"]] == [0.2, 1.0]
