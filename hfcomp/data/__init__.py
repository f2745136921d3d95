"""From a Hub dataset to batches: the column contract, images, collators and loading."""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
