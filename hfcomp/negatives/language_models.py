"""Language models that judge or fill captions: loading them, and results that do not depend on batching.

Torch and transformers are imported inside functions: the package is otherwise text work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Every token has a vocabulary's worth of logits, so the tokens of a batch are bounded, not only its rows.
_TOKENS_PER_ROW = 64

DEFAULT_MODEL = "FacebookAI/roberta-base"

# Marks that byte-level and sentencepiece vocabularies put before a piece that begins a word.
_BEGINS_A_WORD = ("Ġ", "▁")
_CONTINUES = "##"
# Log-probabilities this close are equal: padding alone moves the sixth decimal, and a tie goes to the lower token id.
_DECIMALS = 3


def load_language_model(
    model: str | Path, auto_class: str, *, device: str | None = None, dtype: str = "float32"
) -> tuple[Any, Any, str]:
    """Loads a language model with a transformers class, its tokenizer and its name, with the commit if it has one.

    Only safetensors are read, and no code from the Hub is run. By default the model runs on a GPU if available.
    """
    import torch
    import transformers

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(model, trust_remote_code=False)
        network, loading = getattr(transformers, auto_class).from_pretrained(
            model, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    except OSError as error:
        raise OSError(
            f"the language model {str(model)!r} could not be loaded: {error}\n"
            "Pass a folder with config.json, model.safetensors and a tokenizer, or connect to the Hub once to cache "
            "the model."
        ) from error
    # transformers initializes missing weights at random and only warns; random predictions are useless.
    if loading["missing_keys"]:
        raise ValueError(
            f"the checkpoint {str(model)!r} lacks {sorted(loading['missing_keys'])[:3]}, without which {auto_class} "
            "predicts at random. Use a checkpoint trained to predict tokens."
        )
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    commit = getattr(network.config, "_commit_hash", None)
    return network.to(device).eval(), tokenizer, f"{model} {commit}" if commit else str(model)


def position_limit(network: Any, tokenizer: Any) -> int:
    """The most tokens that a model takes at once, special ones included."""
    limit: int = min(getattr(network.config, "max_position_embeddings", None) or 10**9, tokenizer.model_max_length)
    for name, module in network.named_modules():
        # RoBERTa and similar models count positions from the one after padding: 514 embeddings are 512 tokens.
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            limit = min(limit, module.num_embeddings - padding - 1)
    return limit


def length_sorted_batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Batches of indices of rows of about one length, to pad little; long rows come in smaller batches, for memory."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: (lengths[index], index)):
        too_wide = (len(batch) + 1) * lengths[index] > _TOKENS_PER_ROW * batch_size
        if batch and (len(batch) == batch_size or too_wide):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def pad_right(sequences: Sequence[Sequence[int]], padding: int, device: Any) -> dict[str, Any]:
    """`input_ids` and `attention_mask` [number, longest] of token ids, padded after their end."""
    import torch

    longest = max(map(len, sequences))
    ids = [[*sequence, *[padding] * (longest - len(sequence))] for sequence in sequences]
    seen = [[1] * len(sequence) + [0] * (longest - len(sequence)) for sequence in sequences]
    return {
        "input_ids": torch.tensor(ids, device=device),
        "attention_mask": torch.tensor(seen, device=device),
    }


class MaskedModel:
    """Asks a masked language model for `top_k` words per mask, `batch_size` texts at a time.

    A text longer than the model's positions is shown around its mask, with the same number of tokens on both sides if
    there are enough; `windowed` counts such texts.
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
        """The `top_k` proposals for the word between the two parts of each text, best first.

        Batch size and order change nothing. A proposal that is not a whole word of two letters or more (the middle of
        a word, punctuation, a special token) is an empty string.
        """
        # Sorted by length for the passes, and put back into the order of `texts` by index.
        sequences, places = self._encode(texts)
        proposals: list[list[str]] = [[] for _ in texts]
        for batch in length_sorted_batches([len(ids) for ids in sequences], self._batch_size):
            best = self._best([sequences[index] for index in batch], [places[index] for index in batch])
            for index, tokens in zip(batch, best, strict=True):
                spaced = texts[index][0][-1:].isspace()
                proposals[index] = [self._whole_word(token, spaced=spaced) for token in tokens]
        return proposals

    def _encode(self, texts: Sequence[tuple[str, str]]) -> tuple[list[list[int]], list[int]]:
        """Token ids of each masked text, special ones included, and the place of its mask."""
        mask, mask_id = self._tokenizer.mask_token, self._tokenizer.mask_token_id
        written = [before + mask + after for before, after in texts]
        bodies = self._tokenizer(written, add_special_tokens=False, verbose=False)["input_ids"] if written else []
        sequences, places = [], []
        for (before, _), body in zip(texts, bodies, strict=True):
            # A caption may itself hold the characters of a mask token.
            place = [index for index, token in enumerate(body) if token == mask_id][before.count(mask)]
            # The window is centered on the mask, and pushed inside the text if the mask is near an end.
            first = max(0, min(place - self._room // 2, len(body) - self._room))
            self.windowed += len(body) > self._room
            sequences.append([*self._prefix, *body[first : first + self._room], *self._suffix])
            places.append(len(self._prefix) + place - first)
        return sequences, places

    def _best(self, sequences: Sequence[Sequence[int]], places: Sequence[int]) -> list[list[int]]:
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
        # After a space only a piece that begins a word is one: "ing" after "a " would be written "a ing". A vocabulary
        # without marks (WordPiece) marks the opposite, pieces that continue a word.
        piece = self._tokenizer.convert_ids_to_tokens(token)
        begins = piece.startswith(_BEGINS_A_WORD) or not (self._marked and spaced)
        if not begins or piece.startswith(_CONTINUES):
            return ""
        word: str = self._tokenizer.convert_tokens_to_string([piece]).strip()
        return word if len(word) > 1 and word.isalpha() else ""


def _frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens that a tokenizer puts before and after a text."""
    # Read off an example, since windows are cut from ids: tokenizers have no common way to name their frame.
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
