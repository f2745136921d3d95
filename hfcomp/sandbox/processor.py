"""The sandbox model's processor and configuration: a real CLIP, 0.7 million parameters small, made without network."""

import math
from collections import Counter

from tokenizers import pre_tokenizers
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPProcessor, CLIPTokenizer, PreTrainedTokenizerBase

from hfcomp.sandbox.captions import words
from hfcomp.sandbox.rendering import CELL, SIDE

MAX_TOKENS = 32
# Pixels reach the model as (value - 60) / 60: dark backgrounds below zero, bright objects well above.
PIXEL_CENTRE = 60 / 255
_END_OF_WORD = "</w>"
_START, _END = "<|startoftext|>", "<|endoftext|>"


def sandbox_processor() -> CLIPProcessor:
    """A `CLIPProcessor` for the sandbox.

    The tokenizer is a byte-level BPE laid out like CLIP's (bytes, bytes that end a word, merges, the two special
    tokens), whose merges make every word of the grammar one token; any other text falls apart into letters. Images
    of another size than 36 x 36 are resized and cropped to it.

    Returns:
        A processor that saves, loads and pushes like any other; no file and no network is read to make it.
    """
    image_processor = CLIPImageProcessorPil(
        size={"shortest_edge": SIDE},
        crop_size={"height": SIDE, "width": SIDE},
        image_mean=[PIXEL_CENTRE] * 3,
        image_std=[PIXEL_CENTRE] * 3,
    )
    return CLIPProcessor(image_processor=image_processor, tokenizer=_tokenizer())


def sandbox_clip_config(tokenizer: PreTrainedTokenizerBase | None = None) -> CLIPConfig:
    """The configuration of the sandbox's CLIP: width 96, 3 vision and 2 text layers, one patch per grid cell.

    Args:
        tokenizer: gives the vocabulary's size and the special ids; by default the sandbox's own.

    Returns:
        A configuration for `CLIPModel(config)`. `eos_token_id` is the tokenizer's, since CLIP pools the text at the
        first token that equals it. The temperature starts at 1 / 14.3.
    """
    tokenizer = _tokenizer() if tokenizer is None else tokenizer
    tower = {"hidden_size": 96, "intermediate_size": 384, "num_attention_heads": 3, "hidden_act": "gelu"}
    text = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": MAX_TOKENS,
        "num_hidden_layers": 2,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision = {"image_size": SIDE, "patch_size": CELL, "num_hidden_layers": 3}
    return CLIPConfig(
        text_config=tower | text,
        vision_config=tower | vision,
        projection_dim=64,
        logit_scale_init_value=math.log(14.3),
    )


def _tokenizer() -> CLIPTokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = alphabet + [letter + _END_OF_WORD for letter in alphabet]
    merges = _merges()
    tokens += ["".join(pair) for pair in merges]
    vocabulary = {token: index for index, token in enumerate([*tokens, _START, _END])}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=MAX_TOKENS)


def _merges() -> list[tuple[str, str]]:
    """BPE merges learned on the grammar's words until each is one token.

    Not by the trainer of `tokenizers`, which breaks ties at random: ids would change from process to process.
    """
    spellings = [[*word[:-1], word[-1] + _END_OF_WORD] for word in words()]
    merges = []
    while counts := Counter(pair for spelling in spellings for pair in zip(spelling, spelling[1:], strict=False)):
        merges.append(max(sorted(counts), key=counts.__getitem__))
        spellings = [_merged(spelling, merges[-1]) for spelling in spellings]
    return merges


def _merged(spelling: list[str], pair: tuple[str, str]) -> list[str]:
    """The spelling with every occurrence of the pair made one token, from left to right."""
    tokens = []
    for token in spelling:
        if tokens and (tokens[-1], token) == pair:
            tokens[-1] += token
        else:
            tokens.append(token)
    return tokens
