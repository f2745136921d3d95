"""Draws that depend only on seed, epoch and row: the same for any number of processes and workers, and on resume."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from datasets import Dataset, IterableDataset, LargeList, List

from hfcomp.data.columns import CONCEPT_FEATURES, NEGATIVE_FEATURES
from hfcomp.data.loading import TrainingRows
from hfcomp.data.pair_table import has_lists, is_text, without_text


class EpochSampler(torch.utils.data.Sampler[Any]):
    """An order of rows that differs from epoch to epoch, often derived from another order."""

    order: torch.utils.data.Sampler[int] | None = None
    epoch: int = 0

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, also in the order from which this one is derived."""
        self.epoch = epoch
        if hasattr(self.order, "set_epoch"):
            self.order.set_epoch(epoch)


class EpochOrder(EpochSampler):
    """An order of rows with the epoch in each index."""

    # The persistent workers of a `DataLoader` have copies of the dataset, which `set_epoch` in the main process cannot
    # reach. Only an index is sent to them for each row, so it carries the epoch.
    def __init__(self, order: torch.utils.data.Sampler[int]) -> None:
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        epoch = self.epoch
        for row in self.order:
            yield row, epoch


class DrawnRows(TrainingRows):
    """Training rows with a draw in each epoch; subclasses name what is drawn and define the draw.

    Attributes:
        what: Name of what is drawn; seeds the draw, together with seed, epoch and row.
    """

    what: str

    def __init__(self, rows: TrainingRows, *, seed: int) -> None:
        self.rows = rows
        self.dataset = rows.dataset
        self.seed = seed

    # Columns and counts come from the rows before any draw.

    @property
    def features(self) -> dict[str, Any]:
        return self.rows.features

    def column(self, name: str) -> list[Any]:
        return self.rows.column(name)

    def batch_column(self, name: str) -> list[Any]:
        return self.rows.batch_column(name)

    def number_of_entries(self, name: str) -> int:
        return self.rows.number_of_entries(name)

    def draw(self, row: dict[str, Any], random_numbers: random.Random) -> dict[str, Any]:
        raise TypeError(f"{type(self).__name__} must define draw().")

    def __getitems__(self, indices: list[int | tuple[int, int]]) -> list[dict[str, Any]]:
        """Returns rows by `(index, epoch)`; an index without epoch means epoch 0."""
        pairs = [index if isinstance(index, tuple) else (index, 0) for index in indices]
        read = self.rows.__getitems__(pairs if isinstance(self.rows, DrawnRows) else [row for row, _ in pairs])
        # Each row has its own generator, because a draw must not depend on what the worker read before.
        return [
            self.draw(row, random.Random(f"{self.what} {self.seed} {epoch} {index}"))
            for row, (index, epoch) in zip(read, pairs, strict=True)
        ]


CAPTION_COLUMNS = {**NEGATIVE_FEATURES, **CONCEPT_FEATURES}
"""Columns that belong to a caption. With several captions, they contain a list with one entry per caption."""
START = "draw_captions (captions: drawn in a recipe)"


class DrawnCaptions(DrawnRows):
    """Training rows with one caption, drawn per row and epoch; negatives and concepts are those of this caption.

    A draw depends only on `seed`, epoch and row; captions without text are never drawn. An index without an epoch, as
    in evaluation, gets the draw of epoch 0.

    Raises:
        ValueError: If a row has no text, or has columns that do not fit its captions.
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
    """Returns a row with one of its captions and the entries of this caption."""
    check_row(row, columns, row["row"])
    captions = row["caption"]
    chosen = random_numbers.choice([place for place, text in enumerate(captions) if is_text(text)])
    return {**row, "caption": captions[chosen], **{name: row[name][chosen] for name in columns if name in row}}


def columns_by_caption(features: Mapping[str, Any]) -> list[str]:
    """Returns the columns that contain one entry per caption: lists of what a single caption has."""
    return [name for name, own in CAPTION_COLUMNS.items() if name in features and _depth(features[name]) > _depth(own)]


def require_lists(features: Mapping[str, Any]) -> None:
    if not has_lists(features):
        raise ValueError(
            f"{START}: column 'caption' contains {features.get('caption', 'nothing')}, expected lists of strings. "
            "Remove the option, or use column_names to map the column that has the lists."
        )


def check_drawn_captions(rows: Any, columns: Sequence[str], *, num_negatives: int = 0) -> None:
    """Checks that a caption can be drawn from each row of a training set; for a stream, checks only the types."""
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
    """Checks that a caption, with its entries in other columns, can be drawn from each row of a training set."""
    require_lists(rows.features)
    columns = columns_by_caption(rows.features)
    lists = {name: rows.column(name) for name in ("caption", *columns)}
    for number in range(len(rows)):
        check_row({name: values[number] for name, values in lists.items()}, columns, number)
    several = next((number for number, texts in enumerate(lists["caption"]) if len(texts) > 1), None)
    if several is not None:
        _check_owners(rows, columns, f"row {several} has {len(lists['caption'][several])} captions")


def _check_owners(rows: TrainingRows, columns: Sequence[str], captions: str) -> None:
    # A negative of one caption may be true of another, and training on it would teach that a correct text is wrong.
    start = f"{START}: {captions}, but column"
    for name in CAPTION_COLUMNS:
        if name in rows.features and name not in columns:
            raise ValueError(
                f"{start} {name!r} does not say which caption it belongs to. Use a list with one entry per caption, "
                "remove the column, or use one caption (captions: longest, or all with negatives made for each)."
            )
    if rows.number_of_entries("negative_image"):
        raise ValueError(
            f"{start} 'negative_image' shows the negative of only one of them. Use one caption (captions: longest), "
            "or an objective without negative images."
        )


def check_row(row: Mapping[str, Any], columns: Sequence[str], number: int) -> None:
    captions = row["caption"]
    if not isinstance(captions, list) or not any(map(is_text, captions)):
        raise without_text(captions, number)
    for name in columns:
        values = row.get(name)
        if not isinstance(values, list) or len(values) != len(captions):
            count = len(values) if isinstance(values, list) else "no"
            raise ValueError(
                f"column {name!r}, row {number}: found {count} entries for {len(captions)} captions. Every caption "
                "needs a list as its entry; use an empty list if it has nothing."
            )


def _depth(feature: Any) -> int:
    depth = 0
    while isinstance(feature, List | LargeList):
        feature, depth = feature.feature, depth + 1
    return depth


ALIGNED = ("negative_captions", "negative_kinds", "negative_concreteness")


class DrawnNegatives(DrawnRows):
    """Training rows with negatives shuffled per row and epoch, masked ones last.

    The first `K` are therefore a random sample of all negatives. A draw depends only on `seed`, epoch and row.
    """

    what = "negatives"

    def draw(self, row: dict[str, Any], random_numbers: random.Random) -> dict[str, Any]:
        """See `with_drawn_order`."""
        return with_drawn_order(row, random_numbers)


def with_drawn_order(row: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """Shuffles a row's negatives together with their aligned columns, empty ones last.

    Columns of different lengths stay as they are; the collator raises an error for them.
    """
    columns = {name: row[name] for name in ALIGNED if row.get(name) is not None}
    texts = columns.get("negative_captions")
    if texts is None or any(not isinstance(values, list) or len(values) != len(texts) for values in columns.values()):
        return row
    # Masked entries go last, so the first K contain as many texts as possible.
    valid = [index for index, text in enumerate(texts) if text is not None and str(text).strip()]
    empty = [index for index in range(len(texts)) if index not in valid]
    order = [*draw.sample(valid, len(valid)), *empty]
    return {**row, **{name: [values[index] for index in order] for name, values in columns.items()}}


CROP_BOX = "crop_box"
"""Field of a row: crop box of its images, `(left, top, right, bottom)` as shares of width and height."""
ASPECT = 4 / 3
"""Maximum ratio of width to height, and of height to width, of a box."""


class DrawnCrops(DrawnRows):
    """Training rows with a `crop_box`, drawn per row and epoch; see `draw_box`.

    A row's image and negative image get the same box, so a pair that differs in one place still does after cropping. A
    draw depends only on `seed`, epoch and row.
    """

    what = "crops"

    def __init__(self, rows: TrainingRows, *, seed: int, smallest: float) -> None:
        super().__init__(rows, seed=seed)
        self.smallest = smallest

    def draw(self, row: dict[str, Any], random_numbers: random.Random) -> dict[str, Any]:
        """Adds the box to the row."""
        return {**row, CROP_BOX: draw_box(self.smallest, random_numbers)}


def without_crops(rows: Any) -> Any:
    """Returns rows with whole images, as needed for evaluation: unwraps `DrawnCrops`, returns other rows unchanged."""
    return rows.rows if isinstance(rows, DrawnCrops) else rows


def draw_box(smallest: float, random_numbers: random.Random) -> tuple[float, float, float, float]:
    """Draws a random crop box.

    Its area is uniform in `[smallest, 1]`, its aspect ratio log-uniform in `[3/4, 4/3]`, and its position uniform.
    This is the distribution of torchvision's `RandomResizedCrop`, which open_clip uses with `scale=(0.9, 1.0)`, with
    two differences. torchvision redraws area and ratio if the box does not fit into the image, which favors small
    areas; hfcomp draws only ratios that fit. And open_clip crops the photograph, whereas hfcomp crops the model's
    square of it.

    Returns:
        `(left, top, right, bottom)` as shares of width and height, 0 to 1.
    """
    area = random_numbers.uniform(smallest, 1)
    bound = min(math.log(ASPECT), -math.log(area))  # with a larger ratio, the box would be wider than the image
    ratio = math.exp(random_numbers.uniform(-bound, bound))
    width, height = (min(1.0, math.sqrt(area * part)) for part in (ratio, 1 / ratio))
    left, top = (random_numbers.uniform(0, 1 - side) for side in (width, height))
    return left, top, left + width, top + height
