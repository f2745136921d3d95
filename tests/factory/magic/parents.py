"""Sources and encoders of concepts that are written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hfcomp.factory.magic.source import SourceAnswer


class Written:
    """Parents by name; of the others one for each level."""

    def __init__(self, parents: Mapping[str, tuple[str, ...]] | None = None, *, grows: bool = False) -> None:
        self._parents, self.grows = parents or {}, grows
        self.asked: list[tuple[int, tuple[str, ...], tuple[str, ...]]] = []

    def concepts(self, captions):
        raise AssertionError("the graph asks for parents alone")

    def generalize(self, captions, chains):
        raise AssertionError("the graph asks for parents alone")

    def parents(self, level: int, names: Sequence[str], known: Sequence[str]) -> list[SourceAnswer]:
        self.asked.append((level, tuple(names), tuple(known)))
        return [SourceAnswer(self._parents.get(name, (f"{'abc'[level - 1]} of {name}",))) for name in names]

    def facts(self):
        return {"writer": "written"}


class Angles:
    """A name is a direction in the plane, in degrees; the cosine of two is that of their difference."""

    def __init__(self, degrees: Mapping[str, float]) -> None:
        self._degrees = degrees

    def encode(self, names: Sequence[str]) -> np.ndarray:
        angles = np.radians([self._degrees[name] for name in names])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    def facts(self):
        return {"encoder": "angles"}
