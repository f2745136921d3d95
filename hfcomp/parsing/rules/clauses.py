"""State of the rule-based parser: clauses of an incomplete sentence, the parser's moves, and the choice of heads."""

from __future__ import annotations

from dataclasses import dataclass, field

from hfcomp.parsing.rules.chunks import Arcs, Unit
from hfcomp.parsing.rules.words import ANIMATE, MEASURES, PARTS_OF_THINGS, lemma


@dataclass
class Clause:
    """An incomplete clause.

    Attributes:
        root: The highest word so far.
        last: The word attached last. New units can attach to it and to its heads.
        waiting: Words, with labels, that will attach to the clause's verb.
        relation: Label of the clause within the clause that contains it.
    """

    root: int = -1
    last: int = -1
    waiting: list[tuple[int, str]] = field(default_factory=list)
    relation: str = "ROOT"


class Clauses:
    """A sentence whose units so far are attached, from left to right.

    A unit may attach to the word attached last, to the head of that word, and so on up to the root of the open clause;
    or a verb takes the clause so far as its subject. There can therefore be no cycle.
    """

    def __init__(self, words: list[str], tags: list[str], units: list[Unit], arcs: Arcs) -> None:
        self.words, self.tags, self.units, self.arcs = words, tags, units, arcs
        self.kinds = {unit.head: unit.kind for unit in units}
        self.clauses = [Clause()]
        self.joiner = -1  # an "and" or comma that the next unit may use
        self.wants_object = -1  # a preposition without one

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

    def before(self, number: int, *skipped: str) -> Unit | None:
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
        # Search only up to the next boundary: a verb after a joint or subordinator belongs to another phrase.
        for unit in self.units[number:]:
            if unit.kind == "V":
                if unit.finite or any_form:
                    return True
            elif unit.kind in ("SC", "W", "CC", ",", "X", "TO", "EX"):
                return False
        return False

    def put(self, word: int, head: int, label: str) -> None:
        """Attaches a word to `head`. Without a head, starts the clause with the word or attaches it to the root."""
        if head < 0 and self.clause.root < 0:
            self.clause.root = word
            self.arcs.labels[word] = "ROOT"
        elif head < 0:
            self.arcs.add(word, self.clause.root, label)
        else:
            self.arcs.add(word, head, label)
        self.clause.last = word

    def wait(self, word: int, label: str) -> None:
        self.clause.waiting.append((word, label))

    def open(self, relation: str, root: int = -1) -> None:
        self.clauses.append(Clause(root, root, [], relation))

    def give_waiting(self, word: int) -> None:
        """Attaches the waiting words to their verb."""
        for left, label in self.clause.waiting:
            if left != word:
                self.arcs.add(left, word, label)
        self.clause.waiting = []

    def take_subject(self, word: int) -> None:
        """Makes a finite verb the root of its clause."""
        # The previous root becomes the subject, with everything attached to it: "a man in a hat" + "rides".
        clause = self.clause
        passive = any(label == "auxpass" and self.arcs.heads[i] == word for i, label in enumerate(self.arcs.labels))
        if clause.root >= 0:
            self.arcs.add(clause.root, word, "nsubjpass" if passive else "nsubj")
        clause.root = clause.last = word
        self.arcs.labels[word] = "ROOT"
        self.give_waiting(word)

    def close(self, word: int) -> None:
        """Ends a subordinate clause at its verb, which is attached to the outer clause."""
        self.take_subject(word)
        relation = self.clauses.pop().relation
        if relation == "conj":
            self.put(word, self.clause.root, relation)
        elif relation == "relcl":
            self.put(word, self.nearest("NP"), relation)
        elif relation == "xcomp":
            head = self.nearest("V", "J")
            self.put(word, head, "xcomp" if head >= 0 else "acl")
        else:
            self.put(word, self.nearest("V"), relation)


def doer(clauses: Clauses, unit: Unit, nouns: list[int]) -> int:
    """Returns the noun (of `nouns`, nearest first) that performs the action of a participle, or -1."""
    # In "a dog on a mat sleeping", the mat is nearer, but only the dog can sleep: choose the nearest person or animal.
    # A past participle ("parked", "covered") goes to the nearest noun, to which something was done.
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
    """Whether a noun, rather than the subject of the clause, can perform the action of a participle."""
    return unit.tag == "VBN" or clauses.is_animate(word) or unit.word in ("sitting", "hanging", "laying")


def place(clauses: Clauses, preposition: str) -> int:
    """Returns the word that a prepositional phrase modifies."""
    # Candidates are sorted by distance. "of" always belongs to the noun before it. Other prepositions tell where
    # something is or happens, so after an object they go to the verb, except "with", which describes things.
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
    """Does the same as `place` after "X `first` `noun`"."""
    # "a cat on a mat in a room": the second phrase tells where the cat is, so it attaches above the first one, unless
    # the two nouns name one thing ("a cup of coffee on ...", "the side of a road near ...").
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
