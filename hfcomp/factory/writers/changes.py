"""What an answer changed in a caption, by its words, and whether that is the change that was asked for.

The negative is put together from the caption and the new words alone, so that everything else stays byte for byte: a
model that drops the full stop or changes a capital would otherwise leave a cue that gives negatives away.
Besides the new words only "a" and "an", and "is/are", "was/were", "has/have" and the like may differ, as they follow
them.

What the checks do not see: whether the new caption is false of the image, words for the same that are in none of the
small tables of `meanings` ("dog" to "mammal"), and sense.
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
from hfcomp.factory.writers.meanings import check_words, may_be_one
from hfcomp.factory.writers.requests import Refused
from hfcomp.negatives.filters import is_same_sentence
from hfcomp.negatives.mask_filling import lemmas_of
from hfcomp.negatives.negative import Negative
from hfcomp.negatives.surface import rewrite, without_capital_of_place
from hfcomp.parsing.captions import Span

UNCHANGED, OTHER_WORDS, DELETED = "the caption itself", "other words changed", "keyword left out"
SAME_WORD, SAME_THING, KEEPS = "same word", "may be the same thing", "keeps the keyword"
TOO_MANY_WORDS, REPEATED, NUMBER = "replaced by too many words", "a word twice", "singular and plural"
NOT_THE_CHANGE = "not the change that was asked for"
# Most words that replace a keyword or are added. Our choice: longer texts describe more than what they replace.
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
    """A word or sign of a text."""

    text: str
    span: Span

    @property
    def folded(self) -> str:
        """Equal for the same word."""
        return self.text.casefold().replace("’", "'")


@dataclass(frozen=True)
class Change:
    """A negative, and how many words besides the change follow it.

    Attributes:
        agreements: words such as "is" for "are" that the answer changed too; "a" and "an" are not counted.
        is_fallback: whether the new word is one for the keyword's tag alone, see `hfcomp.factory.substitutes`.
    """

    negative: Negative
    agreements: int
    is_fallback: bool = False


def tokens_of(text: str) -> list[Token]:
    """The words and signs of a text, without those that end it."""
    found = [Token(match.group(), match.span()) for match in _TOKEN.finditer(text)]
    while found and found[-1].text in _FINAL:
        found.pop()
    return found


def replaced_keyword(caption: str, span: Span, tag: str, category: str, answer: str) -> Change:
    """The change of an answer that should replace a keyword and nothing else.

    A keyword within a spatial phrase of several words may take the phrase with it, as in the paper's own example:
    "front", "in front of" to "behind".

    Args:
        span: `[start, end)` in characters of the keyword.
        tag: the Penn tag of the keyword's last word.
        category: `attribute`, `object` or `relation`.

    Raises:
        Refused: with the reason.
    """
    if is_same_sentence(caption, answer):
        raise Refused(UNCHANGED)
    phrase = spatial_phrase(caption, span)
    found = _middle(caption, span, answer)
    if found is None and phrase is not None:
        # The model may have exchanged the phrase around the keyword, as in the paper's own example.
        found = _middle(caption, phrase, answer)
    if found is None:
        raise Refused(OTHER_WORDS)
    changed, words, agreements = found
    if not words:
        raise Refused(DELETED)
    new = _new_words(caption, changed, answer, words)
    check_replacement(caption[slice(*changed)], new, tag)
    if phrase is not None and may_be_one(
        caption[slice(*phrase)].casefold(), _phrase_text(caption, phrase, changed, new)
    ):
        raise Refused(SAME_THING)
    check_words(new, caption)
    text = _assemble(caption, [(changed, new), *agreements])
    check_neighbors(caption, text)
    negative = Negative(text, KIND_OF_CATEGORY[category], caption[slice(*changed)], new, category, (changed,))
    return Change(negative, len(agreements))


def _middle(caption: str, span: Span, answer: str) -> tuple[Span, list[Token], list[tuple[Span, str]]] | None:
    """What stands in the place of a span, if all before and behind it is the same; and what agrees with it."""
    ours, theirs = tokens_of(caption), tokens_of(answer)
    if any(token.span[0] < place < token.span[1] for token in ours for place in span):
        return None  # half a word
    before = [token for token in ours if token.span[1] <= span[0]]
    behind = [token for token in ours if token.span[0] >= span[1]]
    if len(theirs) < len(before) + len(behind):
        return None
    end = len(theirs) - len(behind)
    # All words around the place must be the same, except for those that agree with it in number.
    pairs = [*zip(before, theirs, strict=False), *zip(behind, theirs[end:], strict=True)]
    if not all(_agree(one, other) for one, other in pairs):
        return None
    differing = ((one, other) for one, other in pairs if one.folded != other.folded)
    agreements = [(one.span, other.text) for one, other in differing if one.folded not in _ARTICLES]
    return span, theirs[len(before) : end], agreements


def _agree(one: Token, other: Token) -> bool:
    pair = {one.folded, other.folded}
    return len(pair) == 1 or any(pair <= words for words in _AGREEING)


def _new_words(caption: str, span: Span, answer: str, words: Sequence[Token]) -> str:
    """What an answer has in place of a span, with the capitals that the caption has there.

    A capital that only the start of the answer gave is small, as it would be a mark of negatives.
    """
    new = " ".join(answer[words[0].span[0] : words[-1].span[1]].split())
    old = caption[slice(*span)]
    if len(old) > 1 and old.isupper():
        return new.upper()
    is_first = not answer[: words[0].span[0]].strip()
    return new[0].lower() + new[1:] if is_first and words[0].text[1:].islower() and len(words[0].text) > 1 else new


def _phrase_text(caption: str, phrase: Span, span: Span, new: str) -> str:
    """A phrase with new words for a part of it, in small letters: "near to" for "next to" where "next" is replaced."""
    return (caption[phrase[0] : span[0]] + new + caption[span[1] : phrase[1]]).casefold()


def _assemble(caption: str, edits: Sequence[tuple[Span, str]]) -> str:
    ordered = sorted(edits)
    return rewrite(caption, [span for span, _ in ordered], [text for _, text in ordered])


def check_replacement(keyword: str, new: str, tag: str = "") -> None:
    """Raises `Refused` for words that may say the same, or are too many.

    Args:
        tag: Penn tag of the keyword's last word; by default its number is not checked.
    """
    old_words, new_words = keyword.casefold().split(), new.casefold().split()
    if len(new_words) > MOST_WORDS:
        raise Refused(TOO_MANY_WORDS)
    if [lemmas_of(word) for word in old_words] == [lemmas_of(word) for word in new_words] or (
        len(old_words) == len(new_words) == 1 and lemmas_of(old_words[0]) & lemmas_of(new_words[0])
    ):
        raise Refused(SAME_WORD)
    # Words that contain the old ones, or part of them, only add or drop a detail: "dog" and "brown dog".
    if not Counter(old_words) - Counter(new_words) or not Counter(new_words) - Counter(old_words):
        raise Refused(KEEPS)
    if may_be_one(" ".join(old_words), " ".join(new_words)):
        raise Refused(SAME_THING)
    numbers = _numbers(old_words[-1]), _numbers(new_words[-1])
    if tag in ("NN", "NNS") and all(numbers) and not numbers[0] & numbers[1]:
        raise Refused(NUMBER)


def _numbers(word: str) -> set[str]:
    """NN, NNS or both, of a noun that the lexicon has."""
    return {tag for tag in ("NN", "NNS") if default_lexicon().noun(word, [tag]) is not None}


def check_neighbors(caption: str, text: str) -> None:
    """Raises `Refused` where the new words repeat a word beside them ("a a cat", "red red")."""
    if _repeated_words(text) - _repeated_words(caption):
        raise Refused(REPEATED)


def _repeated_words(text: str) -> Counter[str]:
    words = _fold(tokens_of(text))
    return Counter(one for one, other in zip(words, words[1:], strict=False) if one == other and one[0].isalnum())


def changed_part(caption: str, part: str, answer: str) -> Change:
    """The change of an answer to one of `PARTS`, where the model chose what to change.

    Raises:
        Refused: with the reason.
    """
    way, _, what = part.partition("_")
    if is_same_sentence(caption, answer):  # many captions have nothing to swap
        raise NothingToChange(UNCHANGED) if way == "swap" else Refused(UNCHANGED)
    ours, theirs = tokens_of(caption), tokens_of(answer)
    if way == "swap":
        return Change(_read_swap(caption, ours, theirs, part, CATEGORIES[what]), 0)
    edits = _edits(ours, theirs)
    if len(edits) != 1:
        raise Refused(OTHER_WORDS if edits else UNCHANGED)
    ((first, last), (start, end)) = edits[0]
    # Only an addition replaces no words of the caption. A change without new words is a deletion.
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
    """The runs of tokens that differ; articles that fit themselves to a new word are none."""
    # `autojunk` would ignore frequent words of long captions.
    matcher = SequenceMatcher(None, _fold(ours), _fold(theirs), autojunk=False)
    return [((i, j), (k, m)) for tag, i, j, k, m in matcher.get_opcodes() if tag != "equal"]


def _fold(tokens: Sequence[Token]) -> list[str]:
    return ["a" if token.folded in _ARTICLES else token.folded for token in tokens]


def _span(caption: str, tokens: Sequence[Token], first: int, last: int) -> Span:
    """The characters of a run of tokens; of an empty one the place before the next token."""
    if first < last:
        return tokens[first].span[0], tokens[last - 1].span[1]
    place = tokens[first].span[0] if first < len(tokens) else (tokens[-1].span[1] if tokens else len(caption))
    return place, place


def _add_space(caption: str, span: Span, new: str) -> str:
    """Words that are put in, with the space that parts them from what stands there."""
    if span[0] == len(caption) or not caption[span[0]].isalnum():
        return new if new[:1] in ",;" else f" {new}"
    return f"{new} "


def _read_swap(caption: str, ours: Sequence[Token], theirs: Sequence[Token], part: str, category: str) -> Negative:
    """Two runs that changed places: the same words in another order, except for articles."""
    old, new = _fold(ours), _fold(theirs)
    if old == new:
        raise Refused(UNCHANGED)
    if Counter(old) != Counter(new):
        raise Refused(OTHER_WORDS)
    # The same words in another order may also be a shuffle, which is not an exchange of two runs.
    places = _swapped_runs(old, new)
    if places is None:
        raise Refused(NOT_THE_CHANGE)
    spans = [_span(caption, ours, *place) for place in places]
    first, second = (caption[slice(*span)] for span in spans)
    if may_be_one(first.casefold(), second.casefold()):
        raise Refused(SAME_THING)
    text = rewrite(caption, spans, (second, without_capital_of_place(caption, spans[0])))
    return Negative(text, part, first, second, category, tuple(spans))


def _swapped_runs(old: Sequence[str], new: Sequence[str]) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The shortest two runs of words that change places, as `[start, end)` in the old order; None if no two do."""
    differing = [place for place, (one, other) in enumerate(zip(old, new, strict=True)) if one != other]
    start, end = differing[0], differing[-1] + 1
    before, after = list(old[start:end]), list(new[start:end])
    # Short runs come first: if several exchanges explain an answer, the smallest counts.
    lengths = [(one, other) for one in range(1, MOST_WORDS + 1) for other in range(1, MOST_WORDS + 1)]
    for one, other in sorted(lengths, key=sum):
        if one + other > end - start:
            break
        middle = before[one : len(before) - other]
        if after == before[len(before) - other :] + middle + before[:one]:
            return (start, start + one), (end - other, end)
    return None
