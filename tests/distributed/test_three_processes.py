"""Batches that differ in size, through `encode`, and the losses in slices: three processes find what one finds."""

from __future__ import annotations

import pytest
import torch

from tests.distributed.cases import LOSSES
from tests.distributed.compare import assert_same_batch, assert_same_embeddings, assert_slices_add_up
from tests.distributed.launch import Results, launch

SLICES = [[0, 3], [3, 6], [6, 8]]


@pytest.fixture(scope="module")
def three(models, tmp_path_factory) -> Results:
    return launch(
        3, models, tmp_path_factory.mktemp("three"), ["uneven", "uneven_concepts", "rows_and_whole", "embeddings"]
    )


def test_every_process_has_its_rows(three, one):
    assert [result.facts["world_size"] for result in three["uneven"]] == [3, 3, 3]
    assert [result.facts["threads"] for result in three["uneven"]] == [torch.get_num_threads()] * 3
    assert [result.facts["rows"] for result in three["uneven"]] == SLICES
    assert one["uneven"][0].facts["rows"] == [0, 8]


@pytest.mark.parametrize("name", ["uneven", "uneven_concepts"])
def test_3_3_and_2_rows_are_as_8(three, one, name):
    (single,) = one[name]
    expected = (
        {"image_embeds", "text_embeds", "negative_image_embeds", "negative_text_embeds"}
        if name == "uneven"
        else {"tokens"}
    )
    assert expected | {"concept_embeds", "concept_image_index"} < single.part("field").keys()
    assert_same_batch(three[name], single)
    scalar = "objective_state.offset.value" if name == "uneven" else "backbone.logit_bias"
    assert {"backbone.logit_scale", scalar} <= single.part("gradient").keys()


def test_concepts_point_to_global_rows(three):
    for result in three["uneven"]:
        # every second image has two concepts, the others one and a padding
        owner = [index if slot == 0 or index % 2 else -1 for index in range(8) for slot in range(2)]
        assert result.tensors["field/concept_image_index"].tolist() == owner


def test_the_last_process_has_no_concepts(three):
    for result in three["uneven_concepts"]:
        owners = result.tensors["field/concept_image_index"]
        assert owners.view(8, 2).ge(0).sum(1).tolist() == [1, 0, 1, 2, 0, 0, 0, 0]


@pytest.mark.parametrize("loss", LOSSES)
def test_the_slices_of_one_and_of_three_processes_add_up_to_the_whole(one, three, loss):
    assert_slices_add_up(one["rows_and_whole"], loss, sizes=[7])
    assert_slices_add_up(three["rows_and_whole"], loss, sizes=[3, 2, 2])


def test_processes_share_the_encoding_and_get_the_same_embeddings(three, one):
    assert_same_embeddings(three["embeddings"], one["embeddings"][0])
