"""Hard negatives by mask filling: a language model replaces one masked noun, adjective or verb of a caption.

Source: Zhang, Awal, Agrawal, "Contrasting Intra-Modal and Ranking Cross-Modal Hard Negatives to Enhance
Visio-Linguistic Compositional Understanding" (CE-CLIP), CVPR 2024, arXiv:2306.08832, with RoBERTa as language model.

Differences from the released code of CE-CLIP, and of AHNPL, which builds on it:

* There, a caption without a word of the requested part became a bare mask token, which was filled at random and kept
  as valid. Here, it has no negative of that part, so its entry is masked.
* There, the fill was the fourth best of distilroberta-base's five proposals, whatever it was, even the original word.
  Here, the model proposes `top_k` words. A word is dropped if it is not a whole word, is a name, a light word, the
  original in another form or case or a listed synonym of it, or if its Penn tag in the filled caption differs from the
  original's ("dogs" stays a plural, "riding" a participle). One of the rest is sampled uniformly by the seed (our
  choice).

An "a" or "an" directly before the word, outside the span, is adapted to the fill. If a lemma is unknown to both
simplemma and the parser, an inflection of the original with the same tag can pass.

Known limitation: most synonyms and hypernyms are on no list ("puppy" for "dog") and are as true of the image as the
original. No language model can detect this; `hfcomp.negatives.filters.is_false_negative` uses the evaluated model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hfcomp.negatives.language_models import DEFAULT_MODEL, MaskedModel
from hfcomp.negatives.negative import Negative, caption_rng
from hfcomp.negatives.surface import fit_article
from hfcomp.parsing import Parser
from hfcomp.parsing.words import EMPTY_NOUNS, LOCATION_NOUNS, MAY_BE_ONE, NOT_DESCRIBING, PICTURE_NOUNS

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

PARTS = ("noun", "adjective", "verb")
KINDS = {"noun": "mask_noun", "adjective": "mask_adj", "verb": "mask_verb"}
CATEGORIES = {"noun": "object", "adjective": "attribute", "verb": "relation"}
REJECTIONS = ("not_a_word", "name", "light_word", "same_word", "same_thing", "other_tag")

# Coarse and fine tags of the words of each part.
_TAGS = {
    "noun": ("NOUN", ("NN", "NNS")),
    "adjective": ("ADJ", ("JJ",)),
    "verb": ("VERB", ("VB", "VBD", "VBG", "VBN", "VBP", "VBZ")),
}
_AUXILIARIES = frozenset({"aux", "auxpass", "aux:pass", "cop"})
# spaCy stop words that are visible in a picture: "an empty glass", "using a laptop".
_CONTENT = frozenset(["call", "empty", "give", "keep", "made", "make", "move", "put", "show", "take", "used", "using"])
_QUANTITIES = frozenset({"bunch", "couple", "kind", "lot", "number", "part", "sort", "type", "variety"})
_LIGHT = {
    "noun": LOCATION_NOUNS | PICTURE_NOUNS | EMPTY_NOUNS | _QUANTITIES,
    "adjective": NOT_DESCRIBING,
    "verb": frozenset({"be", "have", "do"}),
}
_JOINING_CHARACTERS = frozenset("-‐‑–/_@#&+")


@dataclass(eq=False)
class _Blank:
    """A word to replace. `fills` is None until the model has proposed words, then the words left to try."""

    caption: str
    start: int
    original: str
    lemmas: set[str]
    tag: str
    fills: list[str] | None = None

    @property
    def before(self) -> str:
        return self.caption[: self.start]

    @property
    def after(self) -> str:
        return self.caption[self.start + len(self.original) :]

    def fill(self, word: str) -> str:
        return fit_article(self.before, word) + word + self.after


@dataclass(eq=False)
class _Part:
    """The negatives of one part of one caption, generated one by one, independent of the other parts and rows."""

    name: str
    blanks: list[_Blank]
    negatives: list[Negative] = field(default_factory=list)
    width: int = 1

    @property
    def trials(self) -> list[str]:
        # Most first fills are accepted. After a rejection, each further round parses more fills at once.
        return (self.blanks[0].fills or [])[: self.width]


class MaskFiller:
    """Replaces words of captions with proposals of a masked language model.

    Args:
        model: Hub id or folder of a masked language model.
        parser: Parser for the filled captions. Must be the parser of the original captions.
        parts: Parts to mask, one or more of `PARTS`. Their order is sampled per caption.
        top_k: Number of proposals per mask, before any are dropped. Our choice.
        batch_size: Masked captions per forward pass.
        device: Device such as cpu or cuda:1. Defaults to a GPU if available.
        dtype: Precision of the model: `float32`, `float16` or `bfloat16`. In half precision, the proposals around the
            `top_k`-th may depend on the batch.

    Attributes:
        name: Id of the model, followed by the commit if the Hub provides one.
        rejected: Number of dropped proposals so far, by reason (`hfcomp.negatives.mask_filling.REJECTIONS`).

    Raises:
        OSError: If the model cannot be found.
        ValueError: If a part is unknown, a number is below 1, or the model is not a masked language model.
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        parser: Parser,
        parts: Sequence[str] = PARTS,
        top_k: int = 20,
        batch_size: int = 64,
        device: str | None = None,
        dtype: str = "float32",
    ):
        if isinstance(parts, str) or not parts or set(parts) - set(PARTS) or len(set(parts)) < len(parts):
            raise ValueError(
                f"parts: found {parts!r}, expected a sequence of one or more of {', '.join(PARTS)}, each once."
            )
        self._model = MaskedModel(model, top_k=top_k, batch_size=batch_size, device=device, dtype=dtype)
        self._parser = parser
        self.name = self._model.name
        self.parts = tuple(parts)
        self.rejected: Counter[str] = Counter()

    @property
    def windowed(self) -> int:
        """Number of masked captions so far that were too long for the model and cut to a window around the mask."""
        return self._model.windowed

    def fill(self, docs: Sequence[Doc], *, num_negatives: int = 1, seed: int = 0) -> list[list[Negative]]:
        """Samples negatives for parsed captions.

        Takes one negative of each part in an order sampled per caption, then a second of each, and so on. If a part
        has too few, the other parts make up for it. The first negative therefore comes from any part of the caption
        with equal probability (AHNPL, section 3.1: "randomly masking words in the sentence based on their
        part-of-speech tags"). Within a part, every word gets one fill before any word gets a second. The result
        depends on caption, seed and settings, not on other rows, their order or the batch size. A smaller
        `num_negatives` gives the first negatives of a larger one.

        Args:
            docs: Parsed captions.
            num_negatives: Number of negatives per caption.
            seed: Random seed, any integer.

        Returns:
            At most `num_negatives` negatives with distinct texts per caption; none if nothing can be masked or nothing
            fits.

        Raises:
            ValueError: If `num_negatives` is below 1.
        """
        if num_negatives < 1:
            raise ValueError(f"num_negatives: found {num_negatives}, expected 1 or more.")
        rows = [[_make_part(doc, name, seed) for name in _sample_order(self.parts, doc, seed)] for doc in docs]
        # Each round calls the model and the parser once for all captions, and only for negatives that are still
        # missing.
        while pending := [part for row in rows for part in _pending_parts(row, num_negatives)]:
            self._propose([part for part in pending if part.blanks[0].fills is None], seed)
            trials = [(part, part.trials) for part in pending]
            parsed = iter(self._parser.parse([part.blanks[0].fill(word) for part, words in trials for word in words]))
            for part, words in trials:
                self._try(part, [(word, next(parsed)) for word in words])
        return [_round_robin(row) for row in rows]

    def _propose(self, parts: Sequence[_Part], seed: int) -> None:
        blanks = [part.blanks[0] for part in parts]
        proposals = self._model.propose([(blank.before, blank.after) for blank in blanks])
        for part, blank, words in zip(parts, blanks, proposals, strict=True):
            blank.fills = self._filter_fills(part.name, blank, words, seed)

    def _filter_fills(self, part: str, blank: _Blank, words: Sequence[str], seed: int) -> list[str]:
        # Use a set: proposals that differ only in case or in a leading space are the same word in the caption.
        fitting: set[str] = set()
        for word in words:
            fitted = fit_case(word, blank.original) if word else ""
            if not fitted:
                self.rejected["name" if word else "not_a_word"] += 1
            elif reason := rejection_reason(fitted, part, original=blank.lemmas):
                self.rejected[reason] += 1
            else:
                fitting.add(fitted)
        # Each word has its own random number, so a word more or less at the edge of the top_k does not reorder others.
        start = str(blank.start)
        return sorted(fitting, key=lambda word: caption_rng(seed, blank.caption, "mask", start, word).random())

    def _try(self, part: _Part, trials: Sequence[tuple[str, Doc]]) -> None:
        """Accepts the first fill that fits its sentence as the original did. Drops a blank without fills left."""
        # After a success, the blank goes to the end of the queue, so every word gets one fill before any word gets a
        # second. After a failure, it stays at the front. The number of trials doubles while all fail, because
        # each round costs a parser pass for the whole dataset.
        blank = part.blanks.pop(0)
        part.width *= 2
        used = 0
        accepted = False
        for word, doc in trials:
            used += 1
            reason = _misfit_reason(blank, word, doc)
            if not reason:
                part.negatives.append(_negative(part.name, blank, word))
                part.width, accepted = 1, True
                break
            self.rejected[reason] += 1
        blank.fills = (blank.fills or [])[used:]
        if blank.fills:
            part.blanks.insert(len(part.blanks) if accepted else 0, blank)


def _sample_order(parts: Sequence[str], doc: Doc, seed: int) -> list[str]:
    # Sort first, so the order in which a user lists `parts` does not change the dataset.
    order = sorted(parts)
    caption_rng(seed, doc.text, "mask", "order of parts").shuffle(order)
    return order


def _make_part(doc: Doc, name: str, seed: int) -> _Part:
    tokens, caption = maskable_tokens(doc, name), doc.text
    caption_rng(seed, caption, "mask", name).shuffle(tokens)
    blanks = [
        _Blank(caption, token.idx, token.text, lemmas_of(token.text, token.lemma_), token.tag_) for token in tokens
    ]
    return _Part(name, blanks)


def _pending_parts(row: Sequence[_Part], num_negatives: int) -> list[_Part]:
    """Returns the parts of a caption that must provide another negative, if all parts contribute in turn."""
    # Deal out `num_negatives` like cards, one round over the parts at a time, counting negatives that a part has or
    # may still get. A part that cannot provide more drops out of later rounds, and other parts make up for it.
    pending: list[_Part] = []
    remaining = num_negatives
    turn = 0
    while remaining > 0:
        usable = [part for part in row if len(part.negatives) > turn or part.blanks][:remaining]
        lacking = [part for part in usable if len(part.negatives) <= turn and part not in pending]
        if not lacking and all(part in pending for part in usable):
            break
        pending += lacking
        remaining -= len(usable)
        turn += 1
    return pending


def _round_robin(row: Sequence[_Part]) -> list[Negative]:
    longest = max(len(part.negatives) for part in row)
    return [part.negatives[turn] for turn in range(longest) for part in row if turn < len(part.negatives)]


def _misfit_reason(blank: _Blank, word: str, doc: Doc) -> str:
    """Returns the reason why a word does not fit the parsed caption as the original did, or an empty string."""
    # Locate the word by position: the article before it may be one letter longer, and the parser may have split other
    # words differently. A word that is no longer a separate token is part of a compound or clitic.
    start = len(fit_article(blank.before, word))
    token = next((token for token in doc if token.idx == start and token.text == word), None)
    if token is None or token.tag_ != blank.tag:
        return "other_tag"
    return "same_word" if lemmas_of(word, token.lemma_) & blank.lemmas else ""


def _negative(part: str, blank: _Blank, word: str) -> Negative:
    return Negative(
        text=blank.fill(word),
        kind=KINDS[part],
        keyword=blank.original,
        replacement=word,
        category=CATEGORIES[part],
        spans=((blank.start, blank.start + len(blank.original)),),
    )


def maskable_tokens(doc: Doc, part: str) -> list[Token]:
    """Returns the maskable words of one part of a caption, from left to right.

    Nouns are common nouns (NN, NNS); each word of a compound counts separately ("fire" and "hydrant"). Adjectives are
    JJ, attributive or predicative. Verbs are main verbs of any form, including participles before a noun ("a parked
    car") but not auxiliaries and copulas. Words joined to others by a hyphen or a slash, words with characters other
    than letters, and light words (see `is_light`) are excluded.
    """
    coarse, tags = _TAGS[part]
    caption = doc.text
    return [
        token
        for token in doc
        if token.pos_ == coarse
        and token.tag_ in tags
        and token.dep_ not in _AUXILIARIES
        and token.text.isalpha()
        and not is_light(token.text, part, token.lemma_)
        and _stands_alone(caption, token.idx, token.idx + len(token.text))
    ]


def _stands_alone(caption: str, start: int, end: int) -> bool:
    # Use the caption's characters instead of tokens, because parsers split "t-shirt" in different ways.
    before, after = caption[max(start - 1, 0) : start], caption[end : end + 1]
    joined_after = after.isalnum() or after in _JOINING_CHARACTERS
    # An apostrophe may follow ("the man's hat") but not precede ("'n'").
    joined_before = before.isalnum() or before in _JOINING_CHARACTERS or before in {"'", "’"}
    return not joined_before and not joined_after


@cache
def _stop_words() -> frozenset[str]:
    from spacy.lang.en.stop_words import STOP_WORDS

    return frozenset(STOP_WORDS) - _CONTENT


def is_light(word: str, part: str, lemma: str = "") -> bool:
    """Whether a word is too uninformative about an image to be masked or used as a replacement.

    This covers stop words, nouns of location, picture and quantity ("in front of", "a photo of", "a lot of"),
    adjectives that count or compare ("same", "several"), and "be", "have" and "do".
    """
    return bool(lemmas_of(word, lemma) & _LIGHT[part]) or word.lower() in _stop_words()


def lemmas_of(word: str, lemma: str = "") -> set[str]:
    """Returns the word itself, its lemma according to simplemma and the parser's lemma, if any, in lower case."""
    from simplemma import lemmatize

    word = word.lower()
    return {word, lemmatize(word, lang="en").lower(), lemma.lower()} - {""}


def fit_case(word: str, original: str) -> str:
    """Returns a proposed word in the case of the original, or an empty string if only the proposal has capitals.

    Such capitals mark a proposal as a name rather than a common noun.
    """
    if len(original) > 1 and original.isupper():
        return word.upper()
    if original[0].isupper() and word[1:].islower():
        return word[0].upper() + word[1:]
    return word if word.islower() and original[0].islower() else ""


def rejection_reason(word: str, part: str, *, original: set[str]) -> str:
    """Returns the reason (one of `REJECTIONS`) why a word may not replace a word with the lemmas `original`, or "".

    This check needs no parse. A word missing from simplemma's English dictionary is treated as a fragment ("umbr").
    """
    from simplemma import is_known

    # A word has a single reason. Check the cheap ones first, in the order in which they are counted.
    if not is_known(word.lower(), lang="en"):
        return "not_a_word"
    if is_light(word, part):
        return "light_word"
    lemmas = lemmas_of(word)
    if lemmas & original:
        return "same_word"
    is_same_thing = any(lemmas & MAY_BE_ONE.get(lemma, frozenset()) for lemma in original)
    return "same_thing" if is_same_thing else ""
