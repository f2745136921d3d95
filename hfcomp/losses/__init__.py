"""Losses as pure functions over tensors: each returns a scalar and a dictionary of detached metrics."""

from hfcomp.losses.ahnpl import ahnpl_loss, multimodal_hard_negative_loss, perturb_image, positive_margin_loss
from hfcomp.losses.c2lip import concept_loss, cross_attended_concept_loss
from hfcomp.losses.ce_clip import ce_clip_loss
from hfcomp.losses.cement import cement_loss
from hfcomp.losses.concept_info_nce import concept_info_nce_loss, cross_attended_info_nce_loss
from hfcomp.losses.dcl import dcl_loss
from hfcomp.losses.entailment import radial_entailment_loss
from hfcomp.losses.group_centroid import centroid_group_loss
from hfcomp.losses.group_pairwise import pairwise_group_loss
from hfcomp.losses.info_nce import info_nce_loss
from hfcomp.losses.margins import LearnedMargin, RunningThreshold, fermi_dirac_margin, inverse_margin, static_margin
from hfcomp.losses.ranking import adaptive_threshold, negative_margin_loss
from hfcomp.losses.replaced_negatives import replaced_negative_loss
from hfcomp.losses.sigmoid import sigmoid_loss
from hfcomp.losses.triplet_clip import triplet_clip_loss

__all__ = [
    "LearnedMargin",
    "RunningThreshold",
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
]
