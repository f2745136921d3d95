"""Keyword permutation: hard negative captions for the concepts object, color, location and size, or your own.

Source: Rösch, Oswald, Geierhos, Libovický, "Enhancing Conceptual Understanding in Multimodal Contrastive Learning
through Hard Negative Samples", ALVR 2024, arXiv:2403.02875. Keywords and their replacements: Table 6; texts of the
concept test: Table 7; number of captions with a keyword: Table 8.

The paper's code is not public. `PAPER` matching is the interpretation that reproduces Table 8 on the 25,014 captions
of COCO val2017: color 3,907, location 2,527 and size 2,601, all exact. For objects it gives 12,969 instead of 12,907.
The difference of 62 equals the number of captions whose only object keyword is "parking meter". This is a hint, not a
proof, so that keyword stays in.

The paper leaves several points open. Our choices:

* **Longest match first.** Text matched by a longer keyword is not matched again by a shorter one of the same concept:
  no "dog" in "hot dog", no "bear" in "teddy bear", no "front" in "in front of".
* **Concepts are independent.** "orange" is a color and an object; every "orange" matches both.
* **Several keywords in a caption.** A negative changes one keyword and keeps the others, even the same word.
* **"tiny" is only a replacement** and never replaced. This gives 11 size keywords, as section 3.1 counts and Table 8
  requires, although Table 6 prints "huge <-> tiny". "long" becomes "short" and "giant" becomes "tiny", but not the
  other way around.
* **A replacement may already occur in the caption**: "a red and white bus" can become "a white and white bus".
* **Grammar** is not corrected by `PAPER` ("a orange cat", as in Table 7); `EXTENDED` fixes case, number and article.

Other keywords come from a YAML file: `read_keyword_table` and the argument `table`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hfcomp.negatives.keywords.matching import (
    PAPER,
    KeywordMatch,
    Matcher,
    Matching,
    check_concept,
    find_keywords,
    matcher,
    replace_keyword,
)
from hfcomp.negatives.keywords.tables import PAPER_TABLE, KeywordTable
from hfcomp.negatives.negative import Negative, as_columns
from hfcomp.parsing.captions import check_caption


@dataclass(frozen=True)
class KeywordPermutations:
    """The texts of one item of the concept test; exactly one is true.

    Attributes:
        texts: The true caption and all its permutations; with Table 6, 80 for object, 9 for color, 2 for location or
            size.
        target: Index of the true caption in `texts`.
        match: The permuted keyword.
    """

    texts: tuple[str, ...]
    target: int
    match: KeywordMatch


def keyword_negatives(
    caption: str,
    *,
    concepts: Sequence[str] | None = None,
    num_negatives: int = 1,
    seed: int = 0,
    matching: Matching = PAPER,
    table: KeywordTable = PAPER_TABLE,
) -> list[Negative]:
    """Samples hard negatives of one caption by keyword permutation (section 3.1).

    The paper trains on one concept at a time and does not cover captions with several keywords. Our choice: sample a
    keyword occurrence uniformly among those of all requested concepts, then sample one of its replacements uniformly.
    A pair is not sampled twice, and an occurrence without replacements left is dropped. Objects, with 79 replacements
    each, therefore do not crowd out keywords that have only one.

    The result depends on caption, seed, concepts, matching and table, not on the order of rows, the number of
    processes or `PYTHONHASHSEED`. A smaller `num_negatives` gives the first negatives of a larger one. To get other
    negatives for the same caption, for example in a later epoch, use another seed.

    Args:
        caption: Caption to change.
        concepts: Concepts to permute, in any order. Defaults to all concepts of the table.
        num_negatives: Maximum number of negatives; the paper uses 1 to 3 for object and color and 1 for location and
            size.
        seed: Random seed, any integer.
        matching: `PAPER` or `EXTENDED`.
        table: Keyword table. Defaults to Table 6; to use your own, see `read_keyword_table`.

    Returns:
        At most `num_negatives` negatives with distinct texts that all differ from the caption; fewer if the caption
        allows no more, and none if it contains no keyword.

    Raises:
        ValueError: If a concept is unknown, `concepts` is empty, `num_negatives` is below 1, or the caption is too
            long (`hfcomp.parsing.captions`).
    """
    check_caption(caption)
    return _sample(caption, _matcher(concepts, num_negatives, matching, table), num_negatives, seed)


def _matcher(concepts: Sequence[str] | None, num_negatives: int, matching: Matching, table: KeywordTable) -> Matcher:
    # Use the order of the table, whatever the order of `concepts`: the seed selects occurrences by index, and the
    # same request must give the same negatives.
    if concepts is None:
        concepts = table.names
    if isinstance(concepts, str) or not concepts:
        raise ValueError(
            f"concepts: found {concepts!r}, expected a sequence of one or more of {', '.join(table.names)}."
        )
    for concept in concepts:
        check_concept(concept, table=table)
    if num_negatives < 1:
        raise ValueError(f"num_negatives: found {num_negatives}, expected 1 or more.")
    return matcher(tuple(name for name in table.concepts if name in concepts), matching, table)


def _sample(caption: str, concept_matcher: Matcher, num_negatives: int, seed: int) -> list[Negative]:
    concepts = concept_matcher.concepts
    # Each entry is an occurrence with the words left for it. A turn samples an occurrence and then a word, uniformly:
    # in "a small dog", size and object are equally likely, although "small" has one replacement and "dog" has 79.
    remaining = [(match, concepts[match[3]].replacements[match[2]]) for match in concept_matcher.find(caption)]
    negatives: list[Negative] = []
    seen = {caption}
    turn = 0
    while remaining and len(negatives) < num_negatives:
        # One random number serves both: the remainder selects the occurrence, the quotient the word.
        number, index = divmod(_number(seed, turn, caption), len(remaining))
        turn += 1
        occurrence, words = remaining[index]
        chosen = number % len(words)
        text = concept_matcher.write(caption, occurrence, words[chosen])
        if text not in seen:
            seen.add(text)
            start, end, keyword, concept = occurrence
            kind, category = concepts[concept].kind, concepts[concept].category
            negatives.append(Negative(text, kind, keyword, words[chosen], category, ((start, end),)))
        if len(negatives) < num_negatives:
            # Sample without replacement: a sampled pair, accepted or not, is not sampled again, so the loop ends.
            left = words[:chosen] + words[chosen + 1 :]
            remaining[index : index + 1] = [(occurrence, left)] if left else []
    return negatives


def _number(seed: int, turn: int, caption: str) -> int:
    """Returns 128 random bits for a caption; remainders modulo small numbers are uniform to within 1e-30.

    `caption_rng` is not used, because creating a generator takes longer than everything else done for a caption.
    """
    key = f"{seed}\n{turn}\n{caption}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(key, digest_size=16).digest(), "big")


def all_keyword_permutations(
    caption: str,
    concept: str,
    *,
    match: KeywordMatch | None = None,
    matching: Matching = PAPER,
    table: KeywordTable = PAPER_TABLE,
) -> KeywordPermutations:
    """Builds the texts of one item of the concept test (section 5.1, Table 7).

    Object and color texts follow the order of Table 6, with the true caption at its keyword's position. For location
    and size, the true caption is followed by its only permutation. Both are as printed in Table 7. The same applies to
    your own table: if any word of the concept may become any other, texts follow the order of the table, otherwise the
    true caption comes first. A scorer must therefore not break ties by position.

    Args:
        caption: The true caption.
        concept: `object`, `color`, `location`, `size`, or a concept of your table.
        match: Keyword to permute. Defaults to the first keyword of the caption, as in Table 7 ("white cat" and not
            "black open umbrella"); the paper has one item per caption, whatever the number of keywords.
        matching: `PAPER` or `EXTENDED`.
        table: Keyword table.

    Returns:
        Distinct texts (80, 9, 2 or 2 with Table 6) and the index of the true one.

    Raises:
        ValueError: If the concept is unknown, the caption contains no keyword of it, or `match` is from another
            caption.
    """
    matches = [match] if match is not None else find_keywords(caption, concept, matching, table=table)
    if not matches:
        raise ValueError(
            f"caption {caption!r} has no keyword of concept {concept!r}. Keep only captions for which find_keywords "
            "with the same matching and table is not empty."
        )
    first = matches[0]
    if first.concept != concept:
        raise ValueError(f"the match has concept {first.concept!r}, but the test has concept {concept!r}.")
    keyword, words = first.keyword, table.concepts[concept]
    texts = [replace_keyword(caption, first, word, matching, table=table) for word in words.replacements[keyword]]
    # If every word may become every other, all captions share one order of texts, that of the table, as in Table 7,
    # and the true caption is at its keyword's position. Otherwise there is no such order, and the true caption comes
    # first.
    target = list(words.replacements).index(keyword) if words.interchangeable(keyword) else 0
    texts.insert(target, caption)
    return KeywordPermutations(texts=tuple(texts), target=target, match=first)


def negative_columns(
    captions: Iterable[str],
    *,
    concepts: Sequence[str] | None = None,
    num_negatives: int = 1,
    seed: int = 0,
    matching: Matching = PAPER,
    table: KeywordTable = PAPER_TABLE,
) -> dict[str, list[Any]]:
    """Builds the negative columns of a training set, with `num_negatives` entries per row.

    Use it as `dataset.map(lambda batch: negative_columns(batch["caption"], num_negatives=3), batched=True)`. Batch
    size and `num_proc` do not affect the result. Rows with too few negatives are padded with empty strings, which are
    masked. A caption without a keyword is kept with all entries masked. The paper excludes such captions (section
    3.3); to do so, use `dataset.filter` with `find_keywords`.

    Args:
        captions: One caption per row.
        concepts: See `keyword_negatives`.
        num_negatives: Number of entries per row.
        seed: See `keyword_negatives`.
        matching: `PAPER` or `EXTENDED`.
        table: See `keyword_negatives`.

    Returns:
        The columns of `hfcomp.negatives.negative.as_columns`.

    Raises:
        TypeError: If a caption is not a string. The error names the row.
        ValueError: If a concept is unknown, `concepts` is empty, `num_negatives` is below 1, or a caption is too long
            (`hfcomp.parsing.captions`). The error names the row.
    """
    if isinstance(captions, str):
        raise TypeError(f"captions is the single string {captions!r}; expected a sequence of captions.")
    concept_matcher = _matcher(concepts, num_negatives, matching, table)
    rows: list[list[Negative]] = []
    for row, caption in enumerate(captions):
        if not isinstance(caption, str):
            raise TypeError(f"the caption in row {row} is a {type(caption).__name__}; expected a string.")
        check_caption(caption, f"the caption in row {row}")
        rows.append(_sample(caption, concept_matcher, num_negatives, seed))
    return as_columns(rows, num_negatives)
