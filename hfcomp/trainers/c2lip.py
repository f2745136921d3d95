"""C2LIP: images contrasted with the noun phrases of captions, whole and as seen through each phrase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from hfcomp.data.loading import TrainingRows
from hfcomp.losses import (
    concept_info_nce_loss,
    concept_loss,
    cross_attended_concept_loss,
    cross_attended_info_nce_loss,
    info_nce_loss,
    sigmoid_loss,
)
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.config import TEMPERATURE, WEIGHT, CompositionalConfig, option, setting
from hfcomp.trainers.hooks import declare_info_nce
from hfcomp.trainers.info_nce import has_sigmoid_loss

CONCEPT_SOURCES = ("phrase", "tokens")
WEIGHTS = ("concept_weight", "cross_attended_weight")
# For captions, for concepts, and for concepts by which the image is seen.
SIGMOID_LOSSES = (sigmoid_loss, concept_loss, cross_attended_concept_loss)
INFO_NCE_LOSSES = (info_nce_loss, concept_info_nce_loss, cross_attended_info_nce_loss)

PAPER = "Pham et al. 2026, section 4.1"


@dataclass
class C2LIPConfig(CompositionalConfig):
    """Arguments of [`C2LIPTrainer`]. Weights are the paper's (section 4.1), the temperature is the released code's.

    `max_concepts` is our choice: each of 1,500 captions of COCO had 1 to 7 noun phrases. With both weights 0 it
    becomes 0, as concepts are not read.
    """

    num_train_epochs: float = setting(5.0, PAPER)
    learning_rate: float = setting(1.0e-5, PAPER)
    weight_decay: float = setting(0.1, "the released code's")
    max_concepts: int = option(8, "Concepts read per image; further ones are counted.")
    concept_weight: float = option(
        1.0, "Of the concept loss (lambda_npc), in nats.", "the paper, section 4.1 and Table A2", WEIGHT
    )
    cross_attended_weight: float = option(
        0.01,
        "Of the cross-attended concept loss (lambda_xac), in nats.",
        "the paper, section 4.1 and Table A2",
        WEIGHT,
    )
    attention_temperature: float = option(
        1.0, "Of a concept's attention to the image's tokens, in cosine.", None, TEMPERATURE
    )
    concept_source: str = option(
        "phrase",
        "phrase (each concept goes through the text tower alone, as released) or tokens (the mean of its "
        "tokens in the caption, as the paper writes; needs concept_spans).",
    )
    sigmoid: bool | None = option(
        None, "Sigmoid losses instead of InfoNCE. Unset: what the model was pretrained with."
    )

    reads_negatives = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.concept_source not in CONCEPT_SOURCES:
            raise ValueError(f"concept_source={self.concept_source!r}: expected one of {', '.join(CONCEPT_SOURCES)}.")
        if not any(getattr(self, name) for name in WEIGHTS):
            self.max_concepts = 0


class C2LIPTrainer(CompositionalTrainer):
    """Trains with the C2LIP loss (Pham et al. 2026, Eq. 8): contrastive, concept and cross-attended concept loss.

    Needs `concepts`, and with `concept_source="tokens"` their `concept_spans`. An image whose list is empty has its
    caption as its one concept. SigLIP: sigmoid losses, as in the paper; CLIP: InfoNCE forms of all three (our choice).
    The model's one scale, and its one bias, serve all three terms. Nothing is added to the model.

    The paper writes that a concept is pooled from the caption's tokens; the code that made its tables encodes each
    phrase alone. The default is `"phrase"`: the paper's numbers are its, the model embeds a phrase so when it is used,
    and no spans are needed. `"tokens"` encodes captions only.

    Equal phrases of different images are each other's negatives in the paper; `mask_equal_texts` leaves them out.
    The log's `cut_concepts` counts concepts over `max_concepts`, with `"tokens"` `shortened_concepts` those of which
    truncation, or a tokenizer that leaves characters out, took a part or all.
    """

    config_class = C2LIPConfig
    # Not optional: without concepts every image would silently have its caption twice.
    optional_columns = tuple(name for name in CompositionalTrainer.optional_columns if name != "concepts")

    def setup(self, args: C2LIPConfig, backbone: nn.Module) -> None:
        """Chooses the losses, and the features of the terms that have a weight.

        Raises:
            ValueError: for sigmoid losses on a model without a bias.
        """
        self.sigmoid = has_sigmoid_loss(args.sigmoid, backbone)
        required = [*type(self).required_features]
        if self.sigmoid:
            required.append("logit_bias")
        # Features that only a term without a weight would read are not required, and so not computed.
        if any(getattr(args, name) for name in WEIGHTS):
            required += ["concept_embeds", "concept_image_index"]
            required += ["concept_id"] if args.mask_equal_texts else []
            required += ["tokens"] if args.cross_attended_weight else []
        self.required_features = tuple(required)

    def collator_settings(self, args: C2LIPConfig) -> dict[str, Any]:
        """With concepts as texts of their own or as tokens of the caption."""
        return super().collator_settings(args) | {"concept_tokens": args.concept_source == "tokens"}

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The C2LIP loss of the global batch."""
        self._check_source(inputs)
        f = self.gather_features(model, inputs)
        # The two families take the same arguments except for the bias.
        contrastive, concept, cross_attended = SIGMOID_LOSSES if self.sigmoid else INFO_NCE_LOSSES
        shared = {"logit_scale": f.logit_scale, "image_id": f.image_id, "text_id": f.text_id, "rows": f.rows}
        if self.sigmoid:
            shared["logit_bias"] = f.logit_bias
        loss, metrics = contrastive(f.image_embeds, f.text_embeds, **shared)
        metrics = {"loss_contrastive": loss.detach(), **metrics}
        if self.args.concept_weight:
            term, further = concept(
                f.image_embeds, f.concept_embeds, f.concept_image_index, concept_id=f.concept_id, **shared
            )
            loss, metrics = loss + self.args.concept_weight * term, metrics | further
        if self.args.cross_attended_weight:
            shared |= {"concept_id": f.concept_id, "attention_temperature": self.args.attention_temperature}
            term, further = cross_attended(f.tokens, f.concept_embeds, f.concept_image_index, **shared)
            loss, metrics = loss + self.args.cross_attended_weight * term, metrics | further
        return self.reduce_loss(loss, metrics, f, return_outputs)

    def _check_source(self, inputs: dict[str, Any]) -> None:
        """Refuses the batch of an own collator that reads the other source."""
        source = self.args.concept_source
        key = {"phrase": "concept_input_ids", "tokens": "concept_token_mask"}[source]
        if "concept_embeds" in self.required_features and key not in inputs:
            raise ValueError(
                f"the batch has no {key!r}, which concept_source={source!r} needs. Create the data_collator as "
                f"CompositionalCollator(..., max_concepts={self.args.max_concepts}, "
                f"concept_tokens={source == 'tokens'}), or leave it out."
            )

    def read_rows(self, dataset: Any, args: C2LIPConfig, further: tuple[str, ...] = ()) -> TrainingRows | None:
        """As in [`CompositionalTrainer`], with `concept_spans` where concepts are tokens of the caption."""
        if "concept_embeds" not in self.required_features:
            return super().read_rows(dataset, args, further)
        spans = ("concept_spans",) if args.concept_source == "tokens" else ()
        if hasattr(dataset, "select_columns"):
            _check_concept_columns({*dataset.column_names, *(args.column_names or {})}, ("concepts", *spans))
        return super().read_rows(dataset, args, (*further, *spans))


def _check_concept_columns(found: set[str], needed: tuple[str, ...]) -> None:
    missing = [name for name in needed if name not in found]
    if not missing:
        return
    advice = "Make them with `hfcomp build concepts` or a recipe's concept_parser"
    if missing == ["concept_spans"]:  # a parser would keep the set's own concepts, which have none
        advice = "Set concept_source='phrase'"
    raise ValueError(
        f"C2LIPTrainer needs the column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}; the "
        f"dataset has: {', '.join(map(repr, sorted(found)))}. {advice}, or rename with "
        f"column_names={{{missing[0]!r}: '<its name in your dataset>'}}."
    )


declare_info_nce(C2LIPTrainer, concept_weight=0.0, cross_attended_weight=0.0)
