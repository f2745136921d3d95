"""Textual alignment (CLEAR GLASS, section 3.2.4): the text tower pulls captions towards their generalized captions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset, LargeList, List
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
# The loss names them images and concepts; here both are texts.
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
    adam_beta2: float = setting(0.999, CODE)
    adam_epsilon: float = setting(1.0e-8, CODE)
    max_grad_norm: float = setting(1.0, CODE)
    freeze_towers: list[str] | None = option(["image"], "Towers to freeze. Only texts are read.")
    aligned_with: list[str] = option(
        [PAIR[1]], f"Columns of the texts to align captions with: {PAIR[1]}, {', '.join(LEVEL_COLUMNS)}."
    )
    allow_levels: bool = option(
        False, "Allow training on texts that are names in group or level_1 to level_4. If false, they are an error."
    )
    leave_out_levels: bool = option(False, "Leave out and count rows with such a text instead of raising an error.")

    reads_negatives = False
    draws_captions = False  # pairs consist of fixed texts
    replays = False  # batches hold texts only

    def __post_init__(self) -> None:
        super().__post_init__()
        if "text" in (self.freeze_towers or []):
            raise ValueError("freeze_towers contains 'text', the tower that textual alignment trains. Remove it.")
        known = (PAIR[1], *LEVEL_COLUMNS)
        wrong = [name for name in self.aligned_with if name not in known or self.aligned_with.count(name) > 1]
        if wrong or not self.aligned_with:
            raise ValueError(
                f"aligned_with: found {self.aligned_with}, expected one or more of {', '.join(known)}, each at most "
                "once."
            )
        if self.allow_levels and self.leave_out_levels:
            raise ValueError("allow_levels and leave_out_levels exclude each other. Set only one.")


class TextPairCollator(CompositionalCollator):
    """Turns rows into a batch of texts: `input_ids [2 B, L]`, each row's caption followed by its generalized one.

    Images are not decoded. The batch also holds `row [B]`, `truncated [B]` and `concept_id [B]`, equal numbers
    for equal generalized captions.

    Raises:
        ValueError: Raised by a call, if an entry is not a string. The message names the column and the row.
    """

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        row_numbers = [row.get("row", index) for index, row in enumerate(rows)]
        texts = [
            _text(row, column, row_number)
            for row, row_number in zip(rows, row_numbers, strict=True)
            for column in PAIR
        ]
        ids, truncated = self.tokenizer(texts)
        streamed = {LEFT_OUT: torch.tensor([row[LEFT_OUT] for row in rows])} if LEFT_OUT in rows[0] else {}
        return {
            **streamed,
            "row": torch.tensor(row_numbers, dtype=torch.long),
            **row_fields(rows, row_numbers),
            "truncated": torch.tensor(truncated, dtype=torch.long).view(-1, 2).sum(1),
            "input_ids": self.tokenizer.pad(ids, self.tokenizer.length(ids)),
            "concept_id": torch.tensor([text_key(text) for text in texts[1::2]]),
        }


def alignment_metrics(prediction: Any) -> dict[str, float]:
    """Computes recall@1 from captions to generalized captions and back, over the whole set.

    Args:
        prediction: `EvalPrediction` with the embeddings of captions and generalized captions, `[n, D]` each, and
            `[n]` numbers. Equal numbers mark equal generalized captions, which are correct for each other's rows.

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
    """Trains only the text tower: InfoNCE of each caption with its generalized caption (CLEAR GLASS, section 3.2.4).

    Needs the columns `caption` and `generalized_caption`; no image is read. The image tower and its projection are
    frozen; the model's `logit_scale` is used and trained. The result is saved as a plain model, which the next stage
    starts from.

    According to the paper, a model never sees the names of the levels it is tested on, but its released code aligns
    captions with them. Here a text is rejected if it equals a name in the dataset's columns `group` or `level_1` to
    `level_4`, ignoring case, whitespace and surrounding full stops, unless `allow_levels` is set; `leave_out_levels`
    leaves out its row. A dataset without any of these columns cannot be checked, which is logged as a warning.

    The paper aligns captions with "their textual concepts" and names no columns. `aligned_with: [group]` pulls
    captions towards names of concepts. The released code pairs every caption with every generalized caption and every
    level: list all of these in `aligned_with`, with a row per caption (a recipe's `captions: all`). Each generalized
    caption of a list is a pair. Names that are trained on are no longer unseen, which is logged and in a run's report.

    The released code uses the text tower's features as they are. Here they are L2-normalized, as for images and texts,
    so the model's scale means the same as elsewhere. Equal generalized captions in a batch are each other's negatives,
    as released; `mask_equal_texts` excludes them.
    """

    config_class = TextAlignmentConfig
    collator_class = TextPairCollator
    evaluation_metrics = staticmethod(alignment_metrics)
    required_features = ("text_embeds", "logit_scale")
    contrasted_columns = PAIR

    def setup(self, args: TextAlignmentConfig, backbone: nn.Module) -> None:
        """Requires the numbers of equal captions if these are excluded."""
        if args.mask_equal_texts:
            self.required_features = (*type(self).required_features, "concept_id")

    @classmethod
    def check_rows(cls, rows: Any, args: TextAlignmentConfig) -> str | None:
        """Also checks the columns that captions are aligned with. May return a line about trained names."""
        dataset = getattr(rows, "dataset", rows)
        if dataset.column_names is not None:
            require_columns(dataset, args.aligned_with, needed_by=cls.__name__)
        return super().check_rows(rows, args) or _trained_names_warning(args)

    def training_rows(self, dataset: Any, args: TextAlignmentConfig) -> TrainingRows | None:
        """Rejects level names among the texts, or leaves out their rows, then makes a row per pair of texts.

        Raises:
            ValueError: For a level name, naming row, column and value, or for a stream that would need other rows.
        """
        rows = self.read_rows(dataset, args, tuple(args.aligned_with))
        warning = _trained_names_warning(args)
        if warning:
            logger.warning(warning)
        # Done before pairs are built, while row numbers in errors match the user's dataset.
        rows = self._drop_level_names(rows, args)
        has_lists = isinstance(rows, TrainingRows) and isinstance(rows.features.get(PAIR[1]), List | LargeList)
        is_paired = args.aligned_with == [PAIR[1]] and not has_lists
        return rows if rows is None or is_paired else _pairs(rows, args.aligned_with)

    def _drop_level_names(self, rows: Any, args: TextAlignmentConfig) -> Any:
        if rows is None or args.allow_levels:
            return rows
        if not level_columns(rows.dataset, None):
            logger.warning(
                f"the dataset has none of the columns {', '.join(LEVEL_COLUMNS)}, so training texts cannot be checked "
                "for concept names of a test."
            )
        named = level_names(rows, [name for name in PAIR if name == PAIR[0] or name in args.aligned_with])
        if not named or args.leave_out_levels:
            return _drop_rows(rows, named)
        row, match = next(iter(named.items()))
        raise ValueError(
            f"column {match.column!r}, row {row}: found {match.text!r}, a name in the column {match.level!r}; "
            f"{len(named)} of {len(rows)} rows have such a text. After training on level names, a test on them is not "
            "a test on unseen names. Exclude such rows (--leave_out_levels true), or set allow_levels (--allow_levels "
            "true) and report it with the scores."
        )

    def evaluation_outputs(self, local: Features, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Returns the embeddings `[B, D]` of captions and generalized captions, and numbers that mark equal ones."""
        pair = dict(zip(PAIR, (local.text_embeds[::2], local.text_embeds[1::2]), strict=True))
        return {**pair, "concept_id": inputs["concept_id"]}

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Computes InfoNCE of the global batch, the mean of both directions. `text_embeds` is `[2 N, D]`, by pair."""
        f = self.gather_features(model, inputs)
        # By pair, not all captions first, so gathering over processes keeps pairs together.
        caption, generalized = f.text_embeds.unflatten(0, (-1, 2)).unbind(1)
        loss, metrics = concept_info_nce_loss(
            caption,
            generalized,
            torch.arange(len(caption), device=caption.device),
            concept_id=f.concept_id,
            **f.common,
        )
        del metrics["loss_concept"]  # the loss itself
        return self.reduce_loss(loss, {METRICS[name]: value for name, value in metrics.items()}, f, return_outputs)

    def read_rows(self, dataset: Any, args: TextAlignmentConfig, further: tuple[str, ...] = ()) -> Any:
        """Reads rows as [`CompositionalTrainer`] does, with the generalized captions and the level columns."""
        levels = level_columns(dataset, args.column_names)
        return super().read_rows(dataset, args, (*dict.fromkeys((*(further or (PAIR[1],)), *levels)),))


def _trained_names_warning(args: TextAlignmentConfig) -> str | None:
    columns = [name for name in args.aligned_with if name in LEVEL_COLUMNS]
    if columns:
        return f"Training on the names in {', '.join(columns)}: in a test by level they are not unseen."
    if args.allow_levels:
        return "allow_levels: training on captions that are names of concepts; in a test by level they are not unseen."
    return None


def _pairs(rows: Any, aligned_with: Sequence[str]) -> TrainingRows:
    """Pairs each caption with each text of its row. The pairs of an image share its id."""
    if not isinstance(rows, TrainingRows):
        raise ValueError(
            "aligned_with needs all rows to make pairs, but the dataset is streamed. Load it without streaming=True."
        )
    pairs = [
        (row, _text({name: text}, name, row))
        for row, values in enumerate(zip(*(rows.column(name) for name in aligned_with), strict=True))
        for name, value in zip(aligned_with, values, strict=True)
        for text in (value if value and isinstance(value, list) else [value])
    ]
    others = [name for name in (IMAGE_ID,) if name in rows.dataset.column_names]
    own = {name: rows.column(name) for name in (PAIR[0], *others)}
    columns: dict[str, list[Any]] = {name: [values[row] for row, _ in pairs] for name, values in own.items()}
    columns[PAIR[1]] = [text for _, text in pairs]
    logger.warning(f"{len(rows):,} rows yield {len(pairs):,} pairs of a caption and {', '.join(aligned_with)}.")
    return TrainingRows(Dataset.from_dict(columns), list(columns))


def _drop_rows(rows: TrainingRows, named: dict[int, LevelName]) -> TrainingRows:
    if not named:
        return rows
    logger.warning(
        f"{len(named):,} of {len(rows):,} rows have a text that is exactly the name of a level; they are left out."
    )
    remaining = rows.dataset.select([row for row in range(len(rows)) if row not in named])
    return TrainingRows(remaining, remaining.column_names)


def _text(row: dict[str, Any], column: str, row_number: int) -> str:
    text = row.get(column)
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"column {column!r}, row {row_number}: found {text!r}, expected a string. Remove such rows.")
    return text
