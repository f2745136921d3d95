"""Hard negatives by mask filling: one noun, adjective or verb of a caption is replaced by a language model."""

from hfcomp.negatives.mask_filling.filling import KINDS, MaskFiller
from hfcomp.negatives.mask_filling.model import DEFAULT_MODEL, MaskedModel
from hfcomp.negatives.mask_filling.words import PARTS

__all__ = ["DEFAULT_MODEL", "KINDS", "PARTS", "MaskFiller", "MaskedModel"]
