"""Tiny models that read an image and a text together, on disk as `save_pretrained` writes them."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    BertTokenizer,
    Blip2Config,
    Blip2ForConditionalGeneration,
    Blip2Processor,
    BlipConfig,
    BlipForImageTextRetrieval,
    BlipProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    T5Config,
)

from hfcomp.evaluation.pairs.models import VQAScorer
from hfcomp.modeling.image_processors import BlipImageProcessorPil, CLIPImageProcessorPil
from tests import tiny, tolerances

TEMPLATE = (
    "{% for message in messages %}USER: {% for part in message['content'] %}{% if part['type'] == 'image' %}<image>\n"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %} {% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
QUESTION = 'USER: Does this figure show "{}"? Please answer yes or no. ASSISTANT: Yes'
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}


def words(answer: str = "Yes") -> PreTrainedTokenizerFast:
    """A tokenizer of bytes that knows the words of the question, and `answer` as one of them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<pad>", "<image>"]
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [QUESTION.format(caption).replace("Yes", answer) for caption in tiny.captions()[:200]]
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        additional_special_tokens=["<image>"],
    )


def llava(folder: Path, vision: CLIPVisionConfig, *, answer: str = "Yes") -> Path:
    """A LLaVA with a vision tower of some configuration; weights are large enough for scores to differ."""
    tokenizer = words(answer)
    text = LlamaConfig(**SIZES, vocab_size=len(tokenizer), max_position_embeddings=256, initializer_range=0.3)
    config = LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=(vision.image_size // vision.patch_size) ** 2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlavaForConditionalGeneration(config)
    torch.nn.init.normal_(model.model.multi_modal_projector.linear_2.weight, std=0.5)
    model.save_pretrained(folder)
    size = {"height": vision.image_size, "width": vision.image_size}
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": vision.image_size}, crop_size=size),
        tokenizer=tokenizer, patch_size=vision.patch_size, vision_feature_select_strategy="default",
        chat_template=TEMPLATE, num_additional_image_tokens=1,
    )  # fmt: skip
    processor.save_pretrained(folder)
    return folder


def blip2(folder: Path) -> Path:
    """A BLIP-2 with a T5, an encoder and a decoder; its processor adds the image's tokens to a text itself."""
    tokenizer = words()
    image = tokenizer.convert_tokens_to_ids("<image>")
    text = T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=2,
        pad_token_id=2, eos_token_id=1,
    )  # fmt: skip
    config = Blip2Config(
        vision_config={**SIZES, "image_size": tiny.IMAGE_SIZE, "patch_size": 16},
        qformer_config={**SIZES, "vocab_size": 10, "encoder_hidden_size": 32},
        text_config=text.to_dict(), num_query_tokens=4, image_token_id=image,
    )  # fmt: skip
    save(Blip2ForConditionalGeneration(config), folder)
    size = {"height": tiny.IMAGE_SIZE, "width": tiny.IMAGE_SIZE}
    Blip2Processor(BlipImageProcessorPil(size=size), tokenizer, num_query_tokens=4).save_pretrained(folder)
    return folder


def save(model: torch.nn.Module, folder: Path) -> None:
    """Writes a model whose weights are large enough for scores to differ."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)


def tolerance(scorer: VQAScorer) -> float:
    """Of the logarithm of a probability: a logit and the logarithm of the sum are each off by a product's error.

    A row of the last layer times a normed vector, which has length sqrt(hidden).
    """
    longest = scorer.backbone.get_output_embeddings().weight.norm(dim=1).max().item() * math.sqrt(32)
    return 2 * longest * tolerances.network(layers=4, tokens=200)


def blip(folder: Path) -> Path:
    """A BLIP with its head for matching."""
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *sorted({w for caption in tiny.captions() for w in caption.split()}),
    ]
    tokenizer = BertTokenizer(vocab={piece: place for place, piece in enumerate(pieces)})
    config = BlipConfig(
        text_config={
            **SIZES, "vocab_size": len(pieces), "encoder_hidden_size": 32, "max_position_embeddings": 24,
            "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0, "sep_token_id": 3,
        },
        vision_config={**SIZES, "image_size": tiny.IMAGE_SIZE, "patch_size": 16},
        projection_dim=16, image_text_hidden_size=16, initializer_range=0.3,
    )  # fmt: skip
    save(BlipForImageTextRetrieval(config), folder)
    size = {"height": tiny.IMAGE_SIZE, "width": tiny.IMAGE_SIZE}
    BlipProcessor(BlipImageProcessorPil(size=size), tokenizer).save_pretrained(folder)
    return folder
