"""What evaluation keeps of a global batch that accelerate filled up. Under a second."""

from __future__ import annotations

import pytest
import torch

from hfcomp.modeling import Features
from hfcomp.trainers._support.gathering import first_rows


def features(rows: slice) -> Features:
    """Features of 6 rows with 2 concepts each; the tokens are those of `rows`."""
    image, concepts = torch.arange(6.0).unsqueeze(1), torch.arange(12.0).unsqueeze(1)
    tokens = image[rows].unsqueeze(1)
    return Features(
        image_embeds=image,
        concept_embeds=concepts,
        concept_image_index=torch.arange(12) // 2,
        tokens=tokens,
        rows=rows,
    )


@pytest.mark.parametrize(("rows", "kept"), [(slice(0, 3), slice(0, 3)), (slice(3, 6), slice(3, 4))])
def test_rows_of_the_start_that_fill_the_last_batch_are_left_out(rows, kept):
    part = first_rows(features(rows), 4, 6)
    assert part.rows == kept
    assert part.image_embeds.flatten().tolist() == [0, 1, 2, 3]
    assert part.concept_embeds.flatten().tolist() == list(range(8))
    assert part.concept_image_index.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    # those of this process's rows only
    assert torch.equal(part.tokens[:, 0], part.image_embeds[part.rows])


def test_a_process_of_which_no_row_is_left():
    part = first_rows(features(slice(3, 6)), 2, 6)
    assert part.rows == slice(2, 2)
    assert part.tokens.shape == (0, 1, 1)


def test_a_full_batch_stays_as_it_is():
    whole = features(slice(3, 6))
    assert first_rows(whole, 0, 6) is whole
