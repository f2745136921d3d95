"""A tiny DINOv2 and RoBERTa with random weights, which need no download: their similarities say nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, trainers
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    BitImageProcessorPil,
    Dinov2Config,
    Dinov2Model,
    RobertaConfig,
    RobertaModel,
    RobertaTokenizer,
)

_SHAPE = {"hidden_size": 32, "num_attention_heads": 2}


def write_tiny_dinov2(folder: Path, *, seed: int = 0) -> Path:
    """Writes a DINOv2 of two layers, for crops of 28 pixels, with its image processor.

    Args:
        folder: where it is written.
        seed: of its weights.
    """
    torch.manual_seed(seed)
    Dinov2Model(Dinov2Config(num_hidden_layers=2, image_size=28, patch_size=14, **_SHAPE)).save_pretrained(folder)
    size = {"height": 28, "width": 28}
    BitImageProcessorPil(size={"shortest_edge": 32}, crop_size=size).save_pretrained(folder)
    return folder


def write_tiny_roberta(folder: Path, texts: Iterable[str], *, tokens: int = 38, seed: int = 0) -> Path:
    """Writes a RoBERTa of three layers with a byte-level tokenizer of 400 tokens.

    Args:
        folder: where it is written.
        texts: that the tokenizer is trained on.
        tokens: of the longest text that it takes.
        seed: of its weights.
    """
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    model = json.loads(backend.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = RobertaTokenizer(vocab=model["vocab"], merges=merges, model_max_length=tokens)
    torch.manual_seed(seed)
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=tokens + 2,  # RoBERTa counts from behind the padding token's number
        pad_token_id=1,
        num_hidden_layers=3,
        intermediate_size=64,
        **_SHAPE,
    )
    RobertaModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
