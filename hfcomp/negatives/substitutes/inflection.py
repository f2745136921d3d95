"""Plurals of nouns and forms of verbs by their Penn tag: the regular ones by rule, the others from a table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VERB_TAGS = ("VB", "VBP", "VBZ", "VBD", "VBN", "VBG")
_HISS = ("s", "x", "z", "ch", "sh")
_CONSONANT_Y = re.compile(r"[^aeiou]y$")
# One syllable, one vowel letter, one consonant: "hop", "grab". Longer words with a doubled end are in the table.
_DOUBLES = re.compile(r"^[^aeiou]*[aeiou][^aeiouwxy]$")


@dataclass(frozen=True)
class Inflection:
    """The irregular forms of a lexicon.

    Attributes:
        plurals: Singular to plural, of a word or of several.
        verbs: Base form to past, past participle and present participle.
    """

    plurals: Mapping[str, str]
    verbs: Mapping[str, Sequence[str]]

    def plural(self, noun: str) -> str:
        """The plural of a noun; of several words, of the last."""
        if noun in self.plurals:
            return self.plurals[noun]
        before, space, last = noun.rpartition(" ")
        return before + space + (self.plurals.get(last) or _with_s(last))

    def verb(self, base: str, tag: str) -> str:
        """A form of a verb; of several words, of the first.

        Args:
            base: Its base form.
            tag: One of `VERB_TAGS`.

        Raises:
            ValueError: The tag is not one of them.
        """
        if tag not in VERB_TAGS:
            raise ValueError(f"tag is {tag!r}; expected one of {', '.join(VERB_TAGS)}.")
        first, space, rest = base.partition(" ")
        return self._form(first, tag) + space + rest

    def _form(self, base: str, tag: str) -> str:
        if tag in ("VB", "VBP"):
            return base
        if tag == "VBZ":
            return {"be": "is", "have": "has"}.get(base) or _with_s(base)
        if base in self.verbs:
            return self.verbs[base][("VBD", "VBN", "VBG").index(tag)]
        stem = base + base[-1] if _DOUBLES.match(base) else base
        if tag == "VBG":
            return (base[:-1] if base.endswith("e") and not base.endswith(("ee", "ye")) else stem) + "ing"
        if base.endswith("e"):
            return base + "d"
        return (base[:-1] + "ied") if _CONSONANT_Y.search(base) else stem + "ed"


def _with_s(word: str) -> str:
    if word.endswith(_HISS) or word in ("go", "do"):
        return word + "es"
    return word[:-1] + "ies" if _CONSONANT_Y.search(word) else word + "s"
