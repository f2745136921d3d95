"""Noun phrases by a language model: each is found again in its caption, from which the text is taken.

C2LIP's released code extracts its concepts this way, with Phi-3.5. A phrase that the caption does not contain is left
out and counted. An answer with none that it contains is refused and requested again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from hfcomp.data.concepts.columns import Extracted
from hfcomp.factory.writers.llm_client import LlmClient, Question, retry_refused
from hfcomp.factory.writers.prompts import phrases_prompt
from hfcomp.factory.writers.requests import Refused
from hfcomp.parsing.captions import Span
from hfcomp.parsing.noun_phrases import NounPhrase

NOT_IN_CAPTION, TOO_MANY = "not in the caption", "more phrases than words"
# Maximum words of a phrase whose words may be apart. Our choice: it limits the number of searches.
_MAX_WORDS = 20
# Typographic quotes, each with the plain sign of the same length.
_PLAIN = str.maketrans("’‘“”", "''\"\"")
_ARTICLES = ("a", "an", "the")
# Words between two halves of a phrase: "and a blue" in "a red and a blue cup".
_GAP = r"(?:,|\s+(?:and|or|&))(?:\s+\S+){1,5}?\s+"


class PhraseWriter:
    """Requests the noun phrases of captions from a language model.

    Args:
        attempts: Maximum attempts per caption, each with its own seed and a higher temperature.

    Attributes:
        rejected: Number of refused answers so far, by reason.
        unanswered: Number of captions without a usable answer so far.
    """

    def __init__(self, client: LlmClient, *, attempts: int, seed: int) -> None:
        self._client, self._attempts, self._seed = client, attempts, seed
        self.rejected: Counter[str] = Counter()
        self.unanswered = 0

    @property
    def counts(self) -> Counter[str]:
        return self._client.counts

    def extract(self, captions: Sequence[str]) -> list[Extracted]:
        """Returns the phrases of each caption, as an extractor; those of an unanswered caption are empty."""

        def ask(left: list[int], attempt: int) -> list[Extracted | Refused]:
            texts = [captions[place] for place in left]
            questions = [Question(phrases_prompt(text), text, ("phrases",), attempt) for text in texts]
            return self._client.answers(
                questions, self._seed, lambda n, found: locate_phrases(texts[n], found), "phrases"
            )

        answers, refused = retry_refused(len(captions), self._attempts, ask)
        self.rejected.update(str(reason).partition(":")[0] for reasons in refused for reason in reasons)
        self.unanswered += len(captions) - len(answers)
        return [answers.get(place, Extracted((), Counter())) for place in range(len(captions))]


def locate_phrases(caption: str, texts: Sequence[str]) -> Extracted:
    """Finds listed phrases in a caption, whatever their case, spaces, quotes and article.

    Returns:
        The phrases as the caption has them, from left to right, and the number of phrases that it does not contain.

    Raises:
        Refused: If it contains none of them, or they are more than its words.
    """
    if len(texts) > len(caption.split()):
        raise Refused(TOO_MANY)
    places = sorted(spans for spans in (_find(caption.translate(_PLAIN), text) for text in texts) if spans)
    if texts and not places:
        raise Refused(NOT_IN_CAPTION)
    phrases = []
    for spans in places:
        words = " ".join(caption[start:end] for start, end in spans).split()
        phrases.append(NounPhrase(" ".join(words), spans, words[-1].lower()))
    return Extracted(phrases, Counter({NOT_IN_CAPTION: len(texts) - len(phrases)}))


def _find(caption: str, text: str) -> tuple[Span, ...]:
    """The spans of a phrase: one, or two if its words are apart. Empty if the caption does not contain it."""
    words = text.translate(_PLAIN).strip(" .,;:!?\"'").split()
    # A model may write "a fireplace" for "fireplace"; "a" alone names nothing.
    without = words[1:] if words and words[0].lower() in _ARTICLES else words
    for own in (words, without) if without else ():
        pieces = [re.escape(word) for word in own]
        splits = range(1, len(pieces)) if len(pieces) <= _MAX_WORDS else ()
        halves = [rf"({_pattern(pieces[:n])}){_GAP}({_pattern(pieces[n:])})" for n in splits]
        for pattern in (rf"({_pattern(pieces)})", *halves):
            if match := re.search(rf"(?<![\w-]){pattern}(?![\w-])", caption, re.IGNORECASE):
                return tuple(match.span(number + 1) for number in range(match.re.groups))
    return ()


def _pattern(pieces: Sequence[str]) -> str:
    return r"\s+".join(pieces)
