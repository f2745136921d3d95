"""Sources of concepts, parents and generalized captions: protocol, canonical names, and a language model source."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol

from hfcomp.factory.writers.concept_prompts import concept_prompts_file, read_concept_prompts
from hfcomp.factory.writers.llm_client import LlmClient, Question, build_llm_client, retry_refused, writer_facts
from hfcomp.factory.writers.requests import AnswerField, Refused
from hfcomp.parsing.captions import caption_problem
from hfcomp.parsing.rules.words import lemma
from hfcomp.parsing.words import word_set


@dataclass(frozen=True)
class SourceAnswer:
    """A source's answer to one question.

    Attributes:
        texts: Canonical names of concepts, the best first, or captions; empty without an answer.
        refused: Reasons why answers were not used, one per attempt.
    """

    texts: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def text(self) -> str | None:
        """The first text; None without an answer."""
        return self.texts[0] if self.texts else None


class ConceptSource(Protocol):
    """Answers questions in their order. The same question gets the same answer."""

    grows: bool
    """Whether the answers about parents depend on `known`."""
    is_model: bool
    """Whether a language model answers."""
    counts: Mapping[str, int]
    """Number of answers of a language model so far."""

    def read(self, captions: Sequence[str]) -> Sequence[str]:
        """Returns the captions of an image that the source reads. Others are counted."""
        ...

    def concepts(self, captions: Sequence[Sequence[str]]) -> list[SourceAnswer]:
        """Returns the first-level concept of each image, from captions that `read` returned."""
        ...

    def parents(self, level: int, names: Sequence[str], known: Sequence[str]) -> list[SourceAnswer]:
        """Returns the more abstract concepts of each concept.

        Args:
            level: Level of the names, 1 to 3.
            names: Canonical names.
            known: Known names on the next level, the most frequent parents first.
        """
        ...

    def generalize(self, captions: Sequence[Sequence[str]], chains: Sequence[tuple[str, ...]]) -> list[SourceAnswer]:
        """Returns captions of each image that describe what it shares with other images of its concept.

        Args:
            captions: Captions of each image, from `read`.
            chains: Names of each image's concepts, level 1 to 4.
        """
        ...

    def facts(self) -> Mapping[str, Any]:
        """Returns what identifies the answers in a manifest: JSON values, without local paths."""
        ...


# Maximum words of a name. Our choice: "people waiting at a bus stop" has six and is a caption.
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
_NONE = word_set("none unknown n/a na null nil other misc miscellaneous various concept") | {"no concept"}
# Answers that talk about a concept instead of naming it.
_SENTENCE = re.compile(
    r"^(?:this|these|that|there|it|he|she|they|i|we|you|here)\b"
    r"|^(?:the|an?) (?:image|photo|picture|concept|caption)s?\b"
    r"|\b(?:is|are|was|were|am|i'm|can't|cannot|sorry)\b",
    re.IGNORECASE,
)
# Nouns with a single form, from which the rules for plurals would cut the ending.
_SAME = frozenset(("goods", "news", "series", "species", "media", "data", "means", "graffiti"))


@lru_cache(maxsize=65536)
def canonical_name(text: str) -> str:
    """The canonical spelling of a name: "Birthday party" and "the birthday parties." become "birthday party".

    It has lower case, NFKC, single spaces, no leading article, no surrounding punctuation, and a singular last word.
    """
    words = unicodedata.normalize("NFKC", text).casefold().strip(_AROUND).split()
    while len(words) > 1 and words[0] in _ARTICLES:
        words = " ".join(words[1:]).strip(_AROUND).split()
    if words:
        words[-1] = _singular(words[-1])
    return unicodedata.normalize("NFKC", " ".join(words)).strip(_AROUND)


def name_problem(text: str) -> str | None:
    """The reason why a text is not the name of a concept, or None. Text after a colon is a detail."""
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
    """The singular of a word. Gerunds and words in other scripts stay unchanged."""
    if not word.isascii() or word.endswith("ing") or word in _SAME:
        return word
    # The rule is applied twice, because the dictionary has some plurals that it reduces only in two steps.
    return lemma(lemma(word, "NNS"), "NNS")


# Maximum number of an image's first captions in a prompt, and maximum total characters. Our choice; COCO has five
# captions of about 50 characters.
MOST_CAPTIONS, MOST_CHARACTERS = 10, 2_000
# Maximum number of names offered as parents. Our choice.
MOST_KNOWN = 100
ITSELF, IS_A_NAME, REPEATED = "the concept itself", "the name of a concept", "a caption that the image already has"

# Maps a place and the text of an answer to the text to use, or raises `Refused`.
Check = Callable[[int, str], str]


class LanguageModelSource:
    """A concept source (`hfcomp.factory.magic.source.ConceptSource`) that queries a language model.

    Args:
        model: Settings of `hfcomp.factory.writers.llm_client.build_llm_client`.
        attempts: Maximum attempts per question, each with its own seed and a higher temperature.
        prompts: Name of a shipped set of prompts, or a file.
        captions_per_image: Maximum number of generalized captions per image, each from one of its captions.
        captions_of: Function from a first-level concept to the captions of an image of it, for prompts about parents
            that have the slot `{captions}`.
    """

    is_model = True

    def __init__(
        self,
        model: Mapping[str, Any],
        *,
        attempts: int,
        seed: int,
        prompts: str,
        captions_per_image: int,
        device: str | None = None,
        captions_of: Callable[[str], Sequence[str]] = lambda concept: (),
    ) -> None:
        self._model, self._attempts, self._seed, self._device = model, attempts, seed, device
        self._file = concept_prompts_file(prompts)
        self._prompts = read_concept_prompts(self._file)
        self._captions_per_image, self._captions_of = captions_per_image, captions_of
        # For each level and name, the names from level 1 up to it through which it was reached first.
        self._paths: dict[tuple[int, str], tuple[str, ...]] = {}
        self.grows = self._prompts.parent_has("known")

    @property
    def counts(self) -> Counter[str]:
        return self._client.counts if "_client" in vars(self) else Counter()

    def read(self, captions: Sequence[str]) -> list[str]:
        texts, left = [], MOST_CHARACTERS
        # The first caption is always read, cut if necessary, because an image without captions would have no concept.
        for caption in captions[:MOST_CAPTIONS]:
            if texts and len(caption) > left:
                break
            texts.append(caption[:MOST_CHARACTERS])
            left -= len(caption)
        return texts

    def concepts(self, captions: Sequence[Sequence[str]]) -> list[SourceAnswer]:
        questions = [
            Question(self._prompts.concept_prompt(texts), "\n".join(texts), ("concept",)) for texts in captions
        ]
        return self._ask(questions, "concept", lambda _, text: _name(text))

    def parents(self, level: int, names: Sequence[str], known: Sequence[str]) -> list[SourceAnswer]:
        paths = [self._paths.get((level, name), (name,)) for name in names]
        questions = [self._parent_question(level, path, known[:MOST_KNOWN]) for path in paths]

        def check(place: int, text: str) -> str:
            parent = _name(text)
            if parent == names[place]:
                raise Refused(ITSELF)
            return parent

        answers = self._ask(questions, "concept", check)
        for path, answer in zip(paths, answers, strict=True):
            if answer.text is not None and answer.text not in path:  # a cycle is cut later
                self._paths.setdefault((level + 1, answer.text), (*path, answer.text))
        return answers

    def _parent_question(self, level: int, path: tuple[str, ...], known: Sequence[str]) -> Question:
        captions: list[str] = []
        if self._prompts.parent_has("captions"):
            captions = self.read([text for text in self._captions_of(path[0]) if caption_problem(text) is None])
        prompt = self._prompts.parent_prompt(level, path, captions, known)
        return Question(prompt, path[-1], ("parent", str(level)))

    def generalize(self, captions: Sequence[Sequence[str]], chains: Sequence[tuple[str, ...]]) -> list[SourceAnswer]:
        most = self._captions_per_image
        turns = [(image, turn) for image, texts in enumerate(captions) for turn in range(min(len(texts), most))]
        questions = [self._caption_question(captions[image], chains[image], turn) for image, turn in turns]

        def check(place: int, text: str) -> str:
            if canonical_name(text) in chains[turns[place][0]]:
                raise Refused(IS_A_NAME)
            return text

        texts: list[dict[str, str]] = [{} for _ in captions]
        refused: list[list[str]] = [[] for _ in captions]
        for (image, _), answer in zip(turns, self._ask(questions, "caption", check), strict=True):
            refused[image] += answer.refused
            for text in answer.texts:
                own, name = texts[image], canonical_name(text)
                refused[image] += [REPEATED] if name in own else []
                own.setdefault(name, text)
        return [SourceAnswer(tuple(own.values()), tuple(refused[image])) for image, own in enumerate(texts)]

    def _caption_question(self, captions: Sequence[str], chain: tuple[str, ...], turn: int) -> Question:
        prompt = self._prompts.caption_prompt(captions[turn], captions, chain)
        further = (str(turn),) if turn else ()  # a prompt without {caption} is the same in each turn
        return Question(prompt, "\n".join(captions), ("generalised", *chain, *further))

    def facts(self) -> Mapping[str, Any]:
        return writer_facts(self._model, self._file) | {"attempts": self._attempts, "seed": self._seed}

    @cached_property
    def _client(self) -> LlmClient:
        return build_llm_client(**self._model, device=self._device)

    def _ask(self, questions: Sequence[Question], field: AnswerField, check: Check) -> list[SourceAnswer]:
        def ask(left: list[int], attempt: int) -> list[str | Refused]:
            attempts = [replace(questions[place], attempt=attempt) for place in left]
            return self._client.answers(attempts, self._seed, lambda number, text: check(left[number], text), field)

        texts, refused = retry_refused(len(questions), self._attempts, ask)
        return [
            SourceAnswer((texts[place],) if place in texts else (), tuple(map(str, reasons)))
            for place, reasons in enumerate(refused)
        ]


def _name(text: str) -> str:
    problem = name_problem(text)
    if problem:
        raise Refused(problem)
    return canonical_name(text)
