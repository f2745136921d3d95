"""Language models that judge or fill captions: loading them, and results that do not depend on batching.

Torch and transformers are imported inside functions: the package is otherwise text work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# A vocabulary's worth of logits stands behind every token, so the tokens of a batch are bounded and not only its rows.
_TOKENS_PER_ROW = 64


def load_language_model(
    model: str | Path, auto_class: str, *, device: str | None = None, dtype: str = "float32"
) -> tuple[Any, Any, str]:
    """Loads a language model with its tokenizer: safetensors only, no code from the Hub.

    Args:
        model: A Hub id or a folder.
        auto_class: The class of transformers that loads it, such as `AutoModelForMaskedLM`.
        device: Where it runs. Default: the GPU if there is one.
        dtype: Precision of the weights: `float32`, `float16` or `bfloat16`.

    Returns:
        The model, ready to be asked; its tokenizer; its name, with the commit where the Hub gave one.

    Raises:
        OSError: The model cannot be found or has no safetensors.
        ValueError: The model is of another kind, or its checkpoint lacks the weights that predict tokens.
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
    # transformers initialises missing weights at random and only warns; random predictions are useless.
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
        # RoBERTa and its kin count positions from the one after padding: 514 embeddings are 512 tokens.
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            limit = min(limit, module.num_embeddings - padding - 1)
    return limit


def length_sorted_batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Batches of rows of about one length, so that little is padded.

    Args:
        lengths: Tokens of each row.
        batch_size: The most rows of a batch. Rows longer than 64 tokens come in smaller batches, for memory.

    Yields:
        Indices into `lengths`; each index once.
    """
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
