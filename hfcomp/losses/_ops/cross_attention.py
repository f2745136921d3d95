"""Images seen through a concept: the cosine of each concept with the image tokens that it attends to.

No vector is formed per image and concept. Let V be the tokens of an image and a its attention for a concept c. The
attended vector is v = sum_p a_p V_p, and its cosine needs only <v, c> = sum_p a_p <V_p, c>, from the scores that gave
a, and |v|^2 = a^T (V V^T) a. Images are processed in chunks, and the backward pass recomputes the scores.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hfcomp.losses._ops.chunks import check_first_derivative, chunk_rows, parts
from hfcomp.losses._ops.shapes import check_shape


def attended_cosines(
    tokens: Tensor, concepts: Tensor, temperature: float = 1.0, *, chunk_size: int | None = None
) -> Tensor:
    """Computes <v, c> / |v| for every image and concept, with v = sum_p softmax_p(<token_p, c> / temperature) token_p.

    It is the cosine between the attended vector and a concept of unit length. If the attended tokens cancel out (|v|^2
    at most the rounding of a sum of unit vectors, 1e-7 in float32 and 2e-16 in float64), there is no direction: the
    cosine is 0, with a zero gradient.

    The forward pass takes R P (C D + P D + P C) multiplications. It keeps two matrices of size [R, C] for the backward
    pass, which recomputes the scores.

    Args:
        tokens: [R, P, D], L2-normalized, P at least 1, of the same type as concepts.
        concepts: [C, D], L2-normalized; rows of zeros give 0.
        temperature: Temperature of the attention, in cosine, finite and above 0.
        chunk_size: Images per chunk; None chooses by device, P and C. An image is never split: besides the gradients,
            three [P, C] and one [P, P] matrices are held for each image of a chunk.

    Returns:
        [R, C], from -1 to 1 up to rounding.

    Source:
        C2LIP (arXiv 2603.25722), Eq. 6. As in its released code, the attention is a softmax of plain dot products, not
        divided by sqrt(D), and the attended vector is L2-normalized. The paper has neither.
    """
    check_shape("tokens", tokens, R=None, P=None, D=None)
    images, per_image, width = tokens.shape
    if not per_image:
        raise ValueError(f"tokens has shape {list(tokens.shape)}, expected [R, P, D] with at least one token")
    check_shape("concepts", concepts, C=None, D=width)
    if not 0 < temperature < math.inf:
        raise ValueError(f"attention_temperature: found {temperature}, expected a finite number above 0")
    # Contiguous, to view the tokens of a chunk and their gradient as matrices without a copy
    tokens = tokens.contiguous()
    # An image takes about four matrices.
    chunk = chunk_size or chunk_rows(tokens, 4 * per_image * max(per_image, len(concepts)))
    cosines: Tensor = _AttendedCosines.apply(tokens, concepts, temperature, min(chunk, max(1, images)))
    return cosines


class _Attention(NamedTuple):
    """Buffers for a chunk of r images, P tokens and C concepts; they may be overwritten."""

    scores: Tensor  # [r, P, C] <token, concept> / temperature
    weights: Tensor  # [r, P, C] softmax of the scores over the tokens
    gram: Tensor  # [r, P, P] token by token
    spread: Tensor  # [r, P, C] gram @ weights: <token, attended vector>

    @staticmethod
    def empty(tokens: Tensor, concepts: Tensor, chunk: int) -> _Attention:
        by_concept, by_token = (chunk, tokens.shape[1], len(concepts)), (chunk, tokens.shape[1], tokens.shape[1])
        return _Attention(*(tokens.new_empty(shape) for shape in (by_concept, by_concept, by_token, by_concept)))

    def fill(self, tokens: Tensor, keys: Tensor) -> _Attention:
        """Attends with keys [D, C] = concepts / temperature to the tokens [r, P, D] of a chunk."""
        filled = _Attention(*(work[: len(tokens)] for work in self))
        torch.mm(tokens.flatten(0, 1), keys, out=filled.scores.flatten(0, 1))
        torch.softmax(filled.scores, 1, out=filled.weights)
        torch.bmm(tokens, tokens.mT, out=filled.gram)
        torch.bmm(filled.gram, filled.weights, out=filled.spread)
        return filled


class _AttendedCosines(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, concepts: Tensor, temperature: float, chunk: int) -> Tensor:
        keys, work = (concepts / temperature).T, _Attention.empty(tokens, concepts, chunk)
        cosines, lengths = (tokens.new_empty((len(tokens), len(concepts))) for _ in range(2))
        for part in parts(len(tokens), chunk):
            now = work.fill(tokens[part], keys)
            # a^T (V V^T) a, see the module's docstring. Buffers may be overwritten: backward fills them again.
            square = now.spread.mul_(now.weights).sum(1)
            # An infinite length makes the cosine and all of its gradient 0.
            lengths[part] = square.sqrt().masked_fill_(square <= torch.finfo(square.dtype).eps, torch.inf)
            cosines[part] = now.scores.mul_(now.weights).sum(1).mul_(temperature).div_(lengths[part])
        ctx.save_for_backward(tokens, concepts, cosines, lengths)
        ctx.temperature, ctx.chunk = temperature, chunk
        return cosines

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        check_first_derivative()
        tokens, concepts, cosines, lengths = ctx.saved_tensors
        keys, work = (concepts / ctx.temperature).T, _Attention.empty(tokens, concepts, ctx.chunk)
        grad_tokens, grad_concepts = torch.empty_like(tokens), torch.zeros_like(concepts)
        with torch.autocast(tokens.device.type, enabled=False):
            for part in parts(len(tokens), ctx.chunk):
                some, now = tokens[part], work.fill(tokens[part], keys)
                # With h = gradient / |v| and k = cosine / |v|, the gradient of <token_p, c> is
                # a_p h (1 + (<token_p, c> - k <token_p, v>) / temperature), and that of V V^T is -(h k / 2) a a^T.
                h = (gradients[0][part] / lengths[part]).unsqueeze(1)
                k = (cosines[part] / lengths[part]).unsqueeze(1)
                grad_scores = torch.addcmul(now.scores, now.spread, k, value=-1 / ctx.temperature, out=now.spread)
                weighted = torch.mul(now.weights, h, out=now.scores)
                grad_scores.add_(1).mul_(weighted)
                torch.bmm(weighted.mul_(k), now.weights.mT, out=now.gram)
                flat = grad_scores.flatten(0, 1)
                torch.mm(flat, concepts, out=grad_tokens[part].flatten(0, 1))
                grad_tokens[part].baddbmm_(now.gram, some, alpha=-1)
                grad_concepts.addmm_(flat.T, some.flatten(0, 1))
        return grad_tokens, grad_concepts, None, None
