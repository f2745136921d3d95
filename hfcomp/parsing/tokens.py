"""The parser's tokens without a parse: spaCy's English tokenizer, which needs no model, and lengths in its tokens."""

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
# The tokenizer peels a run of signs without a space sign by sign, which costs the square of its length. Longer runs
# are cut; no caption of prose has them.
_LONG_RUN = re.compile(r"\S{200}(?=\S)")


def with_extra(make: Callable[..., Result], *arguments: str, needed_by: str = "parsing") -> Result:
    """Calls `make`, which imports what it needs; an error for a missing package also names the extra to install."""
    try:
        return make(*arguments)
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        raise ModuleNotFoundError(
            f"{needed_by} needs {error.name}, which is not installed: {_INSTALL_EXTRA}", name=error.name
        ) from error


def longest_text(texts: Sequence[str]) -> str:
    """The text with the most tokens, the first of equal ones.

    Concrete Jungle (arXiv 2604.13313), Appendix A.1, takes the caption "with the largest token count" and parses with
    spaCy; tokenizer and ties are not specified. The unit here is the token of spaCy's English tokenizer, which is that
    of every English pipeline and of the parser `rules`: punctuation marks and contracted endings count, surplus white
    space does not. Of the captions of COCO val2017 words between white space choose another one for 604 of 5,000
    images.
    """
    # A single text is returned as it is, so sets with one caption per image need no spaCy.
    return max(texts, key=token_count) if len(texts) > 1 else texts[0]


def choose_texts(texts: Sequence[str], choice: CaptionChoice) -> tuple[list[str], list[str]]:
    """The captions of an image, one or more, that are used, and the problems of those that were passed over.

    `longest` is Slipform, section 2.2: the most tokens, see `longest_text`; captions with a `caption_problem` take no
    part, unless all have one: then the first is used.
    """
    if choice != "longest":
        return list(texts[:1] if choice == "first" else texts), []
    problems = [caption_problem(one) for one in texts]
    usable = [one for one, problem in zip(texts, problems, strict=True) if problem is None]
    if not usable:
        return [texts[0]], []
    return [longest_text(usable)], [problem for problem in problems if problem]


def token_count(text: str) -> int:
    """The number of a text's tokens, white space not counted; in time proportional to its length."""
    tokenizer = english().tokenizer
    return sum(not token.is_space for piece in pieces(text) for token in tokenizer(piece))


def pieces(text: str) -> Iterator[str]:
    """The text itself, or its pieces where it has a longer run without a space."""
    start = end = 0
    for found in _LONG_RUN.finditer(text):
        start, end = end, found.end()
        yield text[start:end]
    if end < len(text) or not text:
        yield text[end:]


@lru_cache(maxsize=1)
def english() -> Language:
    """The English tokenizer of spaCy, alone, once per process."""
    return with_extra(_blank, needed_by="counting a caption's tokens")


def _blank() -> Language:
    import spacy

    return spacy.blank("en")
