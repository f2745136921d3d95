"""Argument checks of the losses, for shapes and types only: checking values would wait for the device."""

from __future__ import annotations

import torch
from torch import Tensor


def check_shape(name: str, tensor: Tensor, **sizes: int | None) -> None:
    """Raises unless `tensor` has exactly the named sizes, in order; None allows any size."""
    actual, expected = tuple(tensor.shape), tuple(sizes.values())
    if len(actual) == len(expected) and all(b is None or a == b for a, b in zip(actual, expected, strict=True)):
        return
    known = [key if size is None else f"{key}={size}" for key, size in sizes.items()]
    raise ValueError(f"{name} has shape {list(actual)}, expected [{', '.join(known)}]")


def check_pairs(image: Tensor, text: Tensor) -> tuple[int, int]:
    """Returns (N, D) of matching embeddings [N, D], with N and D at least 1."""
    check_shape("image", image, N=None, D=None)
    size, width = image.shape
    if not size or not width:
        raise ValueError(f"image has shape {[size, width]}, expected [N, D] with at least one row and one column")
    check_shape("text", text, N=size, D=width)
    return size, width


def check_mask(name: str, mask: Tensor, **sizes: int | None) -> None:
    """Raises unless `mask` is boolean and has the named sizes."""
    check_shape(name, mask, **sizes)
    if mask.dtype is not torch.bool:
        raise ValueError(f"{name} has type {mask.dtype}, expected torch.bool (True = valid)")


def check_scalar(name: str, tensor: Tensor) -> Tensor:
    """Returns a scalar of shape [] or [1] with shape []."""
    if tuple(tensor.shape) not in ((), (1,)):
        raise ValueError(f"{name} has shape {list(tensor.shape)}, expected [] or [1]")
    return tensor.reshape(())


def check_negatives(negative_text: Tensor, negative_mask: Tensor | None, size: int, width: int) -> Tensor:
    """Returns the mask [N, K] of negatives [N, K, D], with K at least 1. Without a mask, all are valid."""
    check_shape("negative_text", negative_text, N=size, K=None, D=width)
    negatives = negative_text.shape[1]
    if not negatives:
        raise ValueError(f"negative_text has shape {list(negative_text.shape)}, expected [N, K, D] with K at least 1")
    if negative_mask is None:
        return torch.ones((size, negatives), dtype=torch.bool, device=negative_text.device)
    check_mask("negative_mask", negative_mask, N=size, K=negatives)
    return negative_mask
