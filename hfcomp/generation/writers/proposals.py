"""The kinds `llm`: a language model chooses what to replace, swap or add; its answers are checked by their words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hfcomp.generation.writers.changes import changed_part
from hfcomp.generation.writers.making import Asker, Question
from hfcomp.generation.writers.prompts import PARTS, Part, part_prompt
from hfcomp.generation.writers.reading import Refused
from hfcomp.negatives.filters import folded_sentence
from hfcomp.negatives.negative import Negative, caption_rng

QUESTIONS_PER_ATTEMPT = 8
"""A caption is asked about at most so many times the number of attempts; our choice, a bound on hopeless captions."""


class LlmNegatives:
    """Proposes negatives of one or all of `PARTS`.

    Args:
        parts: in turn; which is the first depends on the caption and the seed.
        asker: the model.
        attempts: see `QUESTIONS_PER_ATTEMPT`.

    Attributes:
        rejected: answers that were refused, by reason.
    """

    def __init__(self, parts: Sequence[Part], asker: Asker, *, attempts: int) -> None:
        self._parts, self._asker, self._most = tuple(parts), asker, attempts * QUESTIONS_PER_ATTEMPT
        self.rejected: Counter[str] = Counter()

    def propose(self, captions: Sequence[str], *, number: int, seed: int) -> list[list[Negative]]:
        """At most `number` negatives for each caption; fewer are the first of more."""
        found: list[dict[str, Negative]] = [{} for _ in captions]
        asked = [0] * len(captions)
        while open_places := [
            place for place in range(len(captions)) if len(found[place]) < number and asked[place] < self._most
        ]:
            turns = []
            for place in open_places:
                last = min(asked[place] + number - len(found[place]), self._most)
                turns += [(place, turn) for turn in range(asked[place], last)]
                asked[place] = last
            self._answer(captions, turns, found, seed)
        return [list(some.values()) for some in found]

    def _answer(
        self,
        captions: Sequence[str],
        turns: Sequence[tuple[int, int]],
        found: Sequence[dict[str, Negative]],
        seed: int,
    ) -> None:
        parts = [self._part(captions[place], turn, seed) for place, turn in turns]
        questions = [
            Question(part_prompt(captions[place], part), captions[place], (part,), turn // len(self._parts))
            for (place, turn), part in zip(turns, parts, strict=True)
        ]
        answers = self._asker.answers(questions, seed)
        for (place, _), part, answer in zip(turns, parts, answers, strict=True):
            try:
                if isinstance(answer, Refused):
                    raise answer
                negative = changed_part(captions[place], part, answer).negative
            except Refused as reason:
                self.rejected[str(reason).partition(":")[0]] += 1
            else:
                found[place].setdefault(folded_sentence(negative.text), negative)

    def _part(self, caption: str, turn: int, seed: int) -> Part:
        first = caption_rng(seed, caption, "llm part").randrange(len(self._parts))
        return self._parts[(first + turn) % len(self._parts)]


def chosen_parts(part: str) -> tuple[Part, ...]:
    """The parts of a kind: all of `llm`, one of `llm:replace_obj`."""
    return tuple(one for one in PARTS if not part or one == part)
