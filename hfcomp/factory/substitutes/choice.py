"""Finds substitutes for a caption's keyword, without a model.

A keyword is looked up in this order: as part of a spatial phrase of several words ("front" in "in front of"), as part
of a compound with an adjacent word ("window" in "window sill"), as a word of its own tag's class, then of the other
classes, because taggers err on captions. A compound without an entry is looked up by its last word ("school bus" as
"bus"). A word without a group is replaced from a short list for its tag, of things and properties that few photographs
have ("a purple fence", "a cactus"): less plausible, but false. Words that the caption already contains are excluded,
and so are words that may mean the same thing (`MAY_BE_ONE`).

It does not know whether the new word is also true of the image ("a man with a bat" may have a ball too), which sense a
word has ("a bat" is always a baseball bat), or which word fits best.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hfcomp.factory.substitutes.lexicon import NOUN_TAGS, VERB_TAGS, Lexicon, default_lexicon
from hfcomp.negatives.negative import caption_rng
from hfcomp.negatives.surface import is_all_capitals
from hfcomp.parsing.captions import Span
from hfcomp.parsing.words import MASS_NOUNS, MAY_BE_ONE, word_set

NOT_ENGLISH, AUXILIARY, NO_GROUP = "not an English word", "auxiliary verb", "no word for its tag"
# Reasons why a keyword has no substitute.
MISSES = (NOT_ENGLISH, AUXILIARY, NO_GROUP)

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_WORD_BEHIND, _WORD_BEFORE = re.compile(r" [^\W\d_]+\b"), re.compile(r"\b[^\W\d_]+ $")
_LONGEST_NEIGHBOR = 20
_ENGLISH = re.compile(r"[a-z0-9][a-z0-9 .,:/'’&-]*", re.IGNORECASE)
_COUNTING = word_set("a an one another each every")
# Maximum distance in words between an article and its noun, as in "a red wooden chair".
_WORDS_OF_A_PHRASE = 3
_OPENS_A_PHRASE = word_set("the this that these those his her its their my your our") | _COUNTING
_ENDS_A_FRAME = word_set(
    "and or but while as that which who with in on at by for to from of into onto over under near next close behind "
    "down up out off away around along across through past together alone outside inside beside between against "
    "towards toward about above below underneath during after before upon like than so very apart forward backwards "
    "atop among beneath alongside"
)
_BE = word_set("be is are was were been being am 's 're")
_HAVE_DO = word_set("have has had having do does did")
_AFTER_AUXILIARY = re.compile(r"(?:been|not|n't|\w+(?:ed|ing|en))\b", re.IGNORECASE)


@dataclass(frozen=True)
class Substitute:
    """A word or phrase that can replace a keyword.

    Attributes:
        text: New text, in lower case unless it is a name or the caption has no lower case.
        span: Position `[start, end)` in the caption that is replaced: the keyword, or the phrase or compound that
            contains it.
        is_fallback: Whether the keyword belongs to no group.
    """

    text: str
    span: Span
    is_fallback: bool = False


@dataclass(frozen=True)
class _Keyword:
    """A keyword in its caption."""

    caption: str
    span: Span
    tag: str
    lexicon: Lexicon

    @property
    def word(self) -> str:
        return " ".join(self.caption[self.span[0] : self.span[1]].lower().split())

    @property
    def before(self) -> list[str]:
        """The preceding words, the nearest first, within 100 characters."""
        start = max(0, self.span[0] - 100)
        return [word.lower() for word in _WORD.findall(self.caption[start : self.span[0]])][::-1]

    @property
    def after(self) -> str:
        """The following text in lower case, up to 100 characters."""
        return self.caption[self.span[1] : self.span[1] + 100].lower()


def substitutes(
    caption: str, span: Span, tag: str, *, seed: int = 0, lexicon: Lexicon | None = None
) -> list[Substitute] | str:
    """The substitutes of a keyword, in the order in which to try them.

    The same caption, span, tag, seed and lexicon give the same result.

    Args:
        span: Position of the keyword, `[start, end)` in characters.
        tag: Penn tag of the keyword's last word.

    Returns:
        At least one substitute, words from groups before fallback words; or one of `MISSES`.
    """
    keyword = _Keyword(caption, span, tag, lexicon or default_lexicon())
    if not _ENGLISH.fullmatch(keyword.word):
        return NOT_ENGLISH
    # The random numbers depend only on this keyword, not on other keywords or captions.
    rng = caption_rng(seed, caption, "substitute", tag, f"{span[0]}-{span[1]}")
    in_phrase = _spatial_phrase(keyword)
    if not in_phrase and _is_auxiliary(keyword):
        return AUXILIARY
    # A spatial phrase is replaced as a whole. Only other words can be half of a compound.
    keyword = keyword if in_phrase else _whole_compound(keyword)
    grouped = in_phrase or [Substitute(text, keyword.span) for text in _group_words(keyword, rng)]
    rest = [Substitute(text, keyword.span, is_fallback=True) for text in _fallback(keyword)] if not in_phrase else []
    # Words from groups stay before fallback words. Within each list the seed decides the order.
    for words in (grouped, rest):
        rng.shuffle(words)
    others = [other for other in (*grouped, *rest) if other.text.lower() != keyword.word]
    if is_all_capitals(caption):
        others = [Substitute(other.text.upper(), other.span, other.is_fallback) for other in others]
    return others or NO_GROUP


def spatial_phrase(caption: str, span: Span) -> Span | None:
    """The longest spatial phrase of several words around a keyword, such as "in front of" around "front", or None."""
    matches = _spatial_phrase(_Keyword(caption, span, "IN", default_lexicon()))
    return matches[0].span if matches else None


def _spatial_phrase(keyword: _Keyword) -> list[Substitute]:
    """Substitutes of the longest phrase of several words around the keyword, which may be the keyword itself."""
    start, end = keyword.span
    first = max(0, start - 40)
    window = keyword.caption[first : end + 40].lower()
    # The longest phrase that contains the keyword wins.
    best: tuple[int, Span, tuple[str, ...]] | None = None
    for phrase, others in keyword.lexicon.prepositions.items():
        if " " not in phrase or keyword.word not in phrase:
            continue
        for match in re.finditer(rf"\b{re.escape(phrase)}\b", window):
            span = first + match.start(), first + match.end()
            if span[0] <= start and end <= span[1] and (best is None or len(phrase) > best[0]):
                best = len(phrase), span, others
    return [] if best is None else [Substitute(text, best[1]) for text in best[2]]


def _whole_compound(keyword: _Keyword) -> _Keyword:
    """Extends a noun by an adjacent word if both form an entry: "window" to "window sill", "dogs" to "chili dogs"."""
    start, end = keyword.span
    behind = _WORD_BEHIND.match(keyword.caption, end)
    before = _WORD_BEFORE.search(keyword.caption[max(0, start - _LONGEST_NEIGHBOR) : start])
    spans = [(start, behind.end())] if behind else []
    spans += [(start - len(before[0]), end)] if before else []
    for span in spans if keyword.tag.startswith("NN") else []:
        place = keyword.lexicon.noun(keyword.caption[slice(*span)].lower())
        if place is not None:
            return replace(keyword, span=span, tag=place.tag)
    return keyword


def _is_auxiliary(keyword: _Keyword) -> bool:
    """Whether this is a form of "be", or of "have" or "do" before a participle or "not": "has been", "do not"."""
    if keyword.word in _BE:
        return True
    return keyword.word in _HAVE_DO and _AFTER_AUXILIARY.match(keyword.after.lstrip()) is not None


def _group_words(keyword: _Keyword, rng: random.Random) -> list[str]:
    """Other words of the keyword's group, looked up in its tag's class, then in the other classes."""
    by_class = {"N": _noun, "J": _adjective, "V": _verb, "C": _number, "I": _preposition}
    by_class |= {"T": _preposition, "R": _preposition}
    own = by_class.get(keyword.tag[:1], _noun)
    # Taggers err on captions, so a word that is missing from its own class is looked up in the others.
    others = [look_up for look_up in (_noun, _adjective, _verb, _preposition, _number) if look_up is not own]
    if own is _noun and _is_counted(keyword) is not None:
        others.remove(_verb)  # after an article a noun is not a verb: "a different color"
    for look_up in (own, *others):
        words = look_up(keyword)
        if words:
            return words
    if keyword.tag.startswith("CD") and any(sign.isdigit() for sign in keyword.word):
        return [_other_digits(keyword.word, rng)]
    # A compound's last word names the thing: a "school bus" is a bus.
    head = keyword.word.rpartition(" ")[2].rpartition("-")[2]
    if head != keyword.word and keyword.tag.startswith("N"):
        return _noun(keyword, head)
    return []


def _noun(keyword: _Keyword, form: str = "") -> list[str]:
    tags = NOUN_TAGS[::-1] if keyword.tag in ("NNS", "NNPS") else NOUN_TAGS
    place = keyword.lexicon.noun(form or keyword.word, tags)
    if place is None:
        return []
    is_counted, group = _is_counted(keyword), place.group
    is_plural = place.tag == "NNS" and not group.mass
    is_bare_mass = is_counted is None and (group.mass or place.base in MASS_NOUNS or place.base in group.free)
    plurals, fitting = [], []
    for other in _other_words(keyword, place.base, place.others()):
        plural = keyword.lexicon.inflection.plural(other)
        plurals.append(plural)
        # "scissors" and similar words have no form that fits after "a".
        has_no_singular = group.mass or (other == plural and other.endswith("s"))
        if is_counted and has_no_singular:
            continue
        if not is_bare_mass or group.mass or other in group.free:
            fitting.append(other)
    # "some luggage" becomes "some boxes". After "a" a mass noun describes another noun: "a wood bench".
    if is_plural or (is_bare_mass and not fitting):
        return plurals
    describes = is_counted and not fitting and keyword.lexicon.noun((_WORD.findall(keyword.after) or [""])[0])
    return list(place.others()) if describes else fitting


def _is_counted(keyword: _Keyword) -> bool | None:
    """Whether a noun's determiner needs a countable noun, such as "a"; None without a determiner."""
    for word in keyword.before[:_WORDS_OF_A_PHRASE]:
        if word in _OPENS_A_PHRASE:
            return word in _COUNTING
        if word in _ENDS_A_FRAME:
            return None
    return None


def _adjective(keyword: _Keyword) -> list[str]:
    place = keyword.lexicon.adjectives.get(keyword.word)
    return [] if place is None else _other_words(keyword, place.base, place.others())


def _verb(keyword: _Keyword) -> list[str]:
    """Other verbs, from the caption's frame before the other frames. A participle after a noun has its own frame."""
    frame = _frame(keyword)
    # The form of the tag comes first. If the tag is wrong, another form in the lexicon matches.
    tags = [keyword.tag] if keyword.tag in VERB_TAGS else []
    for name in dict.fromkeys((frame, "intransitive", "transitive", "participles")):
        place = keyword.lexicon.verb(keyword.word, name, [*tags, *(tag for tag in VERB_TAGS if tag not in tags)])
        if place is not None:
            others = _other_words(keyword, place.base, place.others())
            return [keyword.lexicon.inflection.verb(other, place.tag) for other in others]
    return []


def _frame(keyword: _Keyword) -> str:
    """The verb frame at the keyword, determined by the next word."""
    following = re.match(r"\s*([^\W_]+)", keyword.after)
    has_object = following is not None and following[1] not in _ENDS_A_FRAME and not following[1].endswith("ly")
    if keyword.tag in ("VBN", "VBD") and not has_object:
        return "participles"
    return "transitive" if has_object else "intransitive"


def _preposition(keyword: _Keyword) -> list[str]:
    following = _WORD.findall(keyword.after)[:4]
    if keyword.word in keyword.lexicon.before_clothes and keyword.lexicon.clothes.intersection(following):
        return list(keyword.lexicon.before_clothes[keyword.word])
    if keyword.word == "to" and (not following or keyword.lexicon.verb(following[0], "transitive", ["VB"])):
        return []  # starts an infinitive
    return list(keyword.lexicon.prepositions.get(keyword.word, ()))


def _number(keyword: _Keyword) -> list[str]:
    if keyword.word == "one":
        is_of = keyword.after.lstrip().startswith("of ")
        return [keyword.lexicon.one_of if is_of else keyword.lexicon.one]
    place = keyword.lexicon.numbers.get(keyword.word)
    return [] if place is None else _other_words(keyword, place.base, place.others())


def _other_digits(text: str, rng: random.Random) -> str:
    """A number with the same number of digits; no digit is kept and none is 0."""
    changed = [rng.choice("123456789".replace(sign, "")) if sign.isdigit() else sign for sign in text]
    return "".join(changed)


def _fallback(keyword: _Keyword) -> list[str]:
    """Words that fit hardly any photograph, in the form of the tag."""
    lists, inflection = keyword.lexicon.anything, keyword.lexicon.inflection
    if keyword.tag in ("NNP", "NNPS"):
        return _other_words(keyword, keyword.word, keyword.lexicon.names)
    if keyword.tag == "NNS":
        return [inflection.plural(word) for word in _other_words(keyword, keyword.word, lists["nouns"])]
    if keyword.tag.startswith("NN"):
        return _other_words(keyword, keyword.word, lists["mass" if keyword.word in MASS_NOUNS else "nouns"])
    if keyword.tag.startswith("JJ"):
        return _other_words(keyword, keyword.word, lists["adjectives"])
    if keyword.tag in VERB_TAGS:
        words = _other_words(keyword, keyword.word, lists[_frame(keyword)])
        return [inflection.verb(word, keyword.tag) for word in words]
    return list(lists["adverbs"]) if keyword.tag in ("RB", "RP") else []


def _other_words(keyword: _Keyword, base: str, words: Iterable[str]) -> list[str]:
    """Words that the caption does not contain and that do not name the keyword's thing."""
    # Things that the caption names are in the image, so a negative with them might be true.
    named = keyword.caption.lower()
    return [
        word
        for word in words
        if word != base
        and word not in MAY_BE_ONE.get(base, ())
        and not re.search(rf"\b{re.escape(word)}(?:s|es)?\b", named)
    ]
