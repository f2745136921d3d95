"""Part-of-speech tagging in the rule-based parser: textblob's tagger, corrected by rules for captions."""

from __future__ import annotations

from collections.abc import Sequence

from hfcomp.parsing.rules.words import (
    BASE_FORMS,
    BEFORE_INFINITIVES,
    CLAUSE_WORDS,
    FIXED_TAGS,
    ING_NOUNS,
    ING_PURPOSES,
    ING_PURPOSES_AFTER_NOUNS,
    INTRANSITIVE,
    NOMINATIVES,
    PARTICLES,
    PLAIN_COLORS,
    PURPOSE_HEADS,
    QUANTITIES,
    S_FORMS,
)

NOUNS = frozenset({"NN", "NNS", "NNP", "NNPS"})
ADJECTIVES = frozenset({"JJ", "JJR", "JJS"})
DETERMINERS = frozenset({"DT", "PDT", "PRP$", "WP$"})
FINITE = frozenset({"MD", "VBD", "VBP", "VBZ"})
VERBS = FINITE | {"VB", "VBG", "VBN"}
BE = frozenset({"is", "are", "was", "were", "be", "been", "being", "am", "'s", "'re"})
HAVE = frozenset({"has", "have", "had", "having"})
DO = frozenset({"do", "does", "did"})

_NOT_BEFORE_VERBS = DETERMINERS | ADJECTIVES | {"CD", "POS"}

UNIVERSAL = (
    dict.fromkeys(("NN", "NNS"), "NOUN")
    | dict.fromkeys(("NNP", "NNPS"), "PROPN")
    | dict.fromkeys(("JJ", "JJR", "JJS"), "ADJ")
    | dict.fromkeys(("RB", "RBR", "RBS"), "ADV")
    | dict.fromkeys(("VB", "VBD", "VBG", "VBN", "VBP", "VBZ"), "VERB")
    | dict.fromkeys(("DT", "PDT"), "DET")
    | dict.fromkeys(("PRP", "PRP$", "WP", "WP$", "WDT", "EX"), "PRON")
    | dict.fromkeys(("IN", "RP"), "ADP")
    | dict.fromkeys(("TO", "POS"), "PART")
    | dict.fromkeys((".", ",", ":", "``", "''", "-LRB-", "-RRB-", "HYPH", "NFP"), "PUNCT")
    | dict.fromkeys(("$", "#", "SYM"), "SYM")
    | {"MD": "AUX", "CC": "CCONJ", "CD": "NUM", "WRB": "SCONJ", "UH": "INTJ", "FW": "X", "LS": "X", "_SP": "SPACE"}
)
_PUNCTUATION = (
    dict.fromkeys((".", "!", "?"), ".")
    | dict.fromkeys((":", ";", "...", "…", "--", "–", "—"), ":")
    | {",": ",", "``": "``", "“": "``", "''": "''", "”": "''", '"': "''", "(": "-LRB-", "[": "-LRB-", ")": "-RRB-"}
    | {"]": "-RRB-", "-": "HYPH", "/": "SYM", "&": "CC", "+": "SYM", "=": "SYM", "@": "IN", "#": "#", "$": "$"}
)


def penn_tags(words: Sequence[str]) -> list[str]:
    """Returns Penn Treebank tags (keys of `UNIVERSAL`) for a sentence's spaCy tokens, without white space."""
    if not words:
        return []
    plain = _without_needless_capitals(words)
    lower = [word.lower() for word in words]
    tags = _first_tags(plain, lower)
    # Four passes over the sentence, because each rule reads the tags around a word. Closed classes come first, because
    # they are the most reliable. Words of noun phrases are next, then verbs, which depend on the phrases before them,
    # then "to" and particles.
    for i in range(len(lower)):
        _fix_closed_words(lower, tags, i)
    for i in range(len(lower)):
        _fix_modifiers(lower, tags, i)
    for i in range(len(lower)):
        _fix_verbs(lower, tags, i)
    for i in range(len(lower)):
        _fix_small_words(lower, tags, i)
    return tags


def _without_needless_capitals(words: Sequence[str]) -> list[str]:
    """Lowercases words whose capital says nothing: the first word, and all words of a title or a text in capitals."""
    letters = [word for word in words if word[0].isalpha()]
    if len(letters) > 3 and sum(word[0].isupper() for word in letters) > 0.6 * len(letters):
        return [word.lower() for word in words]
    return [words[0] if words[0].isupper() and len(words[0]) > 1 else words[0].lower(), *words[1:]]


def tag_at(tags: Sequence[str], i: int) -> str:
    """Returns an entry of a list of tags or words, or an empty string if the index is out of range."""
    return tags[i] if 0 <= i < len(tags) else ""


def _first_tags(plain: list[str], lower: list[str]) -> list[str]:
    from textblob.en import parser

    # Start from textblob's lexicon and context rules. Tokens without letters, and words with a single use in captions,
    # have fixed tags.
    proposed = [tag.partition("|")[0] for _, tag in parser.find_tags(plain)]
    tags = []
    for word, tag in zip(lower, proposed, strict=True):
        if not any(map(str.isalnum, word)):
            tags.append(_PUNCTUATION.get(word, "." if word[0] in ".!?" else "NFP"))
        elif word.isdigit():
            tags.append("CD")
        else:
            tags.append(FIXED_TAGS.get(word, tag if tag in UNIVERSAL and UNIVERSAL[tag] != "PUNCT" else "NN"))
    return tags


def _fix_closed_words(lower: list[str], tags: list[str], i: int) -> None:
    word, after, following = lower[i], tag_at(tags, i + 1), tag_at(lower, i + 1)
    before = tag_at(tags, i - 1)
    if word == "'s" or word == "'":
        tags[i] = "POS" if before in NOUNS else ("VBZ" if word == "'s" else "''")
    elif word == "there":
        tags[i] = "EX" if following in BE or tag_at(lower, i - 1) in BE else "RB"
    elif word == "her":
        tags[i] = "PRP$" if after in NOUNS | ADJECTIVES | {"VBN", "VBG", "CD"} else "PRP"
    elif word == "that":
        if before in NOUNS and (after in VERBS | {"PRP", "RB", "EX"} or following in S_FORMS):
            tags[i] = "WDT"
        elif after in NOUNS | ADJECTIVES:
            tags[i] = "DT"
    elif word in ("next", "close") and following in ("to", "too"):
        tags[i], tags[i + 1] = "RB", "IN"
    elif word in ("outside", "inside"):
        if before in DETERMINERS:
            tags[i] = "NN" if following == "of" else "JJ"
        elif after in DETERMINERS | NOUNS | ADJECTIVES | {"CD", "PRP"} or following == "of":
            tags[i] = "IN"
    elif word == "close":
        tags[i] = "JJ"
    elif word == "up" and tag_at(lower, i - 1) == "close":
        tags[i] = "NN"


def _fix_modifiers(lower: list[str], tags: list[str], i: int) -> None:
    """Corrects participles, colors and -ing words before nouns, and location words such as "top" and "left"."""
    word, tag, before, after = lower[i], tags[i], tag_at(tags, i - 1), tag_at(tags, i + 1)
    previous, following = tag_at(lower, i - 1), tag_at(lower, i + 1)
    in_phrase = before in _NOT_BEFORE_VERBS
    if word in ("top", "front", "back", "middle", "side", "bottom", "center", "left", "right"):
        if following == "of" or (after not in NOUNS | ADJECTIVES and (in_phrase or before in {"IN", "NN"})):
            tags[i] = "NN"
        elif after in NOUNS and in_phrase:
            tags[i] = "NN" if word == "side" else "JJ"
        elif word in ("front", "side", "center", "bottom", "middle"):
            tags[i] = "NN"
    elif word == "sheep" and lower[_phrase_start(tags, i)] in ("a", "an", "one", "another", "this", "that"):
        tags[i] = "NN"
    elif word in PLAIN_COLORS:
        tags[i] = "JJ" if word != "orange" or after in NOUNS | ADJECTIVES | {"CC"} else "NN"
    elif tag != "IN" and word.endswith("ing") and any(letter in "aeiouy" for letter in word[:-3]):
        tags[i] = _ing_tag(word, tag, before, following, after)
    elif word in ("set", "cut") and in_phrase and after not in NOUNS | ADJECTIVES:
        tags[i] = "NN"
    elif tag in ("VBN", "VBD") and _is_premodifier(word, before, after):
        tags[i] = "JJ"
    elif tag in ("VBN", "VBD") and before in NOUNS and after in NOUNS and tag_at(tags, i - 2) in DETERMINERS:
        # In "a snow covered track", the article belongs to the last noun; in "a man carried boxes", to the first.
        tags[i] = "JJ" if previous in ("snow", "ice", "grass", "tree", "brick", "sand", "dirt", "chocolate") else tag
    elif tag == "VB" and (in_phrase or before in ("IN", "CC")) and word != "be" and previous != "to":
        tags[i] = "NN"


def _is_premodifier(word: str, before: str, after: str) -> bool:
    """Whether a participle precedes its noun: "a broken post", "with cooked rice"."""
    if before in _NOT_BEFORE_VERBS:
        return after in NOUNS | ADJECTIVES | {"VBG"}
    return before in ("IN", "") and after in NOUNS and word.endswith("ed")


def _ing_tag(word: str, tag: str, before: str, following: str, after: str) -> str:
    # The evidence, from strongest to weakest, is a listed pair ("dining table"), a listed noun, a position in a noun
    # phrase, and the tagger's choice. Everything else is a verb, like most -ing words in captions.
    if word in ING_PURPOSES and following in PURPOSE_HEADS:
        is_verb = before in ("VBZ", "VBP") or (before in NOUNS and word not in ING_PURPOSES_AFTER_NOUNS)
        if not is_verb:
            return "NN"
    if word in ING_NOUNS and (before in DETERMINERS or after not in DETERMINERS):
        return "NN"
    if before in _NOT_BEFORE_VERBS and after in NOUNS:
        return "JJ"
    if before in _NOT_BEFORE_VERBS and before != "CD":
        return "NN"
    if tag in ("NN", "JJ") and before == "IN" and after not in DETERMINERS | {"IN"}:
        return "NN"
    return "VBG"


def _subject_number(lower: list[str], tags: list[str], i: int) -> str:
    """Returns the grammatical number of the noun phrase before word `i`: "singular", "plural", or "" without one.

    "a group of X" may be either.
    """
    tag = tag_at(tags, i - 1)
    if tag == "RB":
        return _subject_number(lower, tags, i - 1)
    if tag == "PRP" and lower[i - 1] in NOMINATIVES:
        return "singular" if lower[i - 1] in ("he", "she", "it") else "plural"
    of = _phrase_start(tags, i) - 1
    if tag_at(lower, of) == "of" and tag_at(tags, of - 1) == "NNS":
        return "plural"  # "two slices of pizza"
    if tag in ("NNS", "NNPS"):
        return "plural"
    return "singular" if tag in NOUNS or tag in ("WDT", "WP") else ""


def _has_main_verb(tags: Sequence[str], start: int, end: int) -> bool:
    return any(tag in FINITE for tag in tags[start:end])


def _clause(lower: Sequence[str], i: int) -> tuple[int, int]:
    """Returns the first and last index (exclusive) of the words around word `i` up to the next conjunctions."""
    breaks = [j for j, word in enumerate(lower) if word in CLAUSE_WORDS]
    return max((j for j in breaks if j < i), default=0), min((j for j in breaks if j > i), default=len(lower))


def _fix_verbs(lower: list[str], tags: list[str], i: int) -> None:
    """Corrects verbs tagged as nouns ("a dog chases a cat", "two men ride bikes"), and nouns tagged as verbs."""
    word, tag, after = lower[i], tags[i], tag_at(tags, i + 1)
    # A caption needs one verb and may have any number of nouns, so a noun in the position of a verb is tagged as a
    # verb: after a phrase that agrees with it in number, and before words that can follow a verb.
    number = _subject_number(lower, tags, i)
    ends_phrase = after not in NOUNS | ADJECTIVES | FINITE | {"POS"}
    verb_ok = after in DETERMINERS | {"IN", "TO", "CD", "RB", "RP", "PRP", "WRB", ".", "", ","}
    if tag == "NNS" and number == "singular" and not _has_main_verb(tags, *_clause(lower, i)):
        article = lower[_phrase_start(tags, i)]
        if (word in S_FORMS and (verb_ok or after in NOUNS | ADJECTIVES)) or (article in ("a", "an") and verb_ok):
            tags[i] = "VBZ"
    elif tag == "NNS" and word in S_FORMS and (tag_at(tags, i - 1) == "CC" or tag_at(lower, i - 1) in ("that", "who")):
        tags[i] = "VBZ" if after in DETERMINERS | {"IN", "PRP"} and _has_main_verb(tags, 0, i) else tag
    elif word in BASE_FORMS and tag in ("NN", "VB", "VBP", "IN") and number == "plural":
        tags[i] = "VBP" if ends_phrase or tag == "VBP" or after == "NNS" else tag
    elif tag_at(lower, i - 1) == "to" and ends_phrase and _is_infinitive(word, tag, tag_at(lower, i - 2)):
        tags[i] = "VB"
    elif word in BASE_FORMS and tag in ("NN", "VB") and _goes_on(tags, i):
        tags[i] = "VBP"
    elif word in BASE_FORMS and number == "singular" and verb_ok and tag_at(tags, _phrase_start(tags, i) - 1) == "CC":
        # "a man and woman walk": the noun is singular, but the phrase is plural.
        tags[i] = "VBP"
    elif tag == "VB" and number == "plural":
        # "people gather"
        tags[i] = "VBP"
    elif tag in ("VB", "VBP") and number == "singular" and word not in BE | HAVE:
        tags[i] = "VBP" if tag_at(lower, i - 1) in QUANTITIES else "NN"
    elif tag == "VBZ" and tag_at(tags, i - 1) in _NOT_BEFORE_VERBS | {"IN", "VBG"} and word not in BE | HAVE | DO:
        tags[i] = "NNS" if tag_at(lower, i - 1) not in CLAUSE_WORDS else tag
    elif tag == "VBD" and word.endswith("ed") and (tag_at(lower, i - 1) in BE | HAVE or _is_participle(word, after)):
        tags[i] = "VBN"


def _is_infinitive(word: str, tag: str, introduced_by: str) -> bool:
    return introduced_by != "next" if word in BASE_FORMS else tag == "NN" and introduced_by in BEFORE_INFINITIVES


def _goes_on(tags: Sequence[str], i: int) -> bool:
    """Whether word `i` may be a plural verb although no noun precedes it: "dishes that include", "visit and eat"."""
    return tag_at(tags, i - 1) in ("WDT", "WP") or (tag_at(tags, i - 1) == "CC" and tag_at(tags, i - 2) == "VBP")


def _is_participle(word: str, after: str) -> bool:
    """Whether a form in -ed is more likely a participle ("a car parked by a tree") than a past tense."""
    return word not in INTRANSITIVE and after in ("IN", "CC", ".", "", ",", "RP", "TO", "RB", "VBG")


def _phrase_start(tags: list[str], i: int) -> int:
    """Returns the index of the first word of the noun phrase that ends before word `i`."""
    j = i
    while j > 0 and tags[j - 1] in NOUNS | ADJECTIVES:
        j -= 1
    return j - 1 if j > 0 and tags[j - 1] in DETERMINERS else j


def _fix_small_words(lower: list[str], tags: list[str], i: int) -> None:
    """Distinguishes "to" before an infinitive from the preposition, and particles from prepositions."""
    word, before, after = lower[i], tag_at(tags, i - 1), tag_at(tags, i + 1)
    if word == "to":
        tags[i] = "TO" if after == "VB" or (after == "RB" and tag_at(tags, i + 2) == "VB") else "IN"
    elif word in PARTICLES and before in VERBS and after in ("IN", "TO", ".", "", "CC", ",", "VBG", "RB"):
        tags[i] = "RP"
    elif word == "down" or (word == "up" and tags[i] != "NN"):
        tags[i] = "RP" if before in VERBS and after not in DETERMINERS else "IN" if after in DETERMINERS else "RB"
    elif tags[i] == "RP" and after in DETERMINERS | NOUNS | ADJECTIVES:
        tags[i] = "IN" if word != "up" else "RP"
