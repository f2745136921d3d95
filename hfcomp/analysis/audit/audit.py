"""Runs all checks of `hfcomp audit` on a benchmark or a dataset, and applies the limits set by CI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hfcomp.analysis.audit.checks import CHECKS, Check, Limit, skipped_check
from hfcomp.analysis.audit.images import duplicate_images, overlap
from hfcomp.analysis.audit.options import AuditOptions
from hfcomp.analysis.audit.probes import model_checks, text_probe
from hfcomp.analysis.audit.reading import AuditSet, read_audit_set
from hfcomp.analysis.audit.texts import (
    NO_PAIRS,
    Scores,
    bigram_scores,
    duplicate_texts,
    equal_negatives,
    equal_words,
    known_true,
    likelihood_check,
    near_duplicate_texts,
    own_bigram_scores,
    rule_checks,
    rule_scores,
    same_words,
)
from hfcomp.data.publishing import without_local_paths
from hfcomp.data.urls import UrlAccess, url_access
from hfcomp.evaluation.blind.captions import CaptionSource, read_caption_source
from hfcomp.evaluation.spec import Folders, Unavailable
from hfcomp.statistics.results import package_versions

UNREADABLE = "unreadable images, left out of the comparison: {unreadable:,}; the first: {first_unreadable}"
OWN_CAPTIONS = "the dataset's own captions of other images"


@dataclass(frozen=True)
class Audit:
    data: AuditSet
    checks: Mapping[str, Check]  # by name, in the order of `CHECKS`
    options: AuditOptions

    def failures(self, limits: Sequence[Limit]) -> list[str]:
        return [reason for limit in limits if (reason := limit.reason(self.checks))]

    @property
    def notes(self) -> list[str]:
        facts = self.checks["duplicate_images"].facts
        return [*self.data.notes, *([UNREADABLE.format(**facts)] if facts.get("unreadable") else [])]

    def to_json(self, name: str, limits: Sequence[Limit]) -> dict[str, Any]:
        data = self.data
        return {
            "schema_version": 1,
            "versions": package_versions(),
            "dataset": name,
            "rows": len(data),
            "pairs": len(data.pairs),
            "captions": len(data.texts),
            "images": len(data.first_rows),
            "checks": {key: check.to_json() for key, check in self.checks.items()},
            "limits": [
                {
                    "name": limit.name,
                    "most": limit.most,
                    "failed": limit.reason(self.checks),
                    "within_chance": limit.within_chance(self.checks),
                }
                for limit in limits
            ],
            "notes": self.notes,
        }


def audit(name: str, options: AuditOptions, *, hashes: Path | None = None, progress: bool = False) -> Audit:
    """Runs all checks without writing anything.

    Args:
        name: Name of the dataset, see `read_audit_set`.
        hashes: Folder of image hashes. Defaults to `$HF_HOME/hfcomp/image_hashes`.
    """
    with url_access(UrlAccess.from_settings(options.allow_urls, options.url_timeout)):
        data = read_audit_set(name, options)
        source = _caption_source(data, options)
        # COCO captions picked by default only feed the bigram model. Captions that the user named also count as
        # further captions of their images.
        further = None if source is None or options.captions is None else source.by_image()
        examples, hashing = options.examples, {"folder": hashes, "progress": progress}
        checks = [
            *_pair_checks(data, options, source),
            text_probe(data, options.seed),
            *model_checks(data, options, progress=progress),
            same_words(data, examples),
            equal_negatives(data, examples),
            equal_words(data, examples),
            known_true(data, examples, further),
            duplicate_texts(data.texts, examples),
            near_duplicate_texts(data.texts, examples),
            duplicate_images(data, examples, **hashing),
            overlap(data, options.benchmarks, options.data_dir, examples, **hashing),
        ]
    by_name = {check.name: check for check in checks}
    return Audit(data, {key: by_name[key] for key in CHECKS}, options)


def _pair_checks(data: AuditSet, options: AuditOptions, source: CaptionSource | None) -> list[Check]:
    """Runs the rules that see no image, and the check of likelihood."""
    if not len(data.pairs):
        return [*rule_checks(data, {}, ""), skipped_check("language_model", NO_PAIRS)]
    bigrams, note = _bigrams(data, options, source)
    scores = rule_scores(data.pairs, bigrams)
    checks = rule_checks(data, scores, note)
    if options.language_model is None:
        return [*checks, likelihood_check(data, scores["bigram"], f"the bigram model of {note}")]
    from hfcomp.negatives.filters import GrammarFilter

    # Only the language model of the filter is used, for the losses of texts.
    model = GrammarFilter(options.language_model, device=options.device)
    # A loss is a negative log likelihood per token, so the higher number belongs to the likelier text.
    losses = np.split(-model.losses([*data.pairs["caption"], *data.pairs["negative"]]), 2)
    return [*checks, likelihood_check(data, (losses[0], losses[1]), without_local_paths(model.name))]


def _caption_source(data: AuditSet, options: AuditOptions) -> CaptionSource | None:
    """Reads the captions of `--captions`, COCO's by default; `None` without pairs or local COCO captions."""
    if not len(data.pairs):
        return None
    try:
        datasets = [] if data.loaded is None else [data.loaded.data]
        return read_caption_source(options.captions, Folders(options.data_dir), datasets)
    except Unavailable:
        return None


def _bigrams(data: AuditSet, options: AuditOptions, source: CaptionSource | None) -> tuple[Mapping[str, Scores], str]:
    """Scores the pairs with a bigram model. Also describes the captions that the model was counted on."""
    if source is None:
        return own_bigram_scores(data, options.seed), OWN_CAPTIONS
    texts = [*data.texts["text"], *data.pairs["negative"]]
    # Captions of the dataset's own images would make its texts likelier, including negatives copied from them.
    model, counts = source.model_without(set(data.image_ids), texts)
    place = without_local_paths(source.place)
    if model is None:
        note = f"{OWN_CAPTIONS}, because all captions of {place} belong to this dataset or its images"
        return own_bigram_scores(data, options.seed), note
    return bigram_scores(data.pairs, model), f"{counts['captions']:,} captions of {place}"
