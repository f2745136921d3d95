"""Swap negatives: swaps two nouns, adjectives, noun phrases or verbs of a caption.

Source: Yuksekgonul, Bianchi, Kalluri, Jurafsky, Zou, "When and why vision-language models behave like bags-of-words,
and what to do about it?", ICLR 2023, arXiv:2210.01936 (NegCLIP), whose negatives keep the words and change who is what
to whom. Differences from the authors' script:

* **Position.** The script replaces text, so every "man" in "woman" moves too. Here, two spans are swapped.
* **Form.** The script writes phrases in lower case and puts spaces before full stops, so a model can recognize a
  negative by its form. Here, everything outside the two parts stays, except for "a" or "an" before them; a capital
  at the start of the caption stays at the start.
* **False negatives.** The script swaps any two parts of a kind. Here, a swap must change the caption's meaning; see
  below. `guarded=False` swaps any two different ones.
* **Adverbs** are not swapped: few captions have two, and those that do rarely become false.
* **Phrases** may have any length; the script, and `guarded=False`, require three words.

The following are not swapped, because the caption would stay true:

* Equal words, and words that may name the same thing ("man" and "person", "couch" and "sofa"; `MAY_BE_ONE`).
* **Coordinated things**: "a cat and a dog", lists. Only a part of a phrase may move there: "a black cat and a white
  dog" becomes "a black dog and a white cat". The words in between decide, not the parser's `conj`: in "a cat on a mat
  and a dog", swapping cat and dog changes who is on the mat.
* **Symmetric relations**: next to, beside, near, by, close to, across from, opposite, alongside and similar, also
  with a verb of posture ("is sitting next to", "parked by"); "facing", "kissing", "talking to"; "has a bowl next to
  it". "with" is one of them ("a man with a dog"), but not after another participle ("a bowl filled with fruit"). "A
  dog running next to a bike" is swapped, because the swap changes who runs.
* **Loose quantities**: "several dogs and cats", "a group of people next to some bags".
* **Parallel parts**: "a man in a hat and a woman in a hat", where a swap only reorders what "and" joins.

The following are not swapped, because the caption would become ungrammatical: singular with plural; names with nouns;
a noun with a determiner and a noun without one ("a dog on grass"); a mass noun into a position after "a" ("a snow");
verbs of different form, or a verb with an object and one without ("sitting on a bench eating a sandwich"). A second
size or color is not put before a noun that keeps its own. The result can still be absurd ("a bench sitting on a man"),
as in the paper.

The swaps cannot detect whether the swapped caption happens to be true as well ("a large dog and a white cat" if the
dog is also white), nor parser errors. Filters by likelihood and by the model's own scores run afterwards.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from hfcomp.negatives.filters import folded_sentence
from hfcomp.negatives.negative import Negative, caption_rng, check_sampling, sample_by_kind
from hfcomp.negatives.surface import rewrite, without_initial_capital
from hfcomp.parsing.captions import check_caption
from hfcomp.parsing.phrases import (
    FINITE_TAGS,
    NOUN_CLASSES,
    Part,
    adjectives,
    base_form,
    described_noun,
    names_the_picture,
    noun_phrases,
    nouns,
    verbs,
    with_auxiliaries,
)
from hfcomp.parsing.words import (
    COLORS,
    MASS_NOUNS,
    MAY_BE_ONE,
    MUTUAL_VERBS,
    POSTURES,
    SIZES,
    SYMMETRIC_RELATIONS,
    TALKING_VERBS,
    VAGUE_QUANTITIES,
    word_set,
)

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

Pair = tuple[Part, Part]

SWAPS = ("nouns", "adjectives", "noun_phrases", "verbs")
_KINDS = {
    "nouns": ("swap_obj", "object"),
    "adjectives": ("swap_att", "attribute"),
    "noun_phrases": ("swap_obj", "object"),
    "verbs": ("swap_rel", "relation"),
}
_WORD_CLASSES = {"nouns": NOUN_CLASSES, "adjectives": ("ADJ",), "verbs": ("VERB",)}
_LEAST_PHRASE = 3
_LIST_CLASSES = frozenset((*NOUN_CLASSES, "DET", "ADJ", "NUM", "PUNCT", "CCONJ", "PRON", "SPACE"))
_COUNTING_DETERMINERS = word_set("a an another each every either neither one")
# Each part is paired with at most this many following parts, because the number of all pairs would grow quadratically.
_MAX_NEIGHBORS = 64
_PARTICIPLES = ("VBG", "VBN")
# Longer sequences than "that is also sitting right next to" are not symmetric relations and need not be scanned.
_MAX_RELATION_WORDS = 10
# Separators between pieces of a caption whose order is irrelevant.
_BETWEEN_PIECES = re.compile(r"[,;.]|\b(?:and|or|next to|beside|near|alongside|with|as well as)\b")


def swap_negatives(
    doc: Doc, *, swaps: Sequence[str] = SWAPS, num_negatives: int = 1, seed: int = 0, guarded: bool = True
) -> list[Negative]:
    """Samples hard negatives of one caption by swapping two of its parts.

    The type of swap is sampled first, uniformly among those that the caption allows, then the pair. Otherwise the many
    noun pairs would crowd out the few verb pairs. A part is swapped with one of the next 64 of its type, which
    includes all of them except in very long captions. No pair is sampled twice. The caption, its parse, the seed and
    `swaps` determine the result. A smaller `num_negatives` gives the first negatives of a larger one.

    Args:
        doc: Parsed caption with word classes, Penn tags, lemmas and noun chunks.
        swaps: One or more of `SWAPS`, in any order: `nouns` (kind `swap_obj`, category object), `adjectives`
            (`swap_att`, attribute), `noun_phrases` (`swap_obj`, object), `verbs` (`swap_rel`, relation).
        num_negatives: Maximum number of negatives.
        seed: Random seed, any integer.
        guarded: Whether to skip swaps that may leave the caption true or break its grammar, as above. Otherwise, any
            two words of a class, or two phrases, are swapped if they differ.

    Returns:
        At most `num_negatives` negatives with distinct texts that all differ from the caption; fewer or none if the
        caption allows no more. `spans` are the two parts in the caption. `keyword` is the first part and `replacement`
        the second part, which takes its place; both are written as in the caption.

    Raises:
        ValueError: If a type of swap is unknown, `swaps` is empty, `num_negatives` is below 1, or the caption is too
            long (`hfcomp.parsing.captions`).
    """
    check_sampling("swaps", swaps, SWAPS, num_negatives=num_negatives)
    check_caption(doc.text)
    pairs = {swap: list(_PAIRS[swap](doc) if guarded else _plain_pairs(doc, swap)) for swap in SWAPS if swap in swaps}
    seen = {folded_sentence(doc.text)}

    def make(swap: str, pair: Pair) -> Negative | None:
        first, second = pair
        spans = first.span, second.span
        # The capital at the start belongs to the position: "Dogs chase a cat" must not become "A cat chase Dogs".
        moved = without_initial_capital(doc.text, first.span, is_name=first.is_name)
        text = rewrite(doc.text, spans, (second.text, moved))
        # Pieces in another order leave a caption true: "a cat in a box and a dog in a box".
        if folded_sentence(text) in seen or (guarded and _pieces(doc.text) == _pieces(text)):
            return None
        seen.add(folded_sentence(text))
        kind, category = _KINDS[swap]
        return Negative(text, kind, first.text, second.text, category, spans)

    return sample_by_kind(pairs, make, num_negatives, caption_rng(seed, doc.text, "swap"))


def _pieces(caption: str) -> Counter[str]:
    without_articles = re.sub(r"\b(?:an?|the)\b", " ", caption.casefold())
    return Counter(" ".join(piece.split()) for piece in _BETWEEN_PIECES.split(without_articles) if piece.strip())


def _may_mean_the_same(first: Part, second: Part) -> bool:
    """Whether two parts may name the same thing, property or action."""
    lemma, other = first.lemma, second.lemma
    return lemma == other or other in MAY_BE_ONE.get(lemma, ()) or first.text.casefold() == second.text.casefold()


def _pairs(parts: Iterable[Part]) -> Iterator[Pair]:
    """Yields pairs of each part with the next `_MAX_NEIGHBORS` parts, in the order of `itertools.combinations`."""
    ordered = list(parts)
    for number, first in enumerate(ordered, 1):
        yield from ((first, second) for second in ordered[number : number + _MAX_NEIGHBORS])


def _plain_pairs(doc: Doc, swap: str) -> Iterator[Pair]:
    """Yields the pairs of two different words of a class, or of two different noun phrases."""
    if swap == "noun_phrases":
        parts = [Part(doc, chunk.start, chunk.end, chunk.root.i) for chunk in doc.noun_chunks]
        parts = [part for part in parts if part.end - part.start >= _LEAST_PHRASE]
    else:
        parts = [Part(doc, token.i, token.i + 1, token.i) for token in doc if token.pos_ in _WORD_CLASSES[swap]]
    yield from (pair for pair in _pairs(parts) if pair[0].text.casefold() != pair[1].text.casefold())


def _relation_words(doc: Doc) -> list[int]:
    """Returns the indices of the words that can express a relation between two things, in order."""
    # Compute this once per caption, so each of n^2 pairs finds the words in between by bisection instead of a scan.
    return [token.i for token in doc if token.pos_ not in _LIST_CLASSES]


def _order_matters(first: Part, second: Part, relation_words: Sequence[int]) -> bool:
    """Whether "X ... Y" differs in meaning from "Y ... X", based on the words between the two noun phrases.

    Other things between them do not count: in "a plate with an orange and a fork", only "with" does.
    """
    start = bisect_left(relation_words, first.end)
    between = relation_words[start : start + _MAX_RELATION_WORDS]
    rest = [first.doc[index] for index in between if index < second.start]
    # "a cat that is sitting right next to a dog" only says that two things are close.
    while rest and rest[0].pos_ in ("AUX", "ADV") and tuple(token.lower_ for token in rest) not in SYMMETRIC_RELATIONS:
        rest = rest[1:]
    if not rest:
        return False
    relation = tuple(token.lower_ for token in rest)
    if rest[0].pos_ == "VERB":
        return not (_is_mutual(rest[0], relation[1:]) or (len(rest) == 1 and _only_locates(rest[0], second)))
    return relation not in SYMMETRIC_RELATIONS


def _only_locates(verb: Token, second: Part) -> bool:
    """Whether "X has Y" only says that Y is near X: "the laptop has a phone next to it"."""
    following = [token.lower_ for token in second.doc[second.end : second.end + 4]]
    pronoun = next((index for index, word in enumerate(following) if word in ("it", "him", "her", "them")), 0)
    return base_form(verb) == "have" and tuple(following[:pronoun]) in SYMMETRIC_RELATIONS


def _is_mutual(verb: Token, relation: tuple[str, ...]) -> bool:
    """Whether a verb with the words after it is symmetric: "sits beside", "playing with", "kissing"."""
    name = base_form(verb)
    if not relation:
        return name in MUTUAL_VERBS or name in POSTURES
    if relation in (("to",), ("with",)) and name in TALKING_VERBS:
        return True
    # "filled with" and "covered with" are directed; "playing with" is not.
    is_joint_action = relation == ("with",) and verb.tag_ != "VBN"
    return is_joint_action or (name in POSTURES and relation in SYMMETRIC_RELATIONS)


def _determiner(part: Part) -> str | None:
    """Returns the determiner before a noun in lower case, or None if there is none."""
    doc, index = part.doc, part.start - 1
    while index >= 0 and (doc[index].pos_ in ("ADJ", "NUM") or _is_hyphen_or_participle(doc[index])):
        index -= 1
    if index < 0:
        return None
    token = doc[index]
    return token.lower_ if token.pos_ == "DET" or token.tag_ in ("DT", "PRP$", "POS") else None


def _is_hyphen_or_participle(token: Token) -> bool:
    return token.text == "-" or (token.pos_ == "VERB" and token.tag_ in _PARTICIPLES and token.dep_ == "amod")


def _phrases_around(parts: Iterable[Part], phrases: Iterable[Part]) -> dict[Part, Part]:
    """Maps each part to the noun phrase that contains it, or to itself if no phrase does."""
    # Use a table by word, because searching all phrases for each part would take the product of their numbers.
    phrase_by_word = {index: phrase for phrase in phrases for index in range(phrase.start, phrase.end)}
    around = {part: phrase_by_word.get(part.start, part) for part in parts}
    return {part: phrase if part.end <= phrase.end else part for part, phrase in around.items()}


def _rest_of_phrase(phrase: Part, part: Part) -> list[str]:
    """Returns the words of a phrase outside one of its parts, without determiners and loose quantities."""
    outside = (phrase.doc[index] for index in range(phrase.start, phrase.end) if not part.start <= index < part.end)
    # "group of people" contains nothing except "people": the remaining "of" belonged to the quantity.
    tokens = [token for token in outside if token.pos_ not in ("DET", "PRON")]
    words = [token.lower_ for token in tokens if token.lower_ not in VAGUE_QUANTITIES]
    return [word for word in words if word != "of" or len(words) == len(tokens)]


def _noun_pairs(doc: Doc) -> Iterable[Pair]:
    around, relation_words = _phrases_around(nouns(doc), noun_phrases(doc)), _relation_words(doc)
    determiners = {part: _determiner(part) for part in around}
    rests = {part: _rest_of_phrase(phrase, part) for part, phrase in around.items()}
    for first, second in _pairs(around):
        phrase, other = around[first], around[second]
        if first.tag != second.tag or phrase is other or _may_mean_the_same(first, second):
            continue
        if not _determiners_fit(first, determiners[first], second, determiners[second]):
            continue
        # The swap is false because of the words in between, or because of what the nouns leave behind: in "a black cat
        # and a white dog", cat and dog may be swapped, because the colors stay.
        if _order_matters(phrase, other, relation_words) or rests[first] != rests[second]:
            yield first, second


def _determiners_fit(first: Part, before_first: str | None, second: Part, before_second: str | None) -> bool:
    if first.tag in ("NNS", "NNPS"):
        return True
    if (before_first is None) != (before_second is None):
        return False
    return not (
        (before_first in _COUNTING_DETERMINERS and second.lemma in MASS_NOUNS)
        or (before_second in _COUNTING_DETERMINERS and first.lemma in MASS_NOUNS)
    )


def _adjective_pairs(doc: Doc) -> Iterable[Pair]:
    described = {part: described_noun(part) for part in adjectives(doc)}
    around, relation_words = _phrases_around(described, noun_phrases(doc)), _relation_words(doc)
    for first, second in _pairs(described):
        noun, other = described[first], described[second]
        if noun is None or other is None or noun.i == other.i or _may_mean_the_same(first, second):
            continue
        if names_the_picture(noun) or names_the_picture(other):
            continue
        if not _can_replace(first, second, noun) or not _can_replace(second, first, other):
            continue
        # "a black cat and a white cat" keeps its meaning after the swap unless something distinguishes the two cats.
        if base_form(noun) != base_form(other) or _order_matters(around[first], around[second], relation_words):
            yield first, second


def _class_of(word: str) -> frozenset[str]:
    return next((words for words in (COLORS, SIZES) if word in words), frozenset())


def _can_replace(old: Part, new: Part, noun: Token) -> bool:
    """Whether an adjective may replace another before a noun: no second color or size, and "and" joins equals."""
    doc, others = old.doc, _class_of(new.doc[new.head].lower_)
    run = [token for token in doc[max(0, old.start - 3) : noun.i] if not old.start <= token.i < old.end]
    after = next((token for token in run if token.i >= old.end), None)
    before = doc[old.start - 1] if old.start else None
    joined = any(token is not None and (token.pos_ == "CCONJ" or token.text == ",") for token in (before, after))
    if joined:
        # "black and white cat": only another color can replace "black", not "white".
        is_repeated = any(token.lower_ == new.doc[new.head].lower_ for token in run)
        return not is_repeated and bool(others) and others == _class_of(doc[old.head].lower_)
    # A color farther to the left belongs to another noun.
    same_noun = [token for token in run if token.i >= old.end or _is_adjective_run(token, old)]
    return not any(token.lower_ in others for token in same_noun)


def _is_adjective_run(token: Token, adjective: Part) -> bool:
    """Whether a token and all words between it and an adjective are adjectives too."""
    return all(adjective.doc[index].pos_ == "ADJ" for index in range(token.i, adjective.start))


def _phrase_pairs(doc: Doc) -> Iterable[Pair]:
    forms = {part: (_number(part), _is_bare(part)) for part in noun_phrases(doc)}
    relation_words = _relation_words(doc)
    for first, second in _pairs(forms):
        is_swappable = forms[first] == forms[second] and not _may_mean_the_same(first, second)
        if is_swappable and _order_matters(first, second, relation_words):
            yield first, second


def _is_bare(phrase: Part) -> bool:
    """Whether a singular phrase lacks a determiner: "mirror" in "a sink and mirror", "station" in "at station"."""
    first = phrase.doc[phrase.start]
    has_determiner = first.pos_ in ("DET", "NUM") or first.tag_ in ("DT", "PDT", "POS")
    return phrase.tag == "NN" and phrase.lemma not in MASS_NOUNS and not has_determiner


def _number(phrase: Part) -> str:
    """Returns `singular` or `plural`, according to the verb after the phrase if possible ("a group of people are")."""
    following = (token.tag_ for token in phrase.doc[phrase.end :] if token.tag_ not in ("WDT", "WP", "RB"))
    tag = next(following, "")
    if tag in ("VBZ", "VBP"):
        return "singular" if tag == "VBZ" else "plural"
    return "plural" if phrase.tag in ("NNS", "NNPS") else "singular"


def _verb_pairs(doc: Doc) -> Iterable[Pair]:
    parts = verbs(doc)
    complements = {part: _complement(part) for part in parts}
    things = [token.i for token in doc if token.pos_ in NOUN_CLASSES]
    conjunctions = [token.i for token in doc if token.pos_ in ("CCONJ", "SCONJ")]
    for first, second in _pairs(parts):
        if _may_mean_the_same(first, second) or not _any_between(things, first, second):
            continue
        # "eating a cake" cannot be swapped with "smiling", because an object needs its verb. A location is optional.
        kinds = {complements[first], complements[second]}
        if len(kinds) > 1 and kinds != {"location", "nothing"}:
            continue
        # "sitting at a table smiling": if one verb is intransitive, both are true of one subject in any order.
        joined = _any_between(conjunctions, first, second)
        if "nothing" in kinds and not (_has_own_subject(second) and joined):
            continue
        pair = _match_forms(first, second)
        if pair is not None:
            yield pair


def _any_between(indices: Sequence[int], first: Part, second: Part) -> bool:
    """Whether one of the sorted word indices is after the first part and before the second."""
    following = bisect_left(indices, first.end)
    return following < len(indices) and indices[following] < second.start


def _complement(verb: Part) -> str:
    """Returns the kind of a verb's complement: `object`, `location` (any preposition), `infinitive` or `nothing`."""
    for token in verb.doc[verb.end :]:
        if token.pos_ == "ADV":
            continue
        if token.pos_ in ("ADP", "PART"):
            return "infinitive" if token.tag_ == "TO" and token.pos_ == "PART" else "location"
        return "object" if token.pos_ in (*NOUN_CLASSES, "DET", "ADJ", "NUM", "PRON") else "nothing"
    return "nothing"


def _has_own_subject(verb: Part) -> bool:
    start = with_auxiliaries(verb).start
    return start > 0 and verb.doc[start - 1].pos_ in (*NOUN_CLASSES, "PRON")


def _match_forms(first: Part, second: Part) -> Pair | None:
    """Returns the main verbs if their forms match ("is sitting", "standing"), otherwise with auxiliaries if those do.

    For example, "is sitting" and "stands" match only with the auxiliary.
    """
    if first.tag == second.tag:
        return first, second
    group, other = with_auxiliaries(first), with_auxiliaries(second)
    form = group.doc[group.start].tag_
    return (group, other) if form in FINITE_TAGS and form == other.doc[other.start].tag_ else None


_PAIRS: dict[str, Callable[[Doc], Iterable[Pair]]] = {
    "nouns": _noun_pairs,
    "adjectives": _adjective_pairs,
    "noun_phrases": _phrase_pairs,
    "verbs": _verb_pairs,
}
