"""Docs made by hand: a caption with a Penn tag for each word, as a parser would give it, without a parser."""

from __future__ import annotations

import functools

import spacy
from spacy.tokens import Doc

CLASSES = {
    **dict.fromkeys(("NN", "NNS"), "NOUN"),
    **dict.fromkeys(("NNP", "NNPS"), "PROPN"),
    **dict.fromkeys(("JJ", "JJR", "JJS"), "ADJ"),
    **dict.fromkeys(("VB", "VBD", "VBG", "VBN", "VBP", "VBZ"), "VERB"),
    **dict.fromkeys(("RB", "RBR", "WRB"), "ADV"),
    **dict.fromkeys(("IN", "RP"), "ADP"),
    **dict.fromkeys((".", ",", ":", "HYPH", "``", "''"), "PUNCT"),
    **dict.fromkeys(("PRP", "PRP$", "WDT", "WP", "EX"), "PRON"),
    **{
        "DT": "DET",
        "CD": "NUM",
        "CC": "CCONJ",
        "TO": "PART",
        "POS": "PART",
        "MD": "AUX",
        "SYM": "SYM",
        "_SP": "SPACE",
    },
}
IRREGULAR = {
    **dict.fromkeys(("is", "are", "was", "were", "be", "been", "being"), "be"),
    **{"has": "have", "men": "man", "women": "woman", "children": "child", "people": "people", "knives": "knife"},
    **{"sitting": "sit", "sits": "sit", "running": "run", "dishes": "dish", "boxes": "box", "crosses": "cross"},
    **{"lying": "lie", "riding": "ride", "chasing": "chase", "facing": "face", "smiling": "smile", "posing": "pose"},
    **{"Riding": "ride", "jumping": "jump", "glasses": "glass"},
}


@functools.cache
def english() -> spacy.language.Language:
    return spacy.blank("en")


def gold(tagged: str) -> Doc:
    """A Doc of "A/DT cat/NN sits/VBZ": words as written, one space between them unless the next starts with "~".

    Determiners, adjectives and numbers hang on the noun behind them and nouns before a noun on the last one, which is
    all that noun chunks need. "is/VBZ|AUX" gives a word another class than its tag has.
    """
    words, tags, classes, spaces = [], [], [], []
    for item in tagged.split():
        word, _, tag = item.rpartition("/")
        tag, _, word_class = tag.partition("|")
        glued = word.startswith("~") and len(word) > 1
        if glued and spaces:
            spaces[-1] = False
        words.append(word[1:] if glued else word)
        tags.append(tag)
        is_auxiliary = IRREGULAR.get(word.lower()) == "be"
        classes.append(word_class or ("AUX" if is_auxiliary else CLASSES[tag]))
        spaces.append(True)
    if spaces:
        spaces[-1] = False
    heads, relations = tree(tags, classes)
    lemmas = [lemma(word, tag) for word, tag in zip(words, tags, strict=True)]
    return Doc(english().vocab, words, spaces, tags=tags, pos=classes, lemmas=lemmas, heads=heads, deps=relations)


def tree(tags: list[str], classes: list[str]) -> tuple[list[int], list[str]]:
    heads, relations = [0] * len(tags), ["dep"] * len(tags)
    place = 0
    while place < len(tags):
        end = place
        while end < len(tags) and (
            classes[end] in ("DET", "ADJ", "NUM", "NOUN", "PROPN") or tags[end] in ("PRP$", "HYPH")
        ):
            end += 1
        nouns = [index for index in range(place, end) if classes[index] in ("NOUN", "PROPN")]
        if nouns:
            for index in range(place, nouns[-1]):
                heads[index] = nouns[-1]
                relations[index] = {"DET": "det", "ADJ": "amod", "NUM": "nummod"}.get(classes[index], "compound")
            relations[nouns[-1]] = "pobj"
        place = max(end, place + 1)
    if relations:
        root = next((index for index, relation in enumerate(relations) if relation in ("pobj", "dep")), 0)
        relations[root] = "ROOT"
        heads = [
            root if relation in ("pobj", "dep", "ROOT") else head
            for head, relation in zip(heads, relations, strict=True)
        ]
    return heads, relations


def lemma(word: str, tag: str) -> str:
    lower = word.lower().lstrip("~")
    if lower in IRREGULAR:
        return IRREGULAR[lower]
    if tag == "NNS" or tag == "VBZ":
        return lower.removesuffix("s")
    return lower.removesuffix("ing") if tag == "VBG" else lower.removesuffix("ed") if tag == "VBN" else lower
