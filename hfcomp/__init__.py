"""Compositional fine-tuning of CLIP and SigLIP.

`import hfcomp` is cheap: the public names below are loaded from their modules on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_MODULES = {
    "hfcomp.losses": (
        "adaptive_threshold",
        "ahnpl_loss",
        "ce_clip_loss",
        "cement_loss",
        "centroid_group_loss",
        "concept_info_nce_loss",
        "concept_loss",
        "cross_attended_concept_loss",
        "cross_attended_info_nce_loss",
        "dcl_loss",
        "fermi_dirac_margin",
        "info_nce_loss",
        "inverse_margin",
        "multimodal_hard_negative_loss",
        "negative_margin_loss",
        "pairwise_group_loss",
        "perturb_image",
        "radial_entailment_loss",
        "positive_margin_loss",
        "replaced_negative_loss",
        "sigmoid_loss",
        "static_margin",
        "triplet_clip_loss",
    ),
    "hfcomp.modeling": ("DualEncoder", "Features"),
    "hfcomp.trainers.ahnpl": ("AHNPLConfig", "AHNPLTrainer"),
    "hfcomp.trainers.released.ahnpl": ("AHNPLReleasedConfig", "AHNPLReleasedTrainer"),
    "hfcomp.trainers.base": ("CompositionalConfig", "CompositionalTrainer"),
    "hfcomp.trainers.c2lip": ("C2LIPConfig", "C2LIPTrainer"),
    "hfcomp.trainers.ce_clip": ("CEClipConfig", "CEClipTrainer"),
    "hfcomp.trainers.cement": ("CementConfig", "CementTrainer"),
    "hfcomp.trainers.clear_glass": ("ClearGlassConfig", "ClearGlassTrainer"),
    "hfcomp.trainers.released.clear_glass": ("ClearGlassReleasedConfig", "ClearGlassReleasedTrainer"),
    "hfcomp.trainers.dcl": ("DCLConfig", "DCLTrainer"),
    "hfcomp.trainers.replaced_negatives": ("ReplacedNegativesConfig", "ReplacedNegativesTrainer"),
    "hfcomp.trainers.hierarcaps": ("HierarCapsConfig", "HierarCapsTrainer"),
    "hfcomp.trainers.info_nce": ("InfoNCEConfig", "InfoNCETrainer"),
    "hfcomp.trainers.text_alignment": ("TextAlignmentConfig", "TextAlignmentTrainer"),
    "hfcomp.trainers.triplet_clip": ("TripletClipConfig", "TripletClipTrainer"),
    "hfcomp.data.collators": ("CompositionalCollator",),
    "hfcomp.evaluation.callback": ("EvaluateBenchmarks",),
    "hfcomp.negatives.hard_positives": ("hard_positives",),
    "hfcomp.negatives.keywords": ("keyword_negatives",),
    "hfcomp.negatives.mask_filling": ("MaskFiller",),
    "hfcomp.negatives.neighbours": ("nearest_neighbours",),
    "hfcomp.parsing": ("load_parser",),
    "hfcomp.negatives.swaps": ("swap_negatives",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME)]

if TYPE_CHECKING:
    from hfcomp.data.collators import CompositionalCollator as CompositionalCollator
    from hfcomp.evaluation.callback import EvaluateBenchmarks as EvaluateBenchmarks
    from hfcomp.losses import adaptive_threshold as adaptive_threshold
    from hfcomp.losses import ahnpl_loss as ahnpl_loss
    from hfcomp.losses import ce_clip_loss as ce_clip_loss
    from hfcomp.losses import cement_loss as cement_loss
    from hfcomp.losses import centroid_group_loss as centroid_group_loss
    from hfcomp.losses import concept_info_nce_loss as concept_info_nce_loss
    from hfcomp.losses import concept_loss as concept_loss
    from hfcomp.losses import cross_attended_concept_loss as cross_attended_concept_loss
    from hfcomp.losses import cross_attended_info_nce_loss as cross_attended_info_nce_loss
    from hfcomp.losses import dcl_loss as dcl_loss
    from hfcomp.losses import fermi_dirac_margin as fermi_dirac_margin
    from hfcomp.losses import info_nce_loss as info_nce_loss
    from hfcomp.losses import inverse_margin as inverse_margin
    from hfcomp.losses import multimodal_hard_negative_loss as multimodal_hard_negative_loss
    from hfcomp.losses import negative_margin_loss as negative_margin_loss
    from hfcomp.losses import pairwise_group_loss as pairwise_group_loss
    from hfcomp.losses import perturb_image as perturb_image
    from hfcomp.losses import positive_margin_loss as positive_margin_loss
    from hfcomp.losses import radial_entailment_loss as radial_entailment_loss
    from hfcomp.losses import replaced_negative_loss as replaced_negative_loss
    from hfcomp.losses import sigmoid_loss as sigmoid_loss
    from hfcomp.losses import static_margin as static_margin
    from hfcomp.losses import triplet_clip_loss as triplet_clip_loss
    from hfcomp.modeling import DualEncoder as DualEncoder
    from hfcomp.modeling import Features as Features
    from hfcomp.negatives.hard_positives import hard_positives as hard_positives
    from hfcomp.negatives.keywords import keyword_negatives as keyword_negatives
    from hfcomp.negatives.mask_filling import MaskFiller as MaskFiller
    from hfcomp.negatives.neighbours import nearest_neighbours as nearest_neighbours
    from hfcomp.negatives.swaps import swap_negatives as swap_negatives
    from hfcomp.parsing import load_parser as load_parser
    from hfcomp.trainers.ahnpl import AHNPLConfig as AHNPLConfig
    from hfcomp.trainers.ahnpl import AHNPLTrainer as AHNPLTrainer
    from hfcomp.trainers.base import CompositionalConfig as CompositionalConfig
    from hfcomp.trainers.base import CompositionalTrainer as CompositionalTrainer
    from hfcomp.trainers.c2lip import C2LIPConfig as C2LIPConfig
    from hfcomp.trainers.c2lip import C2LIPTrainer as C2LIPTrainer
    from hfcomp.trainers.ce_clip import CEClipConfig as CEClipConfig
    from hfcomp.trainers.ce_clip import CEClipTrainer as CEClipTrainer
    from hfcomp.trainers.cement import CementConfig as CementConfig
    from hfcomp.trainers.cement import CementTrainer as CementTrainer
    from hfcomp.trainers.clear_glass import ClearGlassConfig as ClearGlassConfig
    from hfcomp.trainers.clear_glass import ClearGlassTrainer as ClearGlassTrainer
    from hfcomp.trainers.dcl import DCLConfig as DCLConfig
    from hfcomp.trainers.dcl import DCLTrainer as DCLTrainer
    from hfcomp.trainers.hierarcaps import HierarCapsConfig as HierarCapsConfig
    from hfcomp.trainers.hierarcaps import HierarCapsTrainer as HierarCapsTrainer
    from hfcomp.trainers.info_nce import InfoNCEConfig as InfoNCEConfig
    from hfcomp.trainers.info_nce import InfoNCETrainer as InfoNCETrainer
    from hfcomp.trainers.released.ahnpl import AHNPLReleasedConfig as AHNPLReleasedConfig
    from hfcomp.trainers.released.ahnpl import AHNPLReleasedTrainer as AHNPLReleasedTrainer
    from hfcomp.trainers.released.clear_glass import ClearGlassReleasedConfig as ClearGlassReleasedConfig
    from hfcomp.trainers.released.clear_glass import ClearGlassReleasedTrainer as ClearGlassReleasedTrainer
    from hfcomp.trainers.replaced_negatives import ReplacedNegativesConfig as ReplacedNegativesConfig
    from hfcomp.trainers.replaced_negatives import ReplacedNegativesTrainer as ReplacedNegativesTrainer
    from hfcomp.trainers.text_alignment import TextAlignmentConfig as TextAlignmentConfig
    from hfcomp.trainers.text_alignment import TextAlignmentTrainer as TextAlignmentTrainer
    from hfcomp.trainers.triplet_clip import TripletClipConfig as TripletClipConfig
    from hfcomp.trainers.triplet_clip import TripletClipTrainer as TripletClipTrainer


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    from difflib import get_close_matches

    near = get_close_matches(name, __all__, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise AttributeError(f"module 'hfcomp' has no attribute '{name}'.{hint}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
