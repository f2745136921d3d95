"""Keyword permutation: hard negative captions for the concepts object, color, location and size.

Source: Rösch, Oswald, Geierhos, Libovický, "Enhancing Conceptual Understanding in Multimodal Contrastive Learning
through Hard Negative Samples", ALVR 2024, arXiv:2403.02875. Keywords and their replacements: Table 6; texts of the
concept test: Table 7; number of captions that hold a keyword: Table 8.

The paper's code is not public. `PAPER` matching is the reading that gives Table 8 back on the 25,014 captions of COCO
val2017: color 3,907, location 2,527 and size 2,601, all exact. Objects give 12,969 against 12,907. The 62 too many are
as many as the captions whose only object keyword is "parking meter": a hint and not a proof, so that keyword stays in.

What the paper leaves open, and what is done here:

* **Longest match first.** Text taken by a longer keyword of the same concept is not matched again by a shorter one: no
  "dog" in "hot dog", no "bear" in "teddy bear", no "front" in "in front of".
* **Concepts do not see each other.** "orange" is a color and an object; every "orange" is a match of both.
* **Several keywords in a caption.** A negative changes one place and leaves the others, even the same word.
* **"tiny" is never replaced**, only written: 11 size keywords, as section 3.1 counts and as Table 8 needs, although
  Table 6 prints "huge <-> tiny". "long" becomes "short" and "giant" becomes "tiny"; neither comes back.
* **A replacement may stand elsewhere in the caption**: "a red and white bus" can become "a white and white bus".
* **Grammar** is left alone by `PAPER` ("a orange cat", as in Table 7); `EXTENDED` mends case, number and article.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hfcomp.negatives.keyword_matching import (
    PAPER,
    KeywordMatch,
    Matching,
    check_concept,
    find_keywords,
    replace_keyword,
)
from hfcomp.negatives.keyword_tables import CATEGORIES, CONCEPTS, REPLACEMENTS
from hfcomp.negatives.negative import Negative, as_columns, caption_rng


@dataclass(frozen=True)
class KeywordPermutations:
    """The texts of one item of the concept test; exactly one is true.

    Attributes:
        texts: The true caption and all its permutations: 80 for object, 9 for color, 2 for location and size.
        target: Index of the true caption in `texts`.
        match: The keyword that is permuted.
    """

    texts: tuple[str, ...]
    target: int
    match: KeywordMatch


def keyword_negatives(
    caption: str,
    *,
    concepts: Sequence[str] = CONCEPTS,
    num_negatives: int = 1,
    seed: int = 0,
    matching: Matching = PAPER,
) -> list[Negative]:
    """Draws hard negatives of one caption by keyword permutation (section 3.1).

    The paper trains on one concept at a time and is silent on captions with several keywords. Our choice: draw one of
    the matched places, all places of all asked concepts alike, then one of its replacements, both uniformly. A drawn
    pair is not drawn again, and a place without replacements left drops out. So objects, with 79 replacements each, do
    not crowd out places that have one.

    Caption, seed, concepts and matching decide the result: not the order of rows, the number of processes or
    `PYTHONHASHSEED`. Fewer negatives are the first of more. Other negatives for the same caption, say in a later
    epoch, need another seed.

    Args:
        caption: One caption.
        concepts: Which concepts to permute, in any order.
        num_negatives: How many to draw; the paper uses 1 to 3 for object and color and 1 for location and size.
        seed: Any integer.
        matching: `PAPER` or `EXTENDED`.

    Returns:
        At most `num_negatives` negatives with distinct texts, none equal to the caption; fewer if the caption allows
        no more, none if it holds no keyword.

    Raises:
        ValueError: A concept is not known, none is given, or `num_negatives` is below 1.
    """
    _check_request(concepts, num_negatives)
    places = [
        (match, list(REPLACEMENTS[concept][match.keyword]))
        for concept in CONCEPTS
        if concept in concepts
        for match in find_keywords(caption, concept, matching)
    ]
    rng = caption_rng(seed, caption)
    negatives: list[Negative] = []
    seen = {caption}
    while places and len(negatives) < num_negatives:
        index = rng.randrange(len(places))
        match, replacements = places[index]
        replacement = replacements.pop(rng.randrange(len(replacements)))
        if not replacements:
            places.pop(index)
        text = replace_keyword(caption, match, replacement, matching)
        if text not in seen:
            seen.add(text)
            negatives.append(_negative(text, match, replacement))
    return negatives


def _check_request(concepts: Sequence[str], num_negatives: int) -> None:
    if isinstance(concepts, str) or not concepts:
        raise ValueError(f"concepts is {concepts!r}; expected a sequence with some of {', '.join(CONCEPTS)}.")
    for concept in concepts:
        check_concept(concept)
    if num_negatives < 1:
        raise ValueError(f"num_negatives is {num_negatives}; expected 1 or more.")


def _negative(text: str, match: KeywordMatch, replacement: str) -> Negative:
    return Negative(
        text=text,
        kind=f"keyword_{match.concept}",
        keyword=match.keyword,
        replacement=replacement,
        category=CATEGORIES[match.concept],
        spans=((match.start, match.end),),
    )


def all_keyword_permutations(
    caption: str, concept: str, *, match: KeywordMatch | None = None, matching: Matching = PAPER
) -> KeywordPermutations:
    """Builds the texts of one item of the concept test (section 5.1, Table 7).

    Object and color texts come in the order of Table 6, with the true caption at its keyword's own place; location and
    size give the true caption and its one permutation. All as Table 7 prints them. A scorer must therefore not settle
    ties by position.

    Args:
        caption: The true caption.
        concept: `object`, `color`, `location` or `size`.
        match: The keyword to permute. Default: the first one of the caption, as Table 7 does ("white cat" and not
            "black open umbrella"); the paper has one item per caption, whatever the number of keywords.
        matching: `PAPER` or `EXTENDED`.

    Returns:
        80, 9, 2 or 2 distinct texts and the index of the true one.

    Raises:
        ValueError: The concept is not known, the caption holds no keyword of it, or `match` is not from this caption.
    """
    found = [match] if match is not None else find_keywords(caption, concept, matching)
    if not found:
        raise ValueError(
            f"caption {caption!r} holds no keyword of concept {concept!r}. "
            "Keep only captions for which find_keywords(caption, concept, matching) is not empty."
        )
    if found[0].concept != concept:
        raise ValueError(f"the match is of concept {found[0].concept!r}, the test of {concept!r}.")
    keyword = found[0].keyword
    texts = [replace_keyword(caption, found[0], word, matching) for word in REPLACEMENTS[concept][keyword]]
    one_to_one = len(texts) == 1
    target = 0 if one_to_one else list(REPLACEMENTS[concept]).index(keyword)
    texts.insert(target, caption)
    return KeywordPermutations(texts=tuple(texts), target=target, match=found[0])


def negative_columns(
    captions: Iterable[str],
    *,
    concepts: Sequence[str] = CONCEPTS,
    num_negatives: int = 1,
    seed: int = 0,
    matching: Matching = PAPER,
) -> dict[str, list[Any]]:
    """Builds the negative columns of a training set, `num_negatives` entries in every row.

    Made for `dataset.map(lambda batch: negative_columns(batch["caption"], num_negatives=3), batched=True)`; batch size
    and `num_proc` change nothing in the result. Rows with too few negatives are padded with empty strings, which are
    masked. A caption without keyword is kept, all masked; the paper leaves such captions out (section 3.3), which is a
    `dataset.filter` with `find_keywords`.

    Args:
        captions: One caption per row.
        concepts: See `keyword_negatives`.
        num_negatives: Entries per row.
        seed: See `keyword_negatives`.
        matching: `PAPER` or `EXTENDED`.

    Returns:
        The columns of `hfcomp.negatives.negative.as_columns`.

    Raises:
        TypeError: A caption is not a string; names the row.
        ValueError: A concept is not known, none is given, or `num_negatives` is below 1.
    """
    if isinstance(captions, str):
        raise TypeError(f"captions is the one string {captions!r}; expected a sequence of captions.")
    _check_request(concepts, num_negatives)
    rows: list[list[Negative]] = []
    for row, caption in enumerate(captions):
        if not isinstance(caption, str):
            raise TypeError(f"the caption in row {row} is a {type(caption).__name__}; expected a string.")
        rows.append(
            keyword_negatives(caption, concepts=concepts, num_negatives=num_negatives, seed=seed, matching=matching)
        )
    return as_columns(rows, num_negatives)
