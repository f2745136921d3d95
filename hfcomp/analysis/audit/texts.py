"""Checks of texts that see no image: length, full stops, bigrams, likelihood, word order, duplicates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.analysis.audit.checks import Check, Example, by_chance, decided, share, signs_of, unchecked
from hfcomp.analysis.audit.reading import AuditSet
from hfcomp.data.image_ids import photograph_key
from hfcomp.evaluation.blind.rules import TEXT_RULES, BigramModel, CountedCaptions, words_of_text
from hfcomp.reporting.report import Table

FOLDS = 5
NO_PAIRS = "the set has no negative captions"
Scores = tuple[NDArray[np.float64], NDArray[np.float64]]
"""`[n]` of the captions and `[n]` of the negatives."""


def rule_scores(pairs: pd.DataFrame, bigrams: Mapping[str, Scores]) -> dict[str, Scores]:
    """The scores of every blind rule, by the name of its check."""
    # Other rules of `hfcomp evaluate --blind` are not checks of an audit.
    names = {"shorter": "shorter", "full stop": "full_stop"}
    own = {
        names[rule]: (score(pairs["caption"].tolist()), score(pairs["negative"].tolist()))
        for rule, score in TEXT_RULES.items()
        if rule in names
    }
    return {**own, **bigrams}


def rule_checks(data: AuditSet, scores: Mapping[str, Scores], note: str) -> list[Check]:
    """`blind`, and a check for each rule: pairs that it, or its reverse, decides; a tie counts half."""
    if not len(data.pairs):
        return [unchecked(name, NO_PAIRS) for name in ("blind", "shorter", "full_stop", "bigram", "bigram_sentence")]
    signs = {name: signs_of(*own) for name, own in scores.items()}
    images = data.pairs["image_id"]
    of_best, of_each = by_chance(np.stack(list(signs.values()), axis=1), images, either_way=True)
    notes = {name: note if name.startswith("bigram") else "" for name in signs}
    checks = [
        decided(name, own, images, data.bootstrap, chance=chance, either_way=True, reason=notes[name])
        for (name, own), chance in zip(signs.items(), of_each, strict=True)
    ]
    # The best of several rules is above 50% on clean data as well, so its chance is that of the best, `of_best`.
    best = max(checks, key=lambda check: check.value or 0.0)
    tables = [_of_rules(checks), *_by_kind(data, checks, signs)]
    about = (
        f"best rule: {best.name}{' reversed' if best.facts['reversed'] else ''}; the best of {len(checks)} rules and "
        f"their reverses decides {of_best.mean:.1f} % by chance, up to {of_best.high:.1f} %"
    )
    facts = {"rule": best.name, "reversed": best.facts["reversed"]}
    blind = replace(best, name="blind", reason=about, facts={}, tables=tables)
    return [blind.with_chance(*of_best, facts), *checks]


def _of_rules(checks: Sequence[Check]) -> Table:
    rows = [
        [
            *(one.name, f"{one.value:.1f}", f"{one.chance:.1f}", f"{one.chance_high:.1f}"),
            *(f"{one.facts[key]:,}" for key in ("right", "wrong", "undecided")),
        ]
        for one in checks
    ]
    header = ["rule", "percent, better way", "by chance", "at most, 95%", "right", "wrong", "undecided"]
    return Table("pairs that each rule decides, a tie counting half", header, rows)


def _by_kind(data: AuditSet, checks: Sequence[Check], signs: Mapping[str, NDArray[np.float64]]) -> list[Table]:
    kinds = data.kinds
    if not kinds:
        return []
    rows = []
    for kind in kinds:
        own = (data.pairs["kind"] == kind).to_numpy()
        cells = []
        for check in checks:
            # The direction of the whole set is used: the better direction of each kind would flatter small kinds.
            better = signs[check.name][own] * (-1 if check.facts["reversed"] else 1)
            cells.append(f"{50 + 50 * float(better.mean()):.1f}")
        rows.append([kind, f"{int(own.sum()):,}", *cells])
    return [Table("percent decided, by kind", ["kind", "pairs", *(one.name for one in checks)], rows)]


def bigram_scores(pairs: pd.DataFrame, model: BigramModel) -> dict[str, Scores]:
    captions, negatives = (model.scores(pairs[column].tolist()) for column in ("caption", "negative"))
    return {
        "bigram": (captions.per_word, negatives.per_word),
        "bigram_sentence": (captions.sentence, negatives.sentence),
    }


def own_bigram_scores(data: AuditSet, seed: int) -> dict[str, Scores]:
    """The scores of pairs under a model of the set's own captions of other images."""
    counted, texts = CountedCaptions(data.texts["text"]), data.texts["image_id"].to_numpy()
    # A caption of the same image would make its own pair likelier, so counts come from the folds of other images.
    fold_of = folds(data.image_ids, seed)
    of_text = np.array([fold_of[name] for name in texts])
    of_pair = np.array([fold_of[name] for name in data.pairs["image_id"]])
    found = {name: (np.zeros(len(data.pairs)), np.zeros(len(data.pairs))) for name in ("bigram", "bigram_sentence")}
    for fold in np.unique(of_pair):
        rows = np.flatnonzero(of_pair == fold)
        for name, parts in bigram_scores(data.pairs.iloc[rows], counted.model(of_text != fold)).items():
            for side, part in zip(found[name], parts, strict=True):
                side[rows] = part
    return found


def folds(images: Sequence[str], seed: int) -> dict[str, int]:
    """The fold of each image: all texts of one are in one fold."""
    # Sorted before they are shuffled, so folds depend on the seed and not on the order of rows.
    names = sorted(set(images))
    order = np.random.default_rng(seed).permutation(len(names))
    return {names[place]: number % FOLDS for number, place in enumerate(order.tolist())}


def likelihood_check(data: AuditSet, scores: Scores, model: str) -> Check:
    """Whether captions are likelier than their negatives; a tie counts half."""
    change = scores[0] - scores[1]
    # A text without tokens has no likelihood. Its pair decides nothing, and the note counts it.
    known = np.isfinite(change)
    signs = signs_of(scores[0][known], scores[1][known])
    rows = data.pairs[known]
    note = f"judged by {model}" + (f"; {(~known).sum():,} pairs have a text without tokens" if not known.all() else "")
    facts = {"model": model, "mean_difference": float(change[known].mean()) if known.any() else None}
    return decided("language_model", signs, rows["image_id"], data.bootstrap, facts=facts, reason=note)


def same_words(data: AuditSet, examples: int = 0) -> Check:
    """Pairs whose texts have the same words in another order: a bag of words cannot tell them apart."""
    bags = [(words_of_text(one), words_of_text(two)) for one, two in _both(data)]
    # Pairs with the same order of words are the subject of equal_negatives and equal_words.
    same = np.array([one != two and sorted(one) == sorted(two) for one, two in bags], dtype=bool)
    return share("same_words", same, data.pairs["image_id"], **_found(data, same, examples))


def equal_negatives(data: AuditSet, examples: int = 0) -> Check:
    """Pairs whose negative is the caption, character for character: no scorer can decide them."""
    same = (data.pairs["caption"] == data.pairs["negative"]).to_numpy(dtype=bool)
    return share("equal_negatives", same, data.pairs["image_id"], **_found(data, same, examples))


def equal_words(data: AuditSet, examples: int = 0) -> Check:
    """Pairs whose negative has the caption's words in the same order: only case and punctuation tell them apart."""
    # Identical texts are the subject of equal_negatives.
    same = [one != two and words_of_text(one) == words_of_text(two) for one, two in _both(data)]
    found = np.array(same, dtype=bool)
    return share("equal_words", found, data.pairs["image_id"], **_found(data, found, examples))


def known_true(data: AuditSet, examples: int = 0, captions: Mapping[str, Sequence[str]] | None = None) -> Check:
    """Pairs whose negative is, word for word, another caption of the same image.

    Args:
        captions: further captions by the `photograph_key` of their image.
    """
    further = captions or {}
    true = {
        name: {tuple(words_of_text(text)) for text in further.get(photograph_key(name), ())}
        for name in {*data.image_ids}
    }
    for name, text in zip(data.texts["image_id"], data.texts["text"], strict=True):
        true[name].add(tuple(words_of_text(text)))
    # Negatives with the caption's own words are the subject of equal_negatives and equal_words.
    flags = [
        words_of_text(one) != words_of_text(two) and tuple(words_of_text(two)) in true[name]
        for (one, two), name in zip(_both(data), data.pairs["image_id"], strict=True)
    ]
    found = np.array(flags, dtype=bool)
    return share("known_true", found, data.pairs["image_id"], **_found(data, found, examples, images=("image",)))


def _both(data: AuditSet) -> list[tuple[str, str]]:
    return list(zip(data.pairs["caption"], data.pairs["negative"], strict=True))


def _found(data: AuditSet, flags: NDArray[np.bool_], number: int, images: tuple[str, ...] = ()) -> dict[str, Any]:
    shown = data.pairs[flags].head(number)
    examples = [
        Example(int(row), caption, negative, images=images)
        for row, caption, negative in zip(shown["row"], shown["caption"], shown["negative"], strict=True)
    ]
    rows = data.pairs.loc[flags, "row"].unique().tolist()
    return {
        "facts": {"pairs": int(flags.sum()), "rows": rows},
        "examples": examples,
        "reason": "" if len(flags) else NO_PAIRS,
    }


Words = tuple[str, ...]


def duplicate_texts(texts: pd.DataFrame, examples: int = 0) -> Check:
    """Captions whose words, in order, a caption of another image has too."""
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
        # The place of the gap belongs to the key: "a b c" without b and "a c b" without b are different neighbors.
        for at in range(len(words)):
            cut[words[:at] + words[at + 1 :], at].append(place)
    by_cut: dict[Words, list[int]] = defaultdict(list)
    # If a text becomes another one by leaving out a word, the shorter text is whole and the longer one cut.
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
    # Two places of different images are kept for each text: one of them belongs to another image than any text it is
    # compared with.
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
        # Equal captions of one image are legitimate.
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
        # A pair is usually found from both sides, but shown once.
        if place < other
    ][:examples]
    return share(name, found, facts={"captions": int(found.sum())}, examples=shown)


def _words(texts: pd.DataFrame) -> list[Words]:
    return [tuple(words_of_text(text)) for text in texts["text"]]
