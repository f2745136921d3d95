"""`hfcomp analyze`: compares datasets of hard negative pairs by the paper's numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hfcomp.analysis.pairs.encoders import BertScore, ImageEmbedder
from hfcomp.analysis.pairs.items import PairSet, named_sets, read_pairs
from hfcomp.analysis.pairs.options import NONE, AnalyzeOptions
from hfcomp.analysis.pairs.report import PairResults
from hfcomp.analysis.pairs.similarity import PairImages, dual_encoder_scores, image_similarity, word_scores
from hfcomp.analysis.pairs.summary import ScoredSet, Summary
from hfcomp.data.urls import UrlAccess, url_access
from hfcomp.evaluation.encoding.cache import open_cache
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.evaluation.models import open_embedder
from hfcomp.negatives.concreteness import ConcretenessRatings
from hfcomp.options import named_models


def analyze(sets: Sequence[str] | Mapping[str, str], options: AnalyzeOptions) -> PairResults:
    """Reads datasets of pairs and scores them with every model. Loads only what is needed.

    Args:
        sets: Built folders, `save_to_disk` folders, files or Hub ids, also as `NAME=PLACE` or as a mapping by name. A
            dataset with several configurations stands for all of them; `PLACE::CONFIG` selects one.
    """
    places = named_sets(sets, options.config)
    models = {} if NONE in options.models else named_models(options.models)
    path = options.concreteness_ratings
    ratings = None if path is None else ConcretenessRatings.from_file(path)
    bars = sys.stderr.isatty()
    with url_access(UrlAccess.from_settings(options.allow_urls, options.url_timeout)):
        read = {name: read_pairs(name, place, options, ratings) for name, place in places.items()}
        scored_sets = {name: ScoredSet(pairs, {"": word_scores(pairs.items)}) for name, pairs in read.items()}
        images = {name: PairImages(pairs, progress=bars) for name, pairs in read.items()}
        facts = _score(scored_sets, images, models, options, progress=bars)
        summary = Summary(scored_sets, seed=options.seed, progress=bars)
    notes = [note for pairs in read.values() for note in pairs.notes]
    return PairResults(scored_sets, summary, facts, options, list(dict.fromkeys(notes)))


def _score(
    scored_sets: Mapping[str, ScoredSet],
    images: Mapping[str, PairImages],
    models: Mapping[str, str],
    options: AnalyzeOptions,
    *,
    progress: bool,
) -> dict[str, dict[str, Any]]:
    """Adds each model's scores to each dataset, one model in memory at a time. Returns facts about the models."""
    cache = open_cache(not options.no_cache)
    settings: dict[str, Any] = {"batch_size": options.batch_size, "device": options.device}
    _note_missing(scored_sets, images)
    facts: dict[str, dict[str, Any]] = {}
    for model, source in models.items():
        embedder = open_embedder(source, cache=cache, **settings)
        facts[model] = {"use": "dual encoder", "path": source, "weights": identity(source)}
        for name, scored in scored_sets.items():
            scored.scores[model] = dual_encoder_scores(scored.pairs, images[name], embedder, progress=progress)
        embedder.release()
    paired = [name for name, own in images.items() if len(own.columns) == 2]
    # DINOScore needs both images of a pair.
    if paired and options.image_model != NONE:
        encoder = ImageEmbedder(options.image_model, cache=cache, **settings)
        facts["DINOScore"] = {"use": "image model", "path": options.image_model, "weights": encoder.weights}
        for name in paired:
            scored_sets[name].scores[""].values["DINOScore"] = image_similarity(
                scored_sets[name].pairs, images[name], encoder
            )
        # Frees the memory for the text model.
        del encoder
    if options.text_model != NONE:
        facts["BERTScore"] = _text_scores(scored_sets, options, settings, progress=progress)
    cache.trim()
    return facts


def _text_scores(
    scored_sets: Mapping[str, ScoredSet], options: AnalyzeOptions, settings: Mapping[str, Any], *, progress: bool
) -> dict[str, Any]:
    score = BertScore(options.text_model, layer=options.text_layer, baseline=options.text_baseline, **settings)
    for scored in scored_sets.values():
        items = scored.pairs.items
        before = score.truncated
        values = score(items["caption"].tolist(), items["negative_caption"].tolist(), progress=progress)
        if score.truncated > before:
            scored.pairs.note(
                f"{score.truncated - before:,} texts are too long for {options.text_model} and are truncated for it"
            )
        scored.scores[""].values["BERTScore"] = values
        if score.baseline is None:
            scored.pairs.notes.append(
                f"BERTScore is not rescaled, unlike the paper's: layer {score.layer} of {options.text_model} has no "
                "known baseline; --text_baseline FILE supplies one"
            )
    baseline = "none" if score.baseline is None else f"{score.baseline:g}"
    facts = {"use": f"text model, layer {score.layer}, baseline {baseline}", "path": options.text_model}
    return facts | {"weights": identity(options.text_model)}


def _note_missing(scored_sets: Mapping[str, ScoredSet], images: Mapping[str, PairImages]) -> None:
    for name, scored in scored_sets.items():
        pairs: PairSet = scored.pairs
        if "image" not in images[name].columns:
            pairs.note("there are no images, so dual encoders give only the similarity of texts")
        elif "negative_image" not in images[name].columns:
            pairs.note(
                "there are no negative images, so T2I accuracy, CLIP-V, DINOScore and dependent numbers are left out"
            )
        if not scored.pairs.items["keyword"].fillna("").any():
            pairs.note("column negative_keywords is missing, so unique keywords and keyword lengths are left out")
