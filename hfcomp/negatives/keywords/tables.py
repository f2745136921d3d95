"""The keywords of each concept and what may replace them: Table 6 of Rösch et al. 2024 (arXiv:2403.02875), or yours.

Yours are read from a YAML file by `read_keyword_table`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from hfcomp.reading import read_yaml

OBJECTS = (
    *("person", "bicycle", "car", "motorbike", "aeroplane", "bus", "train", "truck", "boat", "traffic light"),
    *("fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow"),
    *("elephant", "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee"),
    *("skis", "snowboard", "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard"),
    *("tennis racket", "bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich"),
    *("orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "sofa", "potted plant", "bed"),
    *("dining table", "toilet", "tv monitor", "laptop", "mouse", "remote", "keyboard", "cell phone", "microwave"),
    *("oven", "toaster", "sink", "refrigerator", "book", "clock", "vase", "scissors", "teddy bear", "hair drier"),
    "toothbrush",
)
COLORS = ("blue", "red", "green", "yellow", "black", "white", "brown", "gray", "orange")
LOCATION_PAIRS = (
    ("left", "right"),
    ("above", "below"),
    ("under", "over"),
    ("foreground", "background"),
    ("in front of", "behind"),
    ("back", "front"),
)
SIZE_PAIRS = (("large", "small"), ("little", "big"), ("tall", "short"), ("thin", "fat"))
SIZE_ONE_WAY = (("long", "short"), ("huge", "tiny"), ("giant", "tiny"))

CATEGORIES = {"object": "object", "color": "attribute", "location": "relation", "size": "attribute"}
OTHER_KIND = "other"
KINDS = (*(f"keyword_{name}" for name in CATEGORIES), OTHER_KIND)

Replacements = Mapping[str, tuple[str, ...]]


def any_other(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Each word is replaced by any of the others."""
    return {word: tuple(other for other in words if other != word) for word in words}


def both_ways(pairs: Iterable[Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Each word of a pair is replaced by the other."""
    return {word: (other,) for first, second in pairs for word, other in ((first, second), (second, first))}


def one_way(pairs: Iterable[Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The first word of a pair is replaced by the second, which is only written."""
    return {word: (other,) for word, other in pairs}


@dataclass(frozen=True)
class Plurals:
    """The plurals of a concept's words. A word in none of the three has the regular one: "s", or "es" after a hiss.

    Attributes:
        irregular: Word to plural. Of a word that is its own plural ("sheep"), what stands before it tells the number.
        always: Words that are always plural ("scissors").
        never: Words that are always singular ("broccoli").
    """

    irregular: Mapping[str, str] = field(default_factory=dict)
    always: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()

    def of(self, word: str) -> str:
        """The plural of a word of the table."""
        if word in self.always or word in self.never:
            return word
        if word in self.irregular:
            return self.irregular[word]
        return word + ("es" if word.endswith(("s", "x", "z", "ch", "sh")) else "s")


@dataclass(frozen=True)
class Concept:
    """The keywords of one concept.

    Attributes:
        replacements: Keyword to the words that may stand in its place, all in lower case and the singular. A word that
            is only written is no key.
        kind: What `negative_kinds` says of a replacement: one of `KINDS`.
        category: `attribute`, `object` or `relation`.
        plurals: Of nouns; `None` where words have no plural.

    Raises:
        ValueError: A keyword is not in lower case, has nothing to replace it or would be replaced by itself.
    """

    replacements: Replacements
    kind: str
    category: str
    plurals: Plurals | None = None

    def __post_init__(self) -> None:
        for keyword, words in self.replacements.items():
            if not keyword or keyword != keyword.lower() or not words or keyword in words:
                raise ValueError(
                    f"keyword {keyword!r} with replacements {words!r}: expected a keyword in lower case and one "
                    "or more other words."
                )

    def interchangeable(self, keyword: str) -> bool:
        """Whether a keyword may become every other one of the concept, and nothing else."""
        words = self.replacements[keyword]
        return len(words) == len(self.replacements) - 1 and all(word in self.replacements for word in words)


@dataclass(frozen=True, eq=False)
class KeywordTable:
    """What keyword permutation replaces. Two tables are the same only if they are one object.

    Attributes:
        concepts: Name to concept. Their order and that of the keywords decide which negatives a seed draws.
    """

    concepts: Mapping[str, Concept]

    @property
    def names(self) -> tuple[str, ...]:
        """The concepts by name."""
        return tuple(self.concepts)


REPLACEMENTS: dict[str, Replacements] = {
    "object": any_other(OBJECTS),
    "color": any_other(COLORS),
    "location": both_ways(LOCATION_PAIRS),
    "size": both_ways(SIZE_PAIRS) | one_way(SIZE_ONE_WAY),
}
CONCEPTS = tuple(REPLACEMENTS)
_PAPER_PLURALS = Plurals(
    irregular={"person": "people", "mouse": "mice", "knife": "knives", "sheep": "sheep"},
    always=frozenset({"skis", "scissors"}),
    never=frozenset({"broccoli"}),
)
PAPER_TABLE = KeywordTable(
    {
        name: Concept(replacements, f"keyword_{name}", CATEGORIES[name], _PAPER_PLURALS if name == "object" else None)
        for name, replacements in REPLACEMENTS.items()
    }
)


def read_keyword_table(path: str | PathLike[str]) -> KeywordTable:
    """Reads a table of your own from a YAML file: a mapping of concepts, each with its words and what they are.

    ```yaml
    garment:
      any_other: [jacket, dress, scarf, jeans]   # each becomes any of the others
      pairs: [[skirt, trousers]]                 # each becomes the other
      one_way: [[gown, dress]]                   # the first becomes the second; the second alone is not replaced
      category: object                           # or attribute, relation
      kind: keyword_object                       # column negative_kinds; or keyword_color, ..., other
      plurals: {irregular: {scarf: scarves}, always: [jeans, trousers]}   # or true: all regular; unset: none
    ```

    A concept needs one of `any_other`, `pairs` and `one_way` and may have several. The concepts object, color,
    location and size have kind and category by their name; others are of kind `other` and name their category. Words
    are written in lower case and the singular; matching decides on capitals and plurals. A word may be in several
    concepts.

    Args:
        path: The file.

    Raises:
        ValueError: For anything else, naming file, concept and entry.
    """
    place = str(path)
    content = read_yaml(path)
    if not isinstance(content, dict) or not content:
        raise ValueError(f"{place}: found {_shown(content)}, expected a mapping of concepts to their words.")
    return KeywordTable({_word(name, f"{place}: concept"): _concept(name, of, place) for name, of in content.items()})


_CATEGORIES = ("attribute", "object", "relation")
_WAYS: dict[str, Callable[[Any], Replacements]] = {"any_other": any_other, "pairs": both_ways, "one_way": one_way}
_KEYS = (*_WAYS, "kind", "category", "plurals")


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)


def _nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return (f" Did you mean {matches[0]!r}?" if matches else "") + f" Known: {', '.join(known)}."


def _word(value: Any, place: str) -> str:
    if isinstance(value, bool):
        raise ValueError(
            f"{place}: found {value}, expected a word. YAML reads yes, no, on and off as true and false; put the word "
            "in quotes."
        )
    if not isinstance(value, str):
        raise ValueError(f"{place}: found {_shown(value)}, expected a word; put it in quotes.")
    if not any(letter.isalnum() for letter in value):
        raise ValueError(f"{place}: found {value!r}, expected a word. Write one, or leave the entry out.")
    if value != " ".join(value.split()):
        raise ValueError(f"{place}: found {value!r}, expected single spaces and none at the ends.")
    if value != value.lower():
        raise ValueError(
            f"{place}: found {value!r}, expected lower case. Capitals are found by keyword_matching: extended."
        )
    return value


def _chosen(value: Any, known: Sequence[str], place: str) -> str:
    if value not in known:
        raise ValueError(f"{place}: found {_shown(value)}.{_nearest(str(value), known)}")
    return str(value)


def _entries(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{place}: found {_shown(value) if value != [] else 'an empty list'}, expected a list.")
    return value


def _concept(name: Any, content: Any, file: str) -> Concept:
    place = f"{file}: concept {name!r}"
    if not isinstance(content, dict):
        raise ValueError(f"{place}: found {_shown(content)}, expected a mapping with some of {', '.join(_KEYS)}.")
    for key in content:
        _chosen(key, _KEYS, f"{place}: key")
    if not _WAYS.keys() & content.keys():
        raise ValueError(f"{place}: has no words. Give it one of {', '.join(_WAYS)}.")
    replacements = _replacements(content, place)
    if "category" not in content and name not in CATEGORIES:
        raise ValueError(f"{place}: has no category. Add one of {', '.join(_CATEGORIES)}.")
    category = _chosen(content.get("category", CATEGORIES.get(name)), _CATEGORIES, f"{place}: category")
    by_name = f"keyword_{name}" if name in CATEGORIES else OTHER_KIND
    kind = _chosen(content.get("kind", by_name), KINDS, f"{place}: kind")
    plurals = _plurals(content.get("plurals", False), replacements, f"{place}: plurals")
    return Concept(replacements, kind, category, plurals)


def _replacements(content: Mapping[str, Any], place: str) -> Replacements:
    replacements: dict[str, tuple[str, ...]] = {}
    for key, way in _WAYS.items():
        if key not in content:
            continue
        here = f"{place}: {key}"
        entries = _entries(content[key], here)
        if key == "any_other":
            words = [_word(word, f"{here}: entry {number}") for number, word in enumerate(entries, 1)]
            if len(words) == 1:
                raise ValueError(f"{here}: found {words[0]!r} alone, which nothing can replace. Add another word.")
            _check_new(words, replacements, here)
            replacements |= way(words)
        else:
            pairs = [_pair(pair, f"{here}: entry {number}") for number, pair in enumerate(entries, 1)]
            _check_new([word for pair in pairs for word in pair[: 2 if key == "pairs" else 1]], replacements, here)
            replacements |= way(pairs)
    return replacements


def _pair(value: Any, place: str) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{place}: found {_shown(value)}, expected two words in brackets, as [left, right].")
    first, second = (_word(word, place) for word in value)
    if first == second:
        raise ValueError(f"{place}: {first!r} would be replaced by itself. Write another word.")
    return first, second


def _check_new(words: Iterable[str], known: Replacements, place: str) -> None:
    seen = set(known)
    for number, word in enumerate(words, 1):
        if word in seen:
            raise ValueError(
                f"{place}: word {number}, {word!r}, has replacements already: a keyword is there once in a concept. "
                "Leave one of them out."
            )
        seen.add(word)


def _plurals(value: Any, replacements: Replacements, place: str) -> Plurals | None:
    if value is False or value is None:
        return None
    if value is not True and not isinstance(value, dict):
        raise ValueError(f"{place}: found {value!r}, expected true, or a mapping with irregular, always and never.")
    content = {} if value is True else value
    for key in content:
        _chosen(key, ("irregular", "always", "never"), f"{place}: key")
    words = dict.fromkeys([*replacements, *(word for others in replacements.values() for word in others)])

    def known(value: Any, where: str) -> str:
        return _chosen(_word(value, where), list(words), where)

    irregular = content.get("irregular") or {}
    if not isinstance(irregular, dict):
        raise ValueError(f"{place}: irregular: found {irregular!r}, expected a mapping of words to their plurals.")
    irregular = {
        known(word, f"{place}: irregular"): _word(plural, f"{place}: irregular: {word!r}")
        for word, plural in irregular.items()
    }
    always, never = (
        frozenset(known(word, f"{place}: {key}") for word in _entries(content[key], f"{place}: {key}"))
        if key in content
        else frozenset()
        for key in ("always", "never")
    )
    plurals = Plurals(irregular, always, never)
    _check_plurals(plurals, replacements, place)
    return plurals


def _check_plurals(plurals: Plurals, replacements: Replacements, place: str) -> None:
    """A plural that is also a keyword, or the plural of two, would not say which word is meant."""
    meant = {keyword: keyword for keyword in replacements}
    for keyword in replacements:
        plural = plurals.of(keyword)
        if meant.setdefault(plural, keyword) != keyword:
            raise ValueError(
                f"{place}: {plural!r} is the plural of {keyword!r} and also stands for {meant[plural]!r}. Give "
                f"{keyword!r} another under irregular, or none under never."
            )
