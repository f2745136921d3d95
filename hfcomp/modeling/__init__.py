"""A common interface for Hub dual encoders (CLIP, MetaCLIP 2, SigLIP, SigLIP 2), as needed by the trainers.

[`DualEncoder`] contains a plain backbone and the objective's own learned state. Everything that a loss differentiates
is returned by its single `forward` as [`Features`], because DDP neither synchronizes nor saves state that is used
outside `forward`.
"""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
