"""Where the concepts of images, their parents and generalised captions come from: a language model or a taxonomy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Found:
    """What a source answers to one question.

    Attributes:
        texts: canonical names of concepts, the best first, or one caption; empty where there is no answer.
        refused: why answers were not used, one for each attempt.
    """

    texts: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def text(self) -> str | None:
        """The first one; None without an answer."""
        return self.texts[0] if self.texts else None


class ConceptSource(Protocol):
    """Answers in the order of what is asked; the same question is answered the same."""

    grows: bool
    """Whether the answers about parents depend on `known`."""
    counts: Mapping[str, int]
    """Number of answers of a language model so far."""

    def read(self, captions: Sequence[str]) -> Sequence[str]:
        """Those of an image's captions that it reads; those beyond are counted."""
        ...

    def concepts(self, captions: Sequence[Sequence[str]]) -> list[Found]:
        """The first-level concept of each image, from those of its captions that `read` names."""
        ...

    def parents(self, level: int, names: Sequence[str], known: Sequence[str]) -> list[Found]:
        """The more abstract concepts of each concept.

        Args:
            level: of the names, 1 to 3.
            names: canonical.
            known: names of the next level that other concepts have as parents, the most frequent first.
        """
        ...

    def generalised(self, captions: Sequence[Sequence[str]], chains: Sequence[tuple[str, ...]]) -> list[Found]:
        """A caption of each image that says what it has in common with others of its concept.

        Args:
            captions: of each image, those that `read` names.
            chains: the names of its concepts, level 1 to 4.
        """
        ...

    def facts(self) -> Mapping[str, Any]:
        """What identifies the answers in a manifest: JSON values, nothing of this machine."""
        ...
