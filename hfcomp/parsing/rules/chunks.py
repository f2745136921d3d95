"""Shallow parser of the rule-based parser: groups tagged words into noun phrases, verb groups and single words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hfcomp.parsing.rules.tags import ADJECTIVES, BE, DETERMINERS, DO, FINITE, HAVE, NOUNS, UNIVERSAL, VERBS, tag_at
from hfcomp.parsing.words import word_set

_SUBORDINATORS = word_set(
    "while because if although though unless whereas until since as like before after when where that whether"
)
_LABELS = {"DT": "det", "PDT": "predet", "PRP$": "poss", "WP$": "poss", "CD": "nummod"}


@dataclass(frozen=True)
class Unit:
    """Neighboring words of a sentence that are attached as a whole.

    Attributes:
        kind: `NP` noun phrase, `V` verb group, `P` preposition, `J` adjective, `RB` adverb, `RP` particle, `TO`
            infinitive marker, `W` relative pronoun, `EX` existential there, `SC` subordinator, `CC`, `,` or `X`.
        head: Index of its head word.
        word: The head in lower case.
        tag: Penn tag of the head; for a verb group, the tag of its first verb.
    """

    kind: str
    head: int
    word: str
    tag: str

    @property
    def finite(self) -> bool:
        """Whether a verb group has a tense or a modal."""
        return self.kind == "V" and (self.tag in FINITE or self.tag == "VB")


@dataclass
class Arcs:
    """Heads and labels of a sentence. The head is -1 for a word that is not attached yet."""

    heads: list[int]
    labels: list[str]

    def add(self, word: int, head: int, label: str) -> None:
        self.heads[word], self.labels[word] = head, label


def find_units(words: Sequence[str], tags: Sequence[str]) -> tuple[list[Unit], Arcs]:
    """Splits a sentence (lowercase words with Penn tags) into units. Returns them and the arcs inside them."""
    # Greedy, from left to right, without backtracking. Noun phrases come first, because they are the longest and most
    # reliable. Later steps attach units by their heads, so a sentence of 12 words is reduced to five or six units.
    arcs = Arcs([-1] * len(words), [""] * len(words))
    units: list[Unit] = []
    i = 0
    while i < len(words):
        end = _noun_phrase_end(tags, i)
        if end > i:
            head = _attach_noun_phrase(tags, i, end, arcs)
            units.append(Unit("NP", head, words[head], tags[head]))
        elif _starts_verb_group(tags, i):
            first, head, end = _attach_verb_group(words, tags, i, arcs)
            units.append(Unit("V", head, words[head], tags[first]))
        else:
            end = i + 1
            units.append(Unit(_kind(words[i], tags[i]), i, words[i], tags[i]))
        i = end
    return units, arcs


def _kind(word: str, tag: str) -> str:
    if word in _SUBORDINATORS and tag in ("IN", "WRB"):
        return "SC"
    if tag in ("WDT", "WP"):
        return "W"
    if tag in ADJECTIVES:
        return "J"
    if tag in ("TO", "EX", "CC", ",", "RP"):
        return tag
    return {"IN": "P", "WRB": "SC", "RB": "RB", "RBR": "RB", "RBS": "RB", "PRP": "NP"}.get(tag, "X")


def _noun_phrase_end(tags: Sequence[str], start: int) -> int:
    """Returns the index after the noun phrase that starts at `start`, or `start` if none does."""
    # `after_noun`: the last word was a noun, so the phrase may end here or continue as a compound. `determined`: there
    # is a determiner or number. `end` is after the last noun, because modifiers without a noun are separate units.
    i, end, after_noun, determined = start, start, False, False
    while i < len(tags):
        tag = tags[i]
        if tag in NOUNS:
            after_noun, end = True, i + 1
        elif tag == "POS" and after_noun:
            after_noun = False
        elif tag in DETERMINERS or tag == "CD":
            if after_noun:
                break
            determined = True
        elif tag in ADJECTIVES:
            if after_noun and not (tag_at(tags, i + 1) in NOUNS and tag_at(tags, i - 1) == "NN" and determined):
                break
        elif not _joins_modifiers(tags, i, after_noun):
            break
        i += 1
    if end == start and determined:
        end = _bare_phrase_end(tags, start)
    return end


def _joins_modifiers(tags: Sequence[str], i: int, after_noun: bool) -> bool:
    """Whether an adverb, participle, comma, "and" or hyphen joins the modifiers of a single noun."""
    before, after = tag_at(tags, i - 1), tag_at(tags, i + 1)
    if tags[i] == "HYPH":
        return after in NOUNS | ADJECTIVES | VERBS | {"CD", "IN", "RB", "RP", "CC"} and i > 0
    if before == "HYPH":
        return True
    if tags[i] in ("RB", "RBR", "RBS"):
        return not after_noun and after in ADJECTIVES | {"CD", "RB"}
    if tags[i] in ("CC", ","):
        return not after_noun and before in ADJECTIVES and (after in ADJECTIVES or (tags[i] == "," and after == "CC"))
    if tags[i] in VERBS:
        return not after_noun and before in ADJECTIVES and after in NOUNS
    return False


def _bare_phrase_end(tags: Sequence[str], start: int) -> int:
    """Returns the index after a phrase without a noun: "two" in "two of them", "each other", "the left"."""
    i = start
    while i < len(tags) and (tags[i] in DETERMINERS or tags[i] == "CD" or tags[i] in ADJECTIVES):
        i += 1
    return i


def _attach_noun_phrase(tags: Sequence[str], start: int, end: int, arcs: Arcs) -> int:
    head = end - 1  # English noun phrases end with their head
    # The last "'s" splits the phrase in two, and the owner is a separate phrase ("the man's dog's tail").
    owner = next((i for i in range(end - 1, start, -1) if tags[i] == "POS" and tags[i - 1] in NOUNS), None)
    if owner is not None:
        possessor = _attach_noun_phrase(tags, start, owner, arcs)
        arcs.add(possessor, head, "poss")
        arcs.add(owner, possessor, "case")
        start = owner + 1
    for i in range(start, head):
        _attach_modifier(tags, i, head, start, arcs)
    return head


def _attach_modifier(tags: Sequence[str], i: int, head: int, start: int, arcs: Arcs) -> None:
    tag, before = tags[i], tag_at(tags, i - 1)
    if tag in ("CC", ",") and i > start:
        conjunct = next(j for j in range(i - 1, start - 1, -1) if tags[j] not in ("CC", ","))
        arcs.add(i, conjunct, "cc" if tag == "CC" else "punct")
    elif before in ("CC", ",") and i - 1 > start:
        arcs.add(i, arcs.heads[i - 1], "conj")
    elif UNIVERSAL[tag] == "ADV" and tag_at(tags, i + 1) != "HYPH":
        arcs.add(i, i + 1, "advmod")
    elif tag == "HYPH":
        arcs.add(i, head, "punct")
    elif tag in NOUNS:
        arcs.add(i, head, "compound")
    else:
        arcs.add(i, head, _LABELS.get(tag, "amod"))


def _starts_verb_group(tags: Sequence[str], i: int) -> bool:
    while tag_at(tags, i) == "RB":
        i += 1
    return tag_at(tags, i) in VERBS | {"MD"}


def _attach_verb_group(words: Sequence[str], tags: Sequence[str], i: int, arcs: Arcs) -> tuple[int, int, int]:
    """Attaches auxiliaries and adverbs before the main verb. Returns the group's first verb, main verb and end."""
    start = i
    while tags[i] == "RB":
        i += 1
    first = main = i
    while (following := _next_in_group(words, tags, main)) is not None:
        arcs.add(main, following, "aux")
        main = following
    for j in range(start, main):
        passive = words[j] in BE and tags[main] in ("VBN", "VBD") and words[main] not in BE
        label = ("auxpass" if passive else "aux") if tags[j] in VERBS | {"MD"} else "advmod"
        arcs.add(j, main, "neg" if words[j] in ("not", "n't") else label)
    return first, main, main + 1


def _next_in_group(words: Sequence[str], tags: Sequence[str], i: int) -> int | None:
    after = i + 1
    while tag_at(tags, after) == "RB":
        after += 1
    form = tag_at(tags, after)
    if tags[i] == "MD":
        allowed = VERBS
    elif words[i] in BE:
        allowed = frozenset({"VBG", "VBN", "VBD"})
    elif words[i] in HAVE:
        allowed = frozenset({"VBN", "VBD"})
    elif words[i] in DO:
        allowed = frozenset({"VB"})
    else:
        return None
    return after if form in allowed else None
