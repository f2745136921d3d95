"""Concepts, their parents and generalised captions by a language model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from hfcomp.factory.magic.source import Found, canonical_name, name_problem
from hfcomp.factory.writers.llm_client import LlmClient, Question, build_llm_client, writer_facts
from hfcomp.factory.writers.prompts import CONCEPTS_FILE, concept_prompt, generalized_prompt, parent_prompt
from hfcomp.factory.writers.requests import AnswerField, Refused

MOST_CAPTIONS, MOST_CHARACTERS = 10, 2_000
"""Of an image's captions those in a prompt, the first ones. Our choice; COCO has five of about 50 characters."""
MOST_KNOWN = 100
"""Names that are offered as parents. Our choice."""
ITSELF, IS_A_NAME = "the concept itself", "the name of a concept"

Check = Callable[[int, str], str]
"""From a place and a text in an answer to what is used of it; raises `Refused`."""


class LanguageModelSource:
    """A source of concepts (`hfcomp.factory.magic.source.ConceptSource`) that asks a language model.

    Args:
        model: settings of `hfcomp.factory.writers.llm_client.build_llm_client`.
        attempts: at a question whose answer is refused, each with a seed of its own and warmer.
    """

    grows = True

    def __init__(self, model: Mapping[str, Any], *, attempts: int, seed: int, device: str | None = None) -> None:
        self._model, self._attempts, self._seed, self._device = model, attempts, seed, device

    @property
    def counts(self) -> Counter[str]:
        """See `ConceptSource`."""
        return self._client.counts if "_client" in vars(self) else Counter()

    def read(self, captions: Sequence[str]) -> list[str]:
        """See `ConceptSource`."""
        shown, left = [], MOST_CHARACTERS
        for caption in captions[:MOST_CAPTIONS]:
            if shown and len(caption) > left:
                break
            shown.append(caption[:MOST_CHARACTERS])
            left -= len(caption)
        return shown

    def concepts(self, captions: Sequence[Sequence[str]]) -> list[Found]:
        """See `ConceptSource`."""
        questions = [Question(concept_prompt(some), "\n".join(some), ("concept",)) for some in captions]
        return self._ask(questions, "concept", lambda _, text: _name(text))

    def parents(self, level: int, names: Sequence[str], known: Sequence[str]) -> list[Found]:
        """See `ConceptSource`."""
        offered = known[:MOST_KNOWN]
        questions = [Question(parent_prompt(name, level, offered), name, ("parent", str(level))) for name in names]

        def check(place: int, text: str) -> str:
            found = _name(text)
            if found == names[place]:
                raise Refused(ITSELF)
            return found

        return self._ask(questions, "concept", check)

    def generalize(self, captions: Sequence[Sequence[str]], chains: Sequence[tuple[str, ...]]) -> list[Found]:
        """See `ConceptSource`."""
        questions = [
            Question(generalized_prompt(some, chain), "\n".join(some), ("generalised", *chain))
            for some, chain in zip(captions, chains, strict=True)
        ]

        def check(place: int, text: str) -> str:
            if canonical_name(text) in chains[place]:
                raise Refused(IS_A_NAME)
            return text

        return self._ask(questions, "caption", check)

    def facts(self) -> Mapping[str, Any]:
        """See `ConceptSource`."""
        return writer_facts(self._model, CONCEPTS_FILE) | {"attempts": self._attempts, "seed": self._seed}

    @cached_property
    def _client(self) -> LlmClient:
        return build_llm_client(**self._model, device=self._device)

    def _ask(self, questions: Sequence[Question], field: AnswerField, check: Check) -> list[Found]:
        refused: list[list[str]] = [[] for _ in questions]
        texts: dict[int, str] = {}
        for attempt in range(self._attempts):
            left = [place for place in range(len(questions)) if place not in texts]
            if not left:
                break
            asked = [_again(questions[place], attempt) for place in left]

            def check_asked(number: int, text: str, left: Sequence[int] = left) -> str:
                return check(left[number], text)

            for place, answer in zip(left, self._client.answers(asked, self._seed, check_asked, field), strict=True):
                if isinstance(answer, Refused):
                    refused[place].append(str(answer))
                else:
                    texts[place] = answer
        return [
            Found((texts[place],) if place in texts else (), tuple(reasons)) for place, reasons in enumerate(refused)
        ]


def _again(question: Question, attempt: int) -> Question:
    return Question(question.prompt, question.about, question.purpose, attempt)


def _name(text: str) -> str:
    problem = name_problem(text)
    if problem:
        raise Refused(problem)
    return canonical_name(text)
