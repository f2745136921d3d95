"""Tiny RoBERTa and BERT on disk, and sets of pairs."""

from __future__ import annotations

from pathlib import Path

import datasets
import torch
from transformers import BertConfig, BertModel, BertTokenizer

from hfcomp.testing import write_tiny_roberta
from tests import tiny

LAYERS = 3
TINY = {"hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": 64}


def roberta(folder: Path) -> Path:
    """A RoBERTa with a tokenizer of the tiny world's captions."""
    return write_tiny_roberta(folder, tiny.captions())


def bert(folder: Path) -> Path:
    """A BERT with a tokenizer of whole words."""
    words = sorted({word for caption in tiny.captions() for word in caption.split()})
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokenizer = BertTokenizer(vocab={name: number for number, name in enumerate(names)}, model_max_length=32)
    torch.manual_seed(1)
    BertModel(BertConfig(vocab_size=len(names), max_position_embeddings=32, **TINY)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


COLORS = ("red", "blue", "green", "yellow", "white", "black")


def pairs(number: int = 24, *, first: int = 0, images: bool = True, shift: int = 1) -> datasets.Dataset:
    """Rows of one negative each, whose color is replaced, with their keyword and rating.

    Args:
        number: of rows.
        first: the number of the first image, which names it.
        images: whether there are negative images.
        shift: by how many colors a keyword is replaced.
    """
    rows = []
    for index in range(first, first + number):
        color = COLORS[index % 6]
        caption = f"a {color} cube on a white ball {index % 3}"
        other = COLORS[(index + shift) % 6]
        bigram = index % 4 == 0
        row = {
            "image": tiny.image(index),
            "caption": caption,
            "negative_captions": [caption.replace(f"a {color}", f"a {other}", 1)],
            "negative_kinds": ["replace_att" if index % 3 else "replace_obj"],
            "negative_keywords": [f"{color} cube" if bigram else color],
            "negative_categories": ["attribute" if index % 3 else "object"],
            "negative_concreteness": [2.0 + (index % 7) / 3],
            "image_id": f"image {index}",
        }
        rows.append(row | ({"negative_image": tiny.image(1000 + index)} if images else {}))
    return datasets.Dataset.from_list(rows)
