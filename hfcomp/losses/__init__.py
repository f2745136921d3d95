"""Losses as pure functions of tensors. Each returns a scalar and a dictionary of detached metrics."""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
