"""Sources of concepts, their parents and generalized captions: the protocol, names, and a language model."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol

from hfcomp.factory.writers.llm_client import LlmClient, Question, build_llm_client, retry_refused, writer_facts
from hfcomp.factory.writers.prompts import CONCEPTS_FILE, concept_prompt, generalized_prompt, parent_prompt
from hfcomp.factory.writers.requests import AnswerField, Refused
from hfcomp.parsing.rules.words import lemma


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
            level: Level of the names, 1 to 3.
            names: canonical.
            known: names of the next level that other concepts have as parents, the most frequent first.
        """
        ...

    def generalize(self, captions: Sequence[Sequence[str]], chains: Sequence[tuple[str, ...]]) -> list[Found]:
        """A caption of each image that says what it has in common with others of its concept.

        Args:
            captions: Captions of each image that `read` names.
            chains: the names of its concepts, level 1 to 4.
        """
        ...

    def facts(self) -> Mapping[str, Any]:
        """What identifies the answers in a manifest: JSON values, nothing of this machine."""
        ...


# Most words of a name. Our choice: "people waiting at a bus stop" has six and is a caption.
MAX_WORDS = 5
EMPTY, LONG, LIST, MARKUP = "empty name", "longer than a name", "a list of names", "markup in a name"
NO_LETTERS, CONTROL, NO_NAME = "no letters in a name", "control characters in a name", "no concept"
SENTENCE = "a sentence"

_AROUND = " \t.,;:!?\"'`´‘’“”«»()[]{}*_-–—#"
_ARTICLES = frozenset(("a", "an", "the"))
# Several names in one answer: separators, bullets, numbering, or "or".
_LIST = re.compile(r"[\n\r,;|/]|\s[-–—•]\s|^\s*(?:\d+[.)]|[-*•])\s|\b(?:and/or|or)\b", re.IGNORECASE)
_MARKUP = re.compile(r"[<>(){}\[\]\\`]|\*\*|:")
# Words that models write when no concept fits.
_NONE = frozenset(
    (
        "none",
        "no concept",
        "unknown",
        "n/a",
        "na",
        "null",
        "nil",
        "other",
        "misc",
        "miscellaneous",
        "various",
        "concept",
    )
)
# Answers that talk about a concept instead of naming it.
_SENTENCE = re.compile(
    r"^(?:this|these|that|there|it|he|she|they|i|we|you|here)\b"
    r"|^(?:the|an?) (?:image|photo|picture|concept|caption)s?\b"
    r"|\b(?:is|are|was|were|am|i'm|can't|cannot|sorry)\b",
    re.IGNORECASE,
)
# Nouns with a single form, which the rules for plurals would cut.
_SAME = frozenset(("goods", "news", "series", "species", "media", "data", "means", "graffiti"))


@lru_cache(maxsize=65536)
def canonical_name(text: str) -> str:
    """The one spelling of a name: "Birthday party", "birthday parties" and "the birthday party." are "birthday party".

    Lower case, NFKC, single spaces, no article and no punctuation around it, the last word in the singular.
    """
    words = unicodedata.normalize("NFKC", text).casefold().strip(_AROUND).split()
    while len(words) > 1 and words[0] in _ARTICLES:
        words = " ".join(words[1:]).strip(_AROUND).split()
    if words:
        words[-1] = _singular(words[-1])
    return unicodedata.normalize("NFKC", " ".join(words)).strip(_AROUND)


def name_problem(text: str) -> str | None:
    """Why a text is not the name of a concept, or None; what follows a colon is a detail."""
    if not text.strip(_AROUND):
        return EMPTY
    if any(unicodedata.category(sign) in ("Cc", "Cf", "Co", "Cs", "Cn") and sign not in "\n\r\t" for sign in text):
        return CONTROL
    if _LIST.search(text.strip()):
        return LIST
    if _MARKUP.search(text):
        return MARKUP
    words = text.split()
    if len(words) > MAX_WORDS:
        return f"{LONG}: {len(words)} words, at most {MAX_WORDS}"
    if not any(sign.isalpha() for sign in text):
        return NO_LETTERS
    if " ".join(words).casefold().strip(_AROUND) in _NONE:
        return NO_NAME
    return SENTENCE if _SENTENCE.search(text.strip()) else None


def _singular(word: str) -> str:
    """A gerund stays what it is, and so does a word of another script."""
    if not word.isascii() or word.endswith("ing") or word in _SAME:
        return word
    # Applied twice: the dictionary has plurals that it takes for singulars only once they are cut.
    return lemma(lemma(word, "NNS"), "NNS")


# Most captions of an image in a prompt, which are the first ones, and most characters of them. Our choice; COCO has
# five captions of about 50 characters.
MOST_CAPTIONS, MOST_CHARACTERS = 10, 2_000
# Most names that are offered as parents. Our choice.
MOST_KNOWN = 100
ITSELF, IS_A_NAME = "the concept itself", "the name of a concept"

# Maps a place and the text of an answer to the part that is used. Raises `Refused`.
Check = Callable[[int, str], str]


class LanguageModelSource:
    """A source of concepts (`hfcomp.factory.magic.source.ConceptSource`) that asks a language model.

    Args:
        model: settings of `hfcomp.factory.writers.llm_client.build_llm_client`.
        attempts: Most attempts at a question, each with a seed of its own and warmer.
    """

    grows = True

    def __init__(self, model: Mapping[str, Any], *, attempts: int, seed: int, device: str | None = None) -> None:
        self._model, self._attempts, self._seed, self._device = model, attempts, seed, device

    @property
    def counts(self) -> Counter[str]:
        return self._client.counts if "_client" in vars(self) else Counter()

    def read(self, captions: Sequence[str]) -> list[str]:
        shown, left = [], MOST_CHARACTERS
        # The first caption is always read, cut if necessary: an image without any would have no concept.
        for caption in captions[:MOST_CAPTIONS]:
            if shown and len(caption) > left:
                break
            shown.append(caption[:MOST_CHARACTERS])
            left -= len(caption)
        return shown

    def concepts(self, captions: Sequence[Sequence[str]]) -> list[Found]:
        questions = [Question(concept_prompt(some), "\n".join(some), ("concept",)) for some in captions]
        return self._ask(questions, "concept", lambda _, text: _name(text))

    def parents(self, level: int, names: Sequence[str], known: Sequence[str]) -> list[Found]:
        offered = known[:MOST_KNOWN]
        questions = [Question(parent_prompt(name, level, offered), name, ("parent", str(level))) for name in names]

        def check(place: int, text: str) -> str:
            found = _name(text)
            if found == names[place]:
                raise Refused(ITSELF)
            return found

        return self._ask(questions, "concept", check)

    def generalize(self, captions: Sequence[Sequence[str]], chains: Sequence[tuple[str, ...]]) -> list[Found]:
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
        return writer_facts(self._model, CONCEPTS_FILE) | {"attempts": self._attempts, "seed": self._seed}

    @cached_property
    def _client(self) -> LlmClient:
        return build_llm_client(**self._model, device=self._device)

    def _ask(self, questions: Sequence[Question], field: AnswerField, check: Check) -> list[Found]:
        def ask(left: list[int], attempt: int) -> list[str | Refused]:
            asked = [replace(questions[place], attempt=attempt) for place in left]
            return self._client.answers(asked, self._seed, lambda number, text: check(left[number], text), field)

        texts, refused = retry_refused(len(questions), self._attempts, ask)
        return [
            Found((texts[place],) if place in texts else (), tuple(map(str, reasons)))
            for place, reasons in enumerate(refused)
        ]


def _name(text: str) -> str:
    problem = name_problem(text)
    if problem:
        raise Refused(problem)
    return canonical_name(text)
