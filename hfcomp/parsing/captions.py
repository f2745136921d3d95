"""How long a caption may be: a sentence or a page of text, but not a file that was taken for one.

The text functions take time in proportion to the length of a caption. What a caption of these lengths costs at most is
in docs/parsing.md. All three numbers are our choice.
"""

from __future__ import annotations

import unicodedata

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


def caption_problem(caption: str) -> str | None:
    """Why no text function works on a caption: what kind of problem, and behind a colon what was found; or None.

    Args:
        caption: of any length. Lone surrogates, halves of a character as of a text that was cut, are a problem too:
            they cannot be written to a file or given to a tokenizer.
    """
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
    """Raises ValueError for a caption that no text function works on.

    Args:
        caption: the caption.
        where: what the message calls it, such as `caption in row 3`.
    """
    problem = caption_problem(caption)
    if problem is not None:
        raise ValueError(f"{where}, {caption[:60]!a}: {problem}. Shorten or correct it, or remove the row.")


def lone_surrogate(text: str) -> int:
    """The place of the first half of a character, as of a text that was cut in UTF-16; -1 for none."""
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
