"""State of the rule-based parser: the clauses of a sentence parsed so far, its actions, and how it chooses heads."""

from __future__ import annotations

from dataclasses import dataclass, field

from hfcomp.parsing.rules.chunks import Arcs, Unit
from hfcomp.parsing.rules.words import ANIMATE, MEASURES, PARTS_OF_THINGS, lemma


@dataclass
class Clause:
    """An incomplete clause.

    Attributes:
        root: Index of the highest word so far, or -1.
        last: Index of the word attached last, or -1. New units can attach to it and to its heads.
        deferred: Words, with labels, that will attach to the clause's verb.
        relation: Label of the clause within the clause that contains it.
    """

    root: int = -1
    last: int = -1
    deferred: list[tuple[int, str]] = field(default_factory=list)
    relation: str = "ROOT"


class Clauses:
    """A sentence that is parsed from left to right. All its units so far are attached or deferred.

    A unit may attach to the word attached last, to the head of that word, and so on up to the root of the innermost
    clause. A verb may also take the clause so far as its subject. Therefore, no cycle can arise.
    """

    def __init__(self, words: list[str], tags: list[str], units: list[Unit], arcs: Arcs) -> None:
        self.words, self.tags, self.units, self.arcs = words, tags, units, arcs
        self.kinds = {unit.head: unit.kind for unit in units}
        self.clauses = [Clause()]
        self.joiner = -1  # index of an "and" or comma before the next unit, or -1
        self.open_preposition = -1  # index of a preposition that has no object yet, or -1

    @property
    def clause(self) -> Clause:
        return self.clauses[-1]

    def frontier(self) -> list[int]:
        """Returns the unit heads that can take dependents, from the last word up to the root of the clause."""
        nodes, node = [], self.clause.last
        while node >= 0 and node not in nodes:
            nodes.append(node)
            node = self.arcs.heads[node]
        return nodes

    def nearest(self, *kinds: str) -> int:
        """Returns the nearest word of the frontier that heads a unit of these kinds, or -1."""
        return next((node for node in self.frontier() if self.kinds.get(node) in kinds), -1)

    def unit_before(self, number: int, *skipped: str) -> Unit | None:
        """Returns the unit before unit `number`, ignoring some kinds, or None."""
        number -= 1
        while number >= 0 and self.units[number].kind in skipped:
            number -= 1
        return self.units[number] if number >= 0 else None

    def is_animate(self, word: int) -> bool:
        return lemma(self.words[word], self.tags[word]) in ANIMATE

    def is_copula(self, word: int) -> bool:
        return lemma(self.words[word], self.tags[word]) == "be"

    def has_expletive(self, verb: int) -> bool:
        return any(label == "expl" and self.arcs.heads[i] == verb for i, label in enumerate(self.arcs.labels))

    def finite_verb_ahead(self, number: int, any_form: bool = False) -> bool:
        """Whether the units from `number` on contain a verb before the next boundary."""
        # A verb after a conjunction, comma or subordinator belongs to another phrase.
        for unit in self.units[number:]:
            if unit.kind == "V":
                if unit.finite or any_form:
                    return True
            elif unit.kind in ("SC", "W", "CC", ",", "X", "TO", "EX"):
                return False
        return False

    def attach(self, word: int, head: int, label: str) -> None:
        """Attaches a word to `head` or, if negative, to the clause's root; without a root, it becomes the root."""
        if head < 0 and self.clause.root < 0:
            self.clause.root = word
            self.arcs.labels[word] = "ROOT"
        elif head < 0:
            self.arcs.add(word, self.clause.root, label)
        else:
            self.arcs.add(word, head, label)
        self.clause.last = word

    def defer(self, word: int, label: str) -> None:
        self.clause.deferred.append((word, label))

    def open_clause(self, relation: str, root: int = -1) -> None:
        self.clauses.append(Clause(root, root, [], relation))

    def attach_deferred(self, verb: int) -> None:
        """Attaches the deferred words to their verb."""
        for word, label in self.clause.deferred:
            if word != verb:
                self.arcs.add(word, verb, label)
        self.clause.deferred = []

    def set_verb(self, word: int) -> None:
        """Makes a verb the root of its clause, and the previous root its subject."""
        # The subject keeps everything attached to it: "a man in a hat" + "rides".
        clause = self.clause
        passive = any(label == "auxpass" and self.arcs.heads[i] == word for i, label in enumerate(self.arcs.labels))
        if clause.root >= 0:
            self.arcs.add(clause.root, word, "nsubjpass" if passive else "nsubj")
        clause.root = clause.last = word
        self.arcs.labels[word] = "ROOT"
        self.attach_deferred(word)

    def close_clause(self, word: int) -> None:
        """Ends a subordinate clause at its verb, which is attached to the outer clause."""
        self.set_verb(word)
        relation = self.clauses.pop().relation
        if relation == "conj":
            self.attach(word, self.clause.root, relation)
        elif relation == "relcl":
            self.attach(word, self.nearest("NP"), relation)
        elif relation == "xcomp":
            head = self.nearest("V", "J")
            self.attach(word, head, "xcomp" if head >= 0 else "acl")
        else:
            self.attach(word, self.nearest("V"), relation)


def described_by_participle(clauses: Clauses, unit: Unit, nouns: list[int]) -> int:
    """Returns which of `nouns` (nearest first) a participle describes, or -1."""
    # In "a dog on a mat sleeping", the mat is nearer, but only the dog can sleep: choose the nearest person or animal.
    # A past participle ("parked", "covered") usually describes the nearest noun, which is acted upon.
    if not nouns:
        return -1
    nearest = nouns[0]
    if unit.tag == "VBN" and unit.word not in ("seated", "dressed", "perched"):
        return nearest
    animate = next((node for node in nouns if clauses.is_animate(node)), -1)
    while animate >= 0 and clauses.arcs.labels[animate] == "conj" and clauses.arcs.heads[animate] in nouns:
        animate = clauses.arcs.heads[animate]
    if animate >= 0:
        link = clauses.arcs.heads[nearest] if nearest != animate else -1
        joined = link >= 0 and clauses.words[link] == "of" and clauses.arcs.heads[link] == animate
        return nearest if joined and clauses.words[animate] in MEASURES else animate
    preposition = clauses.arcs.heads[nearest]
    if preposition >= 0 and clauses.words[preposition] == "of":
        whole = clauses.arcs.heads[preposition]
        return nearest if clauses.words[whole] in MEASURES else whole
    if preposition >= 0 and clauses.words[preposition] == "with":
        return nearest
    return nouns[-1]


def may_take_participle(clauses: Clauses, unit: Unit, word: int) -> bool:
    """Whether a participle may attach to this noun rather than to the verb whose subject it shares."""
    return unit.tag == "VBN" or clauses.is_animate(word) or unit.word in ("sitting", "hanging", "laying")


def prepositional_head(clauses: Clauses, preposition: str) -> int:
    """Returns the word that a prepositional phrase modifies."""
    # The nearest candidate comes first. "of" always belongs to the word before it. Other prepositions say where
    # something is or happens, so after an object they attach to the verb, except "with", which describes things.
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
        is_light = lemma(clauses.words[head], clauses.tags[head]) in ("be", "have", "show", "take")
        return last if preposition == "with" or is_light else head
    if label == "pobj":
        return _head_after_phrase(clauses, preposition, last, head)
    return last


def _head_after_phrase(clauses: Clauses, preposition: str, noun: int, first: int) -> int:
    """Returns the word that a phrase modifies after "X `first` `noun`", a preposition and its object."""
    # "a cat on a mat in a room": the second phrase says where the cat is, so it attaches above the first one, unless
    # both nouns name one thing ("a cup of coffee on ...", "the side of a road near ...").
    outer = clauses.arcs.heads[first]
    if outer < 0:
        return noun
    kind, word = clauses.kinds.get(outer), clauses.words[first]
    if kind in ("RB", "P"):
        return _head_after_phrase(clauses, preposition, noun, outer)
    if word == "of" and kind == "NP":
        if clauses.words[outer] in PARTS_OF_THINGS and clauses.arcs.labels[outer] == "pobj":
            return _head_after_phrase(clauses, preposition, noun, clauses.arcs.heads[outer])
        if clauses.arcs.labels[outer] == "dobj" and preposition != "with":
            return clauses.arcs.heads[outer]
        return noun
    if word == "with" and kind == "NP":
        return noun
    if preposition == "with" and kind == "V":
        return noun
    return outer
