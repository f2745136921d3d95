"""Processors and configurations of the sandbox models: a real CLIP and a real SigLIP with 0.7 million parameters."""

import io
import math
import string
from collections import Counter
from pathlib import Path

from tokenizers import pre_tokenizers
from transformers import (
    CLIPConfig,
    CLIPProcessor,
    CLIPTokenizer,
    PreTrainedTokenizerBase,
    SiglipConfig,
    SiglipProcessor,
    SiglipTokenizer,
)

from hfcomp.modeling.image_processors import CLIPImageProcessorPil, SiglipImageProcessorPil
from hfcomp.sandbox.captions import words
from hfcomp.sandbox.rendering import CELL, SIDE
from hfcomp.writing import write_bytes

MAX_TOKENS = 36
# Pixels are normalized to (value - 60) / 60: dark backgrounds are below zero, bright objects well above.
PIXEL_CENTER = 60 / 255
_END_OF_WORD = "</w>"
_START, _END = "<|startoftext|>", "<|endoftext|>"


def sandbox_processor() -> CLIPProcessor:
    """Builds a `CLIPProcessor` for the sandbox without files or network access.

    The tokenizer is a byte-level BPE with the layout of CLIP's (bytes, word-final bytes, merges, the two special
    tokens). Its merges make every word of the grammar one token; any other text is split into letters. Images of other
    sizes than 36 x 36 are resized and cropped.
    """
    image_processor = CLIPImageProcessorPil(
        size={"shortest_edge": SIDE},
        crop_size={"height": SIDE, "width": SIDE},
        image_mean=[PIXEL_CENTER] * 3,
        image_std=[PIXEL_CENTER] * 3,
    )
    return CLIPProcessor(image_processor=image_processor, tokenizer=_tokenizer())


def sandbox_clip_config(tokenizer: PreTrainedTokenizerBase | None = None) -> CLIPConfig:
    """Returns the configuration of the sandbox CLIP: width 96, 3 vision and 2 text layers, one patch per grid cell.

    The tokenizer, by default the sandbox's own, determines the vocabulary size and the special ids. The temperature
    starts at 1 / 14.3.
    """
    return CLIPConfig(
        **_towers(_tokenizer() if tokenizer is None else tokenizer),
        projection_dim=64,
        logit_scale_init_value=math.log(14.3),
    )


def sandbox_siglip_processor(folder: str | Path) -> SiglipProcessor:
    """Builds a `SiglipProcessor` for the sandbox.

    The tokenizer is a SentencePiece unigram model like SigLIP's, in which every word of the grammar is one piece. Any
    other text is split into letters, or is unknown.

    The SentencePiece model is written to `folder`, from where the tokenizer reads it.
    """
    file = Path(folder) / "spiece.model"
    write_bytes(file, _sentencepiece_model())
    tokenizer = SiglipTokenizer(str(file), model_max_length=MAX_TOKENS)
    image_processor = SiglipImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, image_mean=[PIXEL_CENTER] * 3, image_std=[PIXEL_CENTER] * 3
    )
    return SiglipProcessor(image_processor=image_processor, tokenizer=tokenizer)


def sandbox_siglip_config(tokenizer: PreTrainedTokenizerBase) -> SiglipConfig:
    """Returns the configuration of the sandbox SigLIP, with the sizes of the sandbox CLIP."""
    return SiglipConfig(**_towers(tokenizer))


def _towers(tokenizer: PreTrainedTokenizerBase) -> dict[str, dict]:
    tower = {"hidden_size": 96, "intermediate_size": 384, "num_attention_heads": 3, "hidden_act": "gelu"}
    text = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": MAX_TOKENS,
        "num_hidden_layers": 2,
        "bos_token_id": tokenizer.bos_token_id,
        # CLIP pools the text at the first end token.
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision = {"image_size": SIDE, "patch_size": CELL, "num_hidden_layers": 3}
    return {"text_config": tower | text, "vision_config": tower | vision}


def _sentencepiece_model() -> bytes:
    """Trains a unigram model with one piece per word of the grammar and per letter."""
    import sentencepiece

    stream = io.BytesIO()
    vocabulary = words()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*vocabulary, *string.ascii_lowercase]),
        model_writer=stream,
        vocab_size=3 + len(vocabulary) + len(string.ascii_lowercase),
        hard_vocab_limit=False,
        user_defined_symbols=[f"\u2581{word}" for word in vocabulary],
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        model_type="unigram",
        num_threads=1,
        minloglevel=2,
    )
    return stream.getvalue()


def _tokenizer() -> CLIPTokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = alphabet + [letter + _END_OF_WORD for letter in alphabet]
    merges = _merges()
    tokens += ["".join(pair) for pair in merges]
    vocabulary = {token: index for index, token in enumerate([*tokens, _START, _END])}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=MAX_TOKENS)


def _merges() -> list[tuple[str, str]]:
    """Learns BPE merges on the words of the grammar until each word is one token."""
    # Do not use the `tokenizers` trainer: it breaks ties at random, so ids would change from process to process.
    spellings = [[*word[:-1], word[-1] + _END_OF_WORD] for word in words()]
    merges = []
    while counts := Counter(pair for spelling in spellings for pair in zip(spelling, spelling[1:], strict=False)):
        merges.append(max(sorted(counts), key=counts.__getitem__))
        spellings = [_merge(spelling, merges[-1]) for spelling in spellings]
    return merges


def _merge(spelling: list[str], pair: tuple[str, str]) -> list[str]:
    tokens = []
    for token in spelling:
        if tokens and (tokens[-1], token) == pair:
            tokens[-1] += token
        else:
            tokens.append(token)
    return tokens
