"""`hfcomp analyze`: sets of hard negative pairs side by side, in the paper's numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
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
    """Reads sets of pairs and has every model say what it can of them; nothing is loaded that is not needed.

    Args:
        sets: built folders, folders of `save_to_disk`, files or Hub ids, also as `NAME=PLACE`, or by name; one of
            several configurations stands for all of them, `PLACE::CONFIG` for one.
    """
    places = named_sets(sets, options.config)
    models = {} if NONE in options.models else named_models(options.models)
    path = options.concreteness_ratings
    ratings = None if path is None else ConcretenessRatings.from_file(path)
    bars = sys.stderr.isatty()
    with _url_access(options):
        read = {name: read_pairs(name, place, options, ratings) for name, place in places.items()}
        found = {name: ScoredSet(pairs, {"": word_scores(pairs.items)}) for name, pairs in read.items()}
        images = {name: PairImages(pairs, progress=bars) for name, pairs in read.items()}
        facts = _score(found, images, models, options, progress=bars)
        summary = Summary(found, seed=options.seed, progress=bars)
    notes = [note for one in read.values() for note in one.notes]
    return PairResults(found, summary, facts, options, list(dict.fromkeys(notes)))


def _url_access(options: AnalyzeOptions) -> AbstractContextManager[None]:
    return url_access(UrlAccess.from_settings(options.allow_urls, options.url_timeout))


def _score(
    found: Mapping[str, ScoredSet],
    images: Mapping[str, PairImages],
    models: Mapping[str, str],
    options: AnalyzeOptions,
    *,
    progress: bool,
) -> dict[str, dict[str, Any]]:
    """Adds what each model says of each set, one model in memory at a time; facts about the models."""
    cache = open_cache(not options.no_cache)
    settings: dict[str, Any] = {"batch_size": options.batch_size, "device": options.device}
    _note_absent(found, images, options, bool(models))
    facts: dict[str, dict[str, Any]] = {}
    for model, place in models.items():
        embedder = open_embedder(place, cache=cache, **settings)
        facts[model] = {"use": "dual encoder", "path": place, "weights": identity(place)}
        for name, one in found.items():
            one.scores[model] = dual_encoder_scores(one.pairs, images[name], embedder, progress=progress)
        embedder.release()
    paired = [name for name, one in images.items() if len(one.columns) == 2]
    # DINOScore compares the two images of a pair.
    if paired and options.image_model != NONE:
        encoder = ImageEmbedder(options.image_model, cache=cache, **settings)
        facts["DINOScore"] = {"use": "image model", "path": options.image_model, "weights": encoder.weights}
        for name in paired:
            found[name].scores[""].values["DINOScore"] = image_similarity(found[name].pairs, images[name], encoder)
        # Frees the memory for the text model.
        del encoder
    if options.text_model != NONE:
        facts["BERTScore"] = _text_scores(found, options, settings, progress=progress)
    cache.trim()
    return facts


def _text_scores(
    found: Mapping[str, ScoredSet], options: AnalyzeOptions, settings: Mapping[str, Any], *, progress: bool
) -> dict[str, Any]:
    score = BertScore(options.text_model, layer=options.text_layer, baseline=options.text_baseline, **settings)
    for one in found.values():
        items = one.pairs.items
        cut = score.truncated
        values = score(items["caption"].tolist(), items["negative_caption"].tolist(), progress=progress)
        if score.truncated > cut:
            one.pairs.note(f"{score.truncated - cut:,} texts are longer than {options.text_model} and are cut for it")
        one.scores[""].values["BERTScore"] = values
        if score.baseline is None:
            one.pairs.notes.append(
                f"BERTScore is not rescaled, unlike the paper's: no baseline of layer {score.layer} of "
                f"{options.text_model} is known; --text_baseline FILE gives one"
            )
    baseline = "none" if score.baseline is None else f"{score.baseline:g}"
    facts = {"use": f"text model, layer {score.layer}, baseline {baseline}", "path": options.text_model}
    return facts | {"weights": identity(options.text_model)}


def _note_absent(
    found: Mapping[str, ScoredSet], images: Mapping[str, PairImages], options: AnalyzeOptions, judged: bool
) -> None:
    for name, one in found.items():
        pairs: PairSet = one.pairs
        if "image" not in images[name].columns:
            pairs.note("there are no images: of a dual encoder only the similarity of texts is computed")
        elif "negative_image" not in images[name].columns:
            pairs.note(
                "there are no negative images: T2I accuracy, CLIP-V, DINOScore and what needs them are left out"
            )
        if not one.pairs.items["keyword"].fillna("").any():
            pairs.note("column negative_keywords is missing: unique keywords and their lengths are left out")
