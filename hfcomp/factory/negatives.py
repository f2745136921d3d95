"""Builds hard negative captions: reads the source, and turns options into stages and the facts that identify them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Value

from hfcomp.checksums import file_hash
from hfcomp.data.columns import NEGATIVE_FEATURES
from hfcomp.data.publishing import without_local_paths
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.factory.build import DatasetBuild
from hfcomp.factory.kinds import NEGATIVE_STAGE, check_share
from hfcomp.factory.options import NegativeOptions
from hfcomp.factory.shards import Batch, Stage
from hfcomp.factory.sources import BuildInputs, make_image_check, model_facts, output_features, read_captioned_rows
from hfcomp.factory.text_negatives import TextNegatives, check_kinds, make_captions, needs_parser
from hfcomp.factory.writers.llm_client import writer_facts
from hfcomp.factory.writers.prompts import NEGATIVES_FILE
from hfcomp.negatives.filters import FALSE_NEGATIVE, is_false_negative
from hfcomp.negatives.keywords import PAPER_TABLE, read_keyword_table
from hfcomp.negatives.mask_filling import DEFAULT_MODEL
from hfcomp.negatives.negative import COLUMN_NAMES
from hfcomp.parsing import cached_parser

RECORDED_AS_GIVEN = ("kinds", "num_negatives", "seed", "keyword_matching", "drop_same_words", "only_with_negative")
SETTINGS = (
    *RECORDED_AS_GIVEN,
    *("swap_rule", "parser", "fill_model", "keyword_table", "grammar_model", "grammar_tolerance", "device"),
    *("false_negative_model", "false_negative_margin", "attempts"),
)


class NegativeBuild(DatasetBuild):
    """Builds hard negative captions."""

    def inputs(self) -> BuildInputs:
        """Returns the rows without columns of earlier negatives, and the stages.

        The stages record models and versions, but no local paths.
        """
        options = self.options
        # Checked before a source is downloaded.
        check_kinds(options.kinds, read_keyword_table(options.keyword_table) if options.keyword_table else PAPER_TABLE)
        settings = {name: getattr(options, name) for name in SETTINGS}
        if options.has_kind("llm"):
            settings["writer"] = options.writer_settings()
        facts = {name: settings[name] for name in RECORDED_AS_GIVEN} | _model_facts(options)
        stages = [Stage("captions", make_captions, {"which": options.captions})]
        needed: list[str] = []
        if options.false_negative_model:
            # The filter needs the images, so rows with unreadable ones are set aside first.
            stages.append(Stage("images", make_image_check))
            needed = ["image"]
        stages.append(Stage(NEGATIVE_STAGE, make_checked_negatives, settings, facts))
        dataset = read_captioned_rows(
            options, self.log, is_old=_is_old, needed=needed, needed_by="--false_negative_model"
        )
        added = {name: NEGATIVE_FEATURES[name] for name in COLUMN_NAMES}
        features = output_features(dataset, {"caption": Value("string"), **added})
        check = partial(check_share, most=options.max_without_negative)
        return BuildInputs(dataset, stages, features, ["caption", *needed], check=check)


def _is_old(column: str) -> bool:
    return column.startswith("negative_") or column == "mask"  # the mask belongs to the negative image


def _model_facts(options: NegativeOptions) -> dict[str, Any]:
    """The identity of the files and models in use."""
    facts: dict[str, Any] = {}
    if options.keyword_table:
        table = Path(options.keyword_table)
        facts["keyword_table"] = f"{table.name} sha256:{file_hash(table)}"
    if options.swap_rule != "guarded":  # otherwise the facts are those of builds before there was a rule
        facts["swap_rule"] = options.swap_rule
    if needs_parser(options.kinds):
        facts["parser"] = without_local_paths(cached_parser(options.parser).name)
    if options.has_kind("mask"):
        facts["fill_model"] = model_facts(options.fill_model or DEFAULT_MODEL)
    if options.has_kind("llm"):
        facts |= writer_facts(options.writer_settings(), NEGATIVES_FILE) | {"attempts": options.attempts}
    if options.grammar_model:
        facts["grammar_model"] = model_facts(options.grammar_model)
        facts["grammar_tolerance"] = options.grammar_tolerance
    if options.false_negative_model:
        facts["false_negative_model"] = model_facts(options.false_negative_model)
        facts["false_negative_margin"] = options.false_negative_margin
    return facts


def make_checked_negatives(
    *, false_negative_model: str | None = None, false_negative_margin: float = 0.0, **settings: Any
) -> Callable[[Batch], Batch]:
    """Makes `TextNegatives`, with a `FalseNegativeFilter` if a dual encoder is given."""
    checks = []
    if false_negative_model is not None:
        device = settings.get("device")
        checks.append(FalseNegativeFilter(false_negative_model, margin=false_negative_margin, device=device))
    return TextNegatives(checks=checks, **settings)


class FalseNegativeFilter:
    """Drops negatives whose cosine with the image is at least `margin` above the caption's, by a dual encoder."""

    def __init__(self, model: str, *, margin: float, device: str | None) -> None:
        self._embedder = Embedder(model, device=device)
        self._margin = margin
        self._batch: Batch | None = None
        self._images: dict[int, np.ndarray] = {}

    def __call__(self, batch: Batch, places: list[int], texts: list[str]) -> list[str | None]:
        """Returns the reason for dropping each text, or None."""
        # A batch's texts come in several calls, but its images are embedded only once.
        if batch is not self._batch:
            self._batch, self._images = batch, {}
        missing = [place for place in dict.fromkeys(places) if place not in self._images]
        if missing:
            embedded = self._embedder.images([batch["image"][place] for place in missing])
            self._images |= dict(zip(missing, embedded, strict=True))
        images = np.stack([self._images[place] for place in places])
        captions = [batch["caption"][place] for place in places]
        vectors = self._embedder.texts([*captions, *texts]).vectors
        caption_scores, negative_scores = (
            (images * part).sum(-1) for part in (vectors[: len(texts)], vectors[len(texts) :])
        )
        flags = is_false_negative(caption_scores, negative_scores, margin=self._margin)
        return [FALSE_NEGATIVE if flag else None for flag in flags]
