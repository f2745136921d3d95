"""Textual alignment (CLEAR GLASS, section 3.2.4): captions drawn to their generalized captions, by the text tower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from torch import nn
from transformers.utils import logging

from hfcomp.data.collators import CompositionalCollator
from hfcomp.data.columns import LEFT_OUT, require_columns
from hfcomp.data.concepts.level_names import LEVEL_COLUMNS, LevelName, level_columns, level_names
from hfcomp.data.image_ids import IMAGE_ID
from hfcomp.data.loading import TrainingRows
from hfcomp.data.row_values import row_fields, text_key
from hfcomp.losses import concept_info_nce_loss
from hfcomp.metrics.retrieval import recall_at_k
from hfcomp.modeling import Features
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.config import CompositionalConfig, option, setting

logger = logging.get_logger(__name__)

PAIR = ("caption", "generalized_caption")
# The loss knows images and concepts; here both are texts.
METRICS = {
    "loss_image_to_concept": "loss_caption_to_generalized",
    "loss_concept_to_image": "loss_generalized_to_caption",
    "accuracy_image_to_concept": "accuracy_caption_to_generalized",
    "accuracy_concept_to_image": "accuracy_generalized_to_caption",
    "same_image_concepts": "same_image_pairs",
    "same_text_concepts": "same_text_pairs",
}

CODE = "the released code of CLEAR GLASS"


@dataclass
class TextAlignmentConfig(CompositionalConfig):
    """Arguments of [`TextAlignmentTrainer`]."""

    num_train_epochs: float = setting(7.0, CODE)
    learning_rate: float = setting(1.8748186634898305e-05, CODE)
    warmup_steps: float = setting(1430, CODE)
    weight_decay: float = setting(4.5269353639276774e-05, CODE)
    max_grad_norm: float = setting(1.0, CODE)
    freeze_towers: list[str] | None = option(["image"], "The image tower is frozen; texts alone are read.")
    aligned_with: list[str] = option(
        [PAIR[1]], f"Columns of the texts that captions are drawn to: {PAIR[1]}, {', '.join(LEVEL_COLUMNS)}."
    )
    allow_levels: bool = option(
        False, "Train on texts that are names of group or level_1 to level_4; otherwise they are refused."
    )
    leave_out_levels: bool = option(
        False, "Leave rows with such a text out, and count them, in place of refusing them."
    )

    reads_negatives = False
    draws_captions = False  # pairs are of texts that do not change
    replays = False  # batches hold texts only

    def __post_init__(self) -> None:
        super().__post_init__()
        if "text" in (self.freeze_towers or []):
            raise ValueError("freeze_towers names 'text', the tower that textual alignment trains. Leave it out.")
        known = (PAIR[1], *LEVEL_COLUMNS)
        wrong = [name for name in self.aligned_with if name not in known or self.aligned_with.count(name) > 1]
        if wrong or not self.aligned_with:
            raise ValueError(
                f"aligned_with: found {self.aligned_with}, expected some of {', '.join(known)}, each once."
            )
        if self.allow_levels and self.leave_out_levels:
            raise ValueError("allow_levels and leave_out_levels exclude each other. Set only one.")


class TextPairCollator(CompositionalCollator):
    """Turns rows into a batch of texts: `input_ids [2 B, L]`, each row's caption and behind it its generalized one.

    Images are not decoded. The batch also holds `row [B]`, `truncated [B]` and `concept_id [B]`, equal numbers
    for equal generalized captions.

    Raises:
        ValueError: when called, for an entry that is not a text, naming column and row.
    """

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        names = [row.get("row", index) for index, row in enumerate(rows)]
        texts = [_text(row, column, name) for row, name in zip(rows, names, strict=True) for column in PAIR]
        ids, truncated = self.tokenizer(texts)
        streamed = {LEFT_OUT: torch.tensor([row[LEFT_OUT] for row in rows])} if LEFT_OUT in rows[0] else {}
        return {
            **streamed,
            "row": torch.tensor(names, dtype=torch.long),
            **row_fields(rows, names),
            "truncated": torch.tensor(truncated, dtype=torch.long).view(-1, 2).sum(1),
            "input_ids": self.tokenizer.pad(ids, self.tokenizer.length(ids)),
            "concept_id": torch.tensor([text_key(text) for text in texts[1::2]]),
        }


def alignment_metrics(prediction: Any) -> dict[str, float]:
    """Recall@1 of the generalized caption for the caption and the other way round, over the whole set.

    Args:
        prediction: `EvalPrediction` with the captions' and the generalized captions' embeddings, `[n, D]` each, and
            `[n]` numbers, equal for equal generalized captions, which are right for each other's rows.

    Returns:
        `caption_to_generalized_recall@1` and `generalized_to_caption_recall@1` (shares).
    """
    caption, generalized, number = prediction.predictions

    def positive(start: int, stop: int) -> NDArray[np.bool_]:
        return number[start:stop, None] == number

    return {
        "caption_to_generalized_recall@1": recall_at_k(caption, generalized, positive),
        "generalized_to_caption_recall@1": recall_at_k(generalized, caption, positive),
    }


class TextAlignmentTrainer(CompositionalTrainer):
    """Trains the text tower alone: InfoNCE of each caption with its generalized caption (CLEAR GLASS, section 3.2.4).

    Needs the columns `caption` and `generalized_caption`; no image is read. The image tower and its projection are
    frozen; the scale is the model's `logit_scale`, trained. What is saved is a plain model, which the next stage takes
    as its own.

    The paper holds that a model never sees the names of the levels on which it is tested, but its released code
    aligns captions with them. Here a text that is, but for upper case, white space and stops around it, a name in the
    columns `group` or `level_1` to `level_4` of the dataset is refused, unless `allow_levels` is set;
    `leave_out_levels` leaves its row out. A set without any of these columns cannot be checked, which is warned about.

    The paper's words are to align captions with "their textual concepts"; it names no columns. `aligned_with: [group]`
    draws captions to names of concepts. The released code pairs every caption with every generalized caption and every
    level: all of these in `aligned_with`, and a row for each caption (a recipe's `captions: all`). Names that are
    trained on are unseen no longer, which is logged and in a run's report.

    The released code takes the features as they leave the text tower; here they are L2-normalized, as for images and
    texts, so that the model's scale means what it means elsewhere. Equal generalized captions of a batch are each
    other's negatives, as released; `mask_equal_texts` leaves them out.
    """

    config_class = TextAlignmentConfig
    collator_class = TextPairCollator
    evaluation_metrics = staticmethod(alignment_metrics)
    required_features = ("text_embeds", "logit_scale")
    contrasted_columns = PAIR

    def setup(self, args: TextAlignmentConfig, backbone: nn.Module) -> None:
        """Requires the numbers of equal captions where they are left out."""
        if args.mask_equal_texts:
            self.required_features = (*type(self).required_features, "concept_id")

    @classmethod
    def check_rows(cls, rows: Any, args: TextAlignmentConfig) -> str | None:
        """Also the columns that captions are aligned with; returns a line about names that are trained on."""
        dataset = getattr(rows, "dataset", rows)
        if dataset.column_names is not None:
            require_columns(dataset, args.aligned_with, needed_by=cls.__name__)
        return super().check_rows(rows, args) or _names_trained_on(args)

    def training_rows(self, dataset: Any, args: TextAlignmentConfig) -> TrainingRows | None:
        """Refuses level names among the texts, or leaves their rows out; then a row for each pair of texts.

        Raises:
            ValueError: naming row, column and value, or for a stream that would need other rows.
        """
        rows = self.read_rows(dataset, args, tuple(args.aligned_with))
        trained_on = _names_trained_on(args)
        if trained_on:
            logger.warning(trained_on)
        # Before pairs are made, while row numbers in errors are those of the user's dataset.
        rows = self._without_names(rows, args)
        return rows if rows is None or args.aligned_with == [PAIR[1]] else _pairs(rows, args.aligned_with)

    def _without_names(self, rows: Any, args: TextAlignmentConfig) -> Any:
        if rows is None or args.allow_levels:
            return rows
        if not level_columns(rows.dataset, None):
            logger.warning(
                f"the dataset has none of the columns {', '.join(LEVEL_COLUMNS)}: training texts cannot be checked "
                "for concept names of a test."
            )
        named = level_names(rows, [name for name in PAIR if name == PAIR[0] or name in args.aligned_with])
        if not named or args.leave_out_levels:
            return _without(rows, named)
        row, said = next(iter(named.items()))
        raise ValueError(
            f"column {said.column!r}, row {row}: found {said.text!r}, a name of the column {said.level!r}; "
            f"{len(named)} of {len(rows)} rows have one. A model trained on level names cannot be tested on them as "
            "unseen. Exclude such rows (--leave_out_levels true), or set allow_levels (--allow_levels true) and "
            "report it with the scores."
        )

    def evaluation_outputs(self, local: Features, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The embeddings `[B, D]` of captions and of generalized captions, and numbers of equal ones."""
        pair = dict(zip(PAIR, (local.text_embeds[::2], local.text_embeds[1::2]), strict=True))
        return {**pair, "concept_id": inputs["concept_id"]}

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """InfoNCE of the global batch, the mean of both directions; `text_embeds` is `[2 N, D]`, pair by pair."""
        f = self.gather_features(model, inputs)
        # Pair by pair and not all captions first: gathering over processes then keeps pairs together.
        caption, generalized = f.text_embeds.unflatten(0, (-1, 2)).unbind(1)
        loss, found = concept_info_nce_loss(
            caption,
            generalized,
            torch.arange(len(caption), device=caption.device),
            logit_scale=f.logit_scale,
            concept_id=f.concept_id,
            image_id=f.image_id,
            text_id=f.text_id,
            rows=f.rows,
        )
        del found["loss_concept"]  # the loss itself
        return self.reduce_loss(loss, {METRICS[name]: value for name, value in found.items()}, f, return_outputs)

    def read_rows(self, dataset: Any, args: TextAlignmentConfig, further: tuple[str, ...] = ()) -> Any:
        """As in [`CompositionalTrainer`], with the generalized captions and the columns of levels."""
        levels = level_columns(dataset, args.column_names)
        return super().read_rows(dataset, args, (*dict.fromkeys((*(further or (PAIR[1],)), *levels)),))


def _names_trained_on(args: TextAlignmentConfig) -> str | None:
    columns = [name for name in args.aligned_with if name in LEVEL_COLUMNS]
    if columns:
        return f"The names in {', '.join(columns)} are trained on: to a test by level they are not unseen."
    if args.allow_levels:
        return (
            "allow_levels: captions that are names of concepts are trained on; to a test by level they are not unseen."
        )
    return None


def _pairs(rows: Any, aligned_with: Sequence[str]) -> TrainingRows:
    """Each caption with each text of its row; pairs of one image have its id."""
    if not isinstance(rows, TrainingRows):
        raise ValueError("aligned_with: pairs of a stream's rows are not made. Leave streaming out.")
    others = [name for name in (IMAGE_ID,) if name in rows.dataset.column_names]
    columns: dict[str, list[Any]] = {
        name: [value for value in rows.column(name) for _ in aligned_with] for name in (PAIR[0], *others)
    }
    texts = zip(*(rows.column(name) for name in aligned_with), strict=True)
    columns[PAIR[1]] = [
        _text(dict(zip(aligned_with, row, strict=True)), name, number)
        for number, row in enumerate(texts)
        for name in aligned_with
    ]
    logger.warning(
        f"{len(rows):,} rows are {len(columns[PAIR[1]]):,} pairs of a caption and {', '.join(aligned_with)}."
    )
    return TrainingRows(Dataset.from_dict(columns), list(columns))


def _without(rows: TrainingRows, named: dict[int, LevelName]) -> TrainingRows:
    if not named:
        return rows
    logger.warning(f"{len(named):,} of {len(rows):,} rows are exactly the name of a level and are excluded.")
    kept = rows.dataset.select([row for row in range(len(rows)) if row not in named])
    return TrainingRows(kept, kept.column_names)


def _text(row: dict[str, Any], column: str, name: int) -> str:
    text = row.get(column)
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"column {column!r}, row {name}: found {text!r}, expected a text. Leave such rows out.")
    return text
