"""Tokens without a parse: spaCy's English tokenizer, which needs no model, and text lengths in its tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeVar

from hfcomp.parsing.captions import caption_problem

if TYPE_CHECKING:
    from spacy.language import Language

CaptionChoice = Literal["longest", "first", "all"]
Result = TypeVar("Result")
# The packages of the extra `text`, which parsing needs and importing hfcomp does not.
_PACKAGES = ("spacy", "textblob", "simplemma")
_INSTALL_EXTRA = 'pip install "hfcomp[text]"'
# The tokenizer strips punctuation from a run without spaces one character at a time, in quadratic time. Longer runs
# are therefore cut; captions in prose do not have them.
_LONG_RUN = re.compile(r"\S{200}(?=\S)")


def with_extra(make: Callable[..., Result], *arguments: str, needed_by: str = "parsing") -> Result:
    """Calls `make`, which imports what it needs. If a package is missing, the error names the extra to install."""
    try:
        return make(*arguments)
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        raise ModuleNotFoundError(
            f"{needed_by} requires {error.name}, which is not installed: {_INSTALL_EXTRA}", name=error.name
        ) from error


def longest_text(texts: Sequence[str]) -> str:
    """Returns the text with the most tokens; the first one in case of a tie.

    Concrete Jungle (arXiv 2604.13313), Appendix A.1, uses the caption "with the largest token count" and parses with
    spaCy, but does not specify the tokenizer or how to break ties. Here, tokens are those of spaCy's English
    tokenizer, which every English pipeline and the parser `rules` use: punctuation marks and contracted endings count,
    extra white space does not. On COCO val2017, counting words between white space would choose another caption for
    604 of 5,000 images.
    """
    # A single text is returned unchanged, so datasets with one caption per image do not need spaCy.
    return max(texts, key=token_count) if len(texts) > 1 else texts[0]


def choose_texts(texts: Sequence[str], choice: CaptionChoice) -> tuple[list[str], list[str]]:
    """Chooses the captions of an image to use (one or more), and returns them with the problems of skipped captions.

    `longest` follows Slipform, section 2.2, and chooses the caption with the most tokens; see `longest_text`. Captions
    with a `caption_problem` are skipped, unless all have one, in which case the first is used.
    """
    if choice != "longest":
        return list(texts[:1] if choice == "first" else texts), []
    problems = [caption_problem(text) for text in texts]
    usable = [text for text, problem in zip(texts, problems, strict=True) if problem is None]
    if not usable:
        return [texts[0]], []
    return [longest_text(usable)], [problem for problem in problems if problem]


def token_count(text: str) -> int:
    """Returns the number of tokens of a text, not counting white space, in time proportional to its length."""
    tokenizer = english().tokenizer
    return sum(not token.is_space for piece in pieces(text) for token in tokenizer(piece))


def pieces(text: str) -> Iterator[str]:
    """Yields the text itself, or its pieces if it has a longer run without a space."""
    start = end = 0
    for match in _LONG_RUN.finditer(text):
        start, end = end, match.end()
        yield text[start:end]
    if end < len(text) or not text:
        yield text[end:]


@lru_cache(maxsize=1)
def english() -> Language:
    """Returns a spaCy pipeline with only the English tokenizer, created once per process."""
    return with_extra(_blank, needed_by="counting a caption's tokens")


def _blank() -> Language:
    import spacy

    return spacy.blank("en")
