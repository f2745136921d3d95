"""The image of a concept's name among others (CLEAR GLASS): candidates, draws of distractors, and both choices."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hfcomp.data.concepts.level_names import LEVELS
from hfcomp.evaluation.encoding.embedded import EmbeddedItems
from hfcomp.evaluation.protocols.caption_choice import concatenated
from hfcomp.evaluation.spec import ROWS_AT_A_TIME, BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.choice import ChoiceOutcome, choose, pair_scores
from hfcomp.metrics.retrieval import rank_scores


@dataclass(frozen=True)
class Candidates:
    """The images of a level of abstraction, by the names that they bear.

    An image may be in several rows, under several names; it is a candidate for none of them. The paper's released
    evaluation does not see to that: its rivals often bear the anchor's own name, and such items have no answer.

    Attributes:
        names: `[n]`, of each row's concept.
        concept: `[n]`, the same as numbers, 0 to C - 1.
        image: `[n]`, which image each row shows, 0 to m - 1.
        images: m.
        under: by concept, the images that bear its name, ascending.
        hard: `[n]`, the images of each row's hard-negative groups, ascending; `None` where the data names none.
    """

    names: Sequence[str]
    concept: NDArray[np.intp]
    image: NDArray[np.intp]
    images: int
    under: list[NDArray[np.intp]]
    hard: list[NDArray[np.intp]] | None = None

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        image: NDArray[np.intp] | None = None,
        hard: list[NDArray[np.intp]] | None = None,
    ) -> Candidates:
        """The candidates of a level; without `image`, each row shows an image of its own."""
        image = np.arange(len(names)) if image is None else image
        concept = np.unique(np.asarray(names, dtype=object), return_inverse=True)[1]
        return cls(names, concept, image, 1 + int(image.max(initial=-1)), _images_by(concept, image), hard)

    @property
    def excluded(self) -> NDArray[np.intp]:
        """`[n]`, how many other images share the anchor's name and are excluded."""
        # The anchor's own image has the name as well and is not counted.
        return np.array([len(images) for images in self.under], dtype=np.intp)[self.concept] - 1

    @property
    def others(self) -> NDArray[np.intp]:
        """`[n]`, how many images do not bear the anchor's name."""
        return self.images - 1 - self.excluded

    @property
    def first(self) -> NDArray[np.intp]:
        """`[m]`, the first row that shows each image."""
        return np.unique(self.image, return_index=True)[1]

    def free(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """`[len(rows), m]`, which images do not bear the name of each row."""
        found = np.ones((len(rows), self.images), dtype=bool)
        for place, row in enumerate(rows):
            found[place, self.under[self.concept[row]]] = False
        return found

    def rivals(self, rows: NDArray[np.intp], count: int, seed: int) -> NDArray[np.intp]:
        """Distinct distractors: from the anchor's hard-negative groups first, then from all others.

        Returns:
            `[len(rows), count]` images.
        """
        # One generator serves all rows: the draw of a row depends on the rows before it and not on the model.
        generator = np.random.default_rng(seed)
        found = np.empty((len(rows), count), dtype=np.intp)
        for place, row in enumerate(rows):
            free = self.free(rows[place : place + 1])[0]
            others = np.flatnonzero(free)
            if len(others) < count:
                raise ValueError(
                    f"{len(others)} images have another concept than {self.names[row]!r}: too few for a choice of "
                    f"{count + 1}. Lower the number of candidates or evaluate more images."
                )
            hard = self._hard(row, free)
            near = min(count, len(hard))
            if near:
                found[place, :near] = generator.choice(hard, near, replace=False)
                # No image is drawn twice: if others are drawn as well, all hard images have been.
                others = np.setdiff1d(others, hard, assume_unique=True)
            if near < count:
                found[place, near:] = generator.choice(others, count - near, replace=False)
        return found

    def share_of_hard(self, rows: NDArray[np.intp], count: int) -> float:
        """The share of `rivals` that hard-negative groups give, 0 to 1; 0 where the data names none."""
        given = [len(self._hard(row, self.free(rows[place : place + 1])[0])) for place, row in enumerate(rows)]
        return float(np.minimum(given, count).mean()) / count

    def _hard(self, row: int, free: NDArray[np.bool_]) -> NDArray[np.intp]:
        """The images of the row's hard-negative groups that are candidates."""
        return self.image[:0] if self.hard is None else self.hard[row][free[self.hard[row]]]


def draw_rivals(names: Sequence[str], candidates: int, seed: int) -> NDArray[np.intp]:
    """For each image, others that are not under the same concept.

    Returns:
        `[n, candidates - 1]` indices of images, different ones in each row.
    """
    return Candidates.of(names).rivals(np.arange(len(names)), candidates - 1, seed)


def hard_images(
    group: Sequence[str | None], hard_negative_groups: Sequence[Sequence[str] | None], image: NDArray[np.intp]
) -> list[NDArray[np.intp]]:
    """The images of the groups that each row names as easily taken for its own.

    Args:
        group: `[n]`, of each row; one without a name has no group.
        hard_negative_groups: `[n]`, names of groups; those that no row has are passed over.

    Returns:
        `[n]`, images, ascending; rows that name the same groups share one array.
    """
    number = {name: place for place, name in enumerate(dict.fromkeys(name for name in group if name))}
    named = np.array([number.get(name, len(number)) for name in group], dtype=np.intp)
    # Rows without a group share one number, which no row names.
    members = _images_by(named, image)
    known: dict[tuple[str, ...], NDArray[np.intp]] = {}
    found = []
    for others in hard_negative_groups:
        # Most rows repeat the groups of others: one array for all of them keeps memory small.
        key = tuple(sorted({name for name in others or () if name in number}))
        if key not in known:
            known[key] = np.unique(np.concatenate([image[:0], *(members[number[name]] for name in key)]))
        found.append(known[key])
    return found


def _images_by(number: NDArray[np.intp], image: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """The images of each number, ascending and once; every number from 0 to the largest occurs."""
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order])) + 1
    return [np.unique(part) for part in np.split(image[order], starts)]


Count: TypeAlias = int | Literal["all"]
"""Of images to choose from, the right one included; "all" is every image that does not bear the name, and that one."""

ALL: Literal["all"] = "all"
GROUPS = ("group", "hard_negative_groups")
_ROUNDING = 1e-12
"""Scores of unit vectors that differ by less count as tied; see `hfcomp.metrics.retrieval`."""


def level_choice(
    text: NDArray[np.float32],
    image: NDArray[np.float32],
    rivals: NDArray[np.intp],
    own: NDArray[np.intp] | None = None,
) -> ChoiceOutcome:
    """Whether a concept's name scores its own image strictly higher than every rival, in fp32.

    Returns:
        Correct and tied items. Chance is 1 / (K + 1).
    """
    own, outcomes = np.arange(len(text)) if own is None else own, []
    for start in range(0, len(text), ROWS_AT_A_TIME):
        part = slice(start, start + ROWS_AT_A_TIME)
        asked = text[part]
        outcomes.append(choose(pair_scores(asked, image[own[part]]), pair_scores(asked, image[rivals[part]])))
    return concatenated(outcomes)


def level_retrieval(
    text: NDArray[np.float32], image: NDArray[np.float32], candidates: Candidates, rows: NDArray[np.intp]
) -> ChoiceOutcome:
    """Whether a concept's name scores an image under it higher than every image that is not, in float64.

    Returns:
        Correct and tied items. Chance of a row is 1 / (1 + `candidates.others`).
    """
    # Blocks of another size sum in another order. float64 and a margin keep ties tied.
    wide, outcomes = image.astype(np.float64), []
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        part = rows[start : start + ROWS_AT_A_TIME]
        right = candidates.image[part][:, None] == np.arange(len(image))
        scores = text[start : start + ROWS_AT_A_TIME].astype(np.float64) @ wide.T
        outcomes.append(rank_scores(scores, right, candidates.free(part) | right, margin=_ROUNDING).within(1))
    return concatenated(outcomes)


@dataclass(frozen=True)
class LevelChoice(ScoringProtocol):
    """Columns `image` and `level_1` to `level_4`: the image under a concept's name among others, on every level.

    Images with the anchor's name are never candidates. If the data has `group` and `hard_negative_groups`, distractors
    are images of the groups listed in the anchor's row, as in the paper's released evaluation, as long as these have
    enough; the others are drawn from all.

    Attributes:
        texts: the columns of names; with "caption" before them, an image is asked for by its caption too.
        candidates: numbers of images to choose from, one metric each. A row with too few candidates is excluded from a
            metric, and a metric without rows is omitted, with a note.
        seed: of the draw of rivals.
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
        """How many candidates the names exclude, how many rivals are hard, and how many rows leave too few."""
        for column in self.texts:
            found = _candidates(items, column, items.rows["image_id"][:])
            shared = int((found.excluded > 0).sum())
            said = [f"{shared:,} of {len(found.names):,} rows share their name with other images, no candidates"]
            said[0] += f" ({found.excluded.mean():,.1f} a row)" if shared else ""
            for count in self.candidates:
                rows = np.flatnonzero(found.others >= _rivals(count))
                if len(rows) < len(found.names):
                    said.append(f"{len(found.names) - len(rows):,} leave too few for {_choice_name(count)}")
                if found.hard is not None and count != ALL and len(rows):
                    said.append(f"{found.share_of_hard(rows, count - 1):.0%} of rivals hard in {_choice_name(count)}")
            yield f"{column}: {'; '.join(said)}"

    @property
    def metric_names(self) -> tuple[str, ...]:
        return tuple(_metric_name(column, count) for count in self.candidates for column in self.texts)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """The metrics "level 1 image choice of 2", "level 1 image retrieval" and so on."""
        # Rows of one photograph may show different crops of it.
        images = list(zip(embedded.items.rows["image_id"][:], embedded.images["image"].index.tolist(), strict=True))
        levels = {column: _candidates(embedded.items, column, images) for column in self.texts}
        measured = [
            self._measure(embedded, column, found, rows, count)
            for count in self.candidates
            for column, found in levels.items()
            if len(rows := np.flatnonzero(found.others >= _rivals(count)))
        ]
        if not measured:
            raise ValueError(
                f"{embedded.items.origin.place}: no name in {', '.join(self.texts)} leaves enough images for a "
                f"choice of {', '.join(map(str, self.candidates))}. Add images, with at least two names."
            )
        yield from measured

    def _measure(
        self, embedded: EmbeddedItems, column: str, found: Candidates, rows: NDArray[np.intp], count: Count
    ) -> Measured:
        # Each image occurs once, however many rows show it.
        image, text = embedded.image("image", found.first), embedded.text(column, slice(None))[rows]
        if count == ALL:
            outcome, chance = level_retrieval(text, image, found, rows), 1 / (1 + found.others[rows])
        else:
            rivals = found.rivals(rows, count - 1, self.seed)
            outcome, chance = level_choice(text, image, rivals, found.image[rows]), 1 / count
        return Measured(_metric_name(column, count), outcome.correct, outcome.tie, chance, rows=rows)


def _candidates(items: BenchmarkData, column: str, images: Sequence[Hashable]) -> Candidates:
    """Candidates of a level; `images` is equal for rows of one image."""
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
    """Columns `image` and those of `texts`, each the name of a concept of the image and a subset.

    `LevelChoice` asks for levels too, with images under several names, hard-negative groups and more candidates.

    Attributes:
        candidates: images to choose from, the right one included; at least 2.
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
