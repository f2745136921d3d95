"""Writing words back into a caption: the capital at its start, and "a" or "an" before a word."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hfcomp.parsing.captions import Span

_ARTICLE_AT_END = re.compile(r"(?<![^\s\"'(])an?(?= $)", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")
# Letters whose names begin with a vowel: "an SUV", "an LG phone".
_SPOKEN_LIKE_A_VOWEL = frozenset("aefhilmnorsx")
_SPELLED_BUT_NOT_SPOKEN_LIKE_A_VOWEL = (
    *("eu", "ewe", "once", "one", "ubi", "uk", "unic", "unif", "union", "uniq", "unis", "unit", "univ", "urin"),
    *("usa", "use", "usu", "uten", "util"),
)
_SPOKEN_BUT_NOT_SPELLED_LIKE_A_VOWEL = re.compile(r"hour|heir|honest|honou?r|8|1[18](?!\d)")


def starts_like_a_vowel(text: str) -> bool:
    """Whether "an" stands before this text rather than "a"; quotes and brackets before its first letter do not count.

    By sound where a short list knows it ("an hour", "a unicorn"), else by the first letter. Two to four capitals
    without a vowel behind the first are taken as letters spelled out ("an LG phone", "a TV").
    """
    found = _WORD.search(text)
    if found is None:
        return False
    word = found.group()
    if word.isupper() and 2 <= len(word) <= 4 and not set(word[1:]) & set("AEIOU"):
        return word[0].lower() in _SPOKEN_LIKE_A_VOWEL
    lower = word.lower()
    if lower.startswith(_SPELLED_BUT_NOT_SPOKEN_LIKE_A_VOWEL):
        return False
    return lower[0] in "aeiou" or _SPOKEN_BUT_NOT_SPELLED_LIKE_A_VOWEL.match(lower) is not None


def fit_article(before: str, text: str) -> str:
    """Fits an "a" or "an" at the end of some text to what follows it.

    Returns:
        `before`, with another article where the one at its end does not fit; its capital is kept.
    """
    # Only an article at the very end is fitted: another word ("a big", "an open") may follow the article, and then its
    # sound decides.
    found = _ARTICLE_AT_END.search(before)
    if found is None:
        return before
    written, article = found.group(), "an" if starts_like_a_vowel(text) else "a"
    if written.lower() == article:
        return before
    if written[0] == "A":
        article = article.upper() if len(text) > 1 and text.isupper() else article.capitalize()
    return before[: found.start()] + article + before[found.end() :]


def start_of_text(caption: str) -> int:
    """Index of the first character that is not a space; the length of the caption if there is none."""
    return len(caption) - len(caption.lstrip())


def has_no_small_letters(caption: str) -> bool:
    """Whether a caption of several words is written in capitals."""
    return caption.isupper() and " " in caption.strip()


def has_capital_of_place(caption: str) -> bool:
    """Whether the caption starts with a capital that belongs to the place; in a caption all in capitals none does."""
    first = start_of_text(caption)
    return caption[first : first + 1].isupper() and not has_no_small_letters(caption)


def without_capital_of_place(caption: str, span: Span, *, is_name: bool = False) -> str:
    """The text of a span as it is written anywhere else in the sentence.

    Its first letter becomes small if only the start of the caption gave it its capital; a name keeps its own. "TV",
    "McCartney" and "A's" show by their other letters that theirs is their own.
    """
    text = caption[span[0] : span[1]]
    if is_name or span[0] > start_of_text(caption) or not has_capital_of_place(caption):
        return text
    word = _WORD.match(text)
    if word is None or (len(word.group()) > 1 and not word.group()[1:].islower()):
        return text
    return text[0].lower() + text[1:]


def rewrite(caption: str, spans: Sequence[Span], texts: Sequence[str]) -> str:
    """Writes new texts in the places of spans.

    A capital at the start of a caption stays there, whatever word comes there, and an "a" or "an" directly before a
    new text is fitted to it. All else is left as it is.

    Spans are `[start, end)` in characters, from left to right, not overlapping, with a text each. An empty span
    inserts its text, an empty text removes its span.
    """
    written, place = "", 0
    for (start, end), text in zip(spans, texts, strict=True):
        if not place <= start <= end <= len(caption):
            raise ValueError(
                f"spans {list(spans)} of caption {caption!r} overlap, are out of order or outside the caption; "
                "expected [start, end) in characters, from left to right."
            )
        # "a" before the span may need to become "an": what is written so far ends right before the new text.
        written += caption[place:start]
        if text:
            written = fit_article(written, text) + text
        place = end
    written += caption[place:]
    if not has_capital_of_place(caption):
        return written
    # The old capital left with its word, or is in the middle now. The place gets its own again.
    first = start_of_text(written)
    return written[:first] + written[first : first + 1].upper() + written[first + 1 :]
