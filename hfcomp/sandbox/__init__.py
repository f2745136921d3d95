"""The built-in world: scenes of colored shapes with exact captions, exact negatives and a tiny CLIP to learn them.

Everything is made from a seed, with no download: a model of 0.7 million parameters learns the world in seconds on a
CPU, mistakes who has which color as its large relatives do, and can be repaired.
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
