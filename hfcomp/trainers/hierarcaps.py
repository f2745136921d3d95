"""HierarCaps: chains of texts from general to specific, which the text tower alone orders around the empty text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import List, Value
from torch import nn
from transformers.utils import logging

from hfcomp.data.collators import CompositionalCollator, unique_texts
from hfcomp.data.columns import LEFT_OUT, require_columns
from hfcomp.data.concepts.chains import CHAINABLE, chain_of, draw_negatives, text_of
from hfcomp.data.image_ids import IMAGE_ID, image_key
from hfcomp.data.loading import TrainingRows
from hfcomp.losses import radial_entailment_loss
from hfcomp.losses.entailment import angles
from hfcomp.modeling import Features, encode_texts
from hfcomp.trainers._support.reference_text import FrozenText
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.config import WEIGHT, CompositionalConfig, option, sampling_seed, setting

logger = logging.get_logger(__name__)

WEIGHTS = ("entailment_weight", "hardest_weight", "pullback_weight")
NEGATIVES = "negative_captions"
SOURCES = ("siblings", NEGATIVES)

CODE = "HierarCaps' released code"


@dataclass
class HierarCapsConfig(CompositionalConfig):
    """Arguments of [`HierarCapsTrainer`]. The weights are those of the released HierarCaps code."""

    num_train_epochs: float = setting(1.0, CODE)
    learning_rate: float = setting(1.0e-7, CODE)
    lr_scheduler_type: str = setting("constant", CODE)
    warmup_steps: float = setting(0, CODE)
    weight_decay: float = setting(0.01, f"AdamW's own, {CODE}")
    adam_beta2: float = setting(0.999, f"AdamW's own, {CODE}")
    adam_epsilon: float = setting(1.0e-8, f"AdamW's own, {CODE}")
    freeze_towers: list[str] | None = option(["image"], "Towers to freeze. Only texts are read.")
    chain_columns: list[str] = option(
        [*CHAINABLE[:4]], f"Columns of a chain, from general to specific. Choices: {', '.join(CHAINABLE)}."
    )
    negative_source: str = option(
        "siblings",
        "Source of each text's negative: siblings (texts that other rows have in the same column) or "
        "negative_captions (the row's own, one per column of the chain).",
    )
    entailment_weight: float = option(1.0, "Weight of the mean over all triplets.", CODE, WEIGHT)
    hardest_weight: float = option(1.0, "Weight of the batch's hardest triplets.", CODE, WEIGHT)
    pullback_weight: float = option(10.0, "Weight of the distance to the embeddings before training.", CODE, WEIGHT)

    batch_unit = "chains"
    reads_negatives = False  # a chain's negatives come from negative_source
    draws_captions = False  # and are drawn once, for fixed texts
    replays = False  # batches hold texts only

    def __post_init__(self) -> None:
        super().__post_init__()
        if "text" in (self.freeze_towers or []):
            raise ValueError("freeze_towers contains 'text', the tower that chains of texts train. Remove it.")
        unknown = [name for name in self.chain_columns if name not in CHAINABLE]
        if unknown or len(set(self.chain_columns)) != len(self.chain_columns) or len(self.chain_columns) < 2:
            raise ValueError(
                f"chain_columns: found {self.chain_columns}, expected at least two different columns out of "
                f"{', '.join(CHAINABLE)}, from general to specific."
            )
        if self.negative_source not in SOURCES:
            raise ValueError(f"negative_source: found {self.negative_source!r}, expected one of {', '.join(SOURCES)}.")


class ChainCollator(CompositionalCollator):
    """Turns rows into a batch of texts: for each row the empty text, its chain and its negatives.

    Rows share the empty text and many others. `input_ids [n, L]` lists each text once, and `text_index [W B]` gives
    the position of every text; `W` is `1 + 2 C` for a chain of `C` columns. A missing text points to the empty one and
    belongs to no row: `concept_image_index [W B]` is -1 for it and the row's position in the batch for all others.
    Images are not decoded. The batch also holds `row [B]` and `truncated [B]`.

    Args:
        chain_columns: Columns of a chain, from general to specific.

    Raises:
        ValueError: Raised by a call, if an entry is not a string or there are too many negatives. The message names
            the column and the row.
    """

    def __init__(self, *args: Any, chain_columns: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.chain_columns = list(chain_columns)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        row_numbers = [row.get("row", index) for index, row in enumerate(rows)]
        row_texts = [self._chain_texts(row, row_number) for row, row_number in zip(rows, row_numbers, strict=True)]
        texts, text_index = unique_texts([text or "" for texts in row_texts for text in texts])
        ids, truncated = self.tokenizer(texts)
        # `concept_image_index` shows whether a text exists: gathering over processes keeps its -1, so no further key
        # is needed.
        owners = [[-1 if text is None else place for text in texts] for place, texts in enumerate(row_texts)]
        streamed = {LEFT_OUT: torch.tensor([row[LEFT_OUT] for row in rows])} if LEFT_OUT in rows[0] else {}
        return {
            **streamed,
            "row": torch.tensor(row_numbers, dtype=torch.long),
            "truncated": torch.tensor(truncated, dtype=torch.long)[text_index].view(len(rows), -1).sum(1),
            "input_ids": self.tokenizer.pad(ids, self.tokenizer.length(ids)),
            "text_index": text_index,
            "concept_image_index": torch.tensor(owners, dtype=torch.long).flatten(),
        }

    def _chain_texts(self, row: dict[str, Any], row_number: int) -> list[str | None]:
        """Returns the empty text, the chain and the negatives. A shorter chain leaves its last positions empty."""
        size = len(self.chain_columns)
        negatives = row.get(NEGATIVES) or []
        if not isinstance(negatives, list) or len(negatives) > size:
            raise ValueError(
                f"column {NEGATIVES!r}, row {row_number}: found {negatives!r}, expected a list of at most {size} "
                f"strings, one per column ({', '.join(self.chain_columns)}); an empty text means none."
            )
        negatives = [text_of(text, NEGATIVES, row_number) or None for text in negatives]
        negatives += [None] * (size - len(negatives))
        links = chain_of([row.get(column) for column in self.chain_columns], self.chain_columns, row_number)
        free = [None] * (size - len(links))
        return ["", *(link.text for link in links), *free, *(negatives[link.place] for link in links), *free]


def entailment_metrics(prediction: Any) -> dict[str, float]:
    """Measures how well chains are ordered around the empty text, over the whole set.

    Args:
        prediction: `EvalPrediction` with two arrays of angles `[n, C - 1]` in radians, towards the next text of the
            chain and towards the negative; NaN without a triplet.

    Returns:
        `entailment_accuracy` (share of triplets whose first angle is strictly smaller), `angle_entailed` and
        `angle_contradicted` (means, in radians). Empty without a triplet.
    """
    entailed, contradicted = prediction.predictions
    valid = ~np.isnan(entailed)
    if not valid.any():
        return {}
    return {
        "entailment_accuracy": float((entailed < contradicted)[valid].mean()),
        "angle_entailed": float(entailed[valid].mean()),
        "angle_contradicted": float(contradicted[valid].mean()),
    }


class HierarCapsTrainer(CompositionalTrainer):
    """Trains only the text tower, with HierarCaps' radial entailment loss (Alper and Averbuch-Elor 2024).

    A row's chain consists of the texts of `chain_columns`, the most general first, without empty texts and
    repetitions. As seen from the empty text, each text except the last should have the next one straight behind it,
    and not its negative; all texts should stay close to where the initial model put them. The image tower, its
    projection and `logit_scale` are frozen. The result is saved as a plain model.

    HierarCaps' own data has a negative for each text (`negative_source="negative_captions"`, in the order of
    `chain_columns`). Other data has none: `"siblings"`, our choice, draws one for each text, once, from the texts that
    other rows have in the same column, preferably from those that follow the same more general text.

    Abstraction is tested on the level columns: after training on a set of names, a model can no longer be tested on
    them as unseen names, which is logged. To resume a run, pass its initial model; any other model is rejected.
    """

    config_class = HierarCapsConfig
    collator_class = ChainCollator
    evaluation_metrics = staticmethod(entailment_metrics)
    required_features = ("text_embeds", "concept_image_index", "reference_text_embeds")
    contrasted_columns = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.start = FrozenText(self.model.backbone, self.processing_class)

    def collator_settings(self, args: HierarCapsConfig) -> dict[str, Any]:
        """Adds the columns of a chain."""
        return {**super().collator_settings(args), "chain_columns": args.chain_columns}

    def training_rows(self, dataset: Any, args: HierarCapsConfig) -> TrainingRows | None:
        """Warns if the names of levels are trained on."""
        rows = self.read_rows(dataset, args)
        levels = [name for name in args.chain_columns if name.startswith("level_")]
        if rows is not None and levels:
            logger.warning(
                f"Training on the texts of {', '.join(levels)}: scores on these levels do not measure unseen names."
            )
        return rows

    def gather_features(self, model: nn.Module, inputs: dict[str, Any]) -> Features:
        """Gathers as [`CompositionalTrainer`] does, with texts in the collator's order and their initial features."""
        # The frozen copy also encodes each text only once, however many rows have it.
        start = self._initial_features(inputs["input_ids"])
        if "text_index" in inputs:
            start = start.index_select(0, inputs["text_index"])
        return super().gather_features(model, {**inputs, "reference_text_embeds": start})

    def evaluation_outputs(self, local: Features, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Returns the angles `[B, C - 1]` towards the next text and the negative; NaN without a triplet."""
        chains = self._chains(local.text_embeds, inputs["concept_image_index"])
        root, (text, negative_text), (mask, negative_mask) = chains
        entailed, contradicted, valid = angles(text, negative_text, root, mask=mask, negative_mask=negative_mask)
        outputs = {"entailed": entailed, "contradicted": contradicted}
        return {name: value.masked_fill(~valid, torch.nan) for name, value in outputs.items()}

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Computes the radial entailment loss of the global batch."""
        f = self.gather_features(model, inputs)
        root, texts, (mask, negative_mask) = self._chains(f.text_embeds, f.concept_image_index)
        _, start, _ = self._chains(f.reference_text_embeds, f.concept_image_index)
        loss, metrics = radial_entailment_loss(
            *texts,
            root,
            *start,
            mask=mask,
            negative_mask=negative_mask,
            rows=f.rows,
            **{name: getattr(self.args, name) for name in WEIGHTS},
        )
        return self.reduce_loss(loss, metrics, f, return_outputs)

    def _chains(self, text: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, Any, Any]:
        """Splits texts into the empty text `[D]`, chains and negatives `[N, C, D]`, and masks of existing texts."""
        size = len(self.args.chain_columns)
        # Every row has the empty text; the first row's serves as the root for all.
        by_row = text.unflatten(0, (-1, 1 + 2 * size))
        exists = (index >= 0).unflatten(0, (-1, 1 + 2 * size))
        return by_row[0, 0], by_row[:, 1:].split(size, dim=1), exists[:, 1:].split(size, dim=1)

    def _initial_features(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Features `[n, D]` of texts `[n, L]`, encoded by the frozen copy."""
        # The copy stays on the device until a checkpoint is written.
        self.start.to(input_ids.device)
        size = self.args.mini_batch_size or len(input_ids)
        with torch.no_grad(), torch.autocast(input_ids.device.type, enabled=False):
            return torch.cat([encode_texts(self.start.backbone, part) for part in input_ids.split(size)])

    @classmethod
    def check_rows(cls, rows: Any, args: HierarCapsConfig) -> str | None:
        """Also checks the columns of a chain."""
        lacking, dataset = super().check_rows(rows, args), getattr(rows, "dataset", rows)
        if dataset.column_names is not None:
            require_columns(dataset, _columns(args), needed_by=cls.__name__)
        return lacking

    def read_rows(self, dataset: Any, args: HierarCapsConfig, further: tuple[str, ...] = ()) -> Any:
        """Reads rows as [`CompositionalTrainer`] does, with the columns of a chain and its (sampled) negatives."""
        if dataset is None or isinstance(dataset, TrainingRows):
            return dataset
        own = args.negative_source == NEGATIVES
        rows = super().read_rows(dataset, args, (*further, *_columns(args)))
        if own:
            return rows
        if not isinstance(rows, TrainingRows):
            raise ValueError(
                "negative_source='siblings' reads the texts of all rows, but the dataset is streamed. Load it without "
                f"streaming=True, or add a column {NEGATIVES!r} and set negative_source={NEGATIVES!r}."
            )
        return add_sibling_negatives(rows, args.chain_columns, seed=sampling_seed(args))

    def after_save(self, folder: Path) -> None:
        """Records the fingerprint of the initial model in the checkpoint."""
        # The fingerprint is computed on the CPU, which every machine that resumes the run has.
        self.start.to("cpu")
        self.start.sign(folder)

    def after_load(self, folder: Path) -> None:
        """Raises if a run is resumed with a model other than the initial one."""
        self.start.to("cpu")
        self.start.check(folder)


def _columns(args: HierarCapsConfig) -> list[str]:
    """The columns of a chain and its negatives, except for the caption."""
    own = [NEGATIVES] if args.negative_source == NEGATIVES else []
    return [name for name in (*args.chain_columns, *own) if name != "caption"]


def add_sibling_negatives(rows: TrainingRows, columns: Sequence[str], *, seed: int) -> TrainingRows:
    """Adds the column `negative_captions` to rows: one per column of a chain, drawn from the rows of other images."""
    texts = zip(*map(rows.column, columns), strict=True)
    chains = [chain_of(row, columns, index) for index, row in enumerate(texts)]
    images = None
    if IMAGE_ID in rows.dataset.column_names:
        # A sibling from another caption of the same image may well be true of this one.
        images = [image_key(value, row) for row, value in enumerate(rows.column(IMAGE_ID))]
    drawn = draw_negatives(chains, columns=len(columns), seed=seed, images=images)
    logger.info(drawn.summary())
    idle = sum(
        not any(negatives[link.place] for link in chain[:-1])
        for chain, negatives in zip(chains, drawn.texts, strict=True)
    )
    if idle == len(chains):
        raise ValueError(
            f"columns {', '.join(columns)}: none of the {idle:,} rows can be used. A row needs two different texts, "
            "and another row needs a text that differs from the first of the two. Choose other chain_columns, or a "
            "dataset with more names."
        )
    if idle:
        logger.warning(f"{idle:,} of {len(chains):,} rows have no text that has both a next text and a negative.")
    dataset = rows.dataset.add_column(NEGATIVES, drawn.texts, feature=List(Value("string")))
    return TrainingRows(dataset, dataset.column_names)
