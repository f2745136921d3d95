"""Language models that score or fill captions: loading, and results that do not depend on batching.

Torch and transformers are imported inside functions, because the rest of the package only processes text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Every token has logits for the whole vocabulary, so a batch is limited in tokens as well as in rows.
_TOKENS_PER_ROW = 64

DEFAULT_MODEL = "FacebookAI/roberta-base"

# Prefixes with which byte-level and sentencepiece vocabularies mark the start of a word.
_WORD_STARTS = ("Ġ", "▁")
_WORD_CONTINUES = "##"
# Log-probabilities are compared after rounding to this many decimals, because padding alone changes the sixth decimal.
# Ties go to the lower token id.
_DECIMALS = 3


def load_language_model(
    model: str | Path, auto_class: str, *, device: str | None = None, dtype: str = "float32"
) -> tuple[Any, Any, str]:
    """Loads a language model with a transformers class. Returns model, tokenizer, and name with any known commit.

    Reads only safetensors files and runs no code from the Hub. By default, the model runs on a GPU if available.
    """
    import transformers

    from hfcomp.devices import default_device

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
    # transformers initializes missing weights randomly and only warns, but random predictions are useless.
    if loading["missing_keys"]:
        raise ValueError(
            f"the checkpoint {str(model)!r} lacks {sorted(loading['missing_keys'])[:3]}, without which {auto_class} "
            "predicts at random. Use a checkpoint trained to predict tokens."
        )
    device = device or default_device()
    commit = getattr(network.config, "_commit_hash", None)
    return network.to(device).eval(), tokenizer, f"{model} {commit}" if commit else str(model)


def position_limit(network: Any, tokenizer: Any) -> int:
    """Returns the maximum number of tokens per model input, including special tokens."""
    limit: int = min(getattr(network.config, "max_position_embeddings", None) or 10**9, tokenizer.model_max_length)
    for name, module in network.named_modules():
        # RoBERTa and similar models start positions after the padding index: 514 embeddings allow 512 tokens.
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            limit = min(limit, module.num_embeddings - padding - 1)
    return limit


def length_sorted_batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yields batches of row indices with similar lengths to save padding, and smaller batches of long rows."""
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
    """Pads token ids on the right. Returns `input_ids` and `attention_mask`, each [number, longest]."""
    import torch

    longest = max(map(len, sequences))
    ids = [[*sequence, *[padding] * (longest - len(sequence))] for sequence in sequences]
    mask = [[1] * len(sequence) + [0] * (longest - len(sequence)) for sequence in sequences]
    return {"input_ids": torch.tensor(ids, device=device), "attention_mask": torch.tensor(mask, device=device)}


class MaskedModel:
    """Predicts `top_k` words per mask with a masked language model, `batch_size` texts at a time.

    If a text is longer than the model's maximum length, the model sees a window around the mask, with the same number
    of tokens on both sides if possible. `windowed` counts such texts.
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
        self._prefix, self._suffix = _special_tokens(self._tokenizer)
        self._max_body = position_limit(self._network, self._tokenizer) - len(self._prefix) - len(self._suffix)
        self._marks_starts = any(token.startswith(_WORD_STARTS) for token in self._tokenizer.get_vocab())

    def propose(self, texts: Sequence[tuple[str, str]]) -> list[list[str]]:
        """Returns the `top_k` proposals for the word between the two parts of each text, best first.

        Batch size and order do not affect the result. A proposal that is not a whole word of two letters or more (part
        of a word, punctuation, a special token) is an empty string.
        """
        # Sort texts by length for the passes, and put the results back in the order of `texts` by index.
        sequences, positions = self._encode(texts)
        proposals: list[list[str]] = [[] for _ in texts]
        for batch in length_sorted_batches([len(ids) for ids in sequences], self._batch_size):
            best = self._best([sequences[index] for index in batch], [positions[index] for index in batch])
            for index, tokens in zip(batch, best, strict=True):
                spaced = texts[index][0][-1:].isspace()
                proposals[index] = [self._whole_word(token, spaced=spaced) for token in tokens]
        return proposals

    def _encode(self, texts: Sequence[tuple[str, str]]) -> tuple[list[list[int]], list[int]]:
        """Returns the token ids of each masked text, including special tokens, and the position of its mask."""
        mask, mask_id = self._tokenizer.mask_token, self._tokenizer.mask_token_id
        masked = [before + mask + after for before, after in texts]
        bodies = self._tokenizer(masked, add_special_tokens=False, verbose=False)["input_ids"] if masked else []
        sequences, positions = [], []
        for (before, _), body in zip(texts, bodies, strict=True):
            # A caption may itself contain the characters of a mask token.
            position = [index for index, token in enumerate(body) if token == mask_id][before.count(mask)]
            # Center the window on the mask, and shift it into the text if the mask is near an end.
            first = max(0, min(position - self._max_body // 2, len(body) - self._max_body))
            self.windowed += len(body) > self._max_body
            sequences.append([*self._prefix, *body[first : first + self._max_body], *self._suffix])
            positions.append(len(self._prefix) + position - first)
        return sequences, positions

    def _best(self, sequences: Sequence[Sequence[int]], positions: Sequence[int]) -> list[list[int]]:
        import torch

        network = self._network
        padding = self._tokenizer.pad_token_id
        inputs = pad_right(sequences, self._tokenizer.mask_token_id if padding is None else padding, network.device)
        at = torch.tensor(positions, device=network.device)
        with torch.inference_mode(), _output_only_at(network, at):
            logits = network(**inputs).logits
        if logits.shape[1] > 1:
            logits = logits[torch.arange(len(positions), device=logits.device), at].unsqueeze(1)
        scores = logits[:, 0].float().log_softmax(-1)  # [B, V]
        # Take twice as many, so ties at the cutoff are broken by ids and not by the kernel's order.
        values, tokens = scores.topk(min(2 * self._top_k, scores.shape[-1]))
        ranked = [
            sorted((-round(value, _DECIMALS), token) for value, token in zip(*row, strict=True))
            for row in zip(values.tolist(), tokens.tolist(), strict=True)
        ]
        return [[token for _, token in row[: self._top_k]] for row in ranked]

    def _whole_word(self, token: int, *, spaced: bool) -> str:
        # After a space, only a piece that begins a word is a whole word: "ing" after "a " would give "a ing".
        # WordPiece vocabularies do the opposite and mark the pieces that continue a word.
        piece = self._tokenizer.convert_ids_to_tokens(token)
        begins = piece.startswith(_WORD_STARTS) or not (self._marks_starts and spaced)
        if not begins or piece.startswith(_WORD_CONTINUES):
            return ""
        word: str = self._tokenizer.convert_tokens_to_string([piece]).strip()
        return word if len(word) > 1 and word.isalpha() else ""


def _special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Returns the special tokens that a tokenizer adds before and after a text."""
    # Windows are cut from ids, so these tokens are needed. Tokenizers have no common name for them, so use an example.
    body, whole = (tokenizer(tokenizer.mask_token, add_special_tokens=added)["input_ids"] for added in (False, True))
    first = next(start for start in range(len(whole)) if whole[start : start + len(body)] == body)
    return whole[:first], whole[first + len(body) :]


@contextmanager
def _output_only_at(network: Any, positions: Any) -> Iterator[None]:
    """Limits the output layer to one token per row; logits of other tokens are not needed."""
    layer = network.get_output_embeddings()
    if layer is None:
        yield
        return

    def select(_: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        import torch

        hidden = inputs[0]
        if hidden.ndim != 3 or len(hidden) != len(positions):
            return None
        return (hidden[torch.arange(len(positions), device=hidden.device), positions].unsqueeze(1), *inputs[1:])

    handle = layer.register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()
