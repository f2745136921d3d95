"""Stored outcomes of a run: used again when they are whole, scored again when they are not."""

from __future__ import annotations

import random

import pandas as pd

from hfcomp.experiments.study import read_stored
from hfcomp.statistics.outcomes import write_table
from tests.evaluation.evaluations import crepe, recall

STAMP = {"weights": "sha256:0", "evaluation": "own"}


def test_a_damaged_file_is_reported_and_scored_again(tmp_path):
    table = pd.concat([crepe("a", 0.5), recall("a", 0.5)], ignore_index=True)
    path, lines, again = tmp_path / "evaluation" / "a.parquet", [], 0
    write_table(path, table, {**STAMP, "notes": ["two rows were left out"]})
    expected, whole = read_stored(path, STAMP, lines.append), path.read_bytes()
    assert lines == ["two rows were left out"]
    pd.testing.assert_frame_equal(expected, table, check_dtype=False)
    for place in random.Random(0).sample(range(8 * len(whole)), 250):
        lines.clear()
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        stored_table = read_stored(path, STAMP, lines.append)
        if stored_table is None:
            again += lines == [f"{path} is damaged: scoring its outcomes again"]
        else:
            pd.testing.assert_frame_equal(stored_table, expected)
            assert lines == ["two rows were left out"], place
    assert again > 50
