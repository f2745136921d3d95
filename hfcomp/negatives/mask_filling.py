"""Hard negatives by mask filling: one noun, adjective or verb of a caption is masked and filled by a language model.

Source: Zhang, Awal, Agrawal, "Contrasting Intra-Modal and Ranking Cross-Modal Hard Negatives to Enhance
Visio-Linguistic Compositional Understanding" (CE-CLIP), CVPR 2024, arXiv:2306.08832, with RoBERTa as language model.

Where the released code of CE-CLIP, and of AHNPL after it, is not followed:

* A caption without a word of the asked part became a bare mask token, filled at random and kept as valid. Here it has
  no negative of that part, so its entry is masked.
* The fill was the fourth best of distilroberta-base's five, whatever it was, the original word included. Here `top_k`
  words are proposed, and dropped if not a whole word, a name, a light word, the original in another form or
  case, a listed synonym of it, or whose Penn tag in the filled caption is not the original's ("dogs" stays a plural,
  "riding" a participle). One of the rest is drawn by the seed, all alike: our choice.

An "a" or "an" directly before the word is written to fit the fill, outside of the span. A lemma that is unknown to
both simplemma and the parser can let an inflection through, if it has the same tag.

A known weakness: most synonyms and wider words are on no list ("puppy" for "dog") and as true of the image as the
original. No language model can detect this; `hfcomp.negatives.filters.is_false_negative` asks the model under
evaluation.
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

# Coarse and fine tags of the words that a part is about.
_TAGS = {
    "noun": ("NOUN", ("NN", "NNS")),
    "adjective": ("ADJ", ("JJ",)),
    "verb": ("VERB", ("VB", "VBD", "VBG", "VBN", "VBP", "VBZ")),
}
_AUXILIARIES = frozenset({"aux", "auxpass", "aux:pass", "cop"})
# spaCy's stop words that are visible in a picture: "an empty glass", "using a laptop".
_CONTENT = frozenset(["call", "empty", "give", "keep", "made", "make", "move", "put", "show", "take", "used", "using"])
_QUANTITIES = frozenset({"bunch", "couple", "kind", "lot", "number", "part", "sort", "type", "variety"})
_LIGHT = {
    "noun": LOCATION_NOUNS | PICTURE_NOUNS | EMPTY_NOUNS | _QUANTITIES,
    "adjective": NOT_DESCRIBING,
    "verb": frozenset({"be", "have", "do"}),
}
_JOINS_WORDS = frozenset("-‐‑–/_@#&+")


@dataclass(eq=False)
class _Blank:
    """One word to replace; `fills` is None until the model was asked, then the words left to try, in order."""

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

    def filled(self, word: str) -> str:
        return fit_article(self.before, word) + word + self.after


@dataclass(eq=False)
class _Part:
    """The negatives of one part of one caption, found one after another whatever the other parts and rows need."""

    name: str
    blanks: list[_Blank]
    negatives: list[Negative] = field(default_factory=list)
    width: int = 1

    @property
    def trials(self) -> list[str]:
        # Most first fills are accepted. If one is not, each further round parses more at once.
        return (self.blanks[0].fills or [])[: self.width]


class MaskFiller:
    """Replaces words of captions by what a masked language model proposes.

    Args:
        model: Hub id or folder of a masked language model.
        parser: Parses filled captions; the one that parsed the captions.
        parts: Parts to mask, some of `PARTS`; their order is sampled per caption.
        top_k: Proposals asked of the model per mask, before any is dropped. Our choice.
        batch_size: Masked captions per pass of the model.
        device: Where the model runs. Default: the GPU if there is one.
        dtype: Precision of the model: `float32`, `float16` or `bfloat16`. In half precision, the proposals around the
            `top_k`-th may depend on the batch.

    Attributes:
        name: The model's id, with the commit where the Hub gave one.
        rejected: Proposals dropped so far, by reason (`hfcomp.negatives.mask_filling.REJECTIONS`).

    Raises:
        OSError: The model cannot be found.
        ValueError: A part is not known, a number is below 1, or the model is not a masked language model.
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
            raise ValueError(f"parts is {parts!r}; expected a sequence with some of {', '.join(PARTS)}, each once.")
        self._model = MaskedModel(model, top_k=top_k, batch_size=batch_size, device=device, dtype=dtype)
        self._parser = parser
        self.name = self._model.name
        self.parts = tuple(parts)
        self.rejected: Counter[str] = Counter()

    @property
    def windowed(self) -> int:
        """Masked captions so far that were longer than the model's positions, and shown to it around the mask."""
        return self._model.windowed

    def fill(self, docs: Sequence[Doc], *, num_negatives: int = 1, seed: int = 0) -> list[list[Negative]]:
        """Draws negatives of parsed captions.

        One of each part in an order drawn per caption, then a second of each, and so on; what a part cannot give, the
        others make up. So the first negative is of any part that the caption has, all alike (AHNPL, section 3.1:
        "randomly masking words in the sentence based on their part-of-speech tags"). Inside a part every word gets one
        fill before any gets a second. Caption, seed and settings decide the result, not the other rows, their order or
        the batch size. Fewer negatives are the first of more.

        Args:
            docs: Parsed captions.
            num_negatives: How many to draw per caption.
            seed: Any integer.

        Returns:
            Per caption at most `num_negatives` negatives with distinct texts; none where nothing can be masked or
            nothing fits.

        Raises:
            ValueError: `num_negatives` is below 1.
        """
        if num_negatives < 1:
            raise ValueError(f"num_negatives is {num_negatives}; expected 1 or more.")
        rows = [[_part(doc, name, seed) for name in _drawn_order(self.parts, doc, seed)] for doc in docs]
        # A round calls the model and the parser once for all captions together, and only for what is still owed.
        while owing := [part for row in rows for part in _owing(row, num_negatives)]:
            self._propose([part for part in owing if part.blanks[0].fills is None], seed)
            trials = [(part, part.trials) for part in owing]
            parsed = iter(
                self._parser.parse([part.blanks[0].filled(word) for part, words in trials for word in words])
            )
            for part, words in trials:
                self._try(part, [(word, next(parsed)) for word in words])
        return [_in_turn(row) for row in rows]

    def _propose(self, parts: Sequence[_Part], seed: int) -> None:
        blanks = [part.blanks[0] for part in parts]
        proposals = self._model.propose([(blank.before, blank.after) for blank in blanks])
        for part, blank, words in zip(parts, blanks, proposals, strict=True):
            blank.fills = self._fitting(part.name, blank, words, seed)

    def _fitting(self, part: str, blank: _Blank, words: Sequence[str], seed: int) -> list[str]:
        # A set: the model may propose a word in two cases, or with and without a space, which are one in the caption.
        fitting: set[str] = set()
        for word in words:
            fitted = fit_case(word, blank.original) if word else ""
            if not fitted:
                self.rejected["name" if word else "not_a_word"] += 1
            elif reason := objection(fitted, part, original=blank.lemmas):
                self.rejected[reason] += 1
            else:
                fitting.add(fitted)
        # Each word draws its own number: one more or less at the edge of the top_k leaves the order of the others.
        place = str(blank.start)
        return sorted(fitting, key=lambda word: caption_rng(seed, blank.caption, "mask", place, word).random())

    def _try(self, part: _Part, trials: Sequence[tuple[str, Doc]]) -> None:
        """Takes the first fill that fits its sentence as the original did; drops an empty blank."""
        # After a success the blank goes to the end of the line, so that every word gets one fill before any gets a
        # second. After a failure it goes to the front: its turn is not over. Trials double while all fail, since each
        # round costs a pass of the parser for the whole set.
        blank = part.blanks.pop(0)
        part.width *= 2
        used = 0
        accepted = False
        for word, doc in trials:
            used += 1
            reason = _misfit(blank, word, doc)
            if not reason:
                part.negatives.append(_negative(part.name, blank, word))
                part.width, accepted = 1, True
                break
            self.rejected[reason] += 1
        blank.fills = (blank.fills or [])[used:]
        if blank.fills:
            part.blanks.insert(len(part.blanks) if accepted else 0, blank)


def _drawn_order(parts: Sequence[str], doc: Doc, seed: int) -> list[str]:
    # Sorted first: the order in which a user lists `parts` should not change a set.
    order = sorted(parts)
    caption_rng(seed, doc.text, "mask", "order of parts").shuffle(order)
    return order


def _part(doc: Doc, name: str, seed: int) -> _Part:
    tokens, caption = maskable_tokens(doc, name), doc.text
    caption_rng(seed, caption, "mask", name).shuffle(tokens)
    blanks = [_Blank(caption, one.idx, one.text, lemmas_of(one.text, one.lemma_), one.tag_) for one in tokens]
    return _Part(name, blanks)


def _owing(row: Sequence[_Part], num_negatives: int) -> list[_Part]:
    """The parts of a caption that have to give another negative, if every part gives its share in turn."""
    # Deal out `num_negatives` like cards, a round over the parts at a time, counting what each has or may yet find.
    # A part that can give nothing more drops out of later rounds, and its places go to the others.
    owing: list[_Part] = []
    places = num_negatives
    turn = 0
    while places > 0:
        able = [part for part in row if len(part.negatives) > turn or part.blanks][:places]
        short = [part for part in able if len(part.negatives) <= turn and part not in owing]
        if not short and all(part in owing for part in able):
            break
        owing += short
        places -= len(able)
        turn += 1
    return owing


def _in_turn(row: Sequence[_Part]) -> list[Negative]:
    longest = max(len(part.negatives) for part in row)
    return [part.negatives[turn] for turn in range(longest) for part in row if turn < len(part.negatives)]


def _misfit(blank: _Blank, word: str, doc: Doc) -> str:
    """Why a word does not stand in the filled and parsed caption as the original did; empty if it does."""
    # Found again by its place: the article before it may have grown by one letter, and the parser may have split words
    # elsewhere in another way. A word that is no longer a token of its own is part of a compound or clitic.
    start = len(fit_article(blank.before, word))
    token = next((one for one in doc if one.idx == start and one.text == word), None)
    if token is None or token.tag_ != blank.tag:
        return "other_tag"
    return "same_word" if lemmas_of(word, token.lemma_) & blank.lemmas else ""


def _negative(part: str, blank: _Blank, word: str) -> Negative:
    return Negative(
        text=blank.filled(word),
        kind=KINDS[part],
        keyword=blank.original,
        replacement=word,
        category=CATEGORIES[part],
        spans=((blank.start, blank.start + len(blank.original)),),
    )


def maskable_tokens(doc: Doc, part: str) -> list[Token]:
    """The words of one part of a caption that may be masked, from left to right.

    Nouns are common nouns (NN, NNS), each word of a compound by itself ("fire" and "hydrant"). Adjectives are JJ,
    attributive or predicative. Verbs are main verbs of any form, participles before a noun ("a parked car") included,
    auxiliaries and copulas not. Out are words joined to others by a hyphen or a slash, words with anything but
    letters, and light words; see `is_light`.
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
    # Judged by the caption's characters, not by tokens: parsers split "t-shirt" in different ways.
    before, after = caption[max(start - 1, 0) : start], caption[end : end + 1]
    joined_after = after.isalnum() or after in _JOINS_WORDS
    # An apostrophe may follow ("the man's hat"), not go before ("'n'").
    joined_before = before.isalnum() or before in _JOINS_WORDS or before in {"'", "’"}
    return not joined_before and not joined_after


@cache
def _stop_words() -> frozenset[str]:
    from spacy.lang.en.stop_words import STOP_WORDS

    return frozenset(STOP_WORDS) - _CONTENT


def is_light(word: str, part: str, lemma: str = "") -> bool:
    """Whether a word is too uninformative about an image to be masked or used as a replacement.

    Stop words, nouns of place, picture and quantity ("in front of", "a photo of", "a lot of"), adjectives that count
    or compare ("same", "several"), and "be", "have" and "do".
    """
    return bool(lemmas_of(word, lemma) & _LIGHT[part]) or word.lower() in _stop_words()


def lemmas_of(word: str, lemma: str = "") -> set[str]:
    """The word itself and its lemmas, in lower case: simplemma's, and that of a parser where there is one."""
    from simplemma import lemmatize

    word = word.lower()
    return {word, lemmatize(word, lang="en").lower(), lemma.lower()} - {""}


def fit_case(word: str, original: str) -> str:
    """A proposed word in the case of the original; empty if it has capitals where the original has none.

    Its own capitals mark a name, which is not a common noun.
    """
    if len(original) > 1 and original.isupper():
        return word.upper()
    if original[0].isupper() and word[1:].islower():
        return word[0].upper() + word[1:]
    return word if word.islower() and original[0].islower() else ""


def objection(word: str, part: str, *, original: set[str]) -> str:
    """Why a word may not replace another with the lemmas `original`, before a parse: one of `REJECTIONS`, or nothing.

    A word that simplemma's English dictionary does not know is taken for the beginning of one ("umbr").
    """
    from simplemma import is_known

    # Cheap checks first, in the order in which they are counted: a word has one reason.
    if not is_known(word.lower(), lang="en"):
        return "not_a_word"
    if is_light(word, part):
        return "light_word"
    lemmas = lemmas_of(word)
    if lemmas & original:
        return "same_word"
    may_be_one = any(lemmas & MAY_BE_ONE.get(one, frozenset()) for one in original)
    return "same_thing" if may_be_one else ""
