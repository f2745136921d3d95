"""A further field of rows is one entry of the table: the collator reads it. Under a second."""

from __future__ import annotations

import pytest
import torch

from hfcomp.data.row_values import row_fields
from hfcomp.fields import FIELDS, VALUES, Field


@pytest.fixture(autouse=True)
def weight(monkeypatch):
    entry = Field(column="weight", gathered=VALUES, in_batch=True, dtype=torch.float32, missing=1.0)
    monkeypatch.setitem(FIELDS, "caption_weight", entry)


def test_a_number_of_each_row_is_read_and_a_missing_one_filled():
    weights = row_fields([{"weight": 3}, {"weight": None}, {"weight": 0.5}], [0, 1, 2])["caption_weight"]
    assert weights.dtype == torch.float32 and weights.tolist() == [3, 1, 0.5]
    assert row_fields([{"image": "a"}], [0]) == {}


def test_what_is_no_number_is_named_by_column_and_row():
    with pytest.raises(ValueError, match="'weight', row 7: found 'much'"):
        row_fields([{"weight": "much"}], [7])
