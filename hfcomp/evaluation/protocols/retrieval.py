"""Retrieval of images by captions and captions by images, and by two wordings or four levels of a caption."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.encoding.embedded import EmbeddedItems, ScoredItems
from hfcomp.evaluation.protocols.caption_choice import CHANCE, CHOICE_PAIRS
from hfcomp.evaluation.spec import ASPECTS, COMPOSITIONAL, GENERAL, BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.choice import all_higher
from hfcomp.metrics.hierarchy import hierarchy
from hfcomp.metrics.retrieval import map_at_r_chance, precision_at_r, r_precision_chance, rank_bounds, recall_chance

TEXT_TO_IMAGE, IMAGE_TO_TEXT = "text-to-image", "image-to-text"


def same_image_or_caption(images: Sequence[str], captions: Sequence[str]) -> NDArray[np.bool_]:
    """Computes which image is right for which caption if rows share images or captions.

    A caption is right for every image that has it in any row. Rows that share an image or a caption are therefore
    right for each other, and a copy of a right image is never wrong.

    Returns:
        `[n, n]`, row i's caption for row j's image. It takes n * n bytes.
    """
    image = np.unique(np.asarray(images, dtype=object), return_inverse=True)[1]
    caption = np.unique(np.asarray(captions, dtype=object), return_inverse=True)[1]
    # By distinct captions and images, of which there are at most as many as rows.
    together = np.zeros((caption.max() + 1, image.max() + 1), dtype=bool)
    together[caption, image] = True
    return together[caption[:, None], image[None, :]]


@dataclass(frozen=True)
class PairRetrieval(ScoringProtocol):
    """Columns `image` and `caption`, one pair per row; [`same_image_or_caption`] defines the positives, by `image_id`.

    `Retrieval` is for images with all their captions in one row.
    """

    texts = ("caption",)
    all_pairs = True

    k: tuple[int, ...] = (1,)
    directions: tuple[str, ...] = (TEXT_TO_IMAGE, IMAGE_TO_TEXT)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return tuple(f"{direction} recall@{k}" for direction in self.directions for k in self.k)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """Yields recall@k in each direction; chance is that of a random order, the same for all rows."""
        rows = embedded.items.rows
        right = same_image_or_caption(rows["image_id"][:], rows["caption"][:])
        image, text = embedded.image("image", slice(None)), embedded.text("caption", slice(None))
        for direction in self.directions:
            query, keys, positive = (text, image, right) if direction == TEXT_TO_IMAGE else (image, text, right.T)
            # Bounds, because ties leave the rank of a key open. A tie is wrong and counted.
            ranks = rank_bounds(query, keys, positive)
            for k in self.k:
                outcome = ranks.within(k)
                yield Measured(f"{direction} recall@{k}", outcome.correct, outcome.tie, _chance(positive, k))


def _chance(positive: NDArray[np.bool_], k: int) -> float:
    number = positive.sum(axis=1)
    # The closed form is exact here. Otherwise several right keys may be among the first k together.
    if k == 1 or (number == 1).all():
        return k * int(number.sum()) / positive.size
    return float(recall_chance(number, len(positive), k).mean())


@dataclass(frozen=True)
class PairsAndNegatives(PairRetrieval):
    """[`PairRetrieval`], and in rows with `negative_captions` the choice of the caption or the first negative."""

    optional_texts = ("negative_captions",)
    beyond_pairs = "recall"

    @property
    def metric_names(self) -> tuple[str, ...]:
        return (*FirstNegative().metric_names, *super().metric_names)

    def pairs(self, items: BenchmarkData) -> Sequence[tuple[str, str]]:
        return CHOICE_PAIRS if "negative_captions" in items.rows.column_names else ()

    def text_choice(self, items: BenchmarkData) -> ScoringProtocol | None:
        return FirstNegative() if "negative_captions" in items.rows.column_names else None

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        """Yields "caption choice" as composition, and the recalls, which need embeddings, as general abilities."""
        yield from FirstNegative().score(scored)
        if isinstance(scored, EmbeddedItems):
            for measured in super().score(scored):
                yield replace(measured, aspect=ASPECTS[GENERAL])


@dataclass(frozen=True)
class FirstNegative(ScoringProtocol):
    """Columns `image`, `caption` and optional `negative_captions`: the caption against the first negative."""

    metric_names = ("caption choice",)
    texts = ("caption",)
    optional_texts = ("negative_captions",)

    def text_choice(self, items: BenchmarkData) -> FirstNegative:
        return self

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        column = scored.columns.get("negative_captions")
        if column is not None:
            # Rows without a negative leave nothing to choose and count only in the recalls.
            rows = np.flatnonzero((column.ragged(slice(None)) >= 0).any(axis=1))
            chosen = all_higher(tuple(scored.scores(*pair, rows) for pair in CHOICE_PAIRS))
            yield Measured("caption choice", chosen.correct, chosen.tie, CHANCE, rows, aspect=ASPECTS[COMPOSITIONAL])


@dataclass(frozen=True)
class Retrieval(ScoringProtocol):
    """Columns `image` and `captions`, a list: each row is an image with all its captions.

    Only an image's own captions are right for it, even if another row has the same text (the practice of the field).
    Captions with equal texts tie with each other.

    Attributes:
        k: Values of k for recall@k. If a query in a direction has fewer than `k` wrong keys, it could not be missed,
            and recall@k is left out; for example, recall@5 of texts among five images. A single image has no metrics.
    """

    texts = ("captions",)
    all_pairs = True

    k: tuple[int, ...] = (1, 5, 10)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return tuple(f"{way} recall@{k}" for way in DIRECTIONS for k in self.k)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """Yields recall@k in both directions for each `k` that can be missed; chance is that of a random order."""
        image = embedded.image("image", slice(None))
        column = embedded.columns["captions"]
        present = column.index >= 0
        owner = np.repeat(np.arange(len(image)), np.diff(column.offsets))[present]
        text = embedded.text_vectors.take(column.index[present])
        # The number of each caption among the captions of its image.
        place = np.arange(len(column.index)) - column.offsets[:-1].repeat(np.diff(column.offsets))
        names = np.asarray(embedded.items.rows["item"][:], dtype=object)
        queries = [f"{names[row]}/{number}" for row, number in zip(owner, place[present], strict=True)]

        # The matrix of right keys is built block by block; for COCO's test images, it has 25,000 x 5,000 entries.
        to_image = rank_bounds(text, image, lambda start, stop: owner[start:stop, None] == np.arange(len(image)))
        to_text = rank_bounds(image, text, lambda start, stop: np.arange(start, stop)[:, None] == owner)
        own = np.bincount(owner, minlength=len(image))
        for k in [k for k in self.k if k < len(image)]:
            outcome, names = to_image.within(k), {"rows": owner, "items": queries}
            yield Measured(f"text-to-image recall@{k}", outcome.correct, outcome.tie, k / len(image), **names)
        # The image with the most captions has the fewest wrong ones.
        for k in [k for k in self.k if k <= len(text) - own.max()]:
            outcome = to_text.within(k)
            yield Measured(f"image-to-text recall@{k}", outcome.correct, outcome.tie, recall_chance(own, len(text), k))


MAP_AT_R, R_PRECISION, FIRST = "mAP@R", "R-precision", "recall@1"
DIRECTIONS = (TEXT_TO_IMAGE, IMAGE_TO_TEXT)


@dataclass(frozen=True)
class Queries:
    """The queries of a direction and their right keys.

    Attributes:
        numbers: Numbers of the queries among the texts, or among the images.
        right: Numbers of each query's existing right keys, at least one.
        missing: Number of right keys, over all queries, that are missing.
        dropped: Number of queries without any right key.
    """

    numbers: NDArray[np.intp]
    right: list[NDArray[np.intp]]
    missing: int
    dropped: int


def queries(right: Sequence[Sequence[str]], keys: Sequence[str]) -> Queries:
    number = {name: place for place, name in enumerate(keys)}
    existing = [np.array([number[name] for name in names if name in number], dtype=np.intp) for names in right]
    # Without a right key there is nothing to find.
    numbers = [place for place, own in enumerate(existing) if len(own)]
    return Queries(
        np.array(numbers, dtype=np.intp),
        [existing[place] for place in numbers],
        missing=sum(len(names) - len(own) for names, own in zip(right, existing, strict=True)),
        dropped=sum(bool(len(names)) and not len(own) for names, own in zip(right, existing, strict=True)),
    )


@dataclass(frozen=True)
class RepairedRetrieval(ScoringProtocol):
    """Columns `image`, `captions`, `caption_ids`, `right_captions` and `right_images`; a row is an image.

    `right_captions` are ids of captions that are true for the image; `right_images` has, for each of its captions, the
    items that it is true for. All images and captions are keys, and those with right keys are queries.
    """

    metric_names = tuple(f"{way} {metric}" for way in DIRECTIONS for metric in (MAP_AT_R, R_PRECISION, FIRST))
    texts = ("captions",)

    def notes(self, items: BenchmarkData) -> Iterable[str]:
        rows = items.rows
        captions = [name for names in rows["caption_ids"][:] for name in names]
        right_images = [names for lists in rows["right_images"][:] for names in lists]
        for keys, direction in (
            ("images", queries(right_images, rows["item"][:])),
            ("captions", queries(rows["right_captions"][:], captions)),
        ):
            if direction.missing:
                yield f"{direction.missing:,} right {keys} are missing; {direction.dropped:,} queries have none left"

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        rows, column = embedded.items.rows, embedded.columns["captions"]
        present = column.index >= 0
        owner = np.repeat(np.arange(len(rows)), np.diff(column.offsets))[present]
        captions = list(compress([name for names in rows["caption_ids"][:] for name in names], present))
        right_images = list(compress([names for lists in rows["right_images"][:] for names in lists], present))
        image, text = embedded.image("image", slice(None)), embedded.text_vectors.take(column.index[present])
        names = rows["item"][:]
        to_image, to_text = queries(right_images, names), queries(rows["right_captions"][:], captions)
        # A query is one caption of an image, so the item's name alone would not be unique.
        items = [f"{names[owner[place]]}/{captions[place]}" for place in to_image.numbers]
        yield from _measure(TEXT_TO_IMAGE, to_image, text, image, owner[to_image.numbers], items)
        yield from _measure(IMAGE_TO_TEXT, to_text, image, text, to_text.numbers, None)


def _measure(
    direction: str,
    queries: Queries,
    vectors: NDArray[np.float32],
    keys: NDArray[np.float32],
    rows: NDArray[np.integer],
    items: list[str] | None,
) -> Iterator[Measured]:
    outcome = precision_at_r(vectors[queries.numbers], keys, queries.right)
    number = np.array([len(right) for right in queries.right], dtype=np.intp)
    share, untied = r_precision_chance(number, len(keys)), np.zeros(len(number), dtype=bool)
    for metric, value, tie, chance in (
        (MAP_AT_R, outcome.map_at_r, untied, map_at_r_chance(number, len(keys))),
        (R_PRECISION, outcome.r_precision, untied, share),
        (FIRST, outcome.first.correct, outcome.first.tie, share),
    ):
        yield Measured(f"{direction} {metric}", value, tie, chance, rows=rows, items=items)


@dataclass(frozen=True)
class WordingAgreement(ScoringProtocol):
    """Columns `image`, `caption` and `positive_captions`, whose first entry is the other wording."""

    metric_names = ("same image found",)
    texts = ("caption", "positive_captions")
    all_pairs = True

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """Yields "same image found": whether both wordings have the same best image, right or wrong."""
        everyone = slice(None)
        image = embedded.image("image", everyone)
        first, other = ((embedded.text(name, everyone) @ image.T).argmax(axis=1) for name in self.texts)
        yield Measured("same image found", first == other, np.zeros(len(image), dtype=bool), 1 / len(image))


@dataclass(frozen=True)
class Hierarchy(ScoringProtocol):
    """Columns `image` and `captions`, four from the general to the specific; the root is the empty text."""

    metric_names = ("precision", "recall", "rank correlation")
    texts = ("captions",)

    def prompts(self, items: BenchmarkData) -> list[str]:
        return [""]

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """Yields the authors' precision, recall and rank correlation per image.

        A tie within any radius is shown. How much it reduced a fraction is unknown, so no rule for ties adds to
        precision and recall, see `hfcomp.statistics.summarize`.
        """
        everyone = slice(None)
        text, _ = embedded.texts("captions", everyone)
        identity = embedded.columns["captions"].ragged(everyone)
        outcome = hierarchy(embedded.image("image", everyone), text, embedded.prompts[0], identity)
        yield Measured("precision", outcome.precision, outcome.tie, outcome.precision_chance)
        yield Measured("recall", outcome.recall, outcome.tie, outcome.recall_chance)
        untied = np.zeros(len(outcome.tie), dtype=bool)
        yield Measured("rank correlation", outcome.rank_correlation, untied, 0.0)
