"""Writes words back into a caption: handles the capital at its start, and "a" or "an" before a word."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hfcomp.parsing.captions import Span

_ARTICLE_AT_END = re.compile(r"(?<![^\s\"'(])an?(?= $)", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")
# Letters whose names begin with a vowel sound: "an SUV", "an LG phone".
_LETTERS_WITH_VOWEL_SOUND = frozenset("aefhilmnorsx")
# Beginnings of words with a vowel letter but a consonant sound, and the other way around.
_CONSONANT_SOUNDS = (
    *("eu", "ewe", "once", "one", "ubi", "uk", "unic", "unif", "union", "uniq", "unis", "unit", "univ", "urin"),
    *("usa", "use", "usu", "uten", "util"),
)
_VOWEL_SOUNDS = re.compile(r"hour|heir|honest|honou?r|8|1[18](?!\d)")


def starts_with_vowel_sound(text: str) -> bool:
    """Whether a text takes "an" rather than "a". Quotes and brackets before its first letter are ignored.

    The decision follows the sound for words on a short list ("an hour", "a unicorn"), otherwise the first letter. Two
    to four capitals without a vowel after the first are treated as spelled-out letters ("an LG phone", "a TV").
    """
    match = _WORD.search(text)
    if match is None:
        return False
    word = match.group()
    if word.isupper() and 2 <= len(word) <= 4 and not set(word[1:]) & set("AEIOU"):
        return word[0].lower() in _LETTERS_WITH_VOWEL_SOUND
    lower = word.lower()
    if lower.startswith(_CONSONANT_SOUNDS):
        return False
    return lower[0] in "aeiou" or _VOWEL_SOUNDS.match(lower) is not None


def fit_article(before: str, text: str) -> str:
    """Adapts an "a" or "an" at the end of a text to the text that follows it.

    Returns:
        `before`, with the other article if the one at its end does not fit. Its capital is kept.
    """
    # Change only an article at the very end: after "a big" or "an open", the word in between determines the article.
    match = _ARTICLE_AT_END.search(before)
    if match is None:
        return before
    written, article = match.group(), "an" if starts_with_vowel_sound(text) else "a"
    if written.lower() == article:
        return before
    if written[0] == "A":
        article = article.upper() if len(text) > 1 and text.isupper() else article.capitalize()
    return before[: match.start()] + article + before[match.end() :]


def start_of_text(caption: str) -> int:
    """Returns the index of the first character that is not a space, or the caption's length if there is none."""
    return len(caption) - len(caption.lstrip())


def is_all_capitals(caption: str) -> bool:
    """Whether a caption of several words is written entirely in capitals."""
    return caption.isupper() and " " in caption.strip()


def has_initial_capital(caption: str) -> bool:
    """Whether the caption starts with a capital. False for a caption written entirely in capitals."""
    first = start_of_text(caption)
    return caption[first : first + 1].isupper() and not is_all_capitals(caption)


def without_initial_capital(caption: str, span: Span, *, is_name: bool = False) -> str:
    """Returns the text of a span as it would be written elsewhere in the sentence.

    Its first letter becomes lower case if it is a capital only because it starts the caption. A name keeps its
    capital. So do "TV", "McCartney" and "A's", whose other letters show that the capital belongs to the word.
    """
    text = caption[span[0] : span[1]]
    if is_name or span[0] > start_of_text(caption) or not has_initial_capital(caption):
        return text
    word = _WORD.match(text)
    if word is None or (len(word.group()) > 1 and not word.group()[1:].islower()):
        return text
    return text[0].lower() + text[1:]


def rewrite(caption: str, spans: Sequence[Span], texts: Sequence[str]) -> str:
    """Replaces spans of a caption by new texts.

    A capital at the start of the caption stays there, whichever word comes first now, and an "a" or "an" directly
    before a new text is adapted to it. Everything else stays unchanged.

    Spans are `[start, end)` in characters, from left to right and without overlap, each with its text. An empty span
    inserts its text, and an empty text removes its span.
    """
    written, end_of_last = "", 0
    for (start, end), text in zip(spans, texts, strict=True):
        if not end_of_last <= start <= end <= len(caption):
            raise ValueError(
                f"spans {list(spans)} of caption {caption!r} overlap, are out of order or outside the caption; "
                "expected [start, end) in characters, from left to right."
            )
        # "a" before the span may have to become "an"; the text written so far ends right before the new text.
        written += caption[end_of_last:start]
        if text:
            written = fit_article(written, text) + text
        end_of_last = end
    written += caption[end_of_last:]
    if not has_initial_capital(caption):
        return written
    # The original capital was removed or has moved, so capitalize the start again.
    first = start_of_text(written)
    return written[:first] + written[first : first + 1].upper() + written[first + 1 :]
