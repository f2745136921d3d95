"""What every card of a dataset says: how the dataset is loaded, its size and its license."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import DatasetCard

from hfcomp.data.built_sets import CARD, TRAIN

DEFAULT = "default"
"""Name of a dataset's only configuration."""
UNKNOWN = "unknown"
"""Name of the license in the metadata if none is known."""
PLACE = "<this data set's id or folder>"
"""Placeholder for the dataset's place, which is not known before it is pushed."""
_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
)


def stated_license(name: str) -> str | None:
    """The license that the card of a source states, on disk or on the Hub; None if it states none."""
    try:
        place = Path(name) / CARD
        if Path(name).exists() and not place.is_file():
            return None
        stated = DatasetCard.load(place if place.is_file() else name).data.license
    except Exception:  # whatever the Hub's client and YAML raise: a card that cannot be read states nothing
        return None
    return ", ".join(stated) if isinstance(stated, list) else stated


def size_category(rows: int) -> str:
    """The Hub's category for a number of rows."""
    return next((name for limit, name in _SIZES if rows < limit), "n>100M")


def loading_text(names: Sequence[str], split: str = TRAIN) -> str:
    config = "" if names == [DEFAULT] else f'"{names[0]}", '
    others = [f"The other configurations: {', '.join(f'`{name}`' for name in names[1:])}."] if names[1:] else []
    code = f'rows = load_dataset("{PLACE}", {config}split="{split}")'
    return "\n\n".join([f"```python\nfrom datasets import load_dataset\n\n{code}\n```", *others])
