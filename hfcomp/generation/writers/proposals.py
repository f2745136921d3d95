"""The kinds `llm`: a language model chooses what to replace, swap or add; its answers are checked by their words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hfcomp.generation.writers.changes import changed_part
from hfcomp.generation.writers.making import Asker, Question
from hfcomp.generation.writers.prompts import PARTS, Part, part_prompt
from hfcomp.generation.writers.reading import Refused
from hfcomp.negatives.negative import Negative, caption_rng


class LlmNegatives:
    """Proposes negatives of one or all of `PARTS`.

    Args:
        parts: in turn; which is the first depends on the caption and the seed.
        asker: the model.

    Attributes:
        rejected: answers that were refused, by reason.
    """

    def __init__(self, parts: Sequence[Part], asker: Asker) -> None:
        self._parts, self._asker = tuple(parts), asker
        self.rejected: Counter[str] = Counter()

    @property
    def counts(self) -> Counter[str]:
        """Number of answers so far, see `Asker`."""
        return self._asker.counts

    def propose(self, captions: Sequence[str], *, start: int, end: int, seed: int) -> list[list[Negative | None]]:
        """The answers to some questions about each caption.

        Args:
            captions: The captions, all different.
            start: Number of the first question.
            end: Number of the question after the last one.
            seed: Random seed.

        Returns:
            For each caption and question a negative, or None for an answer that was refused.
        """
        turns = [(caption, turn) for caption in captions for turn in range(start, end)]
        parts = [self._part(caption, turn, seed) for caption, turn in turns]
        questions = [
            Question(part_prompt(caption, part), caption, (part,), turn // len(self._parts), self._shared(caption))
            for (caption, turn), part in zip(turns, parts, strict=True)
        ]

        def check(place: int, answer: str) -> Negative:
            return changed_part(turns[place][0], parts[place], answer).negative

        answers: list[Negative | None] = []
        for answer in self._asker.answers(questions, seed, check):
            if isinstance(answer, Refused):
                self.rejected[str(answer).partition(":")[0]] += 1
                answers.append(None)
            else:
                answers.append(answer)
        number = end - start
        return [answers[place : place + number] for place in range(0, len(answers), number)]

    def _shared(self, caption: str) -> str:
        return f"{','.join(self._parts)}: {caption}"

    def _part(self, caption: str, turn: int, seed: int) -> Part:
        first = caption_rng(seed, caption, "llm part").randrange(len(self._parts))
        return self._parts[(first + turn) % len(self._parts)]


def chosen_parts(part: str) -> tuple[Part, ...]:
    """The parts of a kind: all of `llm`, one of `llm:replace_obj`."""
    return tuple(one for one in PARTS if not part or one == part)
