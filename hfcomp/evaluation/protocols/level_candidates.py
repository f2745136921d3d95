"""Candidate distractors of an anchor by its concept's name, and their sampling (CLEAR GLASS)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
        """Those of a level.

        Args:
            names: `[n]`, of each row's concept.
            image: `[n]`, which image each row shows, 0 to m - 1; by default one of its own.
            hard: of `hard_images`.
        """
        image = np.arange(len(names)) if image is None else image
        concept = np.unique(np.asarray(names, dtype=object), return_inverse=True)[1]
        return cls(names, concept, image, 1 + int(image.max(initial=-1)), _images_by(concept, image), hard)

    @property
    def excluded(self) -> NDArray[np.intp]:
        """`[n]`, how many other images share the anchor's name and are excluded."""
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

        Args:
            rows: the anchors.
            count: of rivals.
            seed: of the draw.

        Returns:
            `[len(rows), count]` images.

        Raises:
            ValueError: when some concept leaves fewer images than are asked for.
        """
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

    Args:
        names: `[n]`, the concept of each image on the level in question.
        candidates: images to choose from, the right one included; at least 2.
        seed: of the draw.

    Returns:
        `[n, candidates - 1]` indices of images, different ones in each row.

    Raises:
        ValueError: when some concept leaves fewer images than are asked for.
    """
    return Candidates.of(names).rivals(np.arange(len(names)), candidates - 1, seed)


def hard_images(
    group: Sequence[str | None], hard_negative_groups: Sequence[Sequence[str] | None], image: NDArray[np.intp]
) -> list[NDArray[np.intp]]:
    """The images of the groups that each row names as easily taken for its own.

    Args:
        group: `[n]`, of each row; one without a name has no group.
        hard_negative_groups: `[n]`, names of groups; those that no row has are passed over.
        image: `[n]`, which image each row shows.

    Returns:
        `[n]`, images, ascending; rows that name the same groups share one array.
    """
    number = {name: place for place, name in enumerate(dict.fromkeys(name for name in group if name))}
    named = np.array([number.get(name, len(number)) for name in group], dtype=np.intp)
    members = _images_by(named, image)
    known: dict[tuple[str, ...], NDArray[np.intp]] = {}
    found = []
    for others in hard_negative_groups:
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
