"""Batches that differ in size, through `encode`, and the losses in slices: three processes find what one finds."""

from __future__ import annotations

import pytest

from tests.distributed.cases import LOSSES
from tests.distributed.compare import (
    assert_same_embeddings,
    assert_same_log,
    assert_same_tensors,
    assert_slices_add_up,
)
from tests.distributed.launch import Results, launch

SLICES = [[0, 3], [3, 6], [6, 8]]


@pytest.fixture(scope="module")
def three(models, tmp_path_factory) -> Results:
    return launch(3, models, tmp_path_factory.mktemp("three"), ["uneven", "rows_and_whole", "embeddings"])


def test_every_process_has_its_rows(three, one):
    assert [result.facts["world_size"] for result in three["uneven"]] == [3, 3, 3]
    assert [result.facts["rows"] for result in three["uneven"]] == SLICES
    assert one["uneven"][0].facts["rows"] == [0, 8]
    assert {result.facts["wrapped"] for result in three["uneven"]} == {"DistributedDataParallel"}


def test_the_features_of_3_3_and_2_rows_are_those_of_8(three, one):
    expected = one["uneven"][0].part("field")
    gathered = {"image", "text", "negative_image", "negative_text", "concepts", "owner"}
    assert gathered < expected.keys()
    for result in three["uneven"]:
        assert_same_tensors(result.part("field"), expected)


def test_owners_point_to_global_rows(three):
    for result in three["uneven"]:
        # every second image has two concepts, the others one and a padding
        owner = [index if slot == 0 or index % 2 else -1 for index in range(8) for slot in range(2)]
        assert result.tensors["field/owner"].tolist() == owner


def test_the_loss_and_the_gradients_of_3_3_and_2_rows_are_those_of_8(three, one):
    single = one["uneven"][0]
    for result in three["uneven"]:
        assert_same_tensors({"loss": result.tensors["loss"]}, {"loss": single.tensors["loss"]})
        assert_same_tensors(result.part("gradient"), single.part("gradient"))
    assert_same_log([three["uneven"][0].facts["log"]], [single.facts["log"]])
    assert {"backbone.logit_scale", "objective_state.offset.value"} <= single.part("gradient").keys()


@pytest.mark.parametrize("loss", LOSSES)
def test_the_slices_of_one_and_of_three_processes_add_up_to_the_whole(one, three, loss):
    assert_slices_add_up(one["rows_and_whole"], loss, sizes=[7])
    assert_slices_add_up(three["rows_and_whole"], loss, sizes=[3, 2, 2])


def test_processes_share_the_encoding_and_get_the_same_embeddings(three, one):
    assert_same_embeddings(three["embeddings"], one["embeddings"][0])
