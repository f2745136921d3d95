"""A parser without a model: textblob's tagger and rules for the grammar of captions, into spaCy's `Doc`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from hfcomp.parsing.parallel import check_request, parse_in_processes
from hfcomp.parsing.rules.heads import attach
from hfcomp.parsing.rules.lemmas import lemma
from hfcomp.parsing.rules.tags import BE, UNIVERSAL, penn_tags
from hfcomp.parsing.tokens import pieces

if TYPE_CHECKING:
    from spacy.tokens import Doc

# A word of a sentence can attach to any word before it, which costs the square of its length. Longer ones are cut,
# which no caption of prose reaches.
_LONGEST_SENTENCE = 128
_PRONOUNS = frozenset({"something", "someone", "anything", "nothing", "everyone", "everything"})


class RuleParser:
    """`--parser rules`: for machines that cannot get a spaCy model. Its accuracy is in docs/parsing.md."""

    def __init__(self) -> None:
        import spacy

        self.name = f"rules (textblob {version('textblob')}, simplemma {version('simplemma')})"
        # loads the dictionaries, and fails here rather than at the first caption if they are not installed
        penn_tags(["a"])
        lemma("dogs", "NNS")
        self._tokenizer = spacy.blank("en")

    def __reduce__(self) -> tuple[type[RuleParser], tuple[()]]:
        return RuleParser, ()

    def parse_one(self, caption: str) -> Doc:
        """Parses one caption."""
        from spacy.tokens import Doc

        tokens = [token for piece in pieces(caption) for token in self._tokenizer.make_doc(piece)]
        words = [token.text for token in tokens]
        spaces = [bool(token.whitespace_) for token in tokens]
        annotations: dict[str, Any] = _parse_words(words)
        return Doc(self._tokenizer.vocab, words=words, spaces=spaces, **annotations)

    def parse(self, captions: Iterable[str], *, num_processes: int = 1, batch_size: int = 256) -> Iterator[Doc]:
        """See `hfcomp.parsing.Parser`."""
        check_request(captions, num_processes, batch_size)
        if num_processes > 1:
            return parse_in_processes(
                self, self._tokenizer.vocab, captions, num_processes=num_processes, batch_size=batch_size
            )
        return (self.parse_one(caption) for caption in captions)


def _sentences(words: list[str]) -> Iterator[list[int]]:
    """Indices of each sentence's words, without white space; a sentence ends with its punctuation, or is split."""
    sentence: list[int] = []
    ended = False
    for i, word in enumerate(words):
        if word.isspace():
            continue
        mark = word[0] in ".!?" and len(word.strip(".!?")) == 0 and set(word) != {"."} or word == "."
        starts = ended and not mark and any(ch.isalnum() for ch in word)
        if starts or len(sentence) == _LONGEST_SENTENCE:
            yield sentence
            sentence, ended = [], False
        sentence.append(i)
        ended = ended or mark
    if sentence:
        yield sentence


def _parse_words(words: list[str]) -> dict[str, list]:
    tags = ["_SP"] * len(words)
    pos = ["SPACE"] * len(words)
    heads = list(range(len(words)))
    deps = [""] * len(words)
    for sentence in _sentences(words):
        found = penn_tags([words[i] for i in sentence])
        arcs = attach([words[i] for i in sentence], found)
        universal = _universal([words[i] for i in sentence], found, arcs.labels, arcs.heads)
        for k, i in enumerate(sentence):
            tags[i], pos[i], deps[i] = found[k], universal[k], arcs.labels[k]
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


def _universal(words: list[str], tags: list[str], labels: list[str], heads: list[int]) -> list[str]:
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
