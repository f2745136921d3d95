"""What a participle and a prepositional phrase modify, where the grammar of English leaves more than one word."""

from __future__ import annotations

from hfcomp.parsing.rules.chunks import Unit
from hfcomp.parsing.rules.clauses import Clauses
from hfcomp.parsing.rules.lemmas import lemma
from hfcomp.parsing.rules.words import MEASURES, PARTS_OF_THINGS


def doer(clauses: Clauses, unit: Unit, nouns: list[int]) -> int:
    """The noun of `nouns`, nearest first, that does what a participle says; -1 for none."""
    if not nouns:
        return -1
    nearest = nouns[0]
    if unit.tag == "VBN" and unit.word not in ("seated", "dressed", "perched"):
        return nearest
    animate = next((node for node in nouns if clauses.is_animate(node)), -1)
    while animate >= 0 and clauses.arcs.labels[animate] == "conj" and clauses.arcs.heads[animate] in nouns:
        animate = clauses.arcs.heads[animate]
    if animate >= 0:
        of = clauses.arcs.heads[nearest] if nearest != animate else -1
        counted = of >= 0 and clauses.words[of] == "of" and clauses.arcs.heads[of] == animate
        return nearest if counted and clauses.words[animate] in MEASURES else animate
    preposition = clauses.arcs.heads[nearest]
    if preposition >= 0 and clauses.words[preposition] == "of":
        owner = clauses.arcs.heads[preposition]
        return nearest if clauses.words[owner] in MEASURES else owner
    if preposition >= 0 and clauses.words[preposition] == "with":
        return nearest
    return nouns[-1]


def is_doer(clauses: Clauses, unit: Unit, word: int) -> bool:
    """Whether a noun can be what does it, rather than the subject of the clause."""
    return unit.tag == "VBN" or clauses.is_animate(word) or unit.word in ("sitting", "hanging", "laying")


def place(clauses: Clauses, preposition: str) -> int:
    """What a prepositional phrase modifies."""
    frontier = [
        node for node in clauses.frontier() if clauses.kinds.get(node) not in ("RP", "RB") or preposition == "of"
    ]
    if not frontier:
        return clauses.clause.last
    last = frontier[0]
    if preposition == "of" or clauses.kinds.get(last) != "NP":
        return last
    while clauses.arcs.labels[last] == "conj" and clauses.kinds.get(clauses.arcs.heads[last]) == "NP":
        last = clauses.arcs.heads[last]
    label, head = clauses.arcs.labels[last], clauses.arcs.heads[last]
    if label in ("dobj", "attr"):
        return last if preposition == "with" or _holds_object(clauses, head) else head
    if label == "pobj":
        return _place_after_phrase(clauses, preposition, last, head)
    return last


def _holds_object(clauses: Clauses, verb: int) -> bool:
    return lemma(clauses.words[verb], clauses.tags[verb]) in ("be", "have", "show", "take")


def _place_after_phrase(clauses: Clauses, preposition: str, noun: int, first: int) -> int:
    """As `place`, after "X `first` `noun`"."""
    outer = clauses.arcs.heads[first]
    if outer < 0:
        return noun
    kind, word = clauses.kinds.get(outer), clauses.words[first]
    if kind in ("RB", "P"):
        return _place_after_phrase(clauses, preposition, noun, outer)
    if word == "of" and kind == "NP":
        if clauses.words[outer] in PARTS_OF_THINGS and clauses.arcs.labels[outer] == "pobj":
            return _place_after_phrase(clauses, preposition, noun, clauses.arcs.heads[outer])
        if clauses.arcs.labels[outer] == "dobj" and preposition != "with":
            return clauses.arcs.heads[outer]
        return noun
    if word == "with" and kind == "NP":
        return noun
    if preposition == "with" and kind == "V":
        return noun
    return outer
