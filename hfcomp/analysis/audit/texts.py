"""Checks of texts that see no image: length, full stops, bigrams, likelihood, word order, duplicates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.analysis.audit.checks import (
    Check,
    Example,
    chance_levels,
    decision_check,
    decision_signs,
    share,
    skipped_check,
)
from hfcomp.analysis.audit.reading import AuditSet
from hfcomp.data.image_ids import photograph_key
from hfcomp.evaluation.blind.rules import TEXT_RULES, BigramModel, CountedCaptions, words_of_text
from hfcomp.reporting.report import Table

FOLDS = 5
NO_PAIRS = "the dataset has no negative captions"
Scores = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Scores `[n]` of the captions and `[n]` of the negatives."""


def rule_scores(pairs: pd.DataFrame, bigrams: Mapping[str, Scores]) -> dict[str, Scores]:
    """Returns the scores of every blind rule by the name of its check."""
    # Other rules of `hfcomp evaluate --blind` are not checks of an audit.
    names = {"shorter": "shorter", "full stop": "full_stop"}
    scores = {
        names[rule]: (score(pairs["caption"].tolist()), score(pairs["negative"].tolist()))
        for rule, score in TEXT_RULES.items()
        if rule in names
    }
    return {**scores, **bigrams}


def rule_checks(data: AuditSet, scores: Mapping[str, Scores], note: str) -> list[Check]:
    """Returns `blind` and one check per rule: pairs decided by the rule or its reverse; a tie counts as one half."""
    if not len(data.pairs):
        return [
            skipped_check(name, NO_PAIRS) for name in ("blind", "shorter", "full_stop", "bigram", "bigram_sentence")
        ]
    signs = {name: decision_signs(*own) for name, own in scores.items()}
    images = data.pairs["image_id"]
    best_chance, rule_chances = chance_levels(np.stack(list(signs.values()), axis=1), images, either_way=True)
    notes = {name: note if name.startswith("bigram") else "" for name in signs}
    checks = [
        decision_check(name, own, images, data.bootstrap, chance=chance, either_way=True, reason=notes[name])
        for (name, own), chance in zip(signs.items(), rule_chances, strict=True)
    ]
    # The best of several rules exceeds 50% even on clean data, so its chance level is that of the best of them.
    best = max(checks, key=lambda check: check.value or 0.0)
    tables = [_rule_table(checks), *_kind_table(data, checks, signs)]
    note_on_best = (
        f"best rule: {best.name}{', reversed' if best.facts['reversed'] else ''}. By chance, the best of the "
        f"{len(checks)} rules and their reverses would decide {best_chance.mean:.1f}% (at most "
        f"{best_chance.high:.1f}% in 95% of draws)"
    )
    facts = {"rule": best.name, "reversed": best.facts["reversed"]}
    blind = replace(best, name="blind", reason=note_on_best, facts={}, tables=tables)
    return [blind.with_chance(*best_chance, facts), *checks]


def _rule_table(checks: Sequence[Check]) -> Table:
    rows = [
        [
            *(check.name, f"{check.value:.1f}", f"{check.chance:.1f}", f"{check.chance_high:.1f}"),
            *(f"{check.facts[key]:,}" for key in ("right", "wrong", "undecided")),
        ]
        for check in checks
    ]
    header = ["rule", "percent, better direction", "by chance", "at most, 95%", "right", "wrong", "undecided"]
    return Table("pairs decided by each rule; a tie counts as one half", header, rows)


def _kind_table(data: AuditSet, checks: Sequence[Check], signs: Mapping[str, NDArray[np.float64]]) -> list[Table]:
    kinds = data.kinds
    if not kinds:
        return []
    rows = []
    for kind in kinds:
        is_kind = (data.pairs["kind"] == kind).to_numpy()
        cells = []
        for check in checks:
            # Use the direction of the whole dataset. The better direction of each kind would flatter small kinds.
            directed = signs[check.name][is_kind] * (-1 if check.facts["reversed"] else 1)
            cells.append(f"{50 + 50 * float(directed.mean()):.1f}")
        rows.append([kind, f"{int(is_kind.sum()):,}", *cells])
    return [Table("percent decided, by kind", ["kind", "pairs", *(check.name for check in checks)], rows)]


def bigram_scores(pairs: pd.DataFrame, model: BigramModel) -> dict[str, Scores]:
    captions, negatives = (model.scores(pairs[column].tolist()) for column in ("caption", "negative"))
    return {
        "bigram": (captions.per_word, negatives.per_word),
        "bigram_sentence": (captions.sentence, negatives.sentence),
    }


def own_bigram_scores(data: AuditSet, seed: int) -> dict[str, Scores]:
    """Scores pairs with a bigram model of the dataset's own captions of other images."""
    counted, texts = CountedCaptions(data.texts["text"]), data.texts["image_id"].to_numpy()
    # A caption of the same image would make its own pair likelier, so counts come from folds of other images.
    fold_of = folds(data.image_ids, seed)
    text_folds = np.array([fold_of[name] for name in texts])
    pair_folds = np.array([fold_of[name] for name in data.pairs["image_id"]])
    scores = {name: (np.zeros(len(data.pairs)), np.zeros(len(data.pairs))) for name in ("bigram", "bigram_sentence")}
    for fold in np.unique(pair_folds):
        rows = np.flatnonzero(pair_folds == fold)
        for name, parts in bigram_scores(data.pairs.iloc[rows], counted.model(text_folds != fold)).items():
            for side, part in zip(scores[name], parts, strict=True):
                side[rows] = part
    return scores


def folds(images: Sequence[str], seed: int) -> dict[str, int]:
    """Assigns each image, with all its texts, to a fold."""
    # Sort before shuffling to make folds depend on the seed and not on the order of rows.
    names = sorted(set(images))
    order = np.random.default_rng(seed).permutation(len(names))
    return {names[index]: number % FOLDS for number, index in enumerate(order.tolist())}


def likelihood_check(data: AuditSet, scores: Scores, model: str) -> Check:
    """Checks whether captions are likelier than their negatives; a tie counts as one half."""
    change = scores[0] - scores[1]
    # A text without tokens has no likelihood. Its pair is left out, and the note counts it.
    has_likelihood = np.isfinite(change)
    signs = decision_signs(scores[0][has_likelihood], scores[1][has_likelihood])
    rows = data.pairs[has_likelihood]
    note = f"scored by {model}" + (
        f"; {(~has_likelihood).sum():,} pairs have a text without tokens" if not has_likelihood.all() else ""
    )
    facts = {"model": model, "mean_difference": float(change[has_likelihood].mean()) if has_likelihood.any() else None}
    return decision_check("language_model", signs, rows["image_id"], data.bootstrap, facts=facts, reason=note)


def same_words(data: AuditSet, examples: int = 0) -> Check:
    """Finds pairs whose texts have the same words in a different order: a bag of words cannot tell them apart."""
    bags = [(words_of_text(caption), words_of_text(negative)) for caption, negative in _caption_pairs(data)]
    # equal_negatives and equal_words count pairs with the same word order.
    reordered = np.array(
        [caption != negative and sorted(caption) == sorted(negative) for caption, negative in bags], dtype=bool
    )
    return share("same_words", reordered, data.pairs["image_id"], **_pair_details(data, reordered, examples))


def equal_negatives(data: AuditSet, examples: int = 0) -> Check:
    """Finds pairs whose negative is the caption, character for character: no scorer can decide them."""
    same = (data.pairs["caption"] == data.pairs["negative"]).to_numpy(dtype=bool)
    return share("equal_negatives", same, data.pairs["image_id"], **_pair_details(data, same, examples))


def equal_words(data: AuditSet, examples: int = 0) -> Check:
    """Finds pairs with the same words in the same order: only case and punctuation tell them apart."""
    # equal_negatives counts identical texts.
    same = [
        caption != negative and words_of_text(caption) == words_of_text(negative)
        for caption, negative in _caption_pairs(data)
    ]
    flags = np.array(same, dtype=bool)
    return share("equal_words", flags, data.pairs["image_id"], **_pair_details(data, flags, examples))


def known_true(data: AuditSet, examples: int = 0, captions: Mapping[str, Sequence[str]] | None = None) -> Check:
    """Finds pairs whose negative is, word for word, another caption of the same image.

    Args:
        captions: Further captions by the `photograph_key` of their image.
    """
    further = captions or {}
    true = {
        name: {tuple(words_of_text(text)) for text in further.get(photograph_key(name), ())}
        for name in {*data.image_ids}
    }
    for name, text in zip(data.texts["image_id"], data.texts["text"], strict=True):
        true[name].add(tuple(words_of_text(text)))
    # equal_negatives and equal_words count negatives with the caption's own words.
    flags = [
        words_of_text(caption) != words_of_text(negative) and tuple(words_of_text(negative)) in true[name]
        for (caption, negative), name in zip(_caption_pairs(data), data.pairs["image_id"], strict=True)
    ]
    is_true = np.array(flags, dtype=bool)
    return share(
        "known_true", is_true, data.pairs["image_id"], **_pair_details(data, is_true, examples, images=("image",))
    )


def _caption_pairs(data: AuditSet) -> list[tuple[str, str]]:
    return list(zip(data.pairs["caption"], data.pairs["negative"], strict=True))


def _pair_details(
    data: AuditSet, flags: NDArray[np.bool_], number: int, images: tuple[str, ...] = ()
) -> dict[str, Any]:
    selected = data.pairs[flags].head(number)
    examples = [
        Example(int(row), caption, negative, images=images)
        for row, caption, negative in zip(selected["row"], selected["caption"], selected["negative"], strict=True)
    ]
    rows = data.pairs.loc[flags, "row"].unique().tolist()
    return {
        "facts": {"pairs": int(flags.sum()), "rows": rows},
        "examples": examples,
        "reason": "" if len(flags) else NO_PAIRS,
    }


Words = tuple[str, ...]


def duplicate_texts(texts: pd.DataFrame, examples: int = 0) -> Check:
    """Finds captions with the same words, in the same order, as a caption of another image."""
    indices: dict[Words, list[int]] = defaultdict(list)
    for index, words in enumerate(_words(texts)):
        indices[words].append(index)
    return _group_check("duplicate_texts", texts, indices.values(), examples)


def near_duplicate_texts(texts: pd.DataFrame, examples: int = 0) -> Check:
    """Finds captions that differ from a caption of another image by one word removed, added or replaced.

    Two texts of n words that differ in one word are equal without it. So each text is indexed by its remainders after
    removing each of its words, which takes one lookup per word.
    """
    whole: dict[Words, list[int]] = defaultdict(list)
    cut: dict[tuple[Words, int], list[int]] = defaultdict(list)
    for index, words in enumerate(_words(texts)):
        whole[words].append(index)
        # The position of the gap is part of the key: "a b c" without b and "a c b" without b are not neighbors.
        for gap in range(len(words)):
            cut[words[:gap] + words[gap + 1 :], gap].append(index)
    by_cut: dict[Words, list[int]] = defaultdict(list)
    # If removing a word turns one text into another, the shorter text is in `whole` and the longer one in `cut`.
    for (words, _), indices in cut.items():
        if words in whole:
            by_cut[words] += indices
    shorter = ([*whole[words], *indices] for words, indices in by_cut.items())
    all_words = _words(texts)
    flags = np.zeros(len(texts), dtype=bool)
    example: dict[int, int] = {}
    ids = texts["image_id"].tolist()
    for group in [*cut.values(), *shorter]:
        _mark(group, ids, all_words, flags, example)
    return _text_check(flags, example, "near_duplicate_texts", texts, examples)


def _mark(group: list[int], ids: list[str], words: list[Words], flags: np.ndarray, example: dict[int, int]) -> None:
    """Marks the texts of a group that contains a different text of another image."""
    # Two indices of different images per text are enough: for any text compared with them, one of the two belongs to
    # another image.
    representatives: dict[Words, list[int]] = {}
    for index in group:
        candidates = representatives.setdefault(words[index], [])
        if len(candidates) < 2 and all(ids[candidate] != ids[index] for candidate in candidates):
            candidates.append(index)
    if len(representatives) < 2:
        return
    for index in group:
        others = (
            candidate
            for text, candidates in representatives.items()
            if text != words[index]
            for candidate in candidates
        )
        other = next((candidate for candidate in others if ids[candidate] != ids[index]), None)
        if other is not None:
            flags[index] = True
            example.setdefault(index, other)


def _group_check(name: str, texts: pd.DataFrame, groups: Iterable[list[int]], examples: int) -> Check:
    ids = texts["image_id"].tolist()
    flags, example = np.zeros(len(texts), dtype=bool), {}
    for group in groups:
        # Equal captions of the same image are legitimate.
        if len({ids[index] for index in group}) < 2:
            continue
        for index in group:
            flags[index] = True
            example[index] = next(other for other in group if ids[other] != ids[index])
    return _text_check(flags, example, name, texts, examples)


def _text_check(flags: np.ndarray, example: dict[int, int], name: str, texts: pd.DataFrame, examples: int) -> Check:
    rows, text = texts["row"].tolist(), texts["text"].tolist()
    examples_shown = [
        Example(rows[index], text[index], text[other], note=f"rows {rows[index]} and {rows[other]}")
        for index, other in list(example.items())
        # A pair is usually found from both sides but shown only once.
        if index < other
    ][:examples]
    return share(name, flags, facts={"captions": int(flags.sum())}, examples=examples_shown)


def _words(texts: pd.DataFrame) -> list[Words]:
    return [tuple(words_of_text(text)) for text in texts["text"]]
