"""Filters for negative captions, based on their text, the scores of an evaluated model, or their likelihood.

`hfcomp.factory.text_negatives` applies them, replaces the negatives that they drop and counts them by reason.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hfcomp.negatives.language_models import length_sorted_batches, load_language_model, pad_right, position_limit

DEFAULT_MODEL = "openai-community/gpt2"

SAME_SENTENCE, DUPLICATE, SAME_WORDS = "same_sentence", "duplicate", "same_words"
FALSE_NEGATIVE, GRAMMAR = "false_negative", "grammar"

_PUNCTUATION = string.punctuation + "“”‘’„«»…–—"
# Stripped instead of matched: a pattern for the end would be tried at every dot of a long row of dots.
_FINAL = " .,;:!?…"
_AN = re.compile(r"\ban\b")


def is_same_sentence(caption: str, text: str) -> bool:
    """Whether two texts differ at most in case, spaces, closing punctuation, "a" for "an", or Unicode composition."""
    return folded_sentence(caption) == folded_sentence(text)


def has_same_words(caption: str, text: str) -> bool:
    """Whether two texts contain the same words equally often, in any order, ignoring case and outer punctuation.

    This is a flag rather than a fault: swaps keep the words on purpose, and only a model that is sensitive to word
    order can distinguish them.
    """
    return _words(caption) == _words(text)


def is_false_negative(true_score: np.ndarray, negative_score: np.ndarray, *, margin: float) -> np.ndarray:
    """Whether a negative caption fits its image too well to be false, according to the evaluated model.

    If the negative scores at least `margin` above the true caption, it is probably true as well (a synonym, another
    object in the scene). Or the model reads captions as bags of words. In that case, this filter drops the hardest
    negatives, which are the ones the model should be trained on. It is therefore off unless scores are given.

    Args:
        true_score: Cosine of each image with its true caption, in any shape.
        negative_score: Cosine with the negative, in a shape that broadcasts with `true_score`.
        margin: Cosine margin by which the negative must lead. 0 also flags ties, and a negative value near misses.

    Returns:
        Flags in the broadcast shape.

    Raises:
        ValueError: If a score is NaN.
    """
    if np.isnan(true_score).any() or np.isnan(negative_score).any():
        raise ValueError("a score is NaN; expected the cosine of every image with both of its captions.")
    return np.asarray(np.subtract(negative_score, true_score) >= margin)


def folded_sentence(text: str) -> str:
    """Returns a key that two texts share exactly if `is_same_sentence` holds."""
    # Use NFC, because sources write "é" as one character or as two, and both look the same.
    folded = " ".join(unicodedata.normalize("NFC", text).casefold().split())
    return _AN.sub("a", folded.rstrip(_FINAL))


def _words(text: str) -> Counter[str]:
    words = (word.strip(_PUNCTUATION) for word in folded_sentence(text).split())
    return Counter(word for word in words if word)


class GrammarFilter:
    """Compares a negative with its caption by their mean negative log-likelihood per token.

    A language model judges meaning as well as grammar: "a horse rides a man" also scores worse, although it is
    grammatical. The tolerance is therefore wide, and the filter is off by default.

    Args:
        model: Hub id or folder of a causal language model.
        tolerance: Nats per token by which a negative may be less likely than its caption. 1.0 is our choice for
            captions of about ten words, in which one odd word costs a few tenths. Check `losses` on your own captions.
        batch_size: Texts per forward pass.
        device: Device such as cpu or cuda:1. Defaults to a GPU if available.
        dtype: Precision of the model.

    Attributes:
        name: Id of the model, followed by the commit if the Hub provides one.
        tolerance: As passed.

    Raises:
        OSError: If the model cannot be found.
        ValueError: If a number is out of range, or the model sees the tokens that it should predict.
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        tolerance: float = 1.0,
        batch_size: int = 32,
        device: str | None = None,
        dtype: str = "float32",
    ):
        if not tolerance >= 0:
            raise ValueError(f"tolerance: found {tolerance}, expected 0 or more nats per token.")
        if batch_size < 1:
            raise ValueError(f"batch_size: found {batch_size}, expected 1 or more.")
        self.tolerance, self._batch_size = tolerance, batch_size
        self._network, self._tokenizer, self.name = load_language_model(
            model, "AutoModelForCausalLM", device=device, dtype=dtype
        )
        tokens = self._tokenizer.bos_token_id, self._tokenizer.eos_token_id
        start = next((token for token in tokens if token is not None), None)
        if start is None:
            raise ValueError(f"the tokenizer of {str(model)!r} has no start token (bos or eos).")
        self._start_token: int = start
        self._limit = position_limit(self._network, self._tokenizer)
        self._check_causal(model)

    def losses(self, texts: Sequence[str]) -> np.ndarray:
        """Computes the mean negative log-likelihood per token, including the first token.

        A text longer than the model's maximum length is read in windows that overlap by half; each token counts once.
        Batch size and order change the result only by rounding.

        Args:
            texts: Texts to score.

        Returns:
            [number of texts] float64, nats per token, 0 or more; NaN for a text without tokens.
        """
        # Score each text once, because all negatives of a caption are compared with the same caption.
        distinct = list(dict.fromkeys(texts))
        bodies = self._tokenizer(distinct, add_special_tokens=False, verbose=False)["input_ids"] if distinct else []
        windows = [(row, *window) for row, body in enumerate(bodies) for window in self._windows(body)]
        totals = np.zeros(len(distinct))
        for batch in length_sorted_batches([len(ids) for _, ids, _ in windows], self._batch_size):
            sums = self._sums([windows[index][1] for index in batch], [windows[index][2] for index in batch])
            for index, value in sorted(zip(batch, sums, strict=True)):
                totals[windows[index][0]] += value
        lengths = np.array([len(body) or np.nan for body in bodies], dtype=float)
        by_text = dict(zip(distinct, totals / lengths, strict=True))
        return np.array([by_text[text] for text in texts], dtype=float)

    def breaks(self, captions: Sequence[str], texts: Sequence[str]) -> list[bool]:
        """Whether each text is less likely than its caption by more than `tolerance` nats per token.

        Returns:
            One flag per text; False if the text or its caption has no tokens.

        Raises:
            ValueError: If the numbers of captions and texts differ.
        """
        if len(captions) != len(texts):
            raise ValueError(f"{len(captions)} captions for {len(texts)} texts; expected one for each.")
        losses = self.losses([*captions, *texts])
        # NaN > tolerance is False: without tokens there is no evidence against a text.
        flags: list[bool] = (losses[len(captions) :] - losses[: len(captions)] > self.tolerance).tolist()
        return flags

    def _windows(self, body: Sequence[int]) -> list[tuple[list[int], int]]:
        """Splits a text into windows that fit the model, each with its number of leading context tokens."""
        # Half of a window is context, so a token in the middle of a long text is predicted from at least `limit // 2`
        # preceding tokens. Without overlap, the first token of each window would be predicted from nothing, and long
        # texts would seem less likely than short ones.
        ids = [self._start_token, *body]
        windows = []
        start, scored = 0, 1
        while scored < len(ids):
            piece = ids[start : start + self._limit]
            windows.append((piece, scored - start))
            scored = start + len(piece)
            start = scored - self._limit // 2
        return windows

    def _sums(self, sequences: Sequence[Sequence[int]], contexts: Sequence[int]) -> list[float]:
        import torch

        # The token at position t is predicted by the logits at t - 1. Padding and context tokens are not summed.
        inputs = pad_right(sequences, self._start_token, self._network.device)
        logits, targets = self._logits(inputs)[:, :-1], inputs["input_ids"][:, 1:]
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2).float(), targets, reduction="none")
        position = torch.arange(1, targets.shape[1] + 1, device=targets.device)
        counted = inputs["attention_mask"][:, 1:].bool() & (
            position >= torch.tensor(contexts, device=position.device)[:, None]
        )
        sums: list[float] = losses.double().where(counted, 0.0).sum(1).tolist()
        return sums

    def _logits(self, inputs: dict[str, Any]) -> Any:
        import torch

        with torch.inference_mode():
            return self._network(**inputs, use_cache=False).logits

    def _check_causal(self, model: str | Path) -> None:
        """Rejects masked language models: they also load as causal models, but see the tokens they should predict."""
        # Two inputs differ only in the last token, so a causal model gives both the same logits before it.
        last = (self._start_token + 1) % self._network.config.vocab_size
        logits = self._logits(
            pad_right([[self._start_token] * 3, [self._start_token, self._start_token, last]], 0, self._network.device)
        )
        if (logits[0, :2] - logits[1, :2]).abs().max() > 1e-3:
            raise ValueError(
                f"the predictions of {str(model)!r} depend on later tokens, so it is not a causal language model. "
                f"Use one such as {DEFAULT_MODEL}."
            )
