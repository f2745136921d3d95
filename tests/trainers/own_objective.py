"""An objective as a user writes it: InfoNCE, and a hinge against the own negatives with a learned offset."""

from __future__ import annotations

import torch
from torch import nn

from hfcomp.losses import info_nce_loss
from hfcomp.trainers.base import CompositionalTrainer


class Offset(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.tensor(0.5))

    def forward(self):
        return self.value


class OwnTrainer(CompositionalTrainer):
    required_features = (
        *CompositionalTrainer.required_features,
        "negative_text_embeds",
        "negative_text_mask",
        "learned",
    )

    def objective_state(self, args):
        return {"offset": Offset()}

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        f = self.gather_features(model, inputs)
        loss, metrics = info_nce_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale, rows=f.rows)
        wrong = f.negative_text_embeds[f.rows] - f.text_embeds[f.rows].unsqueeze(1)
        hinge = nn.functional.softplus(f.image_embeds[f.rows].unsqueeze(1).mul(wrong).sum(-1) + f.learned["offset"])
        hinge = (hinge * f.negative_text_mask[f.rows]).sum() / f.negative_text_mask.sum()
        return self.reduce_loss(loss + hinge, metrics | {"hinge": hinge.detach()}, f, return_outputs)
