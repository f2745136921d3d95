"""Paraphrase table for `hfcomp.negatives.rewordings`: words and phrases with the same meaning in a caption.

A pair is listed if a caption stays true with the other word in any context. Some common synonyms are not listed: "on
top of" and "on" (a picture on a wall), "near" and "next to" (how near), "person" and "man", "road" and "street",
"stove" and "oven", "sitting" and "seated" (a vase is not seated), "in front of" and "before".
"""

from __future__ import annotations

from dataclasses import dataclass

from hfcomp.parsing.words import phrase_set, word_set


@dataclass(frozen=True)
class Synonym:
    """A word or phrase and its paraphrase.

    Attributes:
        words: The words in lower case, in the order of the caption.
        other: The paraphrase that replaces them.
        classes: Allowed word classes of the first word; empty for any.
        not_before: Words that must not follow.
        not_after: Words that must not precede.
        before: Allowed word classes of the following word; empty for any.
    """

    words: tuple[str, ...]
    other: str
    classes: tuple[str, ...] = ()
    not_before: frozenset[str] = frozenset()
    not_after: frozenset[str] = frozenset()
    before: tuple[str, ...] = ()


_NOUN = ("NOUN", "PROPN")
_THING = ("NOUN", "PROPN", "ADJ")
_PHRASE = ("DET", "NOUN", "PROPN", "ADJ", "NUM", "PRON")


def _both_ways(pairs: str, **conditions: tuple[str, ...] | frozenset[str]) -> list[Synonym]:
    synonyms = []
    for pair in pairs.split(","):
        first, second = pair.strip().split("=")
        synonyms += [_one_way(first, second, **conditions), _one_way(second, first, **conditions)]
    return synonyms


def _one_way(words: str, other: str, **conditions: tuple[str, ...] | frozenset[str]) -> Synonym:
    return Synonym(tuple(words.lower().split()), other, **conditions)  # type: ignore[arg-type]


_TV_THINGS = word_set("monitor set show screen stand station studio tower remote cabinet")
# In "a large number of" and "a big deal", the word is not the size of a thing; in "big sister" and "little girl", it
# refers to age.
_NOT_LARGE_THINGS = word_set(
    "amount apple ben bird brother crowd day deal dipper game group hit amounts number numbers portion quantity rig "
    "screen sister smile top toe variety wave wheel"
)
_YOUNG = word_set("baby boy boys brother child children girl girls guy kid kids kitten lady league man one ones")
_PETS_AND_KIN = frozenset((*_YOUNG, "puppy", "sister", "toddler", "bit", "amount", "number", "of", "town"))
_BEFORE_SIZE = word_set("as how so too very quite pretty")

SYNONYMS: tuple[Synonym, ...] = (
    *_both_ways("couch=sofa,couches=sofas", classes=_NOUN, not_before=frozenset({"bed", "beds"})),
    *_both_ways("TV=television,TVs=televisions", classes=_NOUN, not_before=_TV_THINGS),
    *_both_ways("bicycle=bike,bicycles=bikes", classes=_NOUN, not_after=frozenset({"dirt", "motor", "mountain"})),
    *_both_ways("refrigerator=fridge,refrigerators=fridges,donut=doughnut,donuts=doughnuts", classes=_NOUN),
    *_both_ways("motorcycle=motorbike,motorcycles=motorbikes,airplane=plane,airplanes=planes", classes=_NOUN),
    _one_way("aeroplane", "plane", classes=_NOUN),
    *_both_ways("cell phone=mobile phone,cell phones=mobile phones,tennis racket=tennis racquet", classes=_THING),
    *_both_ways("photo=photograph,photos=photographs", classes=_NOUN),
    *_both_ways("trash can=garbage can,trash cans=garbage cans", classes=_NOUN),
    _one_way("automobile", "car", classes=_NOUN),
    _one_way("automobiles", "cars", classes=_NOUN),
    _one_way(
        "lady", "woman", classes=("NOUN",), not_before=frozenset({"bug", "bugs"}), not_after=frozenset({"first"})
    ),
    _one_way("ladies", "women", classes=("NOUN",), not_before=frozenset({"room"})),
    *_both_ways("kids=children", classes=("NOUN",), not_after=_BEFORE_SIZE),
    *_both_ways("gray=grey", classes=("ADJ", "NOUN")),
    *_both_ways(
        "big=large", classes=("ADJ",), before=_THING, not_before=_NOT_LARGE_THINGS, not_after=_BEFORE_SIZE | {"such"}
    ),
    _one_way("little", "small", classes=("ADJ",), before=("NOUN",), not_before=_PETS_AND_KIN, not_after=_BEFORE_SIZE),
    _one_way("small", "little", classes=("ADJ",), before=("NOUN",), not_before=_PETS_AND_KIN, not_after=_BEFORE_SIZE),
    *_both_ways("next to=beside", before=_PHRASE, not_before=frozenset({"each", "one", "last"})),
    _one_way("close to", "near", before=_PHRASE, not_before=frozenset({"each", "one", "camera"})),
    *_both_ways("atop=on top of", before=_PHRASE),
    *_both_ways("underneath=beneath", before=_PHRASE),
    _one_way("beneath", "under", before=_PHRASE),
    _one_way("underneath", "under", before=_PHRASE),
    *_both_ways("toward=towards", before=_PHRASE),
    _one_way("upon", "on", classes=("ADP", "SCONJ"), before=_PHRASE),
    *_both_ways("several=multiple", classes=("ADJ", "DET"), before=_THING),
    _one_way("a lot of", "many", before=("NOUN",)),
    _one_way("lots of", "many", before=("NOUN",)),
)
SYNONYMS_BY_FIRST_WORD = {
    word: tuple(synonym for synonym in SYNONYMS if synonym.words[0] == word)
    for word in {synonym.words[0] for synonym in SYNONYMS}
}
# Only a plural may follow these: "many food" is ungrammatical.
NEEDS_PLURAL = frozenset({"many", "multiple", "several"})

# Relations R and S such that X R Y means the same as Y S X. Not listed: "in front of" and "behind" (a man in front of
# a television need not have it behind him), "on" and "under" (a lamp under a ceiling is not a ceiling on a lamp),
# "inside" and "around".
CONVERSES = {
    **{
        relation: other
        for pair in (("left of", "right of"), ("to the left of", "to the right of"))
        for relation, other in (pair, pair[::-1])
    },
    **{relation: other for pair in (("above", "below"), ("over", "under")) for relation, other in (pair, pair[::-1])},
    **{"on the left of": "on the right of", "on the right of": "on the left of"},
    **{"beneath": "above", "underneath": "over"},
    **{same: same for same in ("next to", "beside", "near", "close to", "adjacent to")},
}

# Pairs with a fixed order.
FIXED_ORDERS = phrase_set("mac cheese,macaroni cheese,salt pepper,bread butter,fish chips,peanut jelly,gin tonic")
