"""One face for the dual encoders of the Hub (CLIP, MetaCLIP 2, SigLIP, SigLIP 2), as the trainers need it.

[`DualEncoder`] holds a plain backbone and the objective's own learned state. Everything that a loss differentiates
leaves through its one `forward` as [`Features`]: state that is used outside `forward` is neither synchronized by DDP
nor saved.
"""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
