"""Checkpoints of open_clip, OpenAI and works built on them, to plain folders of transformers and back.

A layout is a table of names (`weight_table.py`) that is read in both directions. What a checkpoint does not hold, such
as the activation, is taken from what states it and recorded with that source; if nothing states it, the user must.
"""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
