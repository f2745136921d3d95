"""Head attachment in the rule-based parser: attaches the units of a sentence one by one, from left to right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hfcomp.parsing.rules.chunks import Arcs, Unit, find_units
from hfcomp.parsing.rules.clauses import Clauses, described_by_participle, may_take_participle, prepositional_head
from hfcomp.parsing.rules.tags import BE, NOUNS, UNIVERSAL, penn_tags
from hfcomp.parsing.rules.words import ADVERBS_BEFORE_PREPOSITION, ADVERBS_LIKE_PREPOSITIONS, NOMINATIVES, lemma

# Number of words at which a sentence is split, because a word can attach to any preceding word, which takes quadratic
# time. Sentences in prose are not that long.
_MAX_SENTENCE_WORDS = 128
_PRONOUNS = frozenset({"something", "someone", "anything", "nothing", "everyone", "everything"})


def parse_words(words: list[str]) -> dict[str, list]:
    """Returns the arguments of a caption's `Doc` by name. `words` include white space."""
    # Sentences are parsed without white space, so arcs use positions in the sentence and are mapped back to the
    # caption. spaCy also requires a head for white space: the word before it.
    tags = ["_SP"] * len(words)
    pos = ["SPACE"] * len(words)
    heads = list(range(len(words)))
    deps = [""] * len(words)
    for sentence in _sentences(words):
        sentence_tags = penn_tags([words[i] for i in sentence])
        arcs = find_arcs([words[i] for i in sentence], sentence_tags)
        universal = _universal_tags([words[i] for i in sentence], sentence_tags, arcs.labels, arcs.heads)
        for k, i in enumerate(sentence):
            tags[i], pos[i], deps[i] = sentence_tags[k], universal[k], arcs.labels[k]
            heads[i] = sentence[arcs.heads[k]]
    before = -1
    for i, word in enumerate(words):
        if word.isspace():
            heads[i] = before if before >= 0 else i
            deps[i] = "dep"
        else:
            before = i
    first = next((i for i, word in enumerate(words) if not word.isspace()), 0)
    for i in range(first):
        heads[i] = first
    for i, head in enumerate(heads):
        if i == head:
            deps[i] = "ROOT"
    lemmas = [word if tag == "_SP" else lemma(word, tag) for word, tag in zip(words, tags, strict=True)]
    return {"tags": tags, "pos": pos, "heads": heads, "deps": deps, "lemmas": lemmas}


def _sentences(words: list[str]) -> Iterator[list[int]]:
    """Yields the indices of each sentence's words, without white space. Sentences that are too long are split."""
    sentence: list[int] = []
    ended = False
    for i, word in enumerate(words):
        if word.isspace():
            continue
        is_mark = word[0] in ".!?" and len(word.strip(".!?")) == 0 and set(word) != {"."} or word == "."
        is_new = ended and not is_mark and any(character.isalnum() for character in word)
        if is_new or len(sentence) == _MAX_SENTENCE_WORDS:
            yield sentence
            sentence, ended = [], False
        sentence.append(i)
        ended = ended or is_mark
    if sentence:
        yield sentence


def _universal_tags(words: list[str], tags: list[str], labels: list[str], heads: list[int]) -> list[str]:
    existential = {head for head, label in zip(heads, labels, strict=True) if label == "expl"}
    pos = []
    for i, (word, tag, label) in enumerate(zip(words, tags, labels, strict=True)):
        if (
            label in ("aux", "auxpass")
            and tag != "TO"
            or (word.lower() in BE and tag != "POS" and i not in existential)
        ):
            pos.append("AUX")
        elif label == "mark" and tag == "IN":
            pos.append("SCONJ")
        elif label == "neg":
            pos.append("PART")
        elif word.lower() in _PRONOUNS or (tag == "DT" and label not in ("det", "predet", "amod", "dep")):
            pos.append("PRON")
        else:
            pos.append(UNIVERSAL[tag])
    return pos


def find_arcs(words: Sequence[str], tags: Sequence[str]) -> Arcs:
    """Determines the heads and labels of a sentence's words (without white space) from their Penn tags.

    Exactly one word, labeled `ROOT`, is its own head. Labels are those of spaCy's English pipelines.
    """
    lower = [word.lower() for word in words]
    units, arcs = find_units(lower, tags)
    return _Sentence(lower, list(tags), units, arcs).parse()


class _Sentence(Clauses):
    """Attaches each unit by its kind, in one pass and without revision.

    A handler decides from the units on the left, and looks ahead only to check whether a verb follows. This resolves
    the main ambiguity in captions: whether a noun phrase is an object or the subject of a following clause.
    """

    def parse(self) -> Arcs:
        handlers = {
            "NP": self.attach_noun_phrase,
            "V": self.attach_verb,
            "P": self.attach_preposition,
            "J": self.attach_adjective,
            "RB": self.attach_adverb,
            "W": self.attach_relative,
            "EX": self.attach_existential,
            "SC": self.attach_subordinator,
        }
        for number, unit in enumerate(self.units):
            if unit.kind in ("CC", ","):
                self.set_joiner(unit)
                continue
            handlers.get(unit.kind, self.attach_other)(unit, number)
            if self.joiner >= 0 and unit.kind != "RB":
                self.attach_joiner(self.joiner, unit.head)
                self.joiner = -1
        return self.finish()

    def set_joiner(self, unit: Unit) -> None:
        if self.joiner >= 0:
            self.attach_joiner(self.joiner, unit.head)
        self.joiner = unit.head

    def attach_joiner(self, joiner: int, following: int) -> None:
        """Attaches an "and" or comma to the first unit that it joins, otherwise to the word before it."""
        # This is known only once the next unit is attached: "a cat and a dog" joins nouns, "sits and sleeps" verbs.
        if self.arcs.heads[joiner] >= 0:
            return
        label = "cc" if self.tags[joiner] == "CC" else "punct"
        head = self.arcs.heads[following] if self.arcs.labels[following] == "conj" else -1
        if head < 0 or head == joiner:
            head = self.clause.last if 0 <= self.clause.last < joiner else -1
        if head >= 0:
            self.arcs.add(joiner, head, label)
        else:
            self.clauses[0].deferred.append((joiner, label))

    def attach_noun_phrase(self, unit: Unit, number: int) -> None:
        word, before = unit.head, self.unit_before(number, "RB", "RP")
        clause = self.clause
        if self.open_preposition >= 0:
            self.attach(word, self.open_preposition, "pobj")
            self.open_preposition = -1
        elif clause.root < 0:
            self.attach(word, -1, "")
        elif self.joiner >= 0:
            self.attach_joined_noun_phrase(unit, number)
        elif clause.relation == "relcl" and self.kinds.get(clause.root) == "W":
            self.defer(clause.root, "dobj")
            clause.root = clause.last = word
        elif unit.word in NOMINATIVES and self.finite_verb_ahead(number + 1):
            self.open_clause("ccomp", word)
        elif before is not None and before.kind == "V" and before.head in self.frontier():
            self.attach(word, before.head, "attr" if self.is_copula(before.head) else "dobj")
        else:
            self.attach(word, self.nearest("NP", "V", "J"), "appos")

    def attach_joined_noun_phrase(self, unit: Unit, number: int) -> None:
        # "a man rides a horse and a dog runs": if a verb follows, the phrase starts a clause. Otherwise, it joins the
        # nearest noun, or the nearest animate noun if it is animate: in "a man in a hat and a woman", "woman" joins
        # "man".
        root_kind = self.kinds.get(self.clause.root)
        if root_kind == "V" and self.finite_verb_ahead(number + 1):
            self.open_clause("conj", unit.head)
            return
        nouns = [node for node in self.frontier() if self.kinds.get(node) == "NP"]
        head = nouns[0] if nouns else -1
        if self.is_animate(unit.head) and nouns and not self.is_animate(head):
            head = next((node for node in nouns if self.is_animate(node)), head)
        self.attach(unit.head, head if head >= 0 else self.clause.last, "conj")

    def attach_verb(self, unit: Unit, number: int) -> None:
        # Cases in this order: the verb of an open subordinate clause, the verb after a preposition ("by riding"), the
        # first word of a clause, the second of two joined verbs, the verb of the noun phrase so far, a participle.
        before = self.unit_before(number, "RB")
        word, clause = unit.head, self.clause
        if len(self.clauses) > 1 and (unit.finite or clause.root < 0 or not self.finite_verb_ahead(number + 1)):
            self.close_clause(word)
        elif self.open_preposition >= 0 and not unit.finite:
            self.attach(word, self.open_preposition, "pcomp")
            self.open_preposition = -1
        elif clause.root < 0:
            self.attach(word, -1, "")
            self.attach_deferred(word)
        elif self.joiner >= 0 and self.nearest("V") >= 0:
            self.attach_joined_verb(unit)
        elif unit.finite and self.kinds.get(clause.root) != "V":
            self.set_verb(word)
        elif unit.finite:
            is_relative = before is not None and before.kind == "NP" and before.head == clause.last
            self.attach(word, clause.last if is_relative else clause.root, "relcl" if is_relative else "conj")
        else:
            self.attach_participle(unit, number)
        self.open_preposition = -1

    def attach_joined_verb(self, unit: Unit) -> None:
        # Join verbs of the same form: in "sitting on a bench eating and drinking", "drinking" joins "eating".
        verbs = [node for node in self.frontier() if self.kinds.get(node) == "V"]
        same = [node for node in verbs if self.tags[node] == self.tags[unit.head]]
        if unit.finite and self.kinds.get(self.clause.root) == "V":
            same = [self.clause.root]
        elif unit.finite and not same:
            self.set_verb(unit.head)
            return
        if not same and self.tags[self.joiner] == ",":
            self.attach(unit.head, self.clause.root, "advcl" if self.clause.root in verbs else "acl")
        else:
            self.attach(unit.head, (same or verbs)[0], "conj")

    def attach_participle(self, unit: Unit, number: int) -> None:
        """Attaches a verb without tense to a noun, or to the verb whose subject it shares."""
        nouns = [node for node in self.frontier() if self.kinds.get(node) in ("NP", "X")]
        verb = self.nearest("V")
        head = described_by_participle(self, unit, nouns)
        has_subject = verb == self.clause.root and not self.has_expletive(verb)
        if verb >= 0 and (head < 0 or (has_subject and not may_take_participle(self, unit, head))):
            head = verb
        self.attach(unit.head, head, "acl" if self.kinds.get(head) in ("NP", "X") else "advcl")

    def attach_preposition(self, unit: Unit, number: int) -> None:
        before = self.unit_before(number)
        word = unit.head
        if self.clause.root < 0:
            self.defer(word, "prep")
            self.clause.last = word
        elif self.open_preposition >= 0:
            self.attach(word, self.open_preposition, "prep")
        elif before is not None and before.kind == "RB" and self.arcs.heads[before.head] < 0:
            self.attach(word, prepositional_head(self, unit.word), "prep")
            self.arcs.add(before.head, word, "advmod")
        elif before is not None and self.completes_expression(unit, before):
            self.attach(word, before.head, "prep")
        else:
            self.attach(word, prepositional_head(self, unit.word), "prep")
        self.open_preposition = word

    def completes_expression(self, unit: Unit, before: Unit) -> bool:
        """Whether a preposition is the second half of an expression such as "next to" or "off of"."""
        if unit.word == "of" and before.kind == "RP":
            return True
        return before.word in ADVERBS_LIKE_PREPOSITIONS and before.head == self.clause.last

    def attach_adjective(self, unit: Unit, number: int) -> None:
        before = self.unit_before(number, "RB")
        if self.joiner >= 0 and self.nearest("J") >= 0:
            self.attach(unit.head, self.nearest("J"), "conj")
        elif self.open_preposition >= 0:
            self.attach(unit.head, self.open_preposition, "pcomp")
            self.open_preposition = -1
        elif before is not None and before.kind == "V" and before.head in self.frontier():
            self.attach(unit.head, before.head, "acomp")
        else:
            self.attach(unit.head, self.nearest("NP", "V"), "amod")

    def attach_adverb(self, unit: Unit, number: int) -> None:
        following = self.units[number + 1] if number + 1 < len(self.units) else None
        kind = following.kind if following is not None else ""
        if self.clause.root < 0:
            self.defer(unit.head, "advmod")
        elif kind == "J" and following is not None:
            self.arcs.add(unit.head, following.head, "advmod")
        elif kind == "P" and unit.word in ADVERBS_BEFORE_PREPOSITION:
            return
        elif kind == "P" and unit.word in ADVERBS_LIKE_PREPOSITIONS:
            self.attach(unit.head, prepositional_head(self, unit.word), "advmod")
        elif self.open_preposition >= 0 and kind != "NP":
            self.attach(unit.head, self.open_preposition, "pcomp")
            self.open_preposition = -1
        else:
            self.arcs.add(unit.head, max(self.nearest("V"), self.nearest("J"), -1), "advmod")
            if self.arcs.heads[unit.head] < 0:
                self.arcs.add(unit.head, self.clause.last, "advmod")

    def attach_relative(self, unit: Unit, number: int) -> None:
        if self.clause.root >= 0 and self.finite_verb_ahead(number + 1):
            self.open_clause("relcl", unit.head)
        else:
            self.attach_noun_phrase(unit, number)

    def attach_existential(self, unit: Unit, number: int) -> None:
        if self.clause.root >= 0:
            self.open_clause("conj" if self.joiner >= 0 else "ccomp")
        self.defer(unit.head, "expl")

    def attach_subordinator(self, unit: Unit, number: int) -> None:
        following = self.units[number + 1] if number + 1 < len(self.units) else None
        always_joins_clauses = unit.word in ("while", "because", "if", "although", "though", "when", "where", "that")
        if following is not None and self.finite_verb_ahead(number + 1, any_form=following.kind == "V"):
            if self.clause.root < 0:
                self.defer(unit.head, "mark")
                return
            after_noun = self.kinds.get(self.clause.last) == "NP"
            self.open_clause("relcl" if unit.word in ("where", "that") and after_noun else "advcl")
            self.defer(unit.head, "advmod" if unit.tag == "WRB" else "mark")
        elif always_joins_clauses:
            self.arcs.add(unit.head, self.nearest("V", "NP", "J"), "mark")
            if self.arcs.heads[unit.head] < 0:
                self.defer(unit.head, "mark")
        else:
            self.attach_preposition(unit, number)

    def attach_other(self, unit: Unit, number: int) -> None:
        if unit.kind == "TO":
            if self.finite_verb_ahead(number + 1, any_form=True):
                if self.clause.root >= 0:
                    self.open_clause("xcomp")
                self.defer(unit.head, "aux")
            else:
                self.attach_preposition(unit, number)
        elif unit.kind == "RP" and self.nearest("V") >= 0:
            self.arcs.add(unit.head, self.nearest("V"), "prt")
        elif self.clause.last >= 0:
            self.arcs.add(unit.head, self.clause.last, "punct" if not self.words[unit.head].isalnum() else "dep")
        else:
            self.clauses[0].deferred.append((unit.head, "punct"))

    def finish(self) -> Arcs:
        """Closes open clauses and attaches the remaining words, so every word except one has a head."""
        if self.joiner >= 0:
            self.attach_joiner(self.joiner, self.joiner)
        # A clause without a verb is not a clause: attach its words to the outer clause as "conj".
        while len(self.clauses) > 1:
            clause = self.clauses.pop()
            self.clause.deferred += clause.deferred
            if clause.root >= 0:
                self.attach(clause.root, self.nearest("NP", "V", "J"), "conj")
        main = self.clauses[0]
        if main.root < 0:
            main.root = main.deferred[0][0]
        self.attach_deferred(main.root)
        for word, head in enumerate(self.arcs.heads):
            if head < 0 and word != main.root:
                self.arcs.add(word, main.root, "punct" if self.tags[word] not in NOUNS else "dep")
        self.arcs.add(main.root, main.root, "ROOT")
        return self.arcs
