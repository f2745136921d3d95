"""Every public loss on random embeddings with any number of rows, for `loss_memory.py` and the memory test."""

from functools import partial

import torch
import torch.nn.functional as F

from hfcomp.losses.ahnpl import ahnpl_loss, multimodal_hard_negative_loss, positive_margin_loss
from hfcomp.losses.ahnpl_released import ahnpl_released_loss, logit_margin_loss, negative_target_loss
from hfcomp.losses.c2lip import concept_loss, cross_attended_concept_loss
from hfcomp.losses.ce_clip import ce_clip_loss
from hfcomp.losses.cement import cement_loss
from hfcomp.losses.concept_info_nce import concept_info_nce_loss, cross_attended_info_nce_loss
from hfcomp.losses.dcl import dcl_loss
from hfcomp.losses.entailment import radial_entailment_loss
from hfcomp.losses.group_centroid import centroid_group_loss
from hfcomp.losses.group_pairwise import pairwise_group_loss, released_pairwise_group_loss
from hfcomp.losses.info_nce import info_nce_loss
from hfcomp.losses.ranking import negative_margin_loss
from hfcomp.losses.replaced_negatives import replaced_negative_loss
from hfcomp.losses.sigmoid import sigmoid_loss
from hfcomp.losses.triplet_clip import triplet_clip_loss

NEGATIVES, TOKENS, LEVELS, MEMBERS = 1, 4, 3, 8


class Batch:
    """Inputs of the losses: `rows` pairs, each with NEGATIVES negative texts and a negative image.

    Some negatives are masked, and some rows share an image, so masks and image ids are covered.
    """

    def __init__(self, rows, width, device="cpu"):
        self.rows, self.width, self.device, self.seed = rows, width, device, 0
        self.generator = torch.Generator(device).manual_seed(0)
        self.image, self.text, self.negative_image = (self.unit(rows) for _ in range(3))
        self.negative_text = self.unit(rows, NEGATIVES)
        self.scale, self.bias = self.scalar(20.0), self.scalar(-10.0)
        index = torch.arange(rows, device=device)
        # Every fourth row has the previous row's image.
        self.image_id = index - (index % 4 == 3).long()
        self.mask = (index % 3 > 0).unsqueeze(1).expand(rows, NEGATIVES)
        self.kind = (index % 2).unsqueeze(1).expand(rows, NEGATIVES)
        self.slots = ((index + 1) % rows).unsqueeze(1)

    def unit(self, *shape):
        """Creates L2-normalized random embeddings that require gradient."""
        numbers = torch.randn(*shape, self.width, generator=self.generator, device=self.device)
        return F.normalize(numbers, dim=-1).requires_grad_()

    def scalar(self, value):
        return torch.tensor(value, device=self.device, requires_grad=True)

    def pairs(self, function, **more):
        """Binds an InfoNCE loss over pairs."""
        return partial(function, self.image, self.text, logit_scale=self.scale, image_id=self.image_id, **more)

    def negatives(self, function, *more, **others):
        """Binds a loss over pairs with negative texts."""
        others = {"negative_mask": self.mask, **others}
        return partial(function, self.image, self.text, *more, self.negative_text, **others)

    def with_threshold(self, function, *more, **others):
        """Binds a loss with a threshold per kind of negative."""
        threshold = torch.full((2,), 0.1, device=self.device)
        return self.negatives(function, *more, threshold=threshold, negative_kind=self.kind, **others)

    def quadruples(self, function, **more):
        """Binds a loss over pairs with a negative image and a negative text each."""
        return partial(
            function,
            self.image,
            self.text,
            self.negative_image,
            self.negative_text[:, 0],
            logit_scale=self.scale,
            negative_image_mask=self.mask[:, 0],
            image_id=self.image_id,
            **more,
        )

    def groups(self, function):
        """Binds a loss over groups of MEMBERS pairs."""
        image, text = (x.unflatten(0, (-1, MEMBERS)) for x in (self.image, self.text))
        settings = {"temperature": 0.1, "inner_temperature": 0.1, "alpha": 0.5}
        return partial(function, image, text, image_id=self.image_id.roll(1).view(-1, MEMBERS), **settings)

    def concepts(self, function, *, tokens=False, bias=False):
        """Binds a loss over concepts, one per image, some of them padding."""
        index = torch.arange(self.rows, device=self.device)
        image_index = torch.where(index % 5 > 0, index, -1)
        image = self.unit(self.rows, TOKENS) if tokens else self.image
        biased = {"logit_bias": self.bias} if bias else {}
        alike = {"concept_id": index // 2, "image_id": self.image_id}
        return partial(function, image, self.text, image_index, logit_scale=self.scale, **biased, **alike)

    def chains(self):
        """Binds a loss over chains of LEVELS texts."""
        texts = [self.unit(self.rows, LEVELS) for _ in range(4)]
        weights = {"entailment_weight": 1.0, "hardest_weight": 1.0, "pullback_weight": 10.0}
        return partial(radial_entailment_loss, *texts[:2], self.unit(), *texts[2:], **weights)


LOSSES = {
    info_nce_loss: lambda b: b.pairs(info_nce_loss, negative_text=b.negative_text, negative_mask=b.mask),
    dcl_loss: lambda b: b.pairs(dcl_loss, negative_text=b.negative_text, negative_mask=b.mask),
    sigmoid_loss: lambda b: b.pairs(sigmoid_loss, logit_bias=b.bias),
    cement_loss: lambda b: b.quadruples(cement_loss, margin=torch.ones(b.rows, device=b.device).requires_grad_()),
    triplet_clip_loss: lambda b: b.quadruples(triplet_clip_loss),
    ahnpl_loss: lambda b: b.with_threshold(
        ahnpl_loss, b.negative_image.unsqueeze(1), logit_scale=b.scale, margin=b.scalar(0.2), image_id=b.image_id
    ),
    multimodal_hard_negative_loss: lambda b: b.negatives(multimodal_hard_negative_loss, b.negative_image.unsqueeze(1)),
    positive_margin_loss: lambda b: partial(positive_margin_loss, b.image, b.text, margin=b.scalar(0.2)),
    ahnpl_released_loss: lambda b: b.with_threshold(ahnpl_released_loss, logit_scale=b.scale, image_id=b.image_id),
    negative_target_loss: lambda b: partial(
        negative_target_loss, b.text, b.negative_text, logit_scale=b.scale, negative_mask=b.mask
    ),
    logit_margin_loss: lambda b: b.with_threshold(logit_margin_loss, logit_scale=b.scale),
    ce_clip_loss: lambda b: b.with_threshold(ce_clip_loss, logit_scale=b.scale, image_id=b.image_id),
    negative_margin_loss: lambda b: b.with_threshold(negative_margin_loss),
    replaced_negative_loss: lambda b: partial(
        replaced_negative_loss,
        b.image,
        b.text,
        b.negative_text,
        logit_scale=b.scale,
        slots=b.slots,
        image_id=b.image_id,
    ),
    concept_loss: lambda b: b.concepts(concept_loss, bias=True),
    concept_info_nce_loss: lambda b: b.concepts(concept_info_nce_loss),
    cross_attended_concept_loss: lambda b: b.concepts(cross_attended_concept_loss, tokens=True, bias=True),
    cross_attended_info_nce_loss: lambda b: b.concepts(cross_attended_info_nce_loss, tokens=True),
    centroid_group_loss: lambda b: b.groups(centroid_group_loss),
    pairwise_group_loss: lambda b: b.groups(pairwise_group_loss),
    released_pairwise_group_loss: lambda b: b.groups(released_pairwise_group_loss),
    radial_entailment_loss: lambda b: b.chains(),
}
