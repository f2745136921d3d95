"""Choosing a caption's negatives from several generators in turn, requesting no more of each than is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hfcomp.negatives.filters import is_same_sentence
from hfcomp.negatives.negative import Negative

# Most proposals that are requested from a generator for one caption, however many of them filters drop.
MOST_PROPOSALS = 64


@dataclass(frozen=True)
class Proposals:
    """What one generator proposed for a caption so far.

    Attributes:
        found: its negatives, the first ones of all that it could give; None for a question without a negative.
        requested: how many were requested.
        attempts: Proposals in a row of which none is taken, after which the generator is asked no more; None for a
            generator whose proposals cost nothing.
    """

    found: Sequence[Negative | None] = ()
    requested: int = 0
    attempts: int | None = None

    @property
    def is_all(self) -> bool:
        """Whether it has no more."""
        return len(self.found) < self.requested or self.requested >= MOST_PROPOSALS

    def next_number(self, share: int) -> int:
        """How many to request now: at first a share of what is needed, then twice as many as before, or one more."""
        # Questions to a language model cost time or money, so one more is requested at a time. Other generators cost
        # next to nothing, and doubling takes few rounds.
        if self.attempts is not None:
            return self.requested + 1 if self.requested else share
        return min(2 * self.requested, MOST_PROPOSALS) if self.requested else share


@dataclass
class Row:
    """A caption on its way to its negatives.

    Attributes:
        proposals: Proposals of each generator; other rows with the same caption share them.
        verdicts: text to the reason for dropping it, or None, for all texts that filters have seen.
        chosen: Result of the last `choose`.
        duplicates: texts that are there already, passed over by `choose`.
    """

    caption: str
    proposals: list[Proposals]
    verdicts: dict[str, str | None] = field(default_factory=dict)
    chosen: list[Negative] = field(default_factory=list)
    duplicates: int = 0

    def choose(self, number: int) -> int | None:
        """Takes one of each generator in turn, then a second of each, passing over what was dropped or is there.

        Args:
            number: how many to take; fewer where the generators have no more.

        Returns:
            The generator that has to propose more before the choice is final, or None.
        """
        # Starts over each time: a verdict that came in the meantime may drop a chosen text, and a text that was passed
        # over as its duplicate is then needed.
        self.chosen, self.duplicates = [], 0
        queues = [iter(one.found) for one in self.proposals]
        left = list(range(len(queues)))
        passed_over = [0] * len(queues)
        while left and len(self.chosen) < number:
            for generator in tuple(left):
                source = self.proposals[generator]
                for one in queues[generator]:
                    if one is not None and self._is_wanted(one):
                        self.chosen.append(one)
                        passed_over[generator] = 0
                        break
                    passed_over[generator] += 1
                    if passed_over[generator] == source.attempts:
                        left.remove(generator)
                        break
                else:
                    # What follows depends on the next proposal of this generator, so nothing behind it may be chosen
                    # yet.
                    if not source.is_all:
                        return generator
                    left.remove(generator)
                if len(self.chosen) == number:
                    break
        return None

    def _is_wanted(self, negative: Negative) -> bool:
        if self.verdicts.get(negative.text) is not None:
            return False
        repeated = any(is_same_sentence(negative.text, one.text) for one in self.chosen)
        self.duplicates += repeated
        return not repeated
