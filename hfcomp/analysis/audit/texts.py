"""Checks of captions against each other: duplicates and near-duplicates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pandas as pd

from hfcomp.analysis.audit.checks import Check, Example, share
from hfcomp.evaluation.blind.rules import words_of_text

Words = tuple[str, ...]


def duplicate_texts(texts: pd.DataFrame, examples: int = 0) -> Check:
    """Captions whose words, in order, a caption of another image has too.

    Args:
        texts: of `AuditSet`.
        examples: how many are shown.
    """
    places: dict[Words, list[int]] = defaultdict(list)
    for place, words in enumerate(_words(texts)):
        places[words].append(place)
    return _check("duplicate_texts", texts, places.values(), examples)


def near_duplicate_texts(texts: pd.DataFrame, examples: int = 0) -> Check:
    """Captions that become one of another image where one word is left out, added or replaced.

    Two texts of n words that differ in one word are equal without it: each text is compared by what is left without
    each of its words, which takes as many comparisons as there are words.
    """
    whole: dict[Words, list[int]] = defaultdict(list)
    cut: dict[tuple[Words, int], list[int]] = defaultdict(list)
    for place, words in enumerate(_words(texts)):
        whole[words].append(place)
        for at in range(len(words)):
            cut[words[:at] + words[at + 1 :], at].append(place)
    by_cut: dict[Words, list[int]] = defaultdict(list)
    for (words, _), places in cut.items():
        if words in whole:
            by_cut[words] += places
    shorter = ([*whole[words], *places] for words, places in by_cut.items())
    all_words = _words(texts)
    found = np.zeros(len(texts), dtype=bool)
    example: dict[int, int] = {}
    ids = texts["image_id"].tolist()
    for group in [*cut.values(), *shorter]:
        _mark(group, ids, all_words, found, example)
    return _of(found, example, "near_duplicate_texts", texts, examples)


def _mark(group: list[int], ids: list[str], words: list[Words], found: np.ndarray, example: dict[int, int]) -> None:
    """Marks the texts of a group that has another text of another image."""
    # of each text two places of different images: one of them is of another image than whatever it is compared with
    places: dict[Words, list[int]] = {}
    for place in group:
        known = places.setdefault(words[place], [])
        if len(known) < 2 and all(ids[one] != ids[place] for one in known):
            known.append(place)
    if len(places) < 2:
        return
    for place in group:
        others = (one for text, known in places.items() if text != words[place] for one in known)
        other = next((one for one in others if ids[one] != ids[place]), None)
        if other is not None:
            found[place] = True
            example.setdefault(place, other)


def _check(name: str, texts: pd.DataFrame, groups: Iterable[list[int]], examples: int) -> Check:
    ids = texts["image_id"].tolist()
    found, example = np.zeros(len(texts), dtype=bool), {}
    for group in groups:
        if len({ids[place] for place in group}) < 2:
            continue
        for place in group:
            found[place] = True
            example[place] = next(other for other in group if ids[other] != ids[place])
    return _of(found, example, name, texts, examples)


def _of(found: np.ndarray, example: dict[int, int], name: str, texts: pd.DataFrame, examples: int) -> Check:
    rows, text = texts["row"].tolist(), texts["text"].tolist()
    shown = [
        Example(rows[place], text[place], text[other], note=f"rows {rows[place]} and {rows[other]}")
        for place, other in list(example.items())
        if place < other
    ][:examples]
    return share(name, found, facts={"captions": int(found.sum())}, examples=shown)


def _words(texts: pd.DataFrame) -> list[Words]:
    return [tuple(words_of_text(text)) for text in texts["text"]]
