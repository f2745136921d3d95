"""How each objective becomes plain InfoNCE on its own batch: what the control `same-batch` trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hfcomp.trainers.ahnpl import AHNPLTrainer
from hfcomp.trainers.c2lip import C2LIPTrainer
from hfcomp.trainers.ce_clip import CEClipTrainer
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.clear_glass import ClearGlassTrainer
from hfcomp.trainers.dcl import DCLTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.released.ahnpl import AHNPLReleasedTrainer
from hfcomp.trainers.released.clear_glass import ClearGlassReleasedTrainer
from hfcomp.trainers.replaced_negatives import ReplacedNegativesTrainer
from hfcomp.trainers.triplet_clip import TripletClipTrainer


class InfoNCEForm(NamedTuple):
    """A trainer and its arguments that make an objective plain InfoNCE on the same batch.

    Attributes:
        trainer_class: the objective's own class, or another where no setting of it is InfoNCE.
        arguments: config fields that switch margins and further terms off; empty where the objective is InfoNCE.
    """

    trainer_class: type
    arguments: Mapping[str, Any]


INFO_NCE_FORMS: dict[type, InfoNCEForm] = {}
"""By the objective's class. A subclass has an entry of its own: it may have terms that its parent's does not know."""


def declare_info_nce(objective: type, *, by: type | None = None, **arguments: Any) -> None:
    """Says how an objective becomes InfoNCE, for the control `same-batch`; call it in the module of your trainer.

    Args:
        objective: a subclass of `CompositionalTrainer`.
        by: another trainer that is InfoNCE on the same batch; by default the objective itself.
        arguments: config fields that switch its margins and further terms off, such as `margin="none"`.
    """
    INFO_NCE_FORMS[objective] = InfoNCEForm(by or objective, arguments)


declare_info_nce(AHNPLTrainer, multimodal_weight=0.0, positive_margin_weight=0.0, negative_margin_weight=0.0)
declare_info_nce(AHNPLReleasedTrainer, multimodal_weight=0.0, margin_weight=0.0)
declare_info_nce(C2LIPTrainer, concept_weight=0.0, cross_attended_weight=0.0)
declare_info_nce(CEClipTrainer, rank_weight=0.0, intra_modal_weight=0.0)
declare_info_nce(CementTrainer, margin="none")
declare_info_nce(ClearGlassTrainer, grouping="none")
declare_info_nce(ClearGlassReleasedTrainer, grouping="none")
declare_info_nce(DCLTrainer, by=InfoNCETrainer, sigmoid=False)
declare_info_nce(InfoNCETrainer)
declare_info_nce(ReplacedNegativesTrainer, by=InfoNCETrainer, sigmoid=False)
declare_info_nce(TripletClipTrainer, by=CementTrainer, margin="none")  # InfoNCE over the doubled batch
