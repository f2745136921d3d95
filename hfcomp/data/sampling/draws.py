"""Draws by seed, epoch and row alone: the same on any number of processes and workers, and after a resume."""

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
    """An order of rows that differs from epoch to epoch, often made of another order."""

    order: torch.utils.data.Sampler[int] | None = None
    epoch: int = 0

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, also of the order that this one is made of."""
        self.epoch = epoch
        if hasattr(self.order, "set_epoch"):
            self.order.set_epoch(epoch)


class EpochOrder(EpochSampler):
    """An order of rows with the epoch in each index."""

    # The persistent workers of a `DataLoader` hold copies of the dataset, which no `set_epoch` in the main process
    # reaches. Only the index is sent to them for each row, so the epoch travels in it.
    def __init__(self, order: torch.utils.data.Sampler[int]) -> None:
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        epoch = self.epoch
        for row in self.order:
            yield row, epoch


class DrawnRows(TrainingRows):
    """Training rows of which something is drawn in each epoch; a subclass names it and draws it.

    Attributes:
        what: is drawn; with seed, epoch and row it makes the draw.
    """

    what: str

    def __init__(self, rows: TrainingRows, *, seed: int) -> None:
        self.rows = rows
        self.dataset = rows.dataset
        self.seed = seed

    # Columns and counts are those of the rows before anything is drawn.

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
        raise TypeError(f"{type(self).__name__} does not say how a row is drawn: define draw().")

    def __getitems__(self, indices: list[int | tuple[int, int]]) -> list[dict[str, Any]]:
        """Rows by `(index, epoch)`; an index alone is of epoch 0."""
        wanted = [index if isinstance(index, tuple) else (index, 0) for index in indices]
        read = self.rows.__getitems__(wanted if isinstance(self.rows, DrawnRows) else [row for row, _ in wanted])
        # Each row has a generator of its own: a draw must not depend on what the worker read before.
        return [
            self.draw(row, random.Random(f"{self.what} {self.seed} {epoch} {index}"))
            for row, (index, epoch) in zip(read, wanted, strict=True)
        ]


CAPTION_COLUMNS = {**NEGATIVE_FEATURES, **CONCEPT_FEATURES}
"""What belongs to a caption: for several captions a list with an entry for each, which is what one caption has."""
START = "draw_captions (a recipe's captions: drawn)"


class DrawnCaptions(DrawnRows):
    """Training rows with one of their captions, drawn per row and epoch; negatives and concepts are the caption's own.

    A draw depends on `seed`, epoch and row only; captions without text are never drawn. An index without an epoch, as
    in evaluation, has the draw of epoch 0.

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
    """A row with one of its captions, and the entries of this caption."""
    check_row(row, columns, row["row"])
    captions = row["caption"]
    chosen = random_numbers.choice([place for place, text in enumerate(captions) if is_text(text)])
    return {**row, "caption": captions[chosen], **{name: row[name][chosen] for name in columns if name in row}}


def columns_by_caption(features: Mapping[str, Any]) -> list[str]:
    """The columns with an entry for each caption: lists of what one caption has."""
    return [name for name, own in CAPTION_COLUMNS.items() if name in features and _depth(features[name]) > _depth(own)]


def require_lists(features: Mapping[str, Any]) -> None:
    if not has_lists(features):
        raise ValueError(
            f"{START}: column 'caption' holds {features.get('caption', 'nothing')}, expected lists of texts. Leave it "
            "out, or name the column of lists with column_names."
        )


def check_drawn_captions(rows: Any, columns: Sequence[str], *, num_negatives: int = 0) -> None:
    """Checks that a caption can be drawn from each row of a training set; of a stream only the types are known."""
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
    """Checks that a caption can be drawn from each row of a training set, with what belongs to it."""
    require_lists(rows.features)
    columns = columns_by_caption(rows.features)
    lists = {name: rows.column(name) for name in ("caption", *columns)}
    for number in range(len(rows)):
        check_row({name: values[number] for name, values in lists.items()}, columns, number)
    several = next((number for number, texts in enumerate(lists["caption"]) if len(texts) > 1), None)
    if several is not None:
        _check_owners(rows, columns, f"row {several} has {len(lists['caption'][several])} captions")


def _check_owners(rows: TrainingRows, columns: Sequence[str], found: str) -> None:
    # A negative of one caption may be true of another: training on it would teach that a right text is wrong.
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
    captions = row["caption"]
    if not isinstance(captions, list) or not any(map(is_text, captions)):
        raise without_text(captions, number)
    for name in columns:
        values = row.get(name)
        if not isinstance(values, list) or len(values) != len(captions):
            found = len(values) if isinstance(values, list) else "no"
            raise ValueError(
                f"column {name!r}, row {number}: found {found} entries for {len(captions)} captions. Every caption "
                "needs one, which is a list; an empty list where it has none."
            )


def _depth(feature: Any) -> int:
    depth = 0
    while isinstance(feature, List | LargeList):
        feature, depth = feature.feature, depth + 1
    return depth


ALIGNED = ("negative_captions", "negative_kinds", "negative_concreteness")


class DrawnNegatives(DrawnRows):
    """Training rows with their negatives shuffled per row and epoch, masked ones last.

    Whoever reads the first `K` reads `K` drawn from all. A draw depends on `seed`, epoch and row only.
    """

    what = "negatives"

    def draw(self, row: dict[str, Any], random_numbers: random.Random) -> dict[str, Any]:
        """See `with_drawn_order`."""
        return with_drawn_order(row, random_numbers)


def with_drawn_order(row: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """A row with its negatives in random order, those that are empty last, and with each what is said of it.

    Columns that do not fit each other stay as they are, for the collator to refuse.
    """
    columns = {name: row[name] for name in ALIGNED if row.get(name) is not None}
    texts = columns.get("negative_captions")
    if texts is None or any(not isinstance(values, list) or len(values) != len(texts) for values in columns.values()):
        return row
    # Masked entries go last, so a reader of the first K gets all texts that there are.
    valid = [index for index, text in enumerate(texts) if text is not None and str(text).strip()]
    empty = [index for index in range(len(texts)) if index not in valid]
    order = [*draw.sample(valid, len(valid)), *empty]
    return {**row, **{name: [values[index] for index in order] for name, values in columns.items()}}


CROP_BOX = "crop_box"
"""In a row: the part that its images are cropped to, `(left, top, right, bottom)` as shares of width and height."""
ASPECT = 4 / 3
"""Width to height of a box is at most this, and height to width."""


class DrawnCrops(DrawnRows):
    """Training rows with a `crop_box`, drawn per row and epoch; see `draw_box`.

    The box is the row's: its image and its negative image are cropped alike, so that a pair that differs in one place
    still does. A draw depends on `seed`, epoch and row only.
    """

    what = "crops"

    def __init__(self, rows: TrainingRows, *, seed: int, smallest: float) -> None:
        super().__init__(rows, seed=seed)
        self.smallest = smallest

    def draw(self, row: dict[str, Any], random_numbers: random.Random) -> dict[str, Any]:
        """The row with its box."""
        return {**row, CROP_BOX: draw_box(self.smallest, random_numbers)}


def without_crops(rows: Any) -> Any:
    """Rows whose images are whole, as evaluation needs them: those below `DrawnCrops`, any others as they are."""
    return rows.rows if isinstance(rows, DrawnCrops) else rows


def draw_box(smallest: float, random_numbers: random.Random) -> tuple[float, float, float, float]:
    """A random part of an image.

    Its area is uniform in `[smallest, 1]`, its aspect ratio log-uniform in `[3/4, 4/3]`, its place uniform: the
    distribution of torchvision's `RandomResizedCrop`, which open_clip trains with at `scale=(0.9, 1.0)`. Two things
    differ. torchvision draws area and ratio again if the box does not fit into the image, which favors small areas;
    here the ratio is one of those that fit. And open_clip crops the photograph, hfcomp the model's square of it.

    Returns:
        `(left, top, right, bottom)` as shares of width and height, 0 to 1.
    """
    area = random_numbers.uniform(smallest, 1)
    bound = min(math.log(ASPECT), -math.log(area))  # the box of a larger ratio is wider than the image
    ratio = math.exp(random_numbers.uniform(-bound, bound))
    width, height = (min(1.0, math.sqrt(area * part)) for part in (ratio, 1 / ratio))
    left, top = (random_numbers.uniform(0, 1 - side) for side in (width, height))
    return left, top, left + width, top + height
