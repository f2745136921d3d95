"""The batch that Cement doubles to [originals; negatives]: masks, shared rows and contrast in both directions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hfcomp.losses._ops.pairs import Direction, both_directions
from hfcomp.losses._ops.shapes import check_mask, check_pairs, check_shape
from hfcomp.losses._ops.shared_rows import SharedRows, doubled_texts, shared_rows


class DoubledBatch(NamedTuple):
    """2N rows; i' = i + N (or i - N) is the counterpart of i."""

    images: Tensor  # [2N, D], 0 where masked
    texts: Tensor  # [2N, D], 0 where masked
    image_valid: Tensor  # [2N] bool
    text_valid: Tensor  # [2N] bool
    shared: SharedRows

    @property
    def counterpart(self) -> Tensor:
        """Returns i' for every i, [2N] long."""
        return torch.arange(len(self.images), device=self.images.device).roll(len(self.images) // 2)

    def counterpart_differs(self) -> Tensor:
        """Returns whether the text of i' differs from that of i, [2N] bool."""
        if self.shared.text is None:
            return torch.ones_like(self.text_valid)
        return self.shared.text != self.shared.text[self.counterpart]

    def directions(self, scale: Tensor, raised: Tensor, anchors: Tensor | None) -> tuple[Direction, Direction]:
        """Contrasts anchors ([R] long, None for all), with `raised` ([2N] logits) added at (i, i').

        Returns:
            Image to text and text to image. Entries 0 and 1 are the plain logits of i and i'.
        """
        index = torch.arange(len(self.images), device=self.images.device)
        return both_directions(
            self.images,
            self.texts,
            scale,
            positions=torch.stack([index, self.counterpart], 1),
            # -inf removes the own pair from the sum. `cross_entropy` compares it with the others, which stays exact
            # near p = 1.
            additions=torch.stack([torch.full_like(raised, -torch.inf), raised], 1),
            anchors=anchors,
            image_mask=self.image_valid,
            text_mask=self.text_valid,
            shared=self.shared,
        )


def double_batch(
    image: Tensor,
    text: Tensor,
    negative_image: Tensor,
    negative_text: Tensor,
    negative_image_mask: Tensor | None,
    negative_text_mask: Tensor | None,
    image_id: Tensor | None,
    text_id: Tensor | None,
    negative_text_id: Tensor | None,
) -> DoubledBatch:
    """Checks and doubles a batch. Arguments as in `cement_loss`."""
    size, width = check_pairs(image, text)
    check_shape("negative_image", negative_image, N=size, D=width)
    check_shape("negative_text", negative_text, N=size, D=width)
    image_valid = _doubled_mask("negative_image_mask", negative_image_mask, image)
    text_valid = _doubled_mask("negative_text_mask", negative_text_mask, image)
    # Masked embeddings may hold any value, even NaN, which products would spread into all gradients.
    images = torch.cat([image, negative_image]).masked_fill(~image_valid.unsqueeze(1), 0)
    texts = torch.cat([text, negative_text]).masked_fill(~text_valid.unsqueeze(1), 0)
    shared = _doubled_shares(image_id, text_id, negative_text_id, text_valid)
    return DoubledBatch(images, texts, image_valid, text_valid, shared)


def _doubled_shares(
    image_id: Tensor | None, text_id: Tensor | None, negative_text_id: Tensor | None, text_valid: Tensor
) -> SharedRows:
    """Returns which of the 2N rows share something. A negative image belongs to a single row."""
    size = len(text_valid) // 2
    image = shared_rows(image_id, text_id, size).image
    if image is not None:
        image = torch.cat([image, torch.arange(size, 2 * size, dtype=image.dtype, device=image.device)])
    return SharedRows(image, doubled_texts(text_id, negative_text_id, text_valid))


def _doubled_mask(name: str, mask: Tensor | None, image: Tensor) -> Tensor:
    """Returns the mask [2N] of [originals; negatives]. Originals are valid."""
    valid = torch.ones(len(image), dtype=torch.bool, device=image.device)
    if mask is None:
        return valid.repeat(2)
    check_mask(name, mask, N=len(image))
    return torch.cat([valid, mask])
