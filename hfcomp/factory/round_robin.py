"""Chooses a caption's negatives from several generators in turn, and requests no more from each than needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hfcomp.negatives.filters import is_same_sentence
from hfcomp.negatives.negative import Negative

# Upper bound on proposals requested from a generator per caption, however many the filters drop.
MOST_PROPOSALS = 64


@dataclass(frozen=True)
class Proposals:
    """The proposals of one generator for a caption so far.

    Attributes:
        negatives: The generator's first negatives; None for a question without a negative.
        requested: Number of requested proposals.
        attempts: Number of consecutive unused proposals after which the generator is not asked again; None for a
            generator whose proposals cost nothing.
    """

    negatives: Sequence[Negative | None] = ()
    requested: int = 0
    attempts: int | None = None

    @property
    def is_exhausted(self) -> bool:
        """Whether the generator has no more proposals."""
        return len(self.negatives) < self.requested or self.requested >= MOST_PROPOSALS

    def next_number(self, share: int) -> int:
        """Number to request next: first a share of what is needed, then twice as many as before, or one more."""
        # Questions to a language model cost time or money, so one more is requested at a time. Other generators cost
        # next to nothing, and doubling takes few rounds.
        if self.attempts is not None:
            return self.requested + 1 if self.requested else share
        return min(2 * self.requested, MOST_PROPOSALS) if self.requested else share


@dataclass
class Row:
    """A caption and its negatives so far.

    Attributes:
        proposals: Proposals of each generator; other rows with the same caption share them.
        verdicts: Reason for dropping each text that filters have seen; None for a text that passed.
        chosen: Negatives of the last `choose`.
        duplicates: Number of texts that `choose` skipped as repetitions of chosen texts.
    """

    caption: str
    proposals: list[Proposals]
    verdicts: dict[str, str | None] = field(default_factory=dict)
    chosen: list[Negative] = field(default_factory=list)
    duplicates: int = 0

    def choose(self, number: int) -> int | None:
        """Takes one negative per generator in turn, then a second, and skips dropped and repeated texts.

        Args:
            number: Number to take; fewer are taken if the generators run out.

        Returns:
            The generator that must propose more before the choice is final, or None.
        """
        # The choice starts over each time, because a new verdict may drop a chosen text. A text that was skipped as
        # its duplicate is then needed.
        self.chosen, self.duplicates = [], 0
        queues = [iter(proposals.negatives) for proposals in self.proposals]
        left = list(range(len(queues)))
        skipped = [0] * len(queues)
        while left and len(self.chosen) < number:
            for generator in tuple(left):
                source = self.proposals[generator]
                for negative in queues[generator]:
                    if negative is not None and self._is_wanted(negative):
                        self.chosen.append(negative)
                        skipped[generator] = 0
                        break
                    skipped[generator] += 1
                    if skipped[generator] == source.attempts:
                        left.remove(generator)
                        break
                else:
                    # The next choice depends on this generator's next proposal, so no later generator may go first.
                    if not source.is_exhausted:
                        return generator
                    left.remove(generator)
                if len(self.chosen) == number:
                    break
        return None

    def _is_wanted(self, negative: Negative) -> bool:
        if self.verdicts.get(negative.text) is not None:
            return False
        repeated = any(is_same_sentence(negative.text, chosen.text) for chosen in self.chosen)
        self.duplicates += repeated
        return not repeated
