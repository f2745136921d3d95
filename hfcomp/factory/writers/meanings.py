"""Checks whether replaced words may leave a caption true, and whether new words are English.

The checks use small tables: `same_meanings.yaml` in this folder, the synonyms used for paraphrases, the lexicon of
substitutes, and `MAY_BE_ONE` in `hfcomp.parsing.words`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from hfcomp.factory.substitutes.lexicon import default_lexicon
from hfcomp.factory.writers.requests import Refused
from hfcomp.negatives.mask_filling import lemmas_of
from hfcomp.negatives.paraphrases import SYNONYMS
from hfcomp.parsing.captions import script_problem
from hfcomp.parsing.words import MAY_BE_ONE
from hfcomp.reading import read_yaml
from hfcomp.schemas import Strict, parse

SAME_MEANINGS = Path(__file__).parent / "same_meanings.yaml"
NOT_LATIN, NOT_ENGLISH = "not in Latin script", "not an English word"

_Size = Literal["any", "small", "large"]


class _File(Strict):
    groups: list[str]
    numbers: dict[int, str]
    quantities: dict[_Size, str]


@dataclass(frozen=True)
class _Meanings:
    groups: tuple[frozenset[str], ...]
    numbers: dict[str, int]
    quantities: dict[str, _Size]


@cache
def _meanings() -> _Meanings:
    file = parse(_File, read_yaml(SAME_MEANINGS), str(SAME_MEANINGS))
    return _Meanings(
        tuple(frozenset(_phrases(group)) for group in file.groups),
        {phrase: number for number, phrases in file.numbers.items() for phrase in _phrases(phrases)},
        {phrase: size for size, phrases in file.quantities.items() for phrase in _phrases(phrases)},
    )


def _phrases(text: str) -> list[str]:
    return [phrase.strip() for phrase in text.split(",")]


def may_mean_the_same(keyword: str, new: str) -> bool:
    """Whether two lower-case words or phrases may name the same thing, property, place, number or action."""
    keyword, new = _strip_common_end(keyword.split(), new.split())
    if any(" ".join(synonym.words) == keyword and synonym.other.lower() == new for synonym in SYNONYMS):
        return True
    if _may_be_the_same_number(keyword, new) or any({keyword, new} <= group for group in _meanings().groups):
        return True
    lexicon = default_lexicon()
    # Words of one entry are synonyms. Words of different entries in a group exclude each other.
    for look_up in (lexicon.noun, lexicon.adjectives.get):
        first, second = look_up(keyword), look_up(new)
        if first is not None and second is not None and first.group is second.group and first.entry == second.entry:
            return True
    own, other = lemmas_of(keyword), lemmas_of(new)
    return any(other & MAY_BE_ONE.get(word, frozenset()) for word in own)


def _strip_common_end(first: Sequence[str], second: Sequence[str]) -> tuple[str, str]:
    """Removes the last words that two phrases share, but leaves at least one word of each.

    "three men" and "3 men" become "three" and "3".
    """
    same, limit = 0, min(len(first), len(second)) - 1
    while same < limit and first[-1 - same] == second[-1 - same]:
        same += 1
    return " ".join(first[: len(first) - same]), " ".join(second[: len(second) - same])


def _may_be_the_same_number(first: str, second: str) -> bool:
    numbers, sizes = (
        [_number(first), _number(second)],
        [_meanings().quantities.get(phrase) for phrase in (first, second)],
    )
    if None not in numbers:
        return numbers[0] == numbers[1]
    if None not in sizes:
        return "any" in sizes or sizes[0] == sizes[1]
    # A quantity may mean any number from two on: "three dogs" are "some dogs".
    return any(number is not None and number >= 2 and size for number, size in zip(numbers, sizes[::-1], strict=True))


def _number(phrase: str) -> int | None:
    return int(phrase) if phrase.isdecimal() else _meanings().numbers.get(phrase)


def check_words(new: str, caption: str) -> None:
    """Raises `Refused` for new words that are not English.

    Words with capitals, digits or hyphens may be names and are not looked up. Words that occur in the caption are not
    looked up either. If most of the caption's words are unknown, it is not English and no word is looked up.
    """
    own = re.findall(r"[^\W\d_]+", caption.casefold())
    if sum(_is_word(word) for word in own) * 2 < len(own):
        return
    for word in new.split():
        if word.casefold() in own:
            continue
        if script_problem(word) is not None:
            raise Refused(NOT_LATIN)
        if word.isalpha() and word.islower() and not _is_word(word):
            raise Refused(NOT_ENGLISH)


def _is_word(word: str) -> bool:
    from simplemma import is_known

    return is_known(word, lang="en") or word in _vocabulary()


@cache
def _vocabulary() -> frozenset[str]:
    """Words from our tables, which simplemma's English dictionary may lack, such as "countertop"."""
    lexicon, meanings = default_lexicon(), _meanings()
    phrases = [form for form, _ in lexicon.nouns] + list(lexicon.adjectives)
    phrases += [form for forms in lexicon.verbs.values() for form, _ in forms] + list(lexicon.prepositions)
    phrases += [*meanings.numbers, *meanings.quantities, *(phrase for group in meanings.groups for phrase in group)]
    # simplemma knows "his" and "hers", but not "her".
    return frozenset(word for phrase in phrases for word in phrase.split()) | {"her"}
