"""Built-in synthetic world: scenes of colored shapes with exact captions, exact negatives and a tiny CLIP to train.

Everything is generated from a seed, without downloads. A model with 0.7 million parameters learns the world in seconds
on a CPU, confuses which thing has which color like large models do, and can be repaired.
"""

from hfcomp.sandbox.captions import zero_shot_prompts
from hfcomp.sandbox.datasets import (
    REPLAY_SEED,
    choice_set,
    edited_pairs_set,
    levels_set,
    pretraining_set,
    retrieval_set,
    training_set,
    zero_shot_set,
)
from hfcomp.sandbox.drawing import KIND_WEIGHTS, KINDS
from hfcomp.sandbox.processor import sandbox_clip_config, sandbox_processor

__all__ = [
    "KINDS",
    "KIND_WEIGHTS",
    "REPLAY_SEED",
    "choice_set",
    "edited_pairs_set",
    "levels_set",
    "pretraining_set",
    "retrieval_set",
    "sandbox_clip_config",
    "sandbox_processor",
    "training_set",
    "zero_shot_prompts",
    "zero_shot_set",
]
