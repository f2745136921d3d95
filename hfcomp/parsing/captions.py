"""Which captions text functions read: valid Unicode, of limited length, and in English.

The text functions take time in proportion to the length of a caption. What a caption of these lengths costs at most is
in docs/parsing.md. All three lengths are our choice: a page of text fits, a file taken for a caption does not.

The parsers, keyword tables and word lists read English only. A caption counts as foreign on evidence only: most of its
letters are not Latin, or it has no English function word but one of another language, or a letter that English lacks.
"red cube" counts as English. Of COCO's 25,014 validation captions one counts as foreign, so the threshold leaves room
for names and quotations.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

Span = tuple[int, int]
"""`[start, end)` in characters of a caption."""

MAX_CHARACTERS = 10_000
"""Characters of one caption. The longest of DOCCI and ImageInWords have about 3,000."""
MAX_WORDS = 2_000
"""Words of one caption, as white space parts them."""
MAX_RUN = 1_000
"""Characters without white space between. spaCy's tokenizer takes signs off a run one by one, 10,000 commas in 7 s."""
TOO_LONG, NOT_UNICODE = "caption too long", "caption is not valid Unicode"
ANOTHER_SCRIPT = "caption not in Latin script"
FOREIGN_SHARE = 0.2
"""Share of captions in another language from which on a set is reported. Our choice."""
SAMPLED = 1000
"""Captions that are looked at, evenly spaced."""
_WORD = re.compile(r"[^\W\d_]+")
ENGLISH = """
the of with and are his its their this that these there from near next while being two has have into onto who which
standing sitting
"""
"""English words that none of the languages below has."""
OTHERS = """
der das und ein eine einen einem einer mit auf dem im zwei sich ist vor neben über zum zur
le la les une des du et avec dans sur est deux qui devant
el los las una unos unas con en y sobre junto está están dos
um uma os com da dois
il lo gli di della del che nel uno su sono due
een het op naast twee zit staat
och på med og ved som
na się jest oraz
bir ve ile
yang dan dengan sebuah atas
"""
"""Frequent words of German, French, Spanish, Portuguese, Italian, Dutch, Scandinavian languages, Polish, Turkish and
Indonesian. Those that English has too, such as "van", "die" and "met", are left out."""
_ENGLISH, _OTHERS = frozenset(ENGLISH.split()), frozenset(OTHERS.split())


def caption_problem(caption: str) -> str | None:
    """Why no text function works on a caption: the kind of problem, and after a colon its details; or None.

    Lone surrogates, halves of a character as in a text that was cut, are a problem too: they cannot be written to a
    file or given to a tokenizer.
    """
    # In the order of their cost: a file of gigabytes must not be split into words first.
    if len(caption) > MAX_CHARACTERS:
        return f"{TOO_LONG}: {len(caption):,} characters, at most {MAX_CHARACTERS:,}"
    words = caption.split()
    if len(words) > MAX_WORDS:
        return f"{TOO_LONG}: {len(words):,} words, at most {MAX_WORDS:,}"
    longest = max(map(len, words), default=0)
    if longest > MAX_RUN:
        return f"{TOO_LONG}: {longest:,} characters without a space, at most {MAX_RUN:,}"
    place = lone_surrogate(caption)
    return None if place < 0 else f"{NOT_UNICODE}: lone surrogate {caption[place]!a} at character {place}"


def check_caption(caption: str, where: str = "the caption") -> None:
    """Raises ValueError for a caption that no text function works on; `where` is its name in the message."""
    problem = caption_problem(caption)
    if problem is not None:
        raise ValueError(f"{where}, {caption[:60]!a}: {problem}. Shorten or correct it, or remove the row.")


def lone_surrogate(text: str) -> int:
    """The index of the first half of a character, as in a text that was cut in UTF-16; -1 for none."""
    # Encoding is the fastest search: UTF-8 has no bytes for a surrogate, so the codec stops at the first.
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return -1


def script_problem(caption: str) -> str | None:
    """Why a caption cannot be English: most of its letters are of another script."""
    if caption.isascii():
        return None
    letters = [letter for letter in caption if letter.isalpha()]
    others = [letter for letter in letters if not unicodedata.name(letter, "").startswith("LATIN")]
    if len(others) * 2 <= len(letters):
        return None
    return f"{ANOTHER_SCRIPT}: {len(others):,} of {len(letters):,} letters, such as {others[0]!r}"


def is_foreign(caption: str) -> bool:
    """Whether a caption shows evidence of a language other than English; see the module's docstring."""
    # One English function word decides: a German name or dish may stand in an English sentence, an English article
    # hardly ever in a German one.
    if script_problem(caption) is not None:
        return True
    words = set(_WORD.findall(caption.lower()))
    if words & _ENGLISH:
        return False
    return bool(words & _OTHERS) or any(not word.isascii() for word in words)


def language_note(captions: Sequence[str]) -> str | None:
    """A line about captions that are not English; None if fewer than `FOREIGN_SHARE` of a sample are."""
    # Evenly spaced, since sets are often joined from parts of one language each.
    step = max(1, len(captions) / SAMPLED)
    looked_at = [captions[int(place * step)] for place in range(min(SAMPLED, len(captions)))]
    found = [caption for caption in looked_at if is_foreign(caption)]
    if not found or len(found) < FOREIGN_SHARE * len(looked_at):
        return None
    short = found[0] if len(found[0]) <= 60 else f"{found[0][:57]}..."
    return (
        f"{len(found):,} of {len(looked_at):,} captions looked at do not read as English, such as {short!r}: parsers, "
        "keywords and word lists read English only, and what they make of other languages is wrong. Translate the "
        "captions first."
    )
