"""Tiny models with random weights that need no download. They test the plumbing; their output is noise.

For tests, including those of other packages, and for the factories in `dataset_builders`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    CLIPSegConfig,
    CLIPSegForImageSegmentation,
    CLIPSegProcessor,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    Dinov2Config,
    Dinov2Model,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    RobertaTokenizer,
)

from hfcomp.modeling.image_processors import BitImageProcessorPil, CLIPImageProcessorPil

# Layers of the denoiser and the decoder.
_UNET = {"block_out_channels": (32, 64), "layers_per_block": 1, "sample_size": 32, "in_channels": 4, "out_channels": 4}
_SHAPE = {"hidden_size": 32, "num_attention_heads": 2}
_WORDS = (
    *("a", "dog", "cat", "red", "blue", "table", "under", "on", "the", "is", "are", "runs", "sits", "man", "woman"),
    *("two", "and", "of", "in", "with", "street"),
)
_TEMPLATE = (
    "{% for message in messages %}<s> {{ message['content'] }} {% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}</s>{% endif %}"
)
_SIDE = 32


def write_tiny_dinov2(folder: Path, *, seed: int = 0) -> Path:
    """Writes a two-layer DINOv2 for crops of 28 pixels, with its image processor."""
    torch.manual_seed(seed)
    Dinov2Model(Dinov2Config(num_hidden_layers=2, image_size=28, patch_size=14, **_SHAPE)).save_pretrained(folder)
    BitImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 28, "width": 28}).save_pretrained(folder)
    return folder


def write_tiny_roberta(folder: Path, texts: Iterable[str], *, tokens: int = 38, seed: int = 0) -> Path:
    """Writes a three-layer RoBERTa and a byte-level tokenizer with 400 tokens, trained on `texts`."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        # Includes all bytes, so any text has tokens, whatever the training texts are.
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    model = json.loads(backend.to_str())["model"]
    tokenizer = RobertaTokenizer(vocab=model["vocab"], merges=[*map(tuple, model["merges"])], model_max_length=tokens)
    torch.manual_seed(seed)
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=tokens + 2,  # RoBERTa starts counting after the padding token's id
        pad_token_id=1,
        num_hidden_layers=3,
        intermediate_size=64,
        **_SHAPE,
    )
    RobertaModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_tiny_llama(folder: Path, *, chat: bool = True, seed: int = 0) -> Path:
    """Writes a two-layer Llama with a 24-word tokenizer; it writes about dogs and cats and ends its texts early."""
    vocabulary = {word: number for number, word in enumerate(["<unk>", "<s>", "</s>", *_WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>", model_max_length=2048
    )
    if chat:
        # Without thinking, the template ends the prompt immediately, which a test can see in the model's output.
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
    model.generation_config.do_sample = True  # otherwise `transformers serve` ignores a temperature
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_text_model(tokenizer: Any, kind: type = CLIPTextModel) -> Any:
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=77,
        projection_dim=32,
        hidden_act="gelu",
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return kind(config).eval()


def tiny_vae() -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=[32, 64],
        down_block_types=["DownEncoderBlock2D"] * 2,
        up_block_types=["UpDecoderBlock2D"] * 2,
        latent_channels=4,
    )


def tiny_unet(**settings: Any) -> Any:
    """A denoiser with two levels; accepts further settings of the diffusers class."""
    from diffusers import UNet2DConditionModel

    blocks = {
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    }
    return UNet2DConditionModel(**_UNET | blocks | settings)


def write_tiny_sdxl(folder: Path, clip: Path, *, seed: int = 0) -> Path:
    """Writes a text-to-image SDXL in the format of SDXL-Turbo, with the tokenizer of `clip`."""
    from diffusers import EulerAncestralDiscreteScheduler, StableDiffusionXLPipeline

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(clip, trust_remote_code=False)
    unet = tiny_unet(
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        # SDXL also embeds six numbers about size and crop; the projection takes the 6 x 8 values and the pooled text.
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 2),
        projection_class_embeddings_input_dim=6 * 8 + 32,
        cross_attention_dim=64,
    )
    StableDiffusionXLPipeline(
        vae=tiny_vae(),
        text_encoder=tiny_text_model(tokenizer),
        text_encoder_2=tiny_text_model(tokenizer, CLIPTextModelWithProjection),
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        unet=unet,
        scheduler=EulerAncestralDiscreteScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", timestep_spacing="trailing"
        ),
        add_watermarker=False,
    ).save_pretrained(folder)
    return folder


def write_tiny_clipseg(folder: Path, clip: Path, *, seed: int = 0) -> Path:
    """Writes a CLIPSeg for images of 32 x 32 pixels, with the tokenizer of `clip`."""
    tokenizer = AutoTokenizer.from_pretrained(clip, trust_remote_code=False)
    towers = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 3, "num_attention_heads": 4}
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    torch.manual_seed(seed)
    config = CLIPSegConfig(
        text_config={**towers, **ids, "vocab_size": len(tokenizer), "max_position_embeddings": 77},
        vision_config={**towers, "image_size": _SIDE, "patch_size": 8},
        projection_dim=32,
        extract_layers=[0, 1, 2],
        reduce_dim=16,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=32,
    )
    CLIPSegForImageSegmentation(config).save_pretrained(folder)
    images = CLIPImageProcessorPil(size={"height": _SIDE, "width": _SIDE}, do_center_crop=False)
    CLIPSegProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return folder


def write_tiny_inpainting(folder: Path, clip: Path, *, seed: int = 0) -> Path:
    """Writes a Stable Diffusion inpainting model (mask and masked image as inputs), without a safety checker."""
    from diffusers import DDIMScheduler, StableDiffusionInpaintPipeline

    tokenizer = AutoTokenizer.from_pretrained(clip, trust_remote_code=False)
    torch.manual_seed(seed)
    StableDiffusionInpaintPipeline(
        vae=tiny_vae(),
        text_encoder=tiny_text_model(tokenizer),
        tokenizer=tokenizer,
        # Nine channels: four for the latent image, four for the masked image and one for the mask.
        unet=tiny_unet(in_channels=9, out_channels=4, cross_attention_dim=32, attention_head_dim=8),
        scheduler=DDIMScheduler(clip_sample=False, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)
    return folder
