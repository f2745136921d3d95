"""Checkpoints of open_clip, OpenAI and works built on them, to plain folders of transformers and back.

A layout is a table of names (`weight_table.py`) that is read in both directions, so that the way there and back is one
list. What a checkpoint does not hold, the activation above all, is recorded with what states it, and asked for where
nothing does.
"""

from hfcomp.modeling.conversion.convert import RECORD_FILE, ConversionOptions, convert_checkpoint
from hfcomp.modeling.conversion.export import export_open_clip
from hfcomp.modeling.conversion.llava import export_llava

__all__ = ["RECORD_FILE", "ConversionOptions", "convert_checkpoint", "export_llava", "export_open_clip"]
