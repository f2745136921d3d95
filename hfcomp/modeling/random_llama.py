"""A tiny language model with random weights, which needs no download: it speaks of dogs and cats and ends often."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

_WORDS = (
    *("a", "dog", "cat", "red", "blue", "table", "under", "on", "the", "is", "are", "runs", "sits", "man", "woman"),
    *("two", "and", "of", "in", "with", "street"),
)
_TEMPLATE = (
    "{% for message in messages %}<s> {{ message['content'] }} {% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}</s>{% endif %}"
)


def write_tiny_llama(folder: Path, *, chat: bool = True, seed: int = 0) -> Path:
    """Writes a Llama of two layers with a tokenizer of 24 words.

    Args:
        folder: where it is written.
        chat: whether it has a chat template, which ends a prompt at once where thinking is switched off.
        seed: of its weights.
    """
    vocabulary = {word: number for number, word in enumerate(["<unk>", "<s>", "</s>", *_WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>", model_max_length=2048
    )
    if chat:
        tokenizer.chat_template = _TEMPLATE
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=2048,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.1,
    )
    model = LlamaForCausalLM(config)
    model.generation_config.do_sample = True  # else `transformers serve` takes no notice of a temperature
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
