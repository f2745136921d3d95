"""One of an image's captions, drawn in every epoch, with what belongs to it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from datasets import Dataset, IterableDataset, LargeList, List

from hfcomp.data.draws.epochs import DrawnRows
from hfcomp.data.features import CONCEPT_FEATURES, NEGATIVE_FEATURES
from hfcomp.data.loading import TrainingRows

CAPTION_COLUMNS = {**NEGATIVE_FEATURES, **CONCEPT_FEATURES}
"""What belongs to a caption: for several captions a list with an entry for each, which is what one caption has."""
START = "draw_captions (a recipe's captions: drawn)"


class DrawnCaptions(DrawnRows):
    """Training rows with one of their captions, drawn per row and epoch; negatives and concepts are the caption's own.

    A draw depends on `seed`, epoch and row only; captions without text are never drawn. An index without an epoch, as
    in evaluation, has the draw of epoch 0.

    Args:
        rows: with a column `caption` of lists; negatives and concepts are lists with an entry for each caption.
        seed: of the draws.

    Raises:
        ValueError: for a row without text, or with columns that do not fit its captions.
    """

    what = "captions"

    def __init__(self, rows: TrainingRows, *, seed: int) -> None:
        super().__init__(rows, seed=seed)
        check_captions(rows)
        self.columns = columns_by_caption(rows.features)

    def draw(self, row: dict[str, Any], random_numbers: random.Random) -> dict[str, Any]:
        """See `with_drawn_caption`."""
        return with_drawn_caption(row, self.columns, random_numbers)


def with_drawn_caption(row: dict[str, Any], columns: Sequence[str], random_numbers: random.Random) -> dict[str, Any]:
    """A row with one of its captions, and the entries of this caption.

    Args:
        row: with its index under `row`.
        columns: those that have an entry for each caption.
        random_numbers: of the draw.

    Raises:
        ValueError: for a row without text, or entries that are not as many as captions.
    """
    check_row(row, columns, row["row"])
    captions = row["caption"]
    chosen = random_numbers.choice([place for place, text in enumerate(captions) if _is_text(text)])
    return {**row, "caption": captions[chosen], **{name: row[name][chosen] for name in columns if name in row}}


def has_lists(features: Mapping[str, Any]) -> bool:
    """Whether the captions of a data set are lists."""
    return isinstance(features.get("caption"), List | LargeList)


def columns_by_caption(features: Mapping[str, Any]) -> list[str]:
    """The columns with an entry for each caption: lists of what one caption has."""
    return [name for name, own in CAPTION_COLUMNS.items() if name in features and _depth(features[name]) > _depth(own)]


def require_lists(features: Mapping[str, Any]) -> None:
    """Checks that the captions of a data set are lists.

    Raises:
        ValueError: for others.
    """
    if not has_lists(features):
        raise ValueError(
            f"{START}: column 'caption' holds {features.get('caption', 'nothing')}, expected lists of texts. Leave it "
            "out, or name the column of lists with column_names."
        )


def check_drawn_captions(rows: Any, columns: Sequence[str], *, num_negatives: int = 0) -> None:
    """Checks that a caption can be drawn from each row of a training set; of a stream only the types are known.

    Args:
        rows: a data set in the column contract, a stream, or `TrainingRows`.
        columns: those that are read.
        num_negatives: negatives that are read of each caption.

    Raises:
        ValueError: as `check_captions`, and for a caption with fewer negatives.
    """
    if isinstance(rows, IterableDataset):
        return require_lists(rows.features or {})
    rows = TrainingRows(rows, [*dict.fromkeys(("caption", *columns))]) if isinstance(rows, Dataset) else rows
    check_captions(rows)
    if not num_negatives or "negative_captions" not in columns_by_caption(rows.features):
        return
    for number, lists in enumerate(rows.column("negative_captions")):
        short = next((place for place, texts in enumerate(lists) if len(texts or ()) < num_negatives), None)
        if short is not None:
            raise ValueError(
                f"column 'negative_captions', row {number}: caption {short} has {len(lists[short] or ())} negatives, "
                f"expected {num_negatives}. Pad with empty strings (they are masked), or lower num_negatives."
            )


def check_captions(rows: TrainingRows) -> None:
    """Checks that a caption can be drawn from each row of a training set, with what belongs to it.

    Args:
        rows: with the columns that are read.

    Raises:
        ValueError: for captions that are no lists, a row without text, or negatives, concepts or negative images of
            which it is not known to which of several captions they belong.
    """
    require_lists(rows.features)
    columns = columns_by_caption(rows.features)
    lists = {name: rows.column(name) for name in ("caption", *columns)}
    for number in range(len(rows)):
        check_row({name: values[number] for name, values in lists.items()}, columns, number)
    several = next((number for number, texts in enumerate(lists["caption"]) if len(texts) > 1), None)
    if several is not None:
        _check_owners(rows, columns, f"row {several} has {len(lists['caption'][several])} captions")


def _check_owners(rows: TrainingRows, columns: Sequence[str], found: str) -> None:
    """Refuses columns of which it is not known to which of several captions they belong."""
    start = f"{START}: {found}, and column"
    for name in CAPTION_COLUMNS:
        if name in rows.features and name not in columns:
            raise ValueError(
                f"{start} {name!r} does not say which of them it belongs to. Give it a list with an entry for each "
                "caption, remove it, or use one caption (captions: longest, or all with negatives made for each)."
            )
    if rows.number_of_entries("negative_image"):
        raise ValueError(
            f"{start} 'negative_image' shows the negative of one of them. Use one caption (captions: longest), or an "
            "objective without negative images."
        )


def check_row(row: Mapping[str, Any], columns: Sequence[str], number: int) -> None:
    """Checks the captions of a row and what belongs to them.

    Raises:
        ValueError: see `with_drawn_caption`.
    """
    captions = row["caption"]
    if not isinstance(captions, list) or not any(map(_is_text, captions)):
        raise ValueError(
            f"column 'caption', row {number}: {captions!r} holds no text. Remove the row, give it a caption, or leave "
            "such rows out with dataset_filter."
        )
    for name in columns:
        values = row.get(name)
        if not isinstance(values, list) or len(values) != len(captions):
            found = len(values) if isinstance(values, list) else "no"
            raise ValueError(
                f"column {name!r}, row {number}: found {found} entries for {len(captions)} captions. Every caption "
                "needs one, which is a list; an empty list where it has none."
            )


def _is_text(text: Any) -> bool:
    return isinstance(text, str) and bool(text.strip())


def _depth(feature: Any) -> int:
    depth = 0
    while isinstance(feature, List | LargeList):
        feature, depth = feature.feature, depth + 1
    return depth
