"""One face for the dual encoders of the Hub (CLIP, MetaCLIP 2, SigLIP, SigLIP 2), as the trainers need it.

[`DualEncoder`] holds a plain backbone and the objective's own learned state. Everything that a loss differentiates
leaves through its one `forward` as [`Features`]: state that is used outside `forward` is neither synchronised by DDP
nor saved.
"""

from hfcomp.fields import Features
from hfcomp.modeling.adapters import merge_adapter
from hfcomp.modeling.backbones import (
    base_of_adapter,
    encode_images,
    encode_texts,
    freeze_towers,
    load_backbone,
    load_config,
    load_processor,
)
from hfcomp.modeling.checkpoints import OBJECTIVE_STATE_FILE
from hfcomp.modeling.encoder import DualEncoder
from hfcomp.modeling.tokens import encode_image_tokens, encode_phrases

__all__ = [
    "OBJECTIVE_STATE_FILE",
    "DualEncoder",
    "Features",
    "base_of_adapter",
    "encode_image_tokens",
    "encode_images",
    "encode_phrases",
    "encode_texts",
    "freeze_towers",
    "load_backbone",
    "load_config",
    "load_processor",
    "merge_adapter",
]
