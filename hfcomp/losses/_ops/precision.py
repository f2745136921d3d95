"""The type promotion rule of every loss: half types are promoted, and autocast has no effect inside."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")
_HALF = (torch.float16, torch.bfloat16)


def full_type(dtype: torch.dtype) -> torch.dtype:
    """Returns float32 for a half type, and the type itself for float32 and float64."""
    return torch.float32 if dtype in _HALF else dtype


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a loss so its own arithmetic runs in float32 or float64, whatever the context.

    The embeddings (floating-point tensors with two or more dimensions) decide the type: half types count as float32,
    and a mix of float32 and float64 gives float64. Every other floating-point tensor (scale, bias, margin, threshold)
    is cast to that type, so a float64 margin does not silently double the memory of a float32 loss. Autocast is
    switched off, because it would run even a float32 product in half precision.
    """

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        floating = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.is_floating_point()]
        if not floating:
            return function(*args, **kwargs)
        deciding = [x for x in floating if x.ndim >= 2] or floating
        dtype = reduce(torch.promote_types, (full_type(x.dtype) for x in deciding))

        def cast(x: Any) -> Any:
            return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x

        lifted: dict[str, Any] = {name: cast(x) for name, x in kwargs.items()}
        with torch.autocast(device_type=floating[0].device.type, enabled=False):
            return function(*map(cast, args), **lifted)  # type: ignore[arg-type]

    return wrapper
