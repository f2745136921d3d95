"""Keywords of each concept and their replacements: Table 6 of Rösch et al. 2024 (arXiv:2403.02875), or your own table.

`read_keyword_table` reads your own table from a YAML file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from hfcomp.reading import nearest, read_yaml
from hfcomp.schemas import Strict, parse

SUPER_CATEGORIES: dict[str, tuple[str, ...]] = {
    "person": ("person",),
    "vehicle": ("bicycle", "car", "motorbike", "aeroplane", "bus", "train", "truck", "boat"),
    "outdoor": ("traffic light", "fire hydrant", "stop sign", "parking meter", "bench"),
    "animal": ("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe"),
    "accessory": ("backpack", "umbrella", "handbag", "tie", "suitcase"),
    "sports": (
        *("frisbee", "skis", "snowboard", "sports ball", "kite", "baseball bat", "baseball glove", "skateboard"),
        *("surfboard", "tennis racket"),
    ),
    "kitchen": ("bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl"),
    "food": (*("banana", "apple", "sandwich", "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake"),),
    "furniture": ("chair", "sofa", "potted plant", "bed", "dining table", "toilet"),
    "electronic": ("tv monitor", "laptop", "mouse", "remote", "keyboard", "cell phone"),
    "appliance": ("microwave", "oven", "toaster", "sink", "refrigerator"),
    "indoor": ("book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush"),
}
"""Objects by COCO super-category (section A.3: an object is replaced by one of the same super-category)."""
OBJECTS = tuple(name for names in SUPER_CATEGORIES.values() for name in names)
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
Kind = Literal["keyword_object", "keyword_color", "keyword_location", "keyword_size", "other"]
KINDS = get_args(Kind)

Replacements = Mapping[str, tuple[str, ...]]


def any_other(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Lets each word be replaced by any of the others."""
    return {word: tuple(other for other in words if other != word) for word in words}


def both_ways(pairs: Iterable[Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Lets each word of a pair be replaced by the other."""
    return {word: (other,) for first, second in pairs for word, other in ((first, second), (second, first))}


def one_way(pairs: Iterable[Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Lets the first word of a pair be replaced by the second, but not the other way around."""
    return {word: (other,) for word, other in pairs}


@dataclass(frozen=True)
class Plurals:
    """Plurals of a concept's words. Other words have a regular plural: "s", or "es" after a sibilant.

    Attributes:
        irregular: Plural by word. For a word that is its own plural ("sheep"), the word before it determines the
            number.
        always: Words that are always plural ("scissors").
        never: Words that are always singular ("broccoli").
    """

    irregular: Mapping[str, str] = field(default_factory=dict)
    always: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()

    def plural_of(self, word: str) -> str:
        """Returns the plural of a word of the table."""
        if word in self.always or word in self.never:
            return word
        if word in self.irregular:
            return self.irregular[word]
        return word + ("es" if word.endswith(("s", "x", "z", "ch", "sh")) else "s")


@dataclass(frozen=True)
class Concept:
    """The keywords of one concept.

    Attributes:
        replacements: Replacement words by keyword, all in lower case and singular. A word that is only a replacement
            is not a key.
        kind: Value of `negative_kinds` for a replacement: one of `KINDS`.
        category: `attribute`, `object` or `relation`.
        plurals: Plurals of nouns. None if the words have no plural.

    Raises:
        ValueError: If a keyword is not in lower case, has no replacement or would be replaced by itself.
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
        """Whether a keyword may become every other keyword of the concept, and nothing else."""
        words = self.replacements[keyword]
        return len(words) == len(self.replacements) - 1 and all(word in self.replacements for word in words)


@dataclass(frozen=True, eq=False)
class KeywordTable:
    """Keywords and replacements for keyword permutation. Tables are equal only if they are the same object.

    Attributes:
        concepts: Concepts by name. Their order and that of the keywords determine which negatives a seed gives.
    """

    concepts: Mapping[str, Concept]

    def __repr__(self) -> str:
        # Show only the names, because a table is a default value that `help()` displays.
        return f"<KeywordTable: {', '.join(self.concepts)}>"

    @property
    def names(self) -> tuple[str, ...]:
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
    """Reads your own table from a YAML file: a mapping of concepts, each with its words and their properties.

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
    location and size get kind and category from their name; other concepts have the kind `other` and must set their
    category. Write words in lower case and singular; the matching handles capitals and plurals. A word may be in
    several concepts.

    Args:
        path: Path of the file.

    Raises:
        ValueError: If the file has any other content. The error names file, concept and entry.
    """
    table: dict[str, _Words] = parse(_Table, read_yaml(path), str(path))
    return KeywordTable({name: _concept(name, words, f"{path}: {name}") for name, words in table.items()})


def _check_word(word: str) -> str:
    if not any(letter.isalnum() for letter in word):
        raise ValueError(f"found {word!r}, expected a word. Add one, or remove the entry.")
    if word != " ".join(word.split()):
        raise ValueError(f"found {word!r}, expected single spaces and none at the ends.")
    if word != word.lower():
        raise ValueError(f"found {word!r}, expected lower case. keyword_matching: extended matches capitals.")
    return word


def _check_pair(pair: list[str]) -> list[str]:
    if pair[0] == pair[1]:
        raise ValueError(f"{pair[0]!r} would be replaced by itself. Write another word.")
    return pair


_Word = Annotated[str, AfterValidator(_check_word)]
_Pair = Annotated[list[_Word], Field(min_length=2, max_length=2), AfterValidator(_check_pair)]
_Pairs = Annotated[list[_Pair], Field(min_length=1)]


def _read_plurals(value: Any) -> Any:
    # YAML's true and false stand for "all regular" and "no plurals"; a mapping lists the exceptions.
    return {} if value is True else None if value is False else value


class _Plurals(Strict):
    """The plurals of a concept, except for the regular ones."""

    irregular: dict[_Word, _Word] = {}
    always: list[_Word] = []
    never: list[_Word] = []


class _Words(Strict):
    """A concept as written in a file."""

    any_other: Annotated[list[_Word], Field(min_length=2)] | None = None
    pairs: _Pairs | None = None
    one_way: _Pairs | None = None
    category: Literal["attribute", "object", "relation"] | None = None
    kind: Kind | None = None
    plurals: Annotated[_Plurals | None, BeforeValidator(_read_plurals)] = Field(
        default=None, description="true, or a mapping with irregular, always and never"
    )


_Table = Annotated[dict[_Word, _Words], Field(min_length=1)]


def _concept(name: str, words: _Words, where: str) -> Concept:
    # A keyword has a single list of replacements: a word in two of the three would silently lose one list.
    replacements: dict[str, tuple[str, ...]] = {}
    ways = {
        "any_other": (words.any_other or [], any_other(words.any_other or [])),
        "pairs": ([word for pair in words.pairs or [] for word in pair], both_ways(words.pairs or [])),
        "one_way": ([first for first, _ in words.one_way or []], one_way(words.one_way or [])),
    }
    for key, (keywords, additions) in ways.items():
        _check_new(keywords, replacements, f"{where}: {key}")
        replacements |= additions
    if not replacements:
        raise ValueError(f"{where}: has no words. Add one of any_other, pairs, one_way.")
    category = words.category or CATEGORIES.get(name)
    if category is None:
        raise ValueError(f"{where}: has no category. Add one of attribute, object, relation.")
    kind = words.kind or (f"keyword_{name}" if name in CATEGORIES else OTHER_KIND)
    return Concept(replacements, kind, category, _plurals(words.plurals, replacements, f"{where}: plurals"))


def _check_new(words: Iterable[str], earlier: Replacements, where: str) -> None:
    seen = set(earlier)
    for number, word in enumerate(words, 1):
        if word in seen:
            raise ValueError(
                f"{where}: word {number}, {word!r}, already has replacements: a concept lists each keyword once. "
                "Remove one of them."
            )
        seen.add(word)


def _plurals(listed: _Plurals | None, replacements: Replacements, where: str) -> Plurals | None:
    if listed is None:
        return None
    vocabulary = {*replacements, *(word for others in replacements.values() for word in others)}
    for key, words in (("irregular", listed.irregular), ("always", listed.always), ("never", listed.never)):
        for word in words:
            if word not in vocabulary:
                raise ValueError(f"{where}: {key}: {word!r} is not a word of the concept.{nearest(word, vocabulary)}")
    plurals = Plurals(listed.irregular, frozenset(listed.always), frozenset(listed.never))
    keyword_by_form = {keyword: keyword for keyword in replacements}
    # A plural that is also a keyword, or the plural of two, would be ambiguous.
    for keyword in replacements:
        plural = plurals.plural_of(keyword)
        if keyword_by_form.setdefault(plural, keyword) != keyword:
            raise ValueError(
                f"{where}: {plural!r} is the plural of {keyword!r} and also of {keyword_by_form[plural]!r}. Add "
                f"another plural of {keyword!r} under irregular, or list {keyword!r} under never."
            )
    return plurals
