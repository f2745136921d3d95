"""Level choice (CLEAR GLASS): finds the image for a concept's name among candidates, drawn or all."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hfcomp.data.concepts.level_names import LEVELS
from hfcomp.evaluation.encoding.embedded import EmbeddedItems
from hfcomp.evaluation.protocols.caption_choice import concatenate
from hfcomp.evaluation.spec import ROWS_AT_A_TIME, BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.choice import ChoiceOutcome, choose, pair_scores
from hfcomp.metrics.retrieval import rank_scores

Places: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True)
class Candidates:
    """The images of a level of abstraction, by concept name.

    An image may be in several rows, under several names; it is not a candidate for any of them. The paper's released
    evaluation does not ensure this: its rivals often have the anchor's own name, and such items have no answer.

    Attributes:
        names: `[n]`, name of each row's concept.
        concept: `[n]`, number of each row's concept, 0 to C - 1.
        image: `[n]`, number of each row's image, 0 to m - 1.
        images: Number of images, m.
        under: Images with each concept's name, ascending, by concept.
        hard: `[n]`, images of each row's hard-negative groups, ascending; `None` if the data has no groups.
    """

    names: Sequence[str]
    concept: Places
    image: Places
    images: int
    under: list[Places]
    hard: list[Places] | None = None

    @classmethod
    def of(cls, names: Sequence[str], image: Places | None = None, hard: list[Places] | None = None) -> Candidates:
        """Builds the candidates of a level. Without `image`, each row shows its own image."""
        image = np.arange(len(names)) if image is None else image
        concept = np.unique(np.asarray(names, dtype=object), return_inverse=True)[1]
        return cls(names, concept, image, 1 + int(image.max(initial=-1)), _images_by(concept, image), hard)

    @property
    def excluded(self) -> Places:
        """`[n]`, number of other images with the anchor's name, which are excluded."""
        # The anchor's own image also has the name and is not counted.
        return np.array([len(images) for images in self.under], dtype=np.intp)[self.concept] - 1

    @property
    def others(self) -> Places:
        """`[n]`, number of images without the anchor's name."""
        return self.images - 1 - self.excluded

    @property
    def first(self) -> Places:
        """`[m]`, the first row that shows each image."""
        return np.unique(self.image, return_index=True)[1]

    def free(self, rows: Places) -> NDArray[np.bool_]:
        """Returns which images do not have the name of each row, `[len(rows), m]`."""
        free = np.ones((len(rows), self.images), dtype=bool)
        for place, row in enumerate(rows):
            free[place, self.under[self.concept[row]]] = False
        return free

    def rivals(self, rows: Places, count: int, seed: int) -> Places:
        """Draws distinct distractors, first from the anchor's hard-negative groups, then from all others.

        Returns:
            `[len(rows), count]` images.
        """
        # One generator for all rows: a row's draw depends on the rows before it, but not on the model.
        generator = np.random.default_rng(seed)
        drawn = np.empty((len(rows), count), dtype=np.intp)
        for place, row in enumerate(rows):
            free = self.free(rows[place : place + 1])[0]
            others = np.flatnonzero(free)
            if len(others) < count:
                raise ValueError(
                    f"{len(others)} images have a concept other than {self.names[row]!r}, too few for a choice of "
                    f"{count + 1}. Lower the number of candidates or evaluate more images."
                )
            hard = self._hard(row, free)
            near = min(count, len(hard))
            if near:
                drawn[place, :near] = generator.choice(hard, near, replace=False)
                # No image is drawn twice: others are drawn only after all hard images.
                others = np.setdiff1d(others, hard, assume_unique=True)
            if near < count:
                drawn[place, near:] = generator.choice(others, count - near, replace=False)
        return drawn

    def share_of_hard(self, rows: Places, count: int) -> float:
        """Returns the share of `rivals` from hard-negative groups, 0 to 1; 0 if the data has no groups."""
        given = [len(self._hard(row, self.free(rows[place : place + 1])[0])) for place, row in enumerate(rows)]
        return float(np.minimum(given, count).mean()) / count

    def _hard(self, row: int, free: NDArray[np.bool_]) -> Places:
        """Returns the candidates in the row's hard-negative groups."""
        return self.image[:0] if self.hard is None else self.hard[row][free[self.hard[row]]]


def draw_rivals(names: Sequence[str], candidates: int, seed: int) -> Places:
    """Draws, for each image, other images with a different concept.

    Returns:
        `[n, candidates - 1]` indices of images, distinct in each row.
    """
    return Candidates.of(names).rivals(np.arange(len(names)), candidates - 1, seed)


def hard_images(
    group: Sequence[str | None], hard_negative_groups: Sequence[Sequence[str] | None], image: Places
) -> list[Places]:
    """Returns the images of the groups that each row lists as easily confused with its own.

    Args:
        group: `[n]`, group of each row; an empty name means no group.
        hard_negative_groups: `[n]`, names of groups; names without rows are ignored.
        image: `[n]`, image of each row.

    Returns:
        `[n]`, images, ascending; rows with the same groups share one array.
    """
    number = {name: place for place, name in enumerate(dict.fromkeys(name for name in group if name))}
    named = np.array([number.get(name, len(number)) for name in group], dtype=np.intp)
    # Rows without a group share one number, which no row lists.
    members = _images_by(named, image)
    known: dict[tuple[str, ...], Places] = {}
    hard = []
    for others in hard_negative_groups:
        # Most rows repeat the groups of other rows, so sharing one array saves memory.
        key = tuple(sorted({name for name in others or () if name in number}))
        if key not in known:
            known[key] = np.unique(np.concatenate([image[:0], *(members[number[name]] for name in key)]))
        hard.append(known[key])
    return hard


def _images_by(number: Places, image: Places) -> list[Places]:
    """Returns the distinct images of each number, ascending. Every number from 0 to the largest must occur."""
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order])) + 1
    return [np.unique(part) for part in np.split(image[order], starts)]


Count: TypeAlias = int | Literal["all"]
"""Number of images to choose from, including the right one; "all" means the right one and every image without the
name."""

ALL: Literal["all"] = "all"
GROUPS = ("group", "hard_negative_groups")
_ROUNDING = 1e-12
"""Scores of unit vectors whose difference is smaller count as tied; see `hfcomp.metrics.retrieval`."""


def level_choice(
    text: NDArray[np.float32], image: NDArray[np.float32], rivals: Places, own: Places | None = None
) -> ChoiceOutcome:
    """Tests whether a concept's name scores its own image strictly higher than every rival, in fp32.

    Returns:
        Correct and tied items. Chance is 1 / (K + 1).
    """
    own, outcomes = np.arange(len(text)) if own is None else own, []
    for start in range(0, len(text), ROWS_AT_A_TIME):
        part = slice(start, start + ROWS_AT_A_TIME)
        queries = text[part]
        outcomes.append(choose(pair_scores(queries, image[own[part]]), pair_scores(queries, image[rivals[part]])))
    return concatenate(outcomes)


def level_retrieval(
    text: NDArray[np.float32], image: NDArray[np.float32], candidates: Candidates, rows: Places
) -> ChoiceOutcome:
    """Tests whether a concept's name scores an image with the name higher than every image without it, in float64.

    Returns:
        Correct and tied items. Chance of a row is 1 / (1 + `candidates.others`).
    """
    # The order of summation depends on the block size; float64 and a margin keep ties tied.
    wide, outcomes = image.astype(np.float64), []
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        part = rows[start : start + ROWS_AT_A_TIME]
        right = candidates.image[part][:, None] == np.arange(len(image))
        scores = text[start : start + ROWS_AT_A_TIME].astype(np.float64) @ wide.T
        outcomes.append(rank_scores(scores, right, candidates.free(part) | right, margin=_ROUNDING).within(1))
    return concatenate(outcomes)


@dataclass(frozen=True)
class LevelChoice(ScoringProtocol):
    """Columns `image` and `level_1` to `level_4`: finds the image for a concept's name on every level.

    Images with the anchor's name are never candidates. If the data has `group` and `hard_negative_groups`, distractors
    come from the groups listed in the anchor's row, as in the paper's released evaluation, as long as these have
    enough images; the rest are drawn from all images.

    Attributes:
        texts: Columns of names; with "caption" before them, an image is also searched for by its caption.
        candidates: Numbers of images to choose from, one metric each. A row with too few candidates is excluded from a
            metric, and a metric without rows is omitted, with a note.
        seed: Random seed for drawing rivals.
    """

    all_pairs = True

    texts: tuple[str, ...] = LEVELS
    candidates: tuple[Count, ...] = (2, 10, ALL)
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ValueError("candidates: found none, expected numbers of at least 2, or 'all'.")
        for count in self.candidates:
            if count != ALL and (isinstance(count, str) or count < 2):
                raise ValueError(f"candidates: found {count!r}, expected a number of at least 2, or 'all'.")

    def notes(self, items: BenchmarkData) -> Iterator[str]:
        """Yields counts of excluded candidates, hard rivals, and rows with too few candidates."""
        for column in self.texts:
            candidates = _candidates(items, column, items.rows["image_id"][:])
            rows_total = len(candidates.names)
            shared = int((candidates.excluded > 0).sum())
            parts = [f"for {shared:,} of {rows_total:,} rows, other images have the same concept name"]
            excluded = f"those images are left out as candidates ({candidates.excluded.mean():,.1f} per row)"
            parts += [excluded] if shared else []
            for count in self.candidates:
                rows = np.flatnonzero(candidates.others >= _rivals(count))
                if len(rows) < rows_total:
                    parts.append(f"{rows_total - len(rows):,} rows have too few for {_choice_name(count)}")
                if candidates.hard is not None and count != ALL and len(rows):
                    share = candidates.share_of_hard(rows, count - 1)
                    parts.append(f"in the {_choice_name(count)}, {share:.0%} of the wrong candidates are hard")
            yield f"{column}: {'; '.join(parts)}"

    @property
    def metric_names(self) -> tuple[str, ...]:
        return tuple(_metric_name(column, count) for count in self.candidates for column in self.texts)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """Yields the metrics "level 1 image choice of 2", "level 1 image retrieval" and so on."""
        # Rows of the same photograph may show different crops of it.
        images = list(zip(embedded.items.rows["image_id"][:], embedded.images["image"].index.tolist(), strict=True))
        levels = {column: _candidates(embedded.items, column, images) for column in self.texts}
        measured = [
            self._measure(embedded, column, candidates, rows, count)
            for count in self.candidates
            for column, candidates in levels.items()
            if len(rows := np.flatnonzero(candidates.others >= _rivals(count)))
        ]
        if not measured:
            raise ValueError(
                f"{embedded.items.origin.place}: no name in {', '.join(self.texts)} leaves enough images for a "
                f"choice of {', '.join(map(str, self.candidates))}. Add images, with at least two names."
            )
        yield from measured

    def _measure(
        self, embedded: EmbeddedItems, column: str, candidates: Candidates, rows: Places, count: Count
    ) -> Measured:
        # Each image occurs once, however many rows show it.
        image, text = embedded.image("image", candidates.first), embedded.text(column, slice(None))[rows]
        if count == ALL:
            outcome, chance = level_retrieval(text, image, candidates, rows), 1 / (1 + candidates.others[rows])
        else:
            rivals = candidates.rivals(rows, count - 1, self.seed)
            outcome, chance = level_choice(text, image, rivals, candidates.image[rows]), 1 / count
        return Measured(_metric_name(column, count), outcome.correct, outcome.tie, chance, rows=rows)


def _candidates(items: BenchmarkData, column: str, images: Sequence[Hashable]) -> Candidates:
    """Builds the candidates of a level; `images` is equal for rows of the same image."""
    number = {name: place for place, name in enumerate(dict.fromkeys(images))}
    image, hard = np.array([number[name] for name in images], dtype=np.intp), None
    if set(GROUPS) <= set(items.rows.column_names):
        hard = hard_images(*(items.rows[name][:] for name in GROUPS), image)
    return Candidates.of(items.rows[column][:], image, hard)


def _rivals(count: Count) -> int:
    return 1 if count == ALL else count - 1


def _metric_name(column: str, count: Count) -> str:
    return f"{column.replace('_', ' ')} image {_choice_name(count)}"


def _choice_name(count: Count) -> str:
    return "retrieval" if count == ALL else f"choice of {count}"


@dataclass(frozen=True)
class RivalChoice(ScoringProtocol):
    """Columns `image` and those in `texts`, each with the name of a concept of the image; each is a subset.

    `LevelChoice` also supports images with several names, hard-negative groups and more candidates.

    Attributes:
        texts: Columns of names.
        candidates: Number of images to choose from, including the right one; at least 2.
        seed: Random seed for drawing rivals.
    """

    metric_names = ("image choice",)
    all_pairs = True

    texts: tuple[str, ...]
    candidates: int = 2
    seed: int = 0

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        image = embedded.image("image", slice(None))
        for column in self.texts:
            rivals = draw_rivals(embedded.items.rows[column][:], self.candidates, self.seed)
            outcome = level_choice(embedded.text(column, slice(None)), image, rivals)
            subset = column.replace("_", " ")
            yield Measured("image choice", outcome.correct, outcome.tie, 1 / self.candidates, subset=subset)
