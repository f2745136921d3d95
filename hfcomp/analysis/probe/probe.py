"""`hfcomp probe`: computes the share of the gradient on the hard negative, before any training."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hfcomp.analysis.gallery.rows import is_sandbox
from hfcomp.analysis.pairs.items import PairSet, read_pairs
from hfcomp.analysis.pairs.similarity import PairImages
from hfcomp.analysis.probe.options import ProbeOptions
from hfcomp.analysis.probe.report import FIGURE, ProbeResults
from hfcomp.analysis.probe.shares import ADAPTIVE, EncodedPairs, gradient_shares
from hfcomp.data.row_values import text_key
from hfcomp.data.urls import UrlAccess, url_access
from hfcomp.evaluation.encoding.cache import open_cache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.evaluation.models import open_embedder
from hfcomp.losses import fermi_dirac_margin
from hfcomp.modeling import similarity_scale
from hfcomp.negatives.concreteness import ConcretenessRatings
from hfcomp.options import named_models
from hfcomp.reporting.saving import PAGE_FILE, REPORT_FILE
from hfcomp.sandbox.bases import base_folder
from hfcomp.statistics.results import RESULTS_FILE

FILES = (RESULTS_FILE, REPORT_FILE, PAGE_FILE, FIGURE)
SANDBOX_BASES = {"sandbox": "clip", "sandbox-siglip": "siglip"}
"""Names of the bundled base models, unless a folder has the name."""
SYNTHETIC = "Synthetic: the pairs are scenes from the built-in sandbox."


def probe(model: str, dataset: str, options: ProbeOptions) -> ProbeResults:
    """Computes the share of the gradient on the hard negative by batch size and margin, without training.

    Args:
        model: Hub id or folder, also as `name=PLACE`; `sandbox` or `sandbox-siglip` for a bundled base.
        dataset: Folder, file or Hub id of a dataset with negative captions, or `sandbox`.
        options: Batch sizes, margins and data options.
    """
    ((name, source),) = named_models([model]).items()
    if source in SANDBOX_BASES and not os.path.exists(source):
        source = base_folder(SANDBOX_BASES[source])
    cache = open_cache(not options.no_cache)
    embedder = open_embedder(source, cache=cache, device=options.device)
    with url_access(UrlAccess.from_settings(options.allow_urls, options.url_timeout)):
        sample = _sample_pairs(_load_pairs(dataset, options), options)
        pairs = _encode(sample, embedder, options)
    cache.trim()
    sizes = _usable_sizes(options.batch_sizes, len(pairs), sample)
    shares = [share for size in sizes for share in gradient_shares(pairs, size)]
    if not shares:
        raise ValueError(f"{dataset}: every negative caption equals its caption, so no pair has a hard negative.")
    # A margin of m weights the hard negative exp(m) times more, about like a batch that is exp(m) times smaller.
    smaller = {size: round(size / math.exp(options.margins[-1])) for size in sizes if options.margins[-1] > 0}
    adaptive = pairs.margins.get(ADAPTIVE)
    return ProbeResults(
        {
            **{"name": name, "path": str(source), "weights": identity(source), "scale": float(pairs.scale)},
            "sigmoid": getattr(embedder.backbone, "logit_bias", None) is not None,
        },
        {
            **{"path": dataset, "pairs": len(pairs)},
            "adaptive_margin": None if adaptive is None else float(torch.as_tensor(adaptive).mean()),
        },
        shares,
        # A batch of a single pair has no easy negative.
        {size: gradient_shares(pairs, less, [0.0])[0] for size, less in smaller.items() if less > 1},
        replace(options, caveat=options.caveat or (SYNTHETIC if is_sandbox(dataset) else "")),
        sample.notes,
    )


def _load_pairs(dataset: str, options: ProbeOptions) -> PairSet:
    path = options.concreteness_ratings
    ratings = None if path is None else ConcretenessRatings.from_file(path)
    pairs = read_pairs(Path(dataset.partition("::")[0]).name, dataset, options, ratings)
    if not pairs.has("image"):
        raise ValueError(
            f"{dataset} has no column 'image'; it has: {', '.join(pairs.dataset.column_names)}. Name the image "
            "column: --column_names image=..."
        )
    return pairs


def _sample_pairs(pairs: PairSet, options: ProbeOptions) -> PairSet:
    """Samples one pair per photograph, with the first negative of its row, in random order."""
    first = pairs.items[pairs.items["place"] == 0]
    # Shuffle before dropping rows of the same photograph: each of its pairs must be equally likely to stay.
    order = np.random.default_rng(options.seed).permutation(len(first))
    sample = first.iloc[order].drop_duplicates("image_id")
    if len(sample) < len(first):
        pairs.note(
            f"{len(first) - len(sample):,} of {len(first):,} pairs are left out: only one per photograph is used"
        )
    return replace(pairs, items=sample.head(options.rows))


def _usable_sizes(batch_sizes: Sequence[int], number: int, pairs: PairSet) -> list[int]:
    sizes, distinct = [size for size in batch_sizes if size <= number], f"{number:,} pairs of distinct photographs"
    if not sizes:
        problem = f"batch_sizes: found {batch_sizes[0]} or more, but {pairs.source} has {distinct}."
        raise ValueError(f"{problem} Choose a size up to this number.")
    if left_out := ", ".join(f"{size:,}" for size in batch_sizes if size > number):
        pairs.note(f"batch sizes above its {distinct} are left out: {left_out}")
    return sizes


def _encode(pairs: PairSet, embedder: Embedder, options: ProbeOptions) -> EncodedPairs:
    """Encodes the pairs with a readable image, and computes their margins."""
    bars, device = sys.stderr.isatty(), embedder.device
    images = PairImages(pairs, progress=bars)
    encoded = {column: images.index(embedder, column) for column in images.columns}
    items = pairs.items
    if "image" in encoded:
        items = items[encoded["image"].index[items["row"]] >= 0]
    if "image" not in encoded or items.empty:
        raise ValueError(f"{pairs.source}: no row with a negative caption has an image.")
    image = encoded["image"].take(items["row"])
    # Rows without a negative image keep zeros, which the mask leaves out of the loss.
    negative_image, has_negative_image = np.zeros_like(image), np.zeros(len(items), dtype=bool)
    if "negative_image" in encoded:
        index = encoded["negative_image"].index[items["row"]]
        has_negative_image = index >= 0
        negative_image[has_negative_image] = encoded["negative_image"].vectors[index[has_negative_image]]
    if not has_negative_image.all():
        consequence = "only the others have negative pairs as anchors, and captions with a hard negative"
        pairs.note(
            f"{len(items) - has_negative_image.sum():,} of {len(items):,} pairs have no negative image: {consequence}"
        )
    texts = embedder.index_texts([*items["caption"], *items["negative_caption"]], progress=bars)
    if texts.flagged:
        pairs.note(f"{texts.flagged:,} texts are too long for the text tower and are truncated for it")
    text, negative_text = np.split(texts.take(slice(None)), 2)
    arrays = {"image": image, "text": text, "negative_image": negative_image, "negative_text": negative_text}
    arrays["negative_image_mask"] = has_negative_image
    if options.mask_equal_texts:
        arrays["text_id"] = np.array([text_key(caption) for caption in items["caption"]])
        arrays["negative_text_id"] = np.array([text_key(caption) for caption in items["negative_caption"]])
    tensors = {name: torch.as_tensor(values, device=device) for name, values in arrays.items()}
    margins: dict[float | str, Any] = {margin: margin for margin in options.margins}
    if items["concreteness"].notna().any():
        margins[ADAPTIVE] = fermi_dirac_margin(torch.tensor(items["concreteness"].to_numpy("float32"), device=device))
    return EncodedPairs(tensors, similarity_scale(embedder.backbone).detach().float(), margins)
