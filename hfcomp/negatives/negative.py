"""What every generator of hard negative captions returns, and the columns of a training set that are made of it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hfcomp.parsing.captions import Span

COLUMN_NAMES = ("negative_captions", "negative_kinds", "negative_keywords", "negative_categories", "negative_spans")


@dataclass(frozen=True)
class Negative:
    """A caption with something changed, so that it is no longer true of its image.

    Attributes:
        text: The negative caption.
        kind: One of `hfcomp.data.columns.NEGATIVE_KINDS`.
        keyword: What was changed. Of two parts that changed places, the first.
        replacement: What stands there now.
        category: `attribute`, `object` or `relation`.
        spans: `[start, end)` in characters of the original caption: one for a word or phrase that was replaced, two,
            from left to right, for parts that changed places.
    """

    text: str
    kind: str
    keyword: str
    replacement: str
    category: str
    spans: tuple[Span, ...]


def caption_rng(seed: int, caption: str, *purpose: str) -> random.Random:
    """The random numbers of one caption: independent of process, time and other rows.

    Args:
        seed: Any integer.
        caption: The caption that is changed.
        purpose: Separates random streams by purpose.
    """
    # hash() differs between processes; a digest does not.
    key = "\n".join((str(seed), *purpose, caption))
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return random.Random(int.from_bytes(digest, "big"))


def as_columns(rows: Iterable[Sequence[Negative]], num_negatives: int) -> dict[str, list[Any]]:
    """Builds the negative columns of a training set, `num_negatives` entries in every row.

    Args:
        rows: The negatives of each row, at most `num_negatives`; fewer are padded with empty strings, which are
            masked, and empty lists of spans.
        num_negatives: Entries per row.

    Returns:
        The columns `COLUMN_NAMES`, aligned entry by entry.

    Raises:
        ValueError: A row has more negatives.
    """
    columns: dict[str, list[Any]] = {name: [] for name in COLUMN_NAMES}
    for row, negatives in enumerate(rows):
        missing = num_negatives - len(negatives)
        if missing < 0:
            raise ValueError(f"row {row} has {len(negatives)} negatives; expected at most {num_negatives}.")
        columns["negative_captions"].append([one.text for one in negatives] + [""] * missing)
        columns["negative_kinds"].append([one.kind for one in negatives] + [""] * missing)
        columns["negative_keywords"].append([one.keyword for one in negatives] + [""] * missing)
        columns["negative_categories"].append([one.category for one in negatives] + [""] * missing)
        columns["negative_spans"].append([[list(span) for span in one.spans] for one in negatives] + [[]] * missing)
    return columns
