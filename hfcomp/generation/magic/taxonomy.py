"""Concepts by the words of captions: a taxonomy of four levels in a YAML file, ours or a user's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

from hfcomp.checksums import file_hash
from hfcomp.generation.magic.names import canonical_name, name_problem
from hfcomp.generation.magic.source import Found
from hfcomp.generation.magic.typical_captions import generalised_caption
from hfcomp.parsing.rules.lemmas import lemma
from hfcomp.reading import read_yaml
from hfcomp.schemas import parse

EVERYDAY = Path(__file__).parent / "everyday.yaml"
"""Our concepts of everyday photographs."""
NO_WORD = "no word of the taxonomy"
Tree = dict[str, dict[str, dict[str, dict[str, list[str]]]]]
"""Level 4, 3, 2 and 1, and the words that evoke each concept of level 1."""
_WORD = re.compile(r"[^\W\d_]+")


class TaxonomySource:
    """A source of concepts (`hfcomp.generation.magic.source.ConceptSource`) from a taxonomy.

    The concept of an image is the one whose words are in the most of its captions; of equal ones the one with more
    words in them, then the first of the file. A phrase wins over the words in it.

    Args:
        path: a YAML file with level 4 above 3 above 2 above 1 above a list of words; by default `EVERYDAY`. A concept
            may stand in several places: it has several parents.

    Raises:
        ValueError: for a file that is not as expected, naming the key.
        OSError: for one that is missing.
    """

    grows = False
    counts: ClassVar[Mapping[str, int]] = {}

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or EVERYDAY
        tree = parse(Tree, read_yaml(self._path), str(self._path))
        self._parents: list[dict[str, dict[str, None]]] = [{} for _ in range(3)]
        self._phrases: dict[tuple[str, ...], list[str]] = {}
        self._places: dict[str, int] = {}
        for names, words in _leaves(tree):
            self._add([self._name(name, names) for name in names], words)

    def read(self, captions: Sequence[str]) -> Sequence[str]:
        """See `ConceptSource`: all of them."""
        return captions

    def concepts(self, captions: Sequence[Sequence[str]]) -> list[Found]:
        """See `ConceptSource`."""
        return [self._concept(texts) for texts in captions]

    def parents(self, level: int, names: Sequence[str], known: Sequence[str]) -> list[Found]:
        """See `ConceptSource`."""
        return [Found(tuple(self._parents[level - 1].get(name, ()))) for name in names]

    def generalised(self, captions: Sequence[Sequence[str]], chains: Sequence[tuple[str, ...]]) -> list[Found]:
        """See `ConceptSource`."""
        pairs = zip(captions, chains, strict=True)
        return [Found((generalised_caption(texts, chain),)) for texts, chain in pairs]

    def facts(self) -> Mapping[str, Any]:
        """See `ConceptSource`."""
        return {"writer": "taxonomy", "taxonomy": f"{self._path.name} sha256:{file_hash(self._path)}"}

    def _name(self, name: str, chain: Sequence[str]) -> str:
        where = " > ".join(reversed(chain))
        problem = name_problem(name)
        if problem:
            raise ValueError(f"{self._path}, {where}: {name!r} is not the name of a concept ({problem}). Rename it.")
        found = canonical_name(name)
        if sum(canonical_name(other) == found for other in chain) > 1:
            raise ValueError(f"{self._path}, {where}: {name!r} is there on two levels. Give one of them another name.")
        return found

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
        """Words of the longest phrase by its first word."""
        found: dict[str, int] = {}
        for phrase in self._phrases:
            found[phrase[0]] = max(len(phrase), found.get(phrase[0], 0))
        return found

    def _concept(self, captions: Sequence[str]) -> Found:
        matches = [Counter(self._matches(_lemmas(caption))) for caption in captions]
        inside: Counter[str] = Counter(name for found in matches for name in found)
        if not inside:
            return Found(refused=(NO_WORD,))
        total = sum(matches, Counter())
        best = min(inside, key=lambda name: (-inside[name], -total[name], self._places[name]))
        return Found((best,))

    def _matches(self, words: tuple[str, ...]) -> Iterator[str]:
        """The concepts of the phrases in a caption, from left to right, the longest at each place."""
        place = 0
        while place < len(words):
            longest = min(self._longest.get(words[place], 0), len(words) - place)
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
    """Of a noun or a verb, whichever changes the word: no tagger decides between them."""
    found = lemma(word, "NNS")
    return found if found != word else lemma(word, "VBZ")
