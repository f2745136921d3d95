"""Evaluation of any dual encoder: embeddings once, outcomes per item, image-clustered bootstrap intervals."""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
