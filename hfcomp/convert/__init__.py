"""Converts checkpoints of open_clip, OpenAI and derived works to plain transformers folders and back.

A layout is a table of names (`weight_table.py`) that works in both directions. Information that a checkpoint lacks,
such as the activation, is taken from another source and recorded with it; if there is no source, the user must state
it.
"""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
