"""Checks of captions for text functions: valid Unicode, limited length, and English.

Text functions take time proportional to the length of a caption. docs/parsing.md lists the maximum cost at these
limits. All three limits are our choice: a page of text fits, but a whole file mistaken for a caption does not.

Parsers, keyword tables and word lists support only English. A caption counts as foreign only on evidence: most of its
letters are not Latin, or it has a function word or letter of another language but no English function word.
"red cube" counts as English. Of COCO's 25,014 validation captions, one counts as foreign, so the threshold leaves room
for names and quotations.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

Span = tuple[int, int]
"""`[start, end)` in characters of a caption."""

MAX_CHARACTERS = 10_000
"""Maximum number of characters of a caption. The longest in DOCCI and ImageInWords have about 3,000."""
MAX_WORDS = 2_000
"""Maximum number of words of a caption, separated by white space."""
MAX_RUN = 1_000
"""Maximum number of characters without white space. spaCy's tokenizer removes punctuation marks from such a run one by
one and takes 7 s for 10,000 commas."""
TOO_LONG, NOT_UNICODE = "caption too long", "caption is not valid Unicode"
ANOTHER_SCRIPT = "caption not in Latin script"
FOREIGN_SHARE = 0.2
"""Share of captions in another language from which a dataset is reported. Our choice."""
SAMPLED = 1000
"""Number of captions to check, evenly spaced."""
_WORD = re.compile(r"[^\W\d_]+")
ENGLISH = """
the of with and are his its their this that these there from near next while being two has have into onto who which
standing sitting
"""
"""English words that do not exist in any of the languages below."""
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
Indonesian. Words that also exist in English, such as "van", "die" and "met", are excluded."""
_ENGLISH, _OTHERS = frozenset(ENGLISH.split()), frozenset(OTHERS.split())


def caption_problem(caption: str) -> str | None:
    """Returns why text functions cannot process a caption (kind of problem, colon, details), or None if they can.

    Lone surrogates (halves of a character, as in a truncated text) are a problem too, because they cannot be written
    to a file or passed to a tokenizer.
    """
    # Check in the order of cost: a text of gigabytes must not be split into words first.
    if len(caption) > MAX_CHARACTERS:
        return f"{TOO_LONG}: {len(caption):,} characters, at most {MAX_CHARACTERS:,}"
    words = caption.split()
    if len(words) > MAX_WORDS:
        return f"{TOO_LONG}: {len(words):,} words, at most {MAX_WORDS:,}"
    longest = max(map(len, words), default=0)
    if longest > MAX_RUN:
        return f"{TOO_LONG}: {longest:,} characters without a space, at most {MAX_RUN:,}"
    index = lone_surrogate(caption)
    return None if index < 0 else f"{NOT_UNICODE}: lone surrogate {caption[index]!a} at character {index}"


def check_caption(caption: str, where: str = "the caption") -> None:
    """Raises ValueError if text functions cannot process a caption; `where` names the caption in the message."""
    problem = caption_problem(caption)
    if problem is not None:
        raise ValueError(f"{where}, {caption[:60]!a}: {problem}. Shorten or correct it, or remove the row.")


def lone_surrogate(text: str) -> int:
    """Returns the index of the first lone surrogate, as in a text truncated in UTF-16, or -1 if there is none."""
    # Encoding is the fastest search: UTF-8 cannot encode a surrogate, so the codec stops at the first one.
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return -1


def script_problem(caption: str) -> str | None:
    """Returns the problem of a caption that cannot be English, because most letters are not Latin, or None."""
    if caption.isascii():
        return None
    letters = [letter for letter in caption if letter.isalpha()]
    others = [letter for letter in letters if not unicodedata.name(letter, "").startswith("LATIN")]
    if len(others) * 2 <= len(letters):
        return None
    return f"{ANOTHER_SCRIPT}: {len(others):,} of {len(letters):,} letters, such as {others[0]!r}"


def is_foreign(caption: str) -> bool:
    """Whether a caption shows evidence of a language other than English; see the module's docstring."""
    # A single English function word decides: a German name or dish may occur in an English sentence, but an English
    # article hardly ever occurs in a German one.
    if script_problem(caption) is not None:
        return True
    words = set(_WORD.findall(caption.lower()))
    if words & _ENGLISH:
        return False
    return bool(words & _OTHERS) or any(not word.isascii() for word in words)


def language_note(captions: Sequence[str]) -> str | None:
    """Returns a line about foreign captions, or None if they are fewer than `FOREIGN_SHARE` of a sample."""
    # Sample evenly, because datasets are often concatenated from parts in one language each.
    step = max(1, len(captions) / SAMPLED)
    sample = [captions[int(number * step)] for number in range(min(SAMPLED, len(captions)))]
    foreign = [caption for caption in sample if is_foreign(caption)]
    if not foreign or len(foreign) < FOREIGN_SHARE * len(sample):
        return None
    short = foreign[0] if len(foreign[0]) <= 60 else f"{foreign[0][:57]}..."
    return (
        f"{len(foreign):,} of {len(sample):,} sampled captions do not seem to be English, such as {short!r}. Parsers, "
        "keywords and word lists support only English and give wrong results for other languages. Translate the "
        "captions first."
    )
