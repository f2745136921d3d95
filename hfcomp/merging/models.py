"""A point between two models as a plain model folder, with a record of how it was made and chosen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hfcomp
from hfcomp.data.publishing import without_local_paths
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.modeling import base_of_adapter, load_processor
from hfcomp.modeling.interpolation import Interpolation
from hfcomp.reporting.cards.card import write_card
from hfcomp.reporting.cards.merges import merge_card
from hfcomp.writing import replacing_folder, write_json

RECORD_FILE = "merge.json"
Place = str | Path


def write_point(
    interpolation: Interpolation,
    alpha: float,
    folder: Path,
    *,
    base: Place,
    tuned: Place,
    chosen: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Writes the model at `alpha`, its processor `merge.json` and a card, the whole folder or nothing.

    The processor is the tuned model's. The record holds places without local paths, as the folder may be published.

    Args:
        interpolation: between the two.
        alpha: from 0 (base) to 1 (tuned).
        folder: an earlier one is replaced.
        base: Hub id or folder.
        tuned: likewise.
        chosen: how `alpha` was chosen, `None` where it was given.

    Returns:
        The content of `merge.json`.
    """
    record = merge_record(alpha, base=base, tuned=tuned, chosen=chosen)
    processor = load_processor(tuned, argument="tuned")
    with replacing_folder(folder) as part:
        interpolation.save(part, alpha)
        processor.save_pretrained(part)
        write_json(part / RECORD_FILE, record)
        write_card(part, merge_card(record))
    return record


def merge_record(
    alpha: float, *, base: Place, tuned: Place, chosen: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What `merge.json` holds: `alpha`, both models with their `identity`, what is scaled, and how it was chosen."""
    models = {
        name: {"path": without_local_paths(str(place)), "weights": identity(place)}
        for name, place in (("base", base), ("tuned", tuned))
    }
    adapter = base_of_adapter(tuned) is not None
    return {
        "hfcomp_version": hfcomp.__version__,
        "alpha": alpha,
        "scaled": "the adapter of the tuned model" if adapter else "the difference of the weights",
        **models,
        "chosen": None if chosen is None else dict(chosen),
    }
