"""Choosing the image that belongs to a concept's name (CLEAR GLASS)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hfcomp.data.concepts.level_names import LEVELS
from hfcomp.evaluation.encoding.embedded import EmbeddedItems
from hfcomp.evaluation.protocols.level_candidates import Candidates, draw_rivals, hard_images
from hfcomp.evaluation.protocols.parts import concatenated
from hfcomp.evaluation.spec import ROWS_AT_A_TIME, BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.choice import ChoiceOutcome, choose, pair_scores
from hfcomp.metrics.retrieval import rank_scores

__all__ = ["ALL", "GROUPS", "LEVELS", "Count", "LevelChoice", "draw_rivals", "level_choice", "level_retrieval"]

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

    Args:
        text: `[n, D]`, the name of each image's concept, L2-normalised.
        image: `[m, D]`, L2-normalised.
        rivals: `[n, K]` of `draw_rivals`, which images.
        own: `[n]`, which image is each name's; by default image i for name i.

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

    Args:
        text: `[len(rows), D]`, the name of each row's concept, L2-normalised.
        image: `[m, D]`, each image once, L2-normalised.
        candidates: of the level.
        rows: the rows to score.

    Returns:
        Correct and tied items. Chance of a row is 1 / (1 + `candidates.others`).
    """
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
        """The names of its metrics."""
        return tuple(_metric_name(column, count) for count in self.candidates for column in self.texts)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """The metrics "level 1 image choice of 2", "level 1 image retrieval" and so on.

        Raises:
            ValueError: when no name leaves enough images.
        """
        # rows of one photograph may show different crops of it
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
    """How many distractors a choice needs."""
    return 1 if count == ALL else count - 1


def _metric_name(column: str, count: Count) -> str:
    return f"{column.replace('_', ' ')} image {_choice_name(count)}"


def _choice_name(count: Count) -> str:
    return "retrieval" if count == ALL else f"choice of {count}"
