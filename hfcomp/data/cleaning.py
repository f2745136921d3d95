"""Texts cleaned as OpenAI's CLIP tokenizer does before it cuts them into tokens."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from difflib import SequenceMatcher

import ftfy

from hfcomp.parsing.captions import Span

_WORD = re.compile(r"\S+")


def clean(text: str) -> str:
    """A text after `basic_clean` and `whitespace_clean` of OpenAI's `simple_tokenizer.py`.

    ftfy repairs wrongly decoded text and makes curly quotes straight, HTML entities become characters (twice, as
    `&amp;amp;` occurs), and every run of white space becomes one space. Lower case is left to the tokenizer.
    """
    # nothing else changes printable ASCII, and ftfy takes twenty times as long to find that out
    if not (text.isascii() and text.isprintable() and "&" not in text):
        text = html.unescape(html.unescape(ftfy.fix_text(text)))
    return " ".join(text.split())


def places_before(text: str, cleaned: str, tokens: Sequence[Span]) -> list[Span]:
    """Where tokens of a cleaned text stand in the text as it was.

    Words that cleaning left alone are followed character by character. The tokens of another word take the whole of
    the word that it was made from, or of the words, where their number differs.

    Args:
        text: as it was.
        cleaned: what `clean` made of it.
        tokens: `[start, end)` in `cleaned`; empty for a token without characters.

    Returns:
        `[start, end)` in `text` for each token.
    """
    before = [match.span() for match in _WORD.finditer(text)]
    after = [match.span() for match in _WORD.finditer(cleaned)]
    starts, ends = [0] * len(cleaned), [0] * len(cleaned)
    words = [text[slice(*span)] for span in before], [cleaned[slice(*span)] for span in after]
    for kind, first, last, begin, stop in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        paired = last - first == stop - begin
        for offset, (start, end) in enumerate(after[begin:stop]):
            # a word that nothing stands for, such as one of an added character, is where the next one begins
            whole = (before[first][0], before[last - 1][1]) if first < last else (_start(before, first, text),) * 2
            own = before[first + offset] if paired else whole
            for place in range(start, end):
                starts[place] = own[0] + (place - start if kind == "equal" else 0)
                ends[place] = starts[place] + 1 if kind == "equal" else own[1]
    return [(starts[start], ends[end - 1]) if start < end else (0, 0) for start, end in _trim(cleaned, tokens)]


def _start(spans: Sequence[Span], number: int, text: str) -> int:
    return spans[number][0] if number < len(spans) else len(text)


def _trim(text: str, tokens: Sequence[Span]) -> list[Span]:
    """Spans without the white space that a tokenizer may count in."""
    found = []
    for start, end in tokens:
        part = text[start:end]
        start += len(part) - len(part.lstrip())
        found.append((start, max(start, start + len(part.strip()))))
    return found
