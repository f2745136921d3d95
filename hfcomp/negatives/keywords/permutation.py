"""Keyword permutation: hard negative captions for the concepts object, color, location and size, or your own.

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
  Table 6 prints "huge <-> tiny". "long" becomes "short" and "giant" becomes "tiny"; neither is replaced back.
* **A replacement may stand elsewhere in the caption**: "a red and white bus" can become "a white and white bus".
* **Grammar** is left alone by `PAPER` ("a orange cat", as in Table 7); `EXTENDED` fixes case, number and article.

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
        texts: The true caption and all its permutations; of Table 6, 80 for object, 9 for color, 2 for location, size.
        target: Index of the true caption in `texts`.
        match: The keyword that is permuted.
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
    """Draws hard negatives of one caption by keyword permutation (section 3.1).

    The paper trains on one concept at a time and does not cover captions with several keywords. Our choice: sample one
    of the matched places, all places of all asked concepts alike, then one of its replacements, both uniformly. A
    drawn pair is not drawn again, and a place without replacements left drops out. So objects, with 79 replacements
    each, do not crowd out places that have one.

    Caption, seed, concepts, matching and table decide the result: not the order of rows, the number of processes or
    `PYTHONHASHSEED`. Fewer negatives are the first of more. Other negatives for the same caption, say in a later
    epoch, need another seed.

    Args:
        caption: One caption.
        concepts: Which concepts to permute, in any order. Default: all of the table.
        num_negatives: How many to draw; the paper uses 1 to 3 for object and color and 1 for location and size.
        seed: Any integer.
        matching: `PAPER` or `EXTENDED`.
        table: The keywords; Table 6 unless you pass your own (`read_keyword_table`).

    Returns:
        At most `num_negatives` negatives with distinct texts, none equal to the caption; fewer if the caption allows
        no more, none if it holds no keyword.

    Raises:
        ValueError: A concept is not known, none is given, or `num_negatives` is below 1, or the caption is too long
            (`hfcomp.parsing.captions`).
    """
    check_caption(caption)
    return _sample(caption, _matcher(concepts, num_negatives, matching, table), num_negatives, seed)


def _matcher(concepts: Sequence[str] | None, num_negatives: int, matching: Matching, table: KeywordTable) -> Matcher:
    # In the order of the table, whatever the order of `concepts`: the seed numbers places, and the same request must
    # draw the same negatives.
    if concepts is None:
        concepts = table.names
    if isinstance(concepts, str) or not concepts:
        raise ValueError(f"concepts is {concepts!r}; expected a sequence with some of {', '.join(table.names)}.")
    for concept in concepts:
        check_concept(concept, table=table)
    if num_negatives < 1:
        raise ValueError(f"num_negatives is {num_negatives}; expected 1 or more.")
    return matcher(tuple(name for name in table.concepts if name in concepts), matching, table)


def _sample(caption: str, asked: Matcher, num_negatives: int, seed: int) -> list[Negative]:
    concepts = asked.concepts
    # A place is an entry with the words left for it. Every turn draws a place and then a word, both uniformly: in "a
    # small dog" size and object are equally likely, though "small" has one replacement and "dog" 79.
    open_places = [(place, concepts[place[3]].replacements[place[2]]) for place in asked.find(caption)]
    negatives: list[Negative] = []
    seen = {caption}
    turn = 0
    while open_places and len(negatives) < num_negatives:
        # One random number serves both draws: the remainder is the place, the quotient the word.
        number, index = divmod(_number(seed, turn, caption), len(open_places))
        turn += 1
        place, words = open_places[index]
        chosen = number % len(words)
        text = asked.write(caption, place, words[chosen])
        if text not in seen:
            seen.add(text)
            start, end, keyword, concept = place
            kind, category = concepts[concept].kind, concepts[concept].category
            negatives.append(Negative(text, kind, keyword, words[chosen], category, ((start, end),)))
        if len(negatives) < num_negatives:
            # Without replacement: a pair that was drawn, accepted or not, is not drawn again, so the loop ends.
            left = words[:chosen] + words[chosen + 1 :]
            open_places[index : index + 1] = [(place, left)] if left else []
    return negatives


def _number(seed: int, turn: int, caption: str) -> int:
    """128 random bits for a caption's sample; their remainders modulo small numbers are uniform to within 1e-30.

    Not `caption_rng`: to set up a generator takes longer than all else that a caption needs.
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

    Object and color texts come in the order of Table 6, with the true caption at its keyword's own place; location and
    size give the true caption and its one permutation. All as Table 7 prints them. Likewise in your own table: where
    any word of the concept may become any other, texts come in its order, else the true caption is the first. A scorer
    must therefore not settle ties by position.

    Args:
        caption: The true caption.
        concept: `object`, `color`, `location` or `size`, or one of your table.
        match: The keyword to permute. Default: the first one of the caption, as Table 7 does ("white cat" and not
            "black open umbrella"); the paper has one item per caption, whatever the number of keywords.
        matching: `PAPER` or `EXTENDED`.
        table: The keywords.

    Returns:
        80, 9, 2 or 2 distinct texts of Table 6 and the index of the true one.

    Raises:
        ValueError: The concept is not known, the caption holds no keyword of it, or `match` is not from this caption.
    """
    found = [match] if match is not None else find_keywords(caption, concept, matching, table=table)
    if not found:
        raise ValueError(
            f"caption {caption!r} has no keyword of concept {concept!r}. Keep only captions for which find_keywords "
            "with the same matching and table is not empty."
        )
    if found[0].concept != concept:
        raise ValueError(f"the match has concept {found[0].concept!r}, the test {concept!r}.")
    keyword, of = found[0].keyword, table.concepts[concept]
    texts = [replace_keyword(caption, found[0], word, matching, table=table) for word in of.replacements[keyword]]
    # If every word may become every other, the texts of all captions have one order, that of the table, as in Table 7.
    # The true one then has its keyword's place. Otherwise there is no such order, and the true one is first.
    target = list(of.replacements).index(keyword) if of.interchangeable(keyword) else 0
    texts.insert(target, caption)
    return KeywordPermutations(texts=tuple(texts), target=target, match=found[0])


def negative_columns(
    captions: Iterable[str],
    *,
    concepts: Sequence[str] | None = None,
    num_negatives: int = 1,
    seed: int = 0,
    matching: Matching = PAPER,
    table: KeywordTable = PAPER_TABLE,
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
        table: See `keyword_negatives`.

    Returns:
        The columns of `hfcomp.negatives.negative.as_columns`.

    Raises:
        TypeError: A caption is not a string; names the row.
        ValueError: A concept is not known, none is given, or `num_negatives` is below 1, or a caption is too long
            (`hfcomp.parsing.captions`); names the row.
    """
    if isinstance(captions, str):
        raise TypeError(f"captions is the one string {captions!r}; expected a sequence of captions.")
    asked = _matcher(concepts, num_negatives, matching, table)
    rows: list[list[Negative]] = []
    for row, caption in enumerate(captions):
        if not isinstance(caption, str):
            raise TypeError(f"the caption in row {row} is a {type(caption).__name__}; expected a string.")
        check_caption(caption, f"the caption in row {row}")
        rows.append(_sample(caption, asked, num_negatives, seed))
    return as_columns(rows, num_negatives)
