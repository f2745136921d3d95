"""Compositional fine-tuning of CLIP and SigLIP.

`import hfcomp` is cheap: the public names below are loaded from their modules on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_MODULES = {
    "hfcomp.losses": (
        "cement_loss",
        "dcl_loss",
        "fermi_dirac_margin",
        "info_nce_loss",
        "inverse_margin",
        "replaced_negative_loss",
        "sigmoid_loss",
        "static_margin",
    ),
    "hfcomp.modeling": ("DualEncoder", "Features"),
    "hfcomp.trainers.base": ("CompositionalConfig", "CompositionalTrainer"),
    "hfcomp.trainers.cement": ("CementConfig", "CementTrainer"),
    "hfcomp.trainers.info_nce": ("InfoNCEConfig", "InfoNCETrainer"),
    "hfcomp.data.collators": ("CompositionalCollator",),
    "hfcomp.evaluation.callback": ("EvaluateBenchmarks",),
    "hfcomp.negatives.keywords": ("keyword_negatives",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME)]

if TYPE_CHECKING:
    from hfcomp.data.collators import CompositionalCollator as CompositionalCollator
    from hfcomp.evaluation.callback import EvaluateBenchmarks as EvaluateBenchmarks
    from hfcomp.losses import cement_loss as cement_loss
    from hfcomp.losses import dcl_loss as dcl_loss
    from hfcomp.losses import fermi_dirac_margin as fermi_dirac_margin
    from hfcomp.losses import info_nce_loss as info_nce_loss
    from hfcomp.losses import inverse_margin as inverse_margin
    from hfcomp.losses import replaced_negative_loss as replaced_negative_loss
    from hfcomp.losses import sigmoid_loss as sigmoid_loss
    from hfcomp.losses import static_margin as static_margin
    from hfcomp.modeling import DualEncoder as DualEncoder
    from hfcomp.modeling import Features as Features
    from hfcomp.negatives.keywords import keyword_negatives as keyword_negatives
    from hfcomp.trainers.base import CompositionalConfig as CompositionalConfig
    from hfcomp.trainers.base import CompositionalTrainer as CompositionalTrainer
    from hfcomp.trainers.cement import CementConfig as CementConfig
    from hfcomp.trainers.cement import CementTrainer as CementTrainer
    from hfcomp.trainers.info_nce import InfoNCEConfig as InfoNCEConfig
    from hfcomp.trainers.info_nce import InfoNCETrainer as InfoNCETrainer


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
