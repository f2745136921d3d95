"""Hard positives: rewordings of a caption that are true of the same images.

They test brittleness (a model should score a caption and its rewording alike) and serve as positives in training. The
rules are few and narrow: a change is skipped unless it certainly keeps the meaning.

* `coordination`: "a knife and fork" -> "a fork and knife". Skips lists of three, and phrases of which one may include
  more than the other ("two men and women", "a man with a cat and a dog", "a sink and a toilet with the lid up").
* `converse`: "A left of B" -> "B right of A", "A next to B" -> "B next to A". Skips captions that say more than that,
  because the rest would then describe the other thing, and the relations "in front of" and "behind".
* `prefix`: "A dog on a mat" -> "A photo of a dog on a mat"; "There is a dog on a mat" in both directions. Skips
  sentences with a finite verb and captions that mention a picture.
* `synonym`: "couch" -> "sofa", "next to" -> "beside". Skips words with a context-dependent sense (see the table in
  `hfcomp.negatives.paraphrases`).
* `adjectives`: "a black and white cat" -> "a white and black cat". Skips "black and white photo" and adjectives
  modified by an adverb or a shade.
* `contraction`: "a dog that is lying" -> "a dog lying", "A dog is lying on a mat" -> "A dog lying on a mat". Skips
  captions with more than one finite verb.

No rule considers the reference of a pronoun after the change, names ("Big Ben" is recognized only by its capital),
sarcasm, quoted text ("a sign that reads ..." is changed like other words) or parser errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hfcomp.negatives.filters import folded_sentence
from hfcomp.negatives.negative import caption_rng, check_sampling, sample_by_kind
from hfcomp.negatives.paraphrases import CONVERSES, FIXED_ORDERS, NEEDS_PLURAL, SYNONYMS_BY_FIRST_WORD, Synonym
from hfcomp.negatives.surface import is_all_capitals, rewrite, without_initial_capital
from hfcomp.parsing.captions import Span, check_caption
from hfcomp.parsing.phrases import FINITE_TAGS, NOUN_CLASSES, Part, base_form, names_the_picture, noun_phrases
from hfcomp.parsing.words import MASS_NOUNS, POSTURES, SHADES

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

Edit = tuple[tuple[Span, ...], tuple[str, ...]]

RULES = ("coordination", "converse", "prefix", "synonym", "adjectives", "contraction")
_PICTURE_PREFIXES = {"photo": "a photo of", "picture": "a picture of", "image": "an image of"}
_OPENINGS = ((), *(tuple(prefix.split()) for prefix in _PICTURE_PREFIXES.values()), ("there", "is"), ("there", "are"))
_MAX_OPENING_WORDS = max(map(len, _OPENINGS))


@dataclass(frozen=True)
class Positive:
    """A reworded caption that is true of the same images.

    Attributes:
        text: The new wording.
        rule: One of `RULES`.
        spans: `[start, end)` in characters of the original caption: the replaced text, or the swapped parts from left
            to right. The span of inserted words is empty.
    """

    text: str
    rule: str
    spans: tuple[Span, ...]


def hard_positives(doc: Doc, *, rules: Sequence[str] = RULES, num_positives: int = 1, seed: int = 0) -> list[Positive]:
    """Samples rewordings of one caption, each with one change by one rule.

    The rule is sampled first, uniformly among the rules that apply, then the position and the wording. The caption,
    its parse, the seed and `rules` determine the result. A smaller `num_positives` gives the first positives of a
    larger one.

    Args:
        doc: Parsed caption with word classes, Penn tags, lemmas and noun chunks.
        rules: One or more of `RULES`, in any order.
        num_positives: Maximum number of positives.
        seed: Random seed, any integer.

    Returns:
        At most `num_positives` positives with distinct texts that all differ from the caption (`is_same_sentence`).
        Empty if no rule applies.

    Raises:
        ValueError: If a rule is unknown, `rules` is empty, `num_positives` is below 1, or the caption is too long
            (`hfcomp.parsing.captions`).
    """
    check_sampling("rules", rules, RULES, num_positives=num_positives)
    check_caption(doc.text)
    edits = {rule: list(_EDITS[rule](doc)) for rule in RULES if rule in rules}
    seen = {folded_sentence(doc.text)}
    in_capitals = is_all_capitals(doc.text)

    def make(rule: str, edit: Edit) -> Positive | None:
        spans, texts = edit
        text = rewrite(doc.text, spans, [new.upper() for new in texts] if in_capitals else texts)
        if folded_sentence(text) in seen:
            return None
        seen.add(folded_sentence(text))
        return Positive(text, rule, spans)

    return sample_by_kind(edits, make, num_positives, caption_rng(seed, doc.text, "positive"))


def _span(doc: Doc, start: int, end: int) -> Span:
    return doc[start].idx, doc[end - 1].idx + len(doc[end - 1])


def _swap(doc: Doc, first: Span, second: Span) -> Edit:
    """Returns the edit that swaps two runs of tokens, each `[start, end)`."""
    spans = _span(doc, *first), _span(doc, *second)
    moved = doc[slice(*first)].text
    if first[0] <= _first_word(doc):
        moved = without_initial_capital(doc.text, spans[0])
    return spans, (doc[slice(*second)].text, moved)


def _first_word(doc: Doc) -> int:
    """Returns the index of the first token that is not a space, or the number of tokens if there is none."""
    return next((token.i for token in doc if token.pos_ != "SPACE"), len(doc))


def _ends_at(doc: Doc, index: int) -> bool:
    """Whether the tokens from `index` on are only full stops and spaces."""
    return all(token.pos_ == "SPACE" or token.text in (".", "!") for token in doc[index:])


def _last_word(doc: Doc) -> int:
    """Returns the index after the last token that is neither a full stop nor a space, or 0 if there is none."""
    words = (token.i for token in reversed(doc) if token.pos_ != "SPACE" and token.text not in (".", "!"))
    return next(words, -1) + 1


def _coordination(doc: Doc) -> Iterator[Edit]:
    chunks = list(doc.noun_chunks)
    for first, second in zip(chunks, chunks[1:], strict=False):
        if (
            second.start != first.end + 1
            or doc[first.end].lower_ != "and"
            or not _is_closed(doc, first.start, second.end)
        ):
            continue
        if first.root.pos_ not in NOUN_CLASSES or second.root.pos_ not in NOUN_CLASSES:
            continue
        if (base_form(first.root), base_form(second.root)) in FIXED_ORDERS:
            continue
        # In "a cat and a dog", each has a determiner, so swap the whole phrases, but only if nothing after them can
        # belong just to the second one. With a shared determiner ("a knife and fork"), swap the nouns.
        with_determiner = [chunk[0].tag_ == "DT" for chunk in (first, second)]
        if all(with_determiner):
            if _opens_caption(doc, first.start) and _is_end_or_plural_verb(doc, second.end):
                yield _swap(doc, (first.start, first.end), (second.start, second.end))
        elif not with_determiner[1] and len(second) == 1 and len(first) == 1 + with_determiner[0]:
            yield from _swaps_under_one_determiner(doc, first.root, second.root, has_determiner=with_determiner[0])


def _is_closed(doc: Doc, start: int, end: int) -> bool:
    """Whether two coordinated phrases are not part of a longer list."""
    before = doc[start - 1].lower_ if start else ""
    following = doc[end].lower_ if end < len(doc) else ""
    return before not in (",", "and", "or") and following not in (",", "and", "or")


def _opens_caption(doc: Doc, index: int) -> bool:
    start = _first_word(doc)
    return index - start <= _MAX_OPENING_WORDS and tuple(token.lower_ for token in doc[start:index]) in _OPENINGS


def _is_end_or_plural_verb(doc: Doc, index: int) -> bool:
    return _ends_at(doc, index) or doc[index].tag_ == "VBP"


def _swaps_under_one_determiner(doc: Doc, first: Token, second: Token, *, has_determiner: bool) -> Iterator[Edit]:
    """Yields the swap in "a knife and fork" or "knives and forks" if no other word can belong to only one of them."""
    if first.tag_ != second.tag_ or first.tag_ not in ("NN", "NNS"):
        return
    if has_determiner and {base_form(first), base_form(second)} & MASS_NOUNS:
        return
    # In "a cup of coffee and cake", the cup contains only the coffee.
    if not has_determiner and first.i and doc[first.i - 1].lower_ == "of":
        return
    following = doc[second.i + 1] if second.i + 1 < len(doc) else None
    has_posture = following is not None and base_form(following) in POSTURES and following.tag_ == "VBG"
    if (has_determiner and has_posture) or _is_end_or_plural_verb(doc, second.i + 1):
        yield _swap(doc, (first.i, first.i + 1), (second.i, second.i + 1))


def _converse(doc: Doc) -> Iterator[Edit]:
    phrases = noun_phrases(doc)
    if len(phrases) != 2 or not _opens_caption(doc, phrases[0].start):
        return
    first, second = phrases
    if not (_ends_at(doc, second.end) or _is_background(doc, second.end)):
        return
    between = list(doc[first.end : second.start])
    has_verb = bool(between) and between[0].lower_ in ("is", "are")
    relation = between[has_verb:]
    converse = CONVERSES.get(" ".join(token.lower_ for token in relation))
    agrees_with_verb = has_verb or doc[_first_word(doc)].lower_ == "there"
    if converse is None or (agrees_with_verb and first.tag != second.tag):
        return
    moved = without_initial_capital(doc.text, first.span, is_name=first.is_name)
    spans = (first.span, _span(doc, relation[0].i, relation[-1].i + 1), second.span)
    yield spans, (second.text, converse, moved)


def _is_background(doc: Doc, index: int) -> bool:
    """Whether the tokens from `index` on are like "on a white background", which describes the whole image."""
    words = [token for token in doc[index:] if token.pos_ not in ("PUNCT", "SPACE")]
    return (
        2 <= len(words) <= 4
        and words[0].lower_ in ("on", "against")
        and base_form(words[-1]) in ("background", "backdrop")
    )


def _prefix(doc: Doc) -> Iterator[Edit]:
    start = _first_word(doc)
    words = tuple(token.lower_ for token in doc[start : start + 4])
    if len(words) < 2 or any(token.text in ".!?:" for token in doc[start : max(start, _last_word(doc))]):
        return
    if words[0] in ("a", "an") and words[1] in _PICTURE_PREFIXES and words[2:3] == ("of",):
        yield from (
            ((_span(doc, start + 1, start + 2),), (other,)) for other in _PICTURE_PREFIXES if other != words[1]
        )
        return
    # A caption with a finite verb is a sentence: "a photo of a dog runs" is ungrammatical.
    finite = sum(_is_finite(token) for token in doc)
    if words[:2] in (("there", "is"), ("there", "are")) and words[2:] and finite == 1 and _is_counted(doc[start + 2]):
        yield ((doc[start].idx, doc[start + 2].idx),), ("",)
    chunk = next(iter(doc.noun_chunks), None)
    if finite or chunk is None or chunk.start != start or chunk.root.pos_ not in NOUN_CLASSES:
        return
    if any(names_the_picture(token) for token in doc) or doc[start].tag_ in ("PRP", "PRP$", "EX"):
        return
    openings = list(_PICTURE_PREFIXES.values())
    if _is_counted(doc[start]):
        openings.append("there are" if chunk.root.tag_ == "NNS" else "there is")
    first_word = _span(doc, start, start + 1)
    moved = without_initial_capital(doc.text, first_word, is_name=doc[start].tag_.startswith("NNP"))
    yield from (((first_word,), (f"{opening} {moved}",)) for opening in openings)


def _is_finite(token: Token) -> bool:
    """Whether a verb can form a sentence. This includes a base form without "to", as in "people line up"."""
    return token.tag_ in FINITE_TAGS or (token.tag_ == "VB" and token.i > 0 and token.nbor(-1).lower_ != "to")


def _is_counted(token: Token) -> bool:
    return token.lower_ in ("a", "an", "some", "several", "many") or token.tag_ == "CD"


def _synonym(doc: Doc) -> Iterator[Edit]:
    words = tuple(token.lower_ for token in doc)
    for start, word in enumerate(words):
        for synonym in SYNONYMS_BY_FIRST_WORD.get(word, ()):
            end = start + len(synonym.words)
            if words[start:end] == synonym.words and _fits(doc, start, synonym):
                yield (_span(doc, start, end),), (synonym.other,)


def _fits(doc: Doc, start: int, synonym: Synonym) -> bool:
    end = start + len(synonym.words)
    before = doc[start - 1] if start else None
    following = doc[end] if end < len(doc) else None
    if synonym.classes and doc[start].pos_ not in synonym.classes:
        return False
    if synonym.before and (following is None or following.pos_ not in synonym.before):
        return False
    if synonym.other in NEEDS_PLURAL and not _is_before_plural(doc, end):
        return False
    if following is not None and (following.lower_ in synonym.not_before or following.text == "-"):
        return False
    if before is not None and (before.lower_ in synonym.not_after or before.text == "-"):
        return False
    # "Big Ben" and "the Little Italy" are names.
    if following is not None and following.is_title:
        return False
    return all(
        token.is_lower or token.i == _first_word(doc) or token.lower_ in ("tv", "tvs") for token in doc[start:end]
    )


def _is_before_plural(doc: Doc, index: int) -> bool:
    while index < len(doc) and (doc[index].pos_ == "ADJ" or (index + 1 < len(doc) and doc[index].tag_ == "NN")):
        index += 1
    return index < len(doc) and doc[index].tag_ == "NNS"


def _adjectives(doc: Doc) -> Iterator[Edit]:
    for index in range(1, len(doc) - 2):
        first, conjunction, second, noun = doc[index - 1], doc[index], doc[index + 1], doc[index + 2]
        if conjunction.lower_ != "and" or {first.tag_, second.tag_} != {"JJ"} or noun.pos_ not in NOUN_CLASSES:
            continue
        before = doc[index - 2] if index > 1 else None
        if before is not None and (before.pos_ in ("ADV", "PUNCT", "CCONJ") or before.lower_ in SHADES):
            continue
        pictured = any(names_the_picture(token) for token in doc[noun.i : noun.i + 2])
        if not pictured and first.lower_ != second.lower_ and not {first.lower_, second.lower_} & SHADES:
            yield _swap(doc, (first.i, first.i + 1), (second.i, second.i + 1))


def _contraction(doc: Doc) -> Iterator[Edit]:
    for index in range(1, len(doc) - 2):
        pronoun, verb, following = doc[index], doc[index + 1], doc[index + 2]
        if pronoun.lower_ not in ("that", "which", "who") or doc[index - 1].pos_ not in NOUN_CLASSES:
            continue
        if verb.lower_ in ("is", "are") and (following.tag_ in ("VBG", "VBN") or following.pos_ == "ADP"):
            yield ((pronoun.idx, following.idx),), ("",)
    # A whole caption can be shortened in the same way: without "is", the sentence becomes a noun phrase.
    phrase = next(iter(noun_phrases(doc)), None)
    if phrase is not None and _is_one_progressive_sentence(doc, phrase):
        verb = doc[phrase.end]
        yield ((verb.idx, doc[verb.i + 1].idx),), ("",)


def _is_one_progressive_sentence(doc: Doc, subject: Part) -> bool:
    """Whether "is" can be dropped because it is the only finite verb: "A dog is lying on a mat."."""
    if subject.start != _first_word(doc) or subject.end + 1 >= len(doc):
        return False
    verb, following = doc[subject.end], doc[subject.end + 1]
    finite = sum(_is_finite(token) for token in doc)
    return verb.lower_ in ("is", "are") and following.tag_ in ("VBG", "VBN") and finite == 1


_EDITS: dict[str, Callable[[Doc], Iterator[Edit]]] = {
    "coordination": _coordination,
    "converse": _converse,
    "prefix": _prefix,
    "synonym": _synonym,
    "adjectives": _adjectives,
    "contraction": _contraction,
}
