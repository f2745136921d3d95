"""Dictionary forms of tagged English words, for the rule-based parser."""

from __future__ import annotations

from functools import lru_cache

_IRREGULAR = {
    ("people", "NNS"): "people",
    ("'s", "VBZ"): "be",
    ("'re", "VBP"): "be",
    ("'m", "VBP"): "be",
    ("'ve", "VBP"): "have",
    ("'ll", "MD"): "will",
    ("n't", "RB"): "not",
    ("left", "VBD"): "leave",
    ("left", "VBN"): "leave",
    ("lay", "VBD"): "lie",
    ("saw", "VBD"): "see",
    ("fell", "VBD"): "fall",
    ("found", "VBD"): "find",
    ("found", "VBN"): "find",
    ("glasses", "NNS"): "glass",
    ("poles", "NNS"): "pole",  # else the people
    ("playing", "VBG"): "play",
    ("me", "PRP"): "I",
    ("him", "PRP"): "he",
    ("them", "PRP"): "they",
    ("us", "PRP"): "we",
}
_INFLECTED = frozenset({"NNS", "VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "MD", "JJR", "JJS", "RBR", "RBS"})


@lru_cache(maxsize=65536)
def lemma(word: str, tag: str) -> str:
    """The dictionary form of a word with a Penn tag, in lower case; proper nouns are returned as they are.

    A noun in -ing stays as it is, a verb form does not.
    """
    if tag in ("NNP", "NNPS") or not word:
        return word
    lower = word.lower()
    if (lower, tag) in _IRREGULAR:
        return _IRREGULAR[lower, tag]
    if tag not in _INFLECTED:
        return lower
    import simplemma

    found = simplemma.lemmatize(lower, lang="en").lower()
    if found == lower and tag == "VBG" and lower.endswith("ing"):
        return _without_ing(lower)
    return found


def _without_ing(word: str) -> str:
    """The verb of an -ing form that the dictionary has as a noun ("sitting", "building") or not at all."""
    import simplemma

    # Undo the spelling by known forms of the verb: "running" drops the doubled letter, and for "riding" the forms in
    # -ed and -s lead to "ride", which cutting -ing off would miss.
    stem = word[:-3]
    if len(stem) > 2 and stem[-1] == stem[-2] and stem[-1] not in "lsz":
        return stem[:-1]
    for candidate in (stem + "ed", stem + "s", stem + "es"):
        if (found := simplemma.lemmatize(candidate, lang="en")) != candidate:
            return found.lower()
    return stem or word
