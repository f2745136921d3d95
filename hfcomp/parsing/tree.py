"""Noun phrases in the dependency tree of a caption: finds the nouns that head phrases, and their first and last words.

The tree uses plain lists by token index instead of spaCy objects: a training set has millions of captions, and
creating a `Token` for every lookup costs more than the lookup itself.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection
from functools import cache, cached_property
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING

from hfcomp.parsing.words import COVERINGS, LACKING, MEASURES

if TYPE_CHECKING:
    from spacy.strings import StringStore
    from spacy.tokens import Doc

NOUNS = ("NOUN", "PROPN")
# Tags of words that open a phrase.
DETERMINERS = ("DT", "PDT", "PRP$", "WP$", "CD")
CONJUNCTIONS = frozenset(("and", "or", "&"))
# Labels of words before a noun that belong to its phrase.
_MODIFIERS = frozenset(
    ("det", "predet", "amod", "nummod", "compound", "nmod", "quantmod", "npadvmod", "poss", "punct", "cc")
)
# Labels of nouns that are inside another noun's phrase, or express time or distance.
_INNER = frozenset(("det", "amod", "nummod", "compound", "nmod", "quantmod", "npadvmod", "poss", "advmod", "intj"))
_OWNERS = ("PRP$", "WP$")
_TIES = frozenset(("-", "/"))
_NOT_ANY = frozenset(("no", "neither"))
_DENYING = LACKING | {"without"}

_UNSIGNED = (1 << 64) - 1
# Strings by hash, which is the same in every `StringStore`. Looking them up there would take half of the time.
_strings: dict[int, str] = {}
_MAX_STRINGS = 200_000


@cache
def _attributes() -> list[int | str]:
    from spacy.attrs import DEP, HEAD, LEMMA, ORTH, POS, SPACY, TAG

    return [ORTH, SPACY, POS, TAG, DEP, HEAD, LEMMA]


def _strings_of(numbers: list[int], store: StringStore) -> list[str]:
    try:
        return list(map(_strings.__getitem__, numbers))
    except KeyError:
        if len(_strings) > _MAX_STRINGS:
            _strings.clear()
        _strings.update((number, store[number & _UNSIGNED]) for number in numbers)
        return [_strings[number] for number in numbers]


class CaptionTree:
    """A caption parsed with the labels of spaCy's English pipelines, stored as lists by token."""

    def __init__(self, doc: Doc) -> None:
        # Get all attributes in one call, because reading them token by token takes three times as long. The array has
        # unsigned numbers, but offsets to the head are signed.
        columns = doc.to_array(_attributes()).view("int64").T.tolist()
        orths, spaces, classes, tags, labels, offsets, lemmas = columns
        store = doc.vocab.strings
        self.words = _strings_of(orths, store)
        self.caption = "".join([word + " " if space else word for word, space in zip(self.words, spaces, strict=True)])
        self.lower = list(map(str.lower, self.words))
        self.starts = list(accumulate(map(add, map(len, self.words), spaces), initial=0))
        self.classes = _strings_of(classes, store)
        self.tags = _strings_of(tags, store)
        self.labels = _strings_of(labels, store)
        self._lemmas = _strings_of(lemmas, store)
        self.heads = [word + offset for word, offset in enumerate(offsets)]
        if labels and not any(labels):
            raise ValueError(
                f"the caption {self.caption[:60]!r} has no dependency tree. Parse it with hfcomp.parsing.load_parser."
            )
        self._has_ties = not _TIES.isdisjoint(self.words)
        self.has_conjunctions = not CONJUNCTIONS.isdisjoint(self.lower)
        self._denied = self._denied_words()
        self._denies = bool(self._denied) or not _DENYING.isdisjoint(self.lower)
        if not COVERINGS.isdisjoint(self.lower):
            self._join_coverings()

    def _denied_words(self) -> set[int]:
        if "neg" not in self.labels and _NOT_ANY.isdisjoint(self.lower):
            return set()
        words = zip(self.labels, self.lower, self.heads, strict=True)
        return {head for label, word, head in words if label == "neg" or word in _NOT_ANY}

    def _join_coverings(self) -> None:
        """Attaches "snow covered" in "snow covered ground" to its noun if a parser reads it as covered snow."""
        for verb in range(1, len(self.words) - 1):
            if self.lower[verb] not in COVERINGS or self.labels[verb] != "acl" or self.heads[verb] != verb - 1:
                continue
            for noun in self._children(verb, "dobj"):
                if self.tags[verb + 1] not in DETERMINERS and self.start_of(noun) == verb + 1:
                    root = self.heads[verb - 1] == verb - 1
                    self._attach(noun, noun if root else self.heads[verb - 1], self.labels[verb - 1])
                    self._attach(verb - 1, verb, "npadvmod")
                    self._attach(verb, noun, "amod")

    @cached_property
    def _dependents(self) -> list[list[int]]:
        # Built once and updated by `_attach`: scanning all heads for every lookup would take quadratic time.
        under: list[list[int]] = [[] for _ in self.heads]
        for word, head in enumerate(self.heads):
            under[head].append(word)
        return under

    def _attach(self, word: int, head: int, label: str) -> None:
        self._dependents[self.heads[word]].remove(word)
        insort(self._dependents[head], word)
        self.heads[word], self.labels[word] = head, label

    def _children(self, head: int, *labels: str) -> list[int]:
        return [word for word in self._dependents[head] if word != head and self.labels[word] in labels]

    def base_form(self, word: int) -> str:
        """Returns the lowercase dictionary form, or the word itself if the parser gives none."""
        return (self._lemmas[word] or self.words[word]).lower()

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Returns `[start, end)` in characters, from one word to another, both included."""
        return self.starts[first], self.starts[last] + len(self.words[last])

    def first_joined(self, word: int) -> int:
        """Returns the first of the words joined to this one by "and" or a comma."""
        # Parsers attach the other words each to the previous one or all to the first.
        while self.labels[word] == "conj" and self.heads[word] < word:
            word = self.heads[word]
        return word

    def is_glued(self, word: int) -> bool:
        """Whether a hyphen or slash without spaces joins a word to the word before it: "shirt" in "t-shirt"."""
        if not (self._has_ties and 1 < word < len(self.words)) or self.words[word - 1] not in _TIES:
            return False
        return self.span(word - 2, word - 2)[1] == self.starts[word - 1] == self.starts[word] - 1

    def end_of(self, word: int) -> int:
        """Returns the last word joined to this one by hyphens or slashes: "by" in "passers-by"."""
        while self.is_glued(word + 2):
            word += 2
        return word

    def heads_phrase(self, word: int) -> bool:
        """Whether a word is a noun whose phrase is not part of another noun's phrase."""
        word_class = self.classes[word]
        if word_class not in NOUNS and not (word_class == "ADJ" and self._is_used_as_noun(word)):
            return False
        if self.labels[word] in _INNER:
            return False
        first = self.first_joined(word)
        # "salt and pepper shakers", but not "a dog asleep and a cat".
        return self.labels[first] not in _INNER or self.heads[first] <= word

    def _is_used_as_noun(self, word: int) -> bool:
        """Whether an adjective must be a noun that the tagger did not know, as in "there is a platter with fish"."""
        return (
            self.labels[word] in ("ROOT", "attr", "dobj", "pobj", "nsubj")
            and self.lower[self.start_of(word)] in ("a", "an")
            and not self._children(word, "conj")
        )

    def start_of(self, head: int) -> int:
        """Returns the first word of a noun's or adjective's phrase, without pronouns: "hat" in "his own/it's hat"."""
        # Move left from the noun while words are in its subtree by a modifier's arc. Punctuation, spaces and "and" are
        # passed but cannot begin a phrase, so `start` moves only at words that can.
        start = word = tied = head
        while word:
            if self.is_glued(word):
                word = tied = word - 2
            elif (
                self._is_modifier_in(word - 1, head)
                or self._is_modifier_in(word - 1, tied)
                or self.classes[word - 1] == "SPACE"
            ):
                word -= 1
            else:
                break
            if self.tags[word] in _OWNERS or (self.labels[word] == "case" and self.tags[word - 1] == "PRP"):
                break
            if self.classes[word] not in ("PUNCT", "SPACE", "CCONJ"):
                start = word
        own = start + (self.lower[start] == "very")
        is_alone = own < head and self.lower[own + 1] not in _TIES  # unlike "own-brand"
        return own + 1 if is_alone and self.lower[own] == "own" else start

    def _is_modifier_in(self, word: int, head: int) -> bool:
        # A chain of heads that reaches the root or a word after the noun has left the phrase.
        above = self.heads[word]
        while above != head:
            if above == word or above > head:
                return False
            word, above = above, self.heads[above]
        return self.labels[word] in _MODIFIERS

    def measured_noun(self, noun: int) -> int:
        """Returns the noun that another counts or portions with "of" ("people" in "a group of people"), or -1."""
        if not self.is_before_of(noun) or self.base_form(noun) not in MEASURES:
            return -1
        # "the parking lot of a shop" does not count shops.
        if self.has_modifier(noun, ("compound",)):
            return -1
        for word in self._children(noun + 1, "pobj"):
            if self.classes[word] in NOUNS:
                before = self.start_of(word) - 1
                while self.classes[before] == "SPACE" or self.tags[before] in _OWNERS or self.lower[before] == "own":
                    before -= 1
                return word if before == noun + 1 else -1
        return -1

    def is_before_of(self, word: int) -> bool:
        return word + 1 < len(self.lower) and self.lower[word + 1] == "of"

    def has_modifier(self, noun: int, labels: Collection[str], *, besides: Collection[str] = ()) -> bool:
        """Whether a modifier before a noun has one of these labels, ignoring the words in `besides`."""
        return any(
            word < noun and self.labels[word] in labels and self.lower[word] not in besides
            for word in self._dependents[noun]
        )

    def is_denied(self, noun: int) -> bool:
        """Whether a caption negates it: "no furniture", "without a hat", "is not wearing a hat"."""
        if not self._denies:
            return False
        if noun in self._denied:
            return True
        # Negation extends across "and" and "or": "without a hat or a shirt" denies the shirt too.
        first = self.first_joined(noun)
        governor = self.heads[first]
        if self.labels[first] == "pobj":
            lacking = self.lower[governor] == "of" and self.base_form(self.heads[governor]) in LACKING
            return lacking or self.lower[governor] == "without"
        return governor in self._denied and self.labels[first] in ("dobj", "attr")
