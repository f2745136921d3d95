"""Finds concepts by the words of captions, with a four-level taxonomy in a YAML file, ours or the user's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hfcomp.checksums import file_hash
from hfcomp.factory.magic.source import SourceAnswer, canonical_name, name_problem
from hfcomp.negatives.surface import fit_article
from hfcomp.parsing import cached_parser
from hfcomp.parsing.rules.words import lemma
from hfcomp.reading import read_yaml
from hfcomp.schemas import parse

if TYPE_CHECKING:
    from spacy.tokens import Doc

# Our concepts of everyday photographs.
EVERYDAY = Path(__file__).parent / "everyday.yaml"
NO_WORD = "no word of the taxonomy"
# Levels 4, 3, 2 and 1, and the words that indicate each concept of level 1.
Tree = dict[str, dict[str, dict[str, dict[str, list[str]]]]]
_WORD = re.compile(r"[^\W\d_]+")


class TaxonomySource:
    """A concept source (`hfcomp.factory.magic.source.ConceptSource`) that uses a taxonomy.

    The concept of an image is the one whose words occur in the most captions of the image. Ties go to the concept with
    more occurrences, then to the first in the file. A phrase takes precedence over its words.

    Args:
        path: YAML file with levels 4, 3, 2 and 1 nested above lists of words; defaults to `EVERYDAY`. A concept that
            occurs in several places has several parents.
        captions_per_image: Maximum number of generalized captions per image.
    """

    grows = is_model = False
    counts: ClassVar[Mapping[str, int]] = {}

    def __init__(self, path: Path | None = None, captions_per_image: int = 1) -> None:
        self._path, self._captions_per_image = path or EVERYDAY, captions_per_image
        tree = parse(Tree, read_yaml(self._path), str(self._path))
        self._parents: list[dict[str, dict[str, None]]] = [{} for _ in range(3)]
        self._phrases: dict[tuple[str, ...], list[str]] = {}
        self._places: dict[str, int] = {}
        for names, words in _leaves(tree):
            self._add([self._name(name, names) for name in names], words)

    def read(self, captions: Sequence[str]) -> Sequence[str]:
        return captions

    def concepts(self, captions: Sequence[Sequence[str]]) -> list[SourceAnswer]:
        return [self._concept(texts) for texts in captions]

    def parents(self, level: int, names: Sequence[str], known: Sequence[str]) -> list[SourceAnswer]:
        return [SourceAnswer(tuple(self._parents[level - 1].get(name, ()))) for name in names]

    def generalize(self, captions: Sequence[Sequence[str]], chains: Sequence[tuple[str, ...]]) -> list[SourceAnswer]:
        pairs = zip(captions, chains, strict=True)
        return [SourceAnswer(generalized_captions(texts, chain, self._captions_per_image)) for texts, chain in pairs]

    def facts(self) -> Mapping[str, Any]:
        return {"writer": "taxonomy", "taxonomy": f"{self._path.name} sha256:{file_hash(self._path)}"}

    def _name(self, name: str, chain: Sequence[str]) -> str:
        where = " > ".join(reversed(chain))
        problem = name_problem(name)
        if problem:
            raise ValueError(f"{self._path}, {where}: {name!r} is not the name of a concept ({problem}). Rename it.")
        canonical = canonical_name(name)
        if sum(canonical_name(other) == canonical for other in chain) > 1:
            raise ValueError(f"{self._path}, {where}: {name!r} occurs on two levels. Give one of them another name.")
        return canonical

    def _add(self, chain: Sequence[str], words: Sequence[str]) -> None:
        for parents, name, parent in zip(self._parents, chain, chain[1:], strict=False):
            parents.setdefault(name, {})[parent] = None
        self._places.setdefault(chain[0], len(self._places))
        for phrase in (chain[0], *words):
            key = _lemmas(phrase)
            if not key:
                raise ValueError(f"{self._path}, {chain[0]}: found {phrase!r}, expected words. Remove it.")
            named = self._phrases.setdefault(key, [])
            if chain[0] not in named:
                named.append(chain[0])

    @cached_property
    def _longest(self) -> dict[str, int]:
        """Number of words in the longest phrase, by first word."""
        lengths: dict[str, int] = {}
        for phrase in self._phrases:
            lengths[phrase[0]] = max(len(phrase), lengths.get(phrase[0], 0))
        return lengths

    def _concept(self, captions: Sequence[str]) -> SourceAnswer:
        matches = [Counter(self._matches(_lemmas(caption))) for caption in captions]
        inside: Counter[str] = Counter(name for counts in matches for name in counts)
        if not inside:
            return SourceAnswer(refused=(NO_WORD,))
        total = sum(matches, Counter())
        best = min(inside, key=lambda name: (-inside[name], -total[name], self._places[name]))
        return SourceAnswer((best,))

    def _matches(self, words: tuple[str, ...]) -> Iterator[str]:
        """Yields the concepts of a caption's phrases from left to right, with the longest phrase at each place."""
        place = 0
        while place < len(words):
            longest = min(self._longest.get(words[place], 0), len(words) - place)
            # The longest phrase wins, so a "hot dog" is not a dog.
            length = next((n for n in range(longest, 0, -1) if words[place : place + n] in self._phrases), 0)
            if length:
                yield from self._phrases[words[place : place + length]]
            place += max(length, 1)


def _leaves(tree: Tree) -> Iterator[tuple[list[str], list[str]]]:
    for fourth, below in tree.items():
        for third, seconds in below.items():
            for second, firsts in seconds.items():
                for first, words in firsts.items():
                    yield [first, second, third, fourth], words


def _lemmas(text: str) -> tuple[str, ...]:
    return tuple(_lemma(word) for word in _WORD.findall(text.lower()))


@lru_cache(maxsize=65536)
def _lemma(word: str) -> str:
    """The lemma as a noun if it differs from the word, otherwise as a verb. No tagger is used."""
    noun_lemma = lemma(word, "NNS")
    return noun_lemma if noun_lemma != word else lemma(word, "VBZ")


_NOUNS = ("NN", "NNS", "NNP", "NNPS")
_DETAILS = ("JJ", "JJR", "JJS", "CD", "RB", "RBR", "RBS")
_BETWEEN = (*_DETAILS, "CC", ",", "HYPH")
# Tags that may not end a caption after its last phrase is cut off.
_LOOSE = frozenset(("IN", "RB", "JJ", "DT", "CC", "TO", "WDT", "WP", "PRP$", ","))
_LOOSE_WORDS = frozenset(("next", "front", "top", "side", "is", "are", "was", "were", "has", "have", "be", "that"))
_CLOSING = (",", ".", ":", "-RRB-")
# Minimum words of a caption after its last phrase is cut off. Our choice.
SHORTEST = 4


def generalized_captions(captions: Sequence[str], chain: Sequence[str], most: int = 1) -> tuple[str, ...]:
    """The most typical captions without adjectives, numbers and their last phrase, and without repetitions.

    Typical captions share the most words with the others; ties go to the shortest, then to the first. If a result
    would be a name of the chain, it is prefixed with "there is".
    """
    words = [{word.lower() for word in _WORD.findall(text)} for text in captions]
    shared = [sum(len(own & other) for other in words) / (1 + len(own)) for own in words]
    places = sorted(range(len(captions)), key=lambda place: (-shared[place], len(captions[place]), place))[:most]
    shortened = [_shorten(" ".join(captions[place].split())) for place in places]
    return tuple(dict.fromkeys(f"there is {text}" if canonical_name(text) in chain else text for text in shortened))


def _shorten(text: str) -> str:
    (doc,) = cached_parser("rules").parse([text])
    return _drop_details(doc) or text


def _drop_details(doc: Doc) -> str:
    tags = [token.tag_ for token in doc]
    kept = [place for place in range(len(doc)) if _is_compound(doc, place) or not _is_detail(tags, place)]
    # The last preposition starts the final phrase. Preceding words that cannot end a caption are cut as well.
    cut = next((number for number in range(len(kept) - 1, 0, -1) if tags[kept[number]] == "IN"), None)
    if cut is not None:
        while cut and (tags[kept[cut - 1]] in _LOOSE or doc[kept[cut - 1]].lower_ in _LOOSE_WORDS):
            cut -= 1
        if cut >= SHORTEST and any(tags[place] in _NOUNS for place in kept[:cut]):
            kept = kept[:cut]
    return _join_words(doc, kept).strip(" ,;:-.")


def _join_words(doc: Doc, kept: Sequence[int]) -> str:
    """Joins the kept words, with the spaces of the caption and fitting articles."""
    text, end = "", 0
    for place in kept:
        is_apart = text.endswith(",") or any(doc[other].whitespace_ for other in range(end, place))
        before = f"{text} " if is_apart and doc[place].tag_ not in _CLOSING else text
        text = fit_article(before, doc[place].text) + doc[place].text
        end = place
    return text


def _is_compound(doc: Doc, place: int) -> bool:
    """Whether a word is part of a noun, such as "double" in "double-decker" or "close" in "close up"."""
    around = [token.text for token in doc[max(place - 1, 0) : place + 2]]
    return "-" in around or doc[place : place + 2].text.lower() == "close up"


def _is_detail(tags: Sequence[str], place: int) -> bool:
    """Whether a word only describes a following noun, such as "red and blue" in "red and blue kites"."""
    if tags[place] not in _BETWEEN:
        return False
    if tags[place] not in _DETAILS and (not place or tags[place - 1] not in _DETAILS):
        return False
    following = next((tag for tag in tags[place + 1 :] if tag not in _BETWEEN), "")
    return following in _NOUNS
