"""A masked language model's replacements for a word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hfcomp.negatives.language_models import length_sorted_batches, load_language_model, pad_right, position_limit

DEFAULT_MODEL = "FacebookAI/roberta-base"

# Marks that byte-level and sentencepiece vocabularies put before a piece that begins a word.
_BEGINS_A_WORD = ("Ġ", "▁")
_CONTINUES = "##"
# Log-probabilities this close are equal: padding alone moves the sixth decimal, and a tie goes to the lower token id.
_DECIMALS = 3


class MaskedModel:
    """Asks a masked language model for words.

    A text longer than the model's positions is shown around its mask: as many tokens before as after it, where there
    are so many.

    Args:
        model: Hub id or folder.
        top_k: Proposals per mask.
        batch_size: Texts per pass.
        device: Where the model runs. Default: the GPU if there is one.
        dtype: Precision of the model.

    Attributes:
        name: The model's id, with the commit where the Hub gave one.
        windowed: Texts so far that were longer than the model's positions.

    Raises:
        OSError: The model cannot be found.
        ValueError: A number is below 1, or the model is not a masked language model.
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        top_k: int,
        batch_size: int,
        device: str | None = None,
        dtype: str = "float32",
    ):
        if top_k < 1 or batch_size < 1:
            raise ValueError(f"top_k is {top_k} and batch_size {batch_size}; expected 1 or more.")
        self._network, self._tokenizer, self.name = load_language_model(
            model, "AutoModelForMaskedLM", device=device, dtype=dtype
        )
        if self._tokenizer.mask_token is None:
            raise ValueError(
                f"the tokenizer of {str(model)!r} has no mask token. Use a masked language model such as "
                f"{DEFAULT_MODEL}."
            )
        self.windowed = 0
        self._top_k, self._batch_size = top_k, batch_size
        self._prefix, self._suffix = _frame(self._tokenizer)
        self._room = position_limit(self._network, self._tokenizer) - len(self._prefix) - len(self._suffix)
        self._marked = any(token.startswith(_BEGINS_A_WORD) for token in self._tokenizer.get_vocab())

    def propose(self, texts: Sequence[tuple[str, str]]) -> list[list[str]]:
        """The best proposals for one word in each text; batch size and order change nothing.

        Args:
            texts: What stands before and what after the word, spaces included.

        Returns:
            `top_k` proposals per text, best first. One that is not a whole word of two letters or more (the middle of
            a word, punctuation, a special token) is an empty string.
        """
        sequences, places = self._encode(texts)
        proposals: list[list[str]] = [[] for _ in texts]
        for batch in length_sorted_batches([len(ids) for ids in sequences], self._batch_size):
            best = self._best([sequences[index] for index in batch], [places[index] for index in batch])
            for index, tokens in zip(batch, best, strict=True):
                spaced = texts[index][0][-1:].isspace()
                proposals[index] = [self._whole_word(token, spaced=spaced) for token in tokens]
        return proposals

    def _encode(self, texts: Sequence[tuple[str, str]]) -> tuple[list[list[int]], list[int]]:
        """Token ids of each masked text, special ones included, and where its mask is."""
        mask, mask_id = self._tokenizer.mask_token, self._tokenizer.mask_token_id
        written = [before + mask + after for before, after in texts]
        bodies = self._tokenizer(written, add_special_tokens=False, verbose=False)["input_ids"] if written else []
        sequences, places = [], []
        for (before, _), body in zip(texts, bodies, strict=True):
            # A caption may itself hold the characters of a mask token.
            place = [index for index, token in enumerate(body) if token == mask_id][before.count(mask)]
            first = max(0, min(place - self._room // 2, len(body) - self._room))
            self.windowed += len(body) > self._room
            sequences.append([*self._prefix, *body[first : first + self._room], *self._suffix])
            places.append(len(self._prefix) + place - first)
        return sequences, places

    def _best(self, sequences: Sequence[Sequence[int]], places: Sequence[int]) -> list[list[int]]:
        """The `top_k` tokens for each mask, best first."""
        import torch

        network = self._network
        padding = self._tokenizer.pad_token_id
        inputs = pad_right(sequences, self._tokenizer.mask_token_id if padding is None else padding, network.device)
        where = torch.tensor(places, device=network.device)
        with torch.inference_mode(), _output_only_at(network, where):
            logits = network(**inputs).logits
        if logits.shape[1] > 1:
            logits = logits[torch.arange(len(places), device=logits.device), where].unsqueeze(1)
        scores = logits[:, 0].float().log_softmax(-1)  # [B, V]
        # Twice as many: ties at the cut are broken by ids and not by the kernel's order.
        values, tokens = scores.topk(min(2 * self._top_k, scores.shape[-1]))
        ranked = [
            sorted((-round(value, _DECIMALS), token) for value, token in zip(*row, strict=True))
            for row in zip(values.tolist(), tokens.tolist(), strict=True)
        ]
        return [[token for _, token in row[: self._top_k]] for row in ranked]

    def _whole_word(self, token: int, *, spaced: bool) -> str:
        piece = self._tokenizer.convert_ids_to_tokens(token)
        begins = piece.startswith(_BEGINS_A_WORD) or not (self._marked and spaced)
        if not begins or piece.startswith(_CONTINUES):
            return ""
        word: str = self._tokenizer.convert_tokens_to_string([piece]).strip()
        return word if len(word) > 1 and word.isalpha() else ""


def _frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens that a tokenizer puts before and after a text."""
    body, whole = (tokenizer(tokenizer.mask_token, add_special_tokens=added)["input_ids"] for added in (False, True))
    first = next(start for start in range(len(whole)) if whole[start : start + len(body)] == body)
    return whole[:first], whole[first + len(body) :]


@contextmanager
def _output_only_at(network: Any, places: Any) -> Iterator[None]:
    """Inside, the output layer sees one token per row: a vocabulary of logits for each of the others is wasted."""
    layer = network.get_output_embeddings()
    if layer is None:
        yield
        return

    def select(_: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        import torch

        hidden = inputs[0]
        if hidden.ndim != 3 or len(hidden) != len(places):
            return None
        return (hidden[torch.arange(len(places), device=hidden.device), places].unsqueeze(1), *inputs[1:])

    handle = layer.register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()
