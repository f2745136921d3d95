"""C2LIP: contrasts images with the noun phrases of captions, whole and as attended to by each phrase."""

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
# For captions, for concepts, and for concepts that attend to the image.
SIGMOID_LOSSES = (sigmoid_loss, concept_loss, cross_attended_concept_loss)
INFO_NCE_LOSSES = (info_nce_loss, concept_info_nce_loss, cross_attended_info_nce_loss)

PAPER = "Pham et al. 2026, section 4.1"


@dataclass
class C2LIPConfig(CompositionalConfig):
    """Arguments of [`C2LIPTrainer`]. Weights are the paper's (section 4.1), the temperature is the released code's.

    `max_concepts` is our choice: each of 1,500 COCO captions had 1 to 7 noun phrases. If both weights are 0, it
    becomes 0, because concepts are not read.
    """

    num_train_epochs: float = setting(5.0, PAPER)
    learning_rate: float = setting(1.0e-5, PAPER)
    weight_decay: float = setting(0.1, "the released code's")
    max_concepts: int = option(8, "Concepts read per image; any others are only counted.")
    concept_weight: float = option(
        1.0, "Weight of the concept loss (lambda_npc), in nats.", "the paper, section 4.1 and Table A2", WEIGHT
    )
    cross_attended_weight: float = option(
        0.01,
        "Weight of the cross-attended concept loss (lambda_xac), in nats.",
        "the paper, section 4.1 and Table A2",
        WEIGHT,
    )
    attention_temperature: float = option(
        1.0, "Temperature of a concept's attention to the image tokens, in cosine.", None, TEMPERATURE
    )
    concept_source: str = option(
        "phrase",
        "phrase (the text tower encodes each concept on its own, as released) or tokens (the mean of the concept's "
        "tokens in the caption, as in the paper; needs concept_spans).",
    )
    sigmoid: bool | None = option(
        None, "Use sigmoid losses instead of InfoNCE. Unset: the kind the model was pretrained with."
    )

    reads_negatives = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.concept_source not in CONCEPT_SOURCES:
            raise ValueError(
                f"concept_source: found {self.concept_source!r}, expected one of {', '.join(CONCEPT_SOURCES)}."
            )
        if not any(getattr(self, name) for name in WEIGHTS):
            self.max_concepts = 0


class C2LIPTrainer(CompositionalTrainer):
    """Trains with the C2LIP loss (Pham et al. 2026, Eq. 8): contrastive, concept and cross-attended concept loss.

    Needs `concepts`, and with `concept_source="tokens"` also their `concept_spans`. An image with an empty list uses
    its caption as its only concept. SigLIP models use sigmoid losses, as in the paper; CLIP models use InfoNCE forms
    of all three (our choice). The model's scale and bias are shared by all three terms. Nothing is added to the model.

    The paper says that a concept is pooled from the caption's tokens, but the code that produced its tables encodes
    each phrase on its own. The default is `"phrase"`: it is what the paper's numbers were computed with, it is how the
    model embeds a phrase in use, and it needs no spans. `"tokens"` encodes only captions.

    In the paper, equal phrases of different images are each other's negatives; `mask_equal_texts` excludes them. The
    log's `cut_concepts` counts concepts beyond `max_concepts`. With `"tokens"`, `shortened_concepts` counts those that
    lost some or all of their tokens to truncation or to a tokenizer that drops characters.
    """

    config_class = C2LIPConfig
    # Not optional: without concepts every image would silently have its caption twice.
    optional_columns = tuple(name for name in CompositionalTrainer.optional_columns if name != "concepts")

    def setup(self, args: C2LIPConfig, backbone: nn.Module) -> None:
        """Selects the losses and the features of the terms with a non-zero weight.

        Raises:
            ValueError: For sigmoid losses on a model without a bias.
        """
        self.sigmoid = has_sigmoid_loss(args.sigmoid, backbone)
        required = [*type(self).required_features]
        if self.sigmoid:
            required.append("logit_bias")
        # Features that only a zero-weight term would read are not required, and so not computed.
        if any(getattr(args, name) for name in WEIGHTS):
            required += ["concept_embeds", "concept_image_index"]
            required += ["concept_id"] if args.mask_equal_texts else []
            required += ["tokens"] if args.cross_attended_weight else []
        self.required_features = tuple(required)

    def collator_settings(self, args: C2LIPConfig) -> dict[str, Any]:
        """Sets whether concepts are separate texts or tokens of the caption."""
        return super().collator_settings(args) | {"concept_tokens": args.concept_source == "tokens"}

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Computes the C2LIP loss of the global batch."""
        self._check_source(inputs)
        f = self.gather_features(model, inputs)
        # The two families take the same arguments, except for the bias.
        contrastive, concept, cross_attended = SIGMOID_LOSSES if self.sigmoid else INFO_NCE_LOSSES
        shared = f.common | ({"logit_bias": f.logit_bias} if self.sigmoid else {})
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
        """Rejects a batch whose custom collator reads the other source."""
        source = self.args.concept_source
        key = {"phrase": "concept_input_ids", "tokens": "concept_token_mask"}[source]
        if "concept_embeds" in self.required_features and key not in inputs:
            raise ValueError(
                f"the batch has no {key!r}, which concept_source={source!r} needs. Create the data_collator as "
                f"CompositionalCollator(..., max_concepts={self.args.max_concepts}, "
                f"concept_tokens={source == 'tokens'}), or leave data_collator unset."
            )

    def read_rows(self, dataset: Any, args: C2LIPConfig, further: tuple[str, ...] = ()) -> TrainingRows | None:
        """Reads rows as [`CompositionalTrainer`] does, with `concept_spans` if concepts are tokens of the caption."""
        if "concept_embeds" not in self.required_features:
            return super().read_rows(dataset, args, further)
        spans = ("concept_spans",) if args.concept_source == "tokens" else ()
        if hasattr(dataset, "select_columns"):
            _check_concept_columns({*dataset.column_names, *(args.column_names or {})}, ("concepts", *spans))
        return super().read_rows(dataset, args, (*further, *spans))


def _check_concept_columns(columns: set[str], needed: tuple[str, ...]) -> None:
    missing = [name for name in needed if name not in columns]
    if not missing:
        return
    advice = "Create them with `hfcomp build concepts` or a recipe's concept_parser"
    if missing == ["concept_spans"]:  # a parser would keep the dataset's own concepts, which have no spans
        advice = "Set concept_source='phrase'"
    raise ValueError(
        f"C2LIPTrainer needs the column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}; the "
        f"dataset has: {', '.join(map(repr, sorted(columns)))}. {advice}, or rename yours with "
        f"column_names={{{missing[0]!r}: '<its name in your dataset>'}}."
    )


declare_info_nce(C2LIPTrainer, concept_weight=0.0, cross_attended_weight=0.0)
