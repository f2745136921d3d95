"""Reading a column of a benchmark's rows."""

from __future__ import annotations

import datasets
from PIL import Image

from hfcomp.evaluation.spec import column_values
from tests import tiny


def test_the_values_of_a_column_are_those_that_datasets_gives(tmp_path):
    rows = tiny.pairs(6, concepts=True)
    rows.save_to_disk(tmp_path / "rows")
    for dataset in (
        rows,
        datasets.load_from_disk(tmp_path / "rows"),
        rows.select([4, 0, 2]),
        rows.with_format("numpy"),
    ):
        for name in ("caption", "negative_captions", "image_id", "negative_concreteness"):
            assert str(column_values(dataset, name)) == str(dataset[name][:]), name
    assert all(isinstance(image, Image.Image) for image in column_values(rows, "image"))
