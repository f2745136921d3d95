"""Tiny image-text-to-text models of many families, each with its own processor and the form of its chat template."""

from __future__ import annotations

from typing import Any, NamedTuple

import transformers
from transformers import CONFIG_MAPPING, PreTrainedTokenizerFast
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES
from transformers.video_processing_utils import BaseVideoProcessor

from tests import families
from tests.evaluation.pairs import readers

SIZES = families.SMALL | {
    **{"max_position_embeddings": 512, "num_key_value_heads": 4, "head_dim": 8, "sliding_window": 64},
    **{"depth": 2, "embed_dim": 32, "num_heads": 4, "out_hidden_size": 32, "projection_dim": 32, "scale_factor": 2},
    **{"image_seq_length": 4, "mm_tokens_per_image": 4, "deepstack_visual_indexes": [0], "fullatt_block_indexes": [1]},
}


def chat(image: str, turn: str = "<|im_start|>user\n{}<|im_end|>\n", answer: str = "<|im_start|>assistant\n") -> str:
    """A chat template, by what it writes for an image, around a turn of the user, and before an answer."""
    part = "{% if x.type == 'image' %}" + image + "{% else %}{{ x.text }}{% endif %}"
    turn = turn.format("{% for x in message.content %}" + part + "{% endfor %}")
    return "{% for message in messages %}" + turn + "{% endfor %}" + answer


class Family(NamedTuple):
    """Special tokens of a family, its chat template, and settings of its image processor and its processor."""

    tokens: dict[str, str]
    chat: str | None = None
    images: dict[str, Any] = {}
    more: dict[str, Any] = {}


QWEN = Family(
    {"image_token": "<|image_pad|>", "vision_start_token": "<|vision_start|>", "vision_end_token": "<|vision_end|>"},
    chat("<|vision_start|><|image_pad|><|vision_end|>"),
    {"patch_size": 8, "size": {"shortest_edge": 16**2, "longest_edge": 64**2}},
)
TILES = Family(
    {"image_token": "<image>", "fake_image_token": "<fake>", "global_image_token": "<global>"},
    chat("<image>", "<|im_start|>User:{}<end_of_utterance>\n", "Assistant:"),
    {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}},
    {"image_seq_len": 4},
)
INTERNVL = {"image_token": "<c>", "context_image_token": "<c>", "start_image_token": "<i>", "end_image_token": "</i>"}
INTERNVL["video_token"] = "<v>"
GEMMA_TOKENS = {"image_token": "<soft>", "boi_token": "<b>", "eoi_token": "<e>"}
GEMMA = "{{ bos_token }}" + chat("<b>", "<start_of_turn>user\n{}<end_of_turn>\n", "<start_of_turn>model\n")
LLAVA = {"patch_size": 8, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
FAMILIES = {
    "llava": Family({"image_token": "<image>"}, chat("<image>\n", "USER: {} ", "ASSISTANT:"), {}, LLAVA),
    "llava without a template": Family({"image_token": "<image>"}, None, {}, LLAVA),
    "qwen2_vl": QWEN,
    "paligemma": Family({"image_token": "<image>"}, images={"image_seq_length": 16}),
    "qwen2_5_vl": QWEN,
    "qwen3_vl": QWEN,
    "smolvlm": TILES,
    "idefics3": TILES,
    "gemma3": Family(
        {"image_token": "<soft>", "boi_token": "<b>", "eoi_token": "<e>"}, GEMMA, {}, {"image_seq_length": 4}
    ),
    "internvl": Family({**INTERNVL, "video_token": "<v>"}, chat("<c>\n"), {"max_patches": 4}, {"image_seq_length": 4}),
}


class NoVideo(BaseVideoProcessor):
    """Takes the place of a video processor, which needs torchvision and which images never reach."""

    num_frames = fps = 1

    def __init__(self):
        pass


def make(name: str) -> tuple[Any, Any]:
    """Returns a family's configuration and processor."""
    family, name = FAMILIES[name], name.partition(" ")[0]
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "extra_special_tokens": family.tokens}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=readers.words().backend_tokenizer, **special)
    kind = getattr(transformers, PROCESSOR_MAPPING_NAMES[name])
    video = [NoVideo()] * ("video_processor" in kind.get_attributes())
    images = families.make_image_processor(name, **family.images)
    processor = kind(images, tokenizer, *video, chat_template=family.chat, **family.more)  # may add tokens
    config = families.small(CONFIG_MAPPING[name], tokenizer, SIZES)
    for token, word in family.tokens.items():
        setattr(config, f"{token}_id", tokenizer.convert_tokens_to_ids(word))
    if family is QWEN:
        config.text_config.rope_parameters["mrope_section"] = [2, 1, 1]
    return config, processor
