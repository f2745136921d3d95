"""Determines by words what an answer changed in a caption, and checks that it is the requested change.

The negative is assembled only from the caption and the new words, so everything else stays byte for byte. Otherwise a
model that drops the full stop or changes a capital would leave a cue that gives negatives away. In addition to the new
words, only words that agree with them may differ: "a/an", "is/are", "was/were", "has/have" and similar.

The checks do not detect whether the new caption is false of the image, words for the same thing that are missing in
the small tables of `meanings` ("dog" to "mammal"), or nonsense.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from hfcomp.factory.substitutes.choice import spatial_phrase
from hfcomp.factory.substitutes.lexicon import default_lexicon
from hfcomp.factory.writers.answer_cache import NothingToChange
from hfcomp.factory.writers.meanings import check_words, may_mean_the_same
from hfcomp.factory.writers.requests import Refused
from hfcomp.negatives.filters import is_same_sentence
from hfcomp.negatives.mask_filling import lemmas_of
from hfcomp.negatives.negative import Negative
from hfcomp.negatives.surface import rewrite, without_initial_capital
from hfcomp.parsing.captions import Span

UNCHANGED, OTHER_WORDS, DELETED = "the caption itself", "other words changed", "keyword left out"
SAME_WORD, SAME_THING, KEEPS = "same word", "may be the same thing", "keeps the keyword"
TOO_MANY_WORDS, REPEATED, NUMBER = "replaced by too many words", "a word twice", "singular and plural"
NOT_THE_CHANGE = "not the change that was asked for"
# Maximum words that replace a keyword or are added. Our choice: longer texts describe more than they replace.
MOST_WORDS = 6
KIND_OF_CATEGORY = {"attribute": "replace_att", "object": "replace_obj", "relation": "replace_rel"}
CATEGORIES = {"att": "attribute", "obj": "object", "rel": "relation"}

_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[^\w\s]|_")
_AGREEING = tuple(
    frozenset(words.split())
    for words in ("a an", "is are", "was were", "has have", "does do", "this these", "that those", "isn't aren't")
)
_ARTICLES = frozenset(("a", "an"))
_FINAL = frozenset(".!?")


@dataclass(frozen=True)
class Token:
    """A word or a punctuation mark in a text."""

    text: str
    span: Span

    @property
    def form(self) -> str:
        """The text in a form that is equal for the same word."""
        return self.text.casefold().replace("’", "'")


@dataclass(frozen=True)
class Change:
    """A negative, and the number of other words that changed with it.

    Attributes:
        agreements: Number of words that the answer adapted, such as "is" to "are", without "a" and "an".
        is_fallback: Whether the new word fits only the keyword's tag, see `hfcomp.factory.substitutes`.
    """

    negative: Negative
    agreements: int
    is_fallback: bool = False


def split_tokens(text: str) -> list[Token]:
    """The words and punctuation marks of a text, without final punctuation."""
    tokens = [Token(match.group(), match.span()) for match in _TOKEN.finditer(text)]
    while tokens and tokens[-1].text in _FINAL:
        tokens.pop()
    return tokens


def replaced_keyword(caption: str, span: Span, tag: str, category: str, answer: str) -> Change:
    """The change of an answer that should replace only a keyword.

    If a keyword is part of a spatial phrase of several words, the whole phrase may be replaced, as in the paper's own
    example: "front", with "in front of" changed to "behind".

    Args:
        span: Position of the keyword, `[start, end)` in characters.
        tag: Penn tag of the keyword's last word.
        category: `attribute`, `object` or `relation`.

    Raises:
        Refused: For another change, with the reason.
    """
    if is_same_sentence(caption, answer):
        raise Refused(UNCHANGED)
    phrase = spatial_phrase(caption, span)
    middle = _middle(caption, span, answer)
    if middle is None and phrase is not None:
        # The model may have replaced the phrase around the keyword, as in the paper's own example.
        middle = _middle(caption, phrase, answer)
    if middle is None:
        raise Refused(OTHER_WORDS)
    changed, words, agreements = middle
    if not words:
        raise Refused(DELETED)
    new = _new_words(caption, changed, answer, words)
    check_replacement(caption[slice(*changed)], new, tag)
    if phrase is not None and may_mean_the_same(
        caption[slice(*phrase)].casefold(), _phrase_text(caption, phrase, changed, new)
    ):
        raise Refused(SAME_THING)
    check_words(new, caption)
    text = _assemble(caption, [(changed, new), *agreements])
    check_neighbors(caption, text)
    negative = Negative(text, KIND_OF_CATEGORY[category], caption[slice(*changed)], new, category, (changed,))
    return Change(negative, len(agreements))


def _middle(caption: str, span: Span, answer: str) -> tuple[Span, list[Token], list[tuple[Span, str]]] | None:
    """The span, the words that replace it, and adapted words; None if other words before or after it differ."""
    ours, theirs = split_tokens(caption), split_tokens(answer)
    if any(token.span[0] < place < token.span[1] for token in ours for place in span):
        return None  # the span cuts a word
    before = [token for token in ours if token.span[1] <= span[0]]
    behind = [token for token in ours if token.span[0] >= span[1]]
    if len(theirs) < len(before) + len(behind):
        return None
    end = len(theirs) - len(behind)
    # All words around the span must be the same, except for words that agree with it.
    pairs = [*zip(before, theirs, strict=False), *zip(behind, theirs[end:], strict=True)]
    if not all(_agree(own, other) for own, other in pairs):
        return None
    differing = ((own, other) for own, other in pairs if own.form != other.form)
    agreements = [(own.span, other.text) for own, other in differing if own.form not in _ARTICLES]
    return span, theirs[len(before) : end], agreements


def _agree(own: Token, other: Token) -> bool:
    pair = {own.form, other.form}
    return len(pair) == 1 or any(pair <= words for words in _AGREEING)


def _new_words(caption: str, span: Span, answer: str, words: Sequence[Token]) -> str:
    """The words of an answer that replace a span, with the capitalization of the caption.

    A capital that is due only to the start of the answer becomes lower case, because it would mark negatives.
    """
    new = " ".join(answer[words[0].span[0] : words[-1].span[1]].split())
    old = caption[slice(*span)]
    if len(old) > 1 and old.isupper():
        return new.upper()
    is_first = not answer[: words[0].span[0]].strip()
    return new[0].lower() + new[1:] if is_first and words[0].text[1:].islower() and len(words[0].text) > 1 else new


def _phrase_text(caption: str, phrase: Span, span: Span, new: str) -> str:
    """A phrase with a part replaced, in lower case: "near to" if "next" is replaced in "next to"."""
    return (caption[phrase[0] : span[0]] + new + caption[span[1] : phrase[1]]).casefold()


def _assemble(caption: str, edits: Sequence[tuple[Span, str]]) -> str:
    ordered = sorted(edits)
    return rewrite(caption, [span for span, _ in ordered], [text for _, text in ordered])


def check_replacement(keyword: str, new: str, tag: str = "") -> None:
    """Raises `Refused` for words that may mean the same, or for too many words.

    Args:
        tag: Penn tag of the keyword's last word. Without a tag, singular and plural are not checked.
    """
    old_words, new_words = keyword.casefold().split(), new.casefold().split()
    if len(new_words) > MOST_WORDS:
        raise Refused(TOO_MANY_WORDS)
    if [lemmas_of(word) for word in old_words] == [lemmas_of(word) for word in new_words] or (
        len(old_words) == len(new_words) == 1 and lemmas_of(old_words[0]) & lemmas_of(new_words[0])
    ):
        raise Refused(SAME_WORD)
    # If one text contains all words of the other, it only adds or drops a detail: "dog" and "brown dog".
    if not Counter(old_words) - Counter(new_words) or not Counter(new_words) - Counter(old_words):
        raise Refused(KEEPS)
    if may_mean_the_same(" ".join(old_words), " ".join(new_words)):
        raise Refused(SAME_THING)
    numbers = _numbers(old_words[-1]), _numbers(new_words[-1])
    if tag in ("NN", "NNS") and all(numbers) and not numbers[0] & numbers[1]:
        raise Refused(NUMBER)


def _numbers(word: str) -> set[str]:
    """The tags of a noun in the lexicon: NN, NNS or both; empty for other words."""
    return {tag for tag in ("NN", "NNS") if default_lexicon().noun(word, [tag]) is not None}


def check_neighbors(caption: str, text: str) -> None:
    """Raises `Refused` if the new words repeat an adjacent word ("a a cat", "red red")."""
    if _repeated_words(text) - _repeated_words(caption):
        raise Refused(REPEATED)


def _repeated_words(text: str) -> Counter[str]:
    words = _fold(split_tokens(text))
    return Counter(word for word, other in zip(words, words[1:], strict=False) if word == other and word[0].isalnum())


def changed_part(caption: str, part: str, answer: str) -> Change:
    """The change of an answer to one of `PARTS`, for which the model chose the words.

    Raises:
        Refused: For another change, with the reason.
    """
    way, _, what = part.partition("_")
    if is_same_sentence(caption, answer):  # many captions have nothing to swap
        raise NothingToChange(UNCHANGED) if way == "swap" else Refused(UNCHANGED)
    ours, theirs = split_tokens(caption), split_tokens(answer)
    if way == "swap":
        return Change(_read_swap(caption, ours, theirs, part, CATEGORIES[what]), 0)
    edits = _edits(ours, theirs)
    if len(edits) != 1:
        raise Refused(OTHER_WORDS if edits else UNCHANGED)
    ((first, last), (start, end)) = edits[0]
    # An addition, and only an addition, replaces no words of the caption. A change without new words is a deletion.
    if (first == last) != (way == "add") or start == end:
        raise Refused(NOT_THE_CHANGE)
    span = _span(caption, ours, first, last)
    new = _new_words(caption, span, answer, theirs[start:end])
    if way == "replace":
        check_replacement(caption[slice(*span)], new)
    elif len(new.split()) > MOST_WORDS:
        raise Refused(TOO_MANY_WORDS)
    check_words(new, caption)
    text = _assemble(caption, [(span, new if way == "replace" else _add_space(caption, span, new))])
    check_neighbors(caption, text)
    negative = Negative(text, part, caption[slice(*span)] or new, new, CATEGORIES[what], (span,))
    return Change(negative, 0)


_Edit = tuple[tuple[int, int], tuple[int, int]]


def _edits(ours: Sequence[Token], theirs: Sequence[Token]) -> list[_Edit]:
    """The runs of tokens that differ. Articles that adapt to a new word do not count."""
    # `autojunk` would ignore frequent words of long captions.
    matcher = SequenceMatcher(None, _fold(ours), _fold(theirs), autojunk=False)
    return [((i, j), (k, m)) for tag, i, j, k, m in matcher.get_opcodes() if tag != "equal"]


def _fold(tokens: Sequence[Token]) -> list[str]:
    return ["a" if token.form in _ARTICLES else token.form for token in tokens]


def _span(caption: str, tokens: Sequence[Token], first: int, last: int) -> Span:
    """The characters of a run of tokens. An empty run is the place before the next token."""
    if first < last:
        return tokens[first].span[0], tokens[last - 1].span[1]
    place = tokens[first].span[0] if first < len(tokens) else (tokens[-1].span[1] if tokens else len(caption))
    return place, place


def _add_space(caption: str, span: Span, new: str) -> str:
    """Inserted words, with the space that separates them from the text there."""
    if span[0] == len(caption) or not caption[span[0]].isalnum():
        return new if new[:1] in ",;" else f" {new}"
    return f"{new} "


def _read_swap(caption: str, ours: Sequence[Token], theirs: Sequence[Token], part: str, category: str) -> Negative:
    """The swap of two runs of words: the same words in another order, except for articles."""
    old, new = _fold(ours), _fold(theirs)
    if old == new:
        raise Refused(UNCHANGED)
    if Counter(old) != Counter(new):
        raise Refused(OTHER_WORDS)
    # The same words in another order may also be a shuffle, which is not a swap of two runs.
    places = _swapped_runs(old, new)
    if places is None:
        raise Refused(NOT_THE_CHANGE)
    spans = [_span(caption, ours, *place) for place in places]
    first, second = (caption[slice(*span)] for span in spans)
    if may_mean_the_same(first.casefold(), second.casefold()):
        raise Refused(SAME_THING)
    text = rewrite(caption, spans, (second, without_initial_capital(caption, spans[0])))
    return Negative(text, part, first, second, category, tuple(spans))


def _swapped_runs(old: Sequence[str], new: Sequence[str]) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The two shortest runs of words that are swapped, as `[start, end)` in the old order; None without a swap."""
    differing = [place for place, (word, other) in enumerate(zip(old, new, strict=True)) if word != other]
    start, end = differing[0], differing[-1] + 1
    before, after = list(old[start:end]), list(new[start:end])
    # Short runs come first: if several swaps explain an answer, the smallest counts.
    lengths = [(first, second) for first in range(1, MOST_WORDS + 1) for second in range(1, MOST_WORDS + 1)]
    for first, second in sorted(lengths, key=sum):
        if first + second > end - start:
            break
        middle = before[first : len(before) - second]
        if after == before[len(before) - second :] + middle + before[:first]:
            return (start, start + first), (end - second, end)
    return None
