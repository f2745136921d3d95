"""Splits of one dataset that are trained on and scored."""

from __future__ import annotations

from functools import partial

import pytest

from hfcomp.data.overlap.policy import check_own_split


@pytest.mark.parametrize(
    ("training", "scored", "refused"),
    [
        ("train", "train", True),
        ("train", "train[:10%]", True),
        ("train[:90%]", "train[50%:]", True),
        ("train[:90%]", "train[90%:]", False),
        ("train[:100]", "train[100:200]", False),
        ("train+test", "test", True),
        ("train", "all", True),
        ("train", "test", False),
    ],
)
def test_the_rows_of_training_are_not_scored(training, scored, refused):
    log: list[str] = []
    check = partial(check_own_split, "my-org/my-pairs", training, streaming=False, log=log.append)
    if not refused:
        return check("my-org/my-pairs", scored, allow=False)
    with pytest.raises(ValueError, match="evaluation: own: my-org/my-pairs ") as caught:
        check("my-org/my-pairs", scored, allow=False)
    assert "--evaluation_split" in str(caught.value) and "--evaluation_dataset" in str(caught.value)
    check("my-org/my-pairs", scored, allow=True)
    assert log[0].endswith("overlap: allow permits this")
    check("my-org/other-pairs", scored, allow=True)
    assert len(log) == 1


def test_a_stream_is_not_sliced():
    with pytest.raises(ValueError, match="with --evaluation_split"):
        check_own_split("org/pairs", "train", "org/pairs", "train", allow=False, streaming=True, log=print)
