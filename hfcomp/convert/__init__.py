"""Checkpoints of open_clip, OpenAI and works built on them, to plain folders of transformers and back.

A layout is a table of names (`weight_table.py`) that is read in both directions, so that the way there and back is one
list. What a checkpoint does not hold, the activation above all, is recorded with what states it, and asked for where
nothing does.
"""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
