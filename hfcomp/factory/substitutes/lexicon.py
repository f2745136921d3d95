"""Groups of interchangeable words, read from a YAML file, by default `lexicon.yaml` next to this module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from hfcomp.reading import read_yaml
from hfcomp.schemas import Strict, parse

VERB_TAGS = ("VB", "VBP", "VBZ", "VBD", "VBN", "VBG")
_HISS = ("s", "x", "z", "ch", "sh")
_CONSONANT_Y = re.compile(r"[^aeiou]y$")
# One syllable, one vowel letter, one final consonant: "hop", "grab". Longer words that double it are in the table.
_DOUBLES = re.compile(r"^[^aeiou]*[aeiou][^aeiouwxy]$")


@dataclass(frozen=True)
class Inflection:
    """The irregular forms of a lexicon.

    Attributes:
        plurals: Plural of each singular, which may have several words.
        verbs: Past, past participle and present participle of each base form.
    """

    plurals: Mapping[str, str]
    verbs: Mapping[str, Sequence[str]]

    def plural(self, noun: str) -> str:
        """The plural of a noun. Of several words, the last is inflected."""
        if noun in self.plurals:
            return self.plurals[noun]
        before, space, last = noun.rpartition(" ")
        return before + space + (self.plurals.get(last) or _add_s(last))

    def verb(self, base: str, tag: str) -> str:
        """A form of a verb. Of several words, the first is inflected.

        Args:
            base: Base form of the verb.
            tag: Penn tag of the form, one of `VERB_TAGS`.
        """
        if tag not in VERB_TAGS:
            raise ValueError(f"tag: found {tag!r}, expected one of {', '.join(VERB_TAGS)}.")
        first, space, rest = base.partition(" ")
        return self._form(first, tag) + space + rest

    def _form(self, base: str, tag: str) -> str:
        if tag in ("VB", "VBP"):
            return base
        if tag == "VBZ":
            return {"be": "is", "have": "has"}.get(base) or _add_s(base)
        if base in self.verbs:
            return self.verbs[base][("VBD", "VBN", "VBG").index(tag)]
        stem = base + base[-1] if _DOUBLES.match(base) else base
        if tag == "VBG":
            # A final "e" is dropped, except in words such as "see" and "dye".
            return (base[:-1] if base.endswith("e") and not base.endswith(("ee", "ye")) else stem) + "ing"
        if base.endswith("e"):
            return base + "d"
        return (base[:-1] + "ied") if _CONSONANT_Y.search(base) else stem + "ed"


def _add_s(word: str) -> str:
    if word.endswith(_HISS) or word in ("go", "do"):
        return word + "es"
    return word[:-1] + "ies" if _CONSONANT_Y.search(word) else word + "s"


DEFAULT_LEXICON = Path(__file__).with_name("lexicon.yaml")
FRAMES = ("transitive", "intransitive", "participles")
Frame = Literal["transitive", "intransitive", "participles"]
NOUN_TAGS = ("NN", "NNS")
# Marks a word in the file that also occurs without an article.
FREE = "~"

_Text = Annotated[str, Field(min_length=1)]


class _Words(Strict):
    """A group in the file."""

    words: str = ""
    to: str = ""
    also: str = ""
    mass: bool = False


class _Numbers(Strict):
    words: _Text
    also: str = ""
    one: _Text
    one_of: _Text


class _Anything(Strict):
    nouns: _Text
    mass: _Text
    adjectives: _Text
    intransitive: _Text
    transitive: _Text
    participles: _Text
    adverbs: _Text


class _Irregular(Strict):
    plurals: dict[str, str]
    verbs: dict[str, Annotated[list[str], Field(min_length=3, max_length=3)]]


class _File(Strict):
    nouns: dict[str, _Words]
    adjectives: dict[str, _Words]
    verbs: dict[Frame, dict[str, _Words]]
    prepositions: dict[str, _Text]
    before_clothes: dict[str, _Text]
    numbers: _Numbers
    names: _Text
    anything: _Anything
    irregular: _Irregular


@dataclass(frozen=True)
class Group:
    """Words that exclude each other.

    Attributes:
        entries: Entries, each with its synonyms. The first synonym is used as a replacement.
        written: Number of first `entries` that may be replacements; later entries are only replaced.
        foreign: Range of entries that may be replacements here, but are replaced by another group.
        mass: Whether the words are nouns without a plural.
        free: Nouns that occur with and without an article.
    """

    name: str
    entries: tuple[tuple[str, ...], ...]
    written: int
    foreign: range = range(0)
    mass: bool = False
    free: frozenset[str] = frozenset()

    def others(self, entry: int) -> tuple[str, ...]:
        """Replacements for the words of an entry."""
        return tuple(words[0] for place, words in enumerate(self.entries[: self.written]) if place != entry)


@dataclass(frozen=True)
class Place:
    """The place of a word in a lexicon.

    Attributes:
        base: Base form in the file.
        tag: Penn tag of the form that was looked up.
    """

    group: Group
    entry: int
    base: str
    tag: str

    def others(self) -> tuple[str, ...]:
        """Replacements for the word, in the base form."""
        return self.group.others(self.entry)


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Words in groups, with irregular forms.

    Attributes:
        nouns: Places of nouns by form and tag, NN or NNS.
        adjectives: Places of adjectives by form.
        verbs: Places of verbs for each of `FRAMES`, by form and tag.
        prepositions: Replacements of each preposition or spatial phrase.
        before_clothes: Replacements of prepositions before clothes.
        numbers: Places of interchangeable number words by form.
        one, one_of: Replacements of "one" before a noun, and before "of".
        names: Proper names that replace any other name.
        anything: Replacements for words without a group, by part of speech, see the file.
        inflection: Irregular forms.
        clothes: Forms of nouns for clothes.
    """

    nouns: Mapping[tuple[str, str], Place]
    adjectives: Mapping[str, Place]
    verbs: Mapping[str, Mapping[tuple[str, str], Place]]
    prepositions: Mapping[str, tuple[str, ...]]
    before_clothes: Mapping[str, tuple[str, ...]]
    numbers: Mapping[str, Place]
    one: str
    one_of: str
    names: tuple[str, ...]
    anything: Mapping[str, tuple[str, ...]]
    inflection: Inflection
    clothes: frozenset[str] = field(default=frozenset())

    def noun(self, form: str, tags: Iterable[str] = NOUN_TAGS) -> Place | None:
        """The place of a noun's form, with the first matching tag of `tags`."""
        return next((self.nouns[form, tag] for tag in tags if (form, tag) in self.nouns), None)

    def verb(self, form: str, frame: str, tags: Iterable[str] = VERB_TAGS) -> Place | None:
        """The place of a verb's form in one of `FRAMES`."""
        known = self.verbs[frame]
        return next((known[form, tag] for tag in tags if (form, tag) in known), None)


@cache
def default_lexicon() -> Lexicon:
    return read_lexicon(DEFAULT_LEXICON)


def read_lexicon(path: str | PathLike[str]) -> Lexicon:
    """Reads a lexicon in the format of `lexicon.yaml`, which documents its content.

    A word listed in several groups belongs to the first one.
    """
    file: _File = parse(_File, read_yaml(path), str(path))
    inflection = Inflection(file.irregular.plurals, file.irregular.verbs)
    nouns: dict[tuple[str, str], Place] = {}
    for place in _places(file.nouns):
        # A word listed in several groups belongs to the first one.
        nouns.setdefault((place.base, "NN"), place)
    for place in _places(file.nouns):
        nouns.setdefault((inflection.plural(place.base), "NNS"), Place(place.group, place.entry, place.base, "NNS"))
    verbs: dict[str, dict[tuple[str, str], Place]] = {frame: {} for frame in FRAMES}
    for frame, groups in file.verbs.items():
        for place in _places(groups):
            # All forms are entered, so looking up a form needs no analysis.
            for tag in VERB_TAGS:
                form = inflection.verb(place.base, tag)
                verbs[frame].setdefault((form, tag), Place(place.group, place.entry, place.base, tag))
    adjectives: dict[str, Place] = {}
    for place in _places(file.adjectives):
        adjectives.setdefault(place.base, place)
    numbers = _places({"numbers": _Words(words=file.numbers.words, also=file.numbers.also)})
    clothes = {form for (form, _), place in nouns.items() if place.group.name in ("clothes", "headwear", "legwear")}
    return Lexicon(
        nouns=nouns,
        adjectives=adjectives,
        verbs=verbs,
        prepositions={words: _split_words(others) for words, others in file.prepositions.items()},
        before_clothes={words: _split_words(others) for words, others in file.before_clothes.items()},
        numbers={place.base: place for place in numbers},
        one=file.numbers.one,
        one_of=file.numbers.one_of,
        names=_split_words(file.names),
        anything={name: _split_words(words) for name, words in file.anything.model_dump().items()},
        inflection=inflection,
        clothes=frozenset(clothes),
    )


def _split_words(text: str) -> tuple[str, ...]:
    return tuple(" ".join(words.split()) for words in text.split(",") if words.strip())


def _group(name: str, words: _Words) -> Group:
    own, to, also = _split_words(words.words), _split_words(words.to), _split_words(words.also)
    entries = [tuple(word.strip() for word in entry.split("/")) for entry in (*own, *to, *also)]
    free = frozenset(word.removesuffix(FREE) for entry in entries for word in entry if word.endswith(FREE))
    plain = tuple(tuple(word.removesuffix(FREE) for word in entry) for entry in entries)
    # Words of `to` may be replacements but belong to another group. Words of `also` are only replaced.
    written = len(own) + len(to)
    return Group(name, plain, written, range(len(own), written), words.mass, free)


def _places(groups: Mapping[str, _Words]) -> Iterator[Place]:
    for name, words in groups.items():
        group = _group(name, words)
        for number, entry in enumerate(group.entries):
            if number not in group.foreign:
                yield from (Place(group, number, base, "NN") for base in entry)
