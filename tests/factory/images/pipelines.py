"""A tiny random Stable Diffusion on disk, in the layout of the Hub and with all parts of the real one."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoTokenizer

from hfcomp.testing import tiny_text_model, tiny_unet, tiny_vae


def stable_diffusion(folder: Path, clip: Path, *, flags: bool) -> Path:
    """A Stable Diffusion with a safety checker.

    Args:
        folder: where it is written.
        clip: a folder with a CLIP tokenizer.
        flags: whether the checker flags every image, or none.
    """
    from diffusers import DDIMScheduler, StableDiffusionImg2ImgPipeline
    from diffusers.pipelines.stable_diffusion import StableDiffusionSafetyChecker
    from transformers import CLIPConfig, CLIPTextConfig, CLIPVisionConfig

    from hfcomp.modeling.image_processors import CLIPImageProcessorPil

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(clip, trust_remote_code=False)
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = CLIPVisionConfig(**small, image_size=32, patch_size=16).to_dict()
    checker = StableDiffusionSafetyChecker(
        CLIPConfig(text_config=CLIPTextConfig(**small).to_dict(), vision_config=vision, projection_dim=16)
    )
    for threshold in (checker.concept_embeds_weights, checker.special_care_embeds_weights):
        torch.nn.init.constant_(threshold, -2.0 if flags else 2.0)  # of a cosine
    StableDiffusionImg2ImgPipeline(
        vae=tiny_vae(),
        text_encoder=tiny_text_model(tokenizer),
        tokenizer=tokenizer,
        unet=tiny_unet(cross_attention_dim=32, attention_head_dim=8),
        scheduler=DDIMScheduler(clip_sample=False, steps_offset=1),
        safety_checker=checker,
        feature_extractor=CLIPImageProcessorPil(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}, do_convert_rgb=True
        ),
        requires_safety_checker=True,
    ).save_pretrained(folder)
    return folder
