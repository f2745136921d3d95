"""A tiny CLIPSeg and a tiny inpainting pipeline with random weights: they test the plumbing, their output is noise."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoTokenizer

from hfcomp.modeling.random_sdxl import tiny_text_model, tiny_unet, tiny_vae

_SIDE = 32


def write_tiny_clipseg(folder: Path, clip: Path, *, seed: int = 0) -> Path:
    """Writes a CLIPSeg that sees images of 32 x 32 pixels.

    Args:
        folder: where it is written.
        clip: a folder with a CLIP tokenizer.
        seed: of its weights.
    """
    from transformers import (
        CLIPImageProcessorPil,
        CLIPSegConfig,
        CLIPSegForImageSegmentation,
        CLIPSegProcessor,
    )

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
    """Writes a Stable Diffusion whose denoiser takes the mask and the masked image, without a safety checker.

    Args:
        folder: where it is written.
        clip: a folder with a CLIP tokenizer.
        seed: of its weights.
    """
    from diffusers import DDIMScheduler, StableDiffusionInpaintPipeline

    tokenizer = AutoTokenizer.from_pretrained(clip, trust_remote_code=False)
    torch.manual_seed(seed)
    StableDiffusionInpaintPipeline(
        vae=tiny_vae(),
        text_encoder=tiny_text_model(tokenizer),
        tokenizer=tokenizer,
        unet=tiny_unet(in_channels=9, out_channels=4, cross_attention_dim=32, attention_head_dim=8),
        scheduler=DDIMScheduler(clip_sample=False, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)
    return folder
