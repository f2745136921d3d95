"""Answers that were not used: which of them are kept all the same, and when a run has seen enough of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hfcomp.generation.writers.reading import Refused, Unreadable
from hfcomp.generation.writers.requests import Reply

FIRST_ANSWERS = 50
"""Answers without a usable one among them after which a run stops; our choice."""
_EXAMPLES, _SHOWN = 3, 80


class UnusableAnswers(ValueError):
    """None of the first answers of a language model can be used."""


class NothingToChange(Refused):
    """An answer that says that a caption allows no such change: the model works, the caption does not fit."""


class Refusals:
    """The answers of this process that were not used.

    Such an answer is not kept on disk, and a later process asks again. There are two exceptions, for which the same
    questions have the same answers in every process. An answer is kept if a later one to the same question was used.
    And once the model has given a usable answer at all, an answer is kept if it, or another one to its question, had
    the right form: then the model has answered, however wrongly.

    Args:
        keep: Stores the reason instead of an answer, by the key of the request.
        advise: The advice for a run that stops, from the reasons.
    """

    def __init__(self, keep: Callable[[str, Reply], object], advise: Callable[[Counter[str]], str]) -> None:
        self._keep, self._advise = keep, advise
        self._known: dict[str, str] = {}
        self._waiting: dict[str, list[str]] = {}
        self._readable: set[str] = set()
        self._works = False
        self._reasons: Counter[str] = Counter()
        self._examples: dict[str, None] = {}

    def get(self, key: str) -> Reply | None:
        """The refusal of an answer that this process was given, if any."""
        return Reply(problem=self._known[key]) if key in self._known else None

    def use(self, question: str, *, is_new: bool) -> None:
        """Notes that an answer is used.

        Args:
            question: What the attempts at an answer have in common.
            is_new: Whether the answer comes from the model and not from the disk.
        """
        self._readable.discard(question)
        waiting = [question]
        if is_new and not self._works:
            self._works = True
            waiting += self._readable
        for one in waiting:
            self._store(one)

    def add(self, key: str, question: str, reply: Reply, reason: Refused) -> None:
        """Notes a new answer that is not used.

        Raises:
            UnusableAnswers: after `FIRST_ANSWERS` without a usable one.
        """
        if reply.is_final:  # a server that failed is asked again
            self._known[key] = str(reason)
            self._waiting.setdefault(question, []).append(key)
            if not isinstance(reason, Unreadable):
                self._readable.add(question)
            if self._works and question in self._readable:
                self._store(question)
        if not self._works and not isinstance(reason, NothingToChange):
            self._count(reply, reason)

    def _store(self, question: str) -> None:
        for key in self._waiting.pop(question, ()):
            self._keep(key, Reply(problem=self._known[key]))

    def _count(self, reply: Reply, reason: Refused) -> None:
        self._reasons[str(reason).partition(":")[0]] += 1
        if not reply.problem and len(self._examples) < _EXAMPLES:
            shown = reply.text[:_SHOWN]
            self._examples[f"{shown!r}{'...' if len(reply.text) > _SHOWN else ''}"] = None
        if (number := self._reasons.total()) >= FIRST_ANSWERS:
            reasons = ", ".join(f"{name} ({count})" for name, count in self._reasons.most_common())
            examples = f" Examples: {', '.join(self._examples)}." if self._examples else ""
            raise UnusableAnswers(
                f"none of the first {number} answers of the language model can be used: {reasons}.{examples} "
                f"{self._advise(self._reasons)}"
            )
