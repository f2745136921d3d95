"""Tiny random pipelines of diffusers on disk, in the layout of the Hub and with all parts of the real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

# layers of the denoiser and of the decoder
SHAPE = {"block_out_channels": (32, 64), "layers_per_block": 1, "sample_size": 32, "in_channels": 4, "out_channels": 4}


def _text(tokenizer: Any, kind: type = CLIPTextModel) -> Any:
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


def _vae() -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=[32, 64],
        down_block_types=["DownEncoderBlock2D"] * 2,
        up_block_types=["UpDecoderBlock2D"] * 2,
        latent_channels=4,
    )


def _unet(**settings: Any) -> Any:
    from diffusers import UNet2DConditionModel

    blocks = {
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    }
    return UNet2DConditionModel(**SHAPE, **blocks, **settings)


def sdxl(folder: Path, clip: Path, *, seed: int = 0) -> Path:
    """An SDXL as SDXL-Turbo is published: a text-to-image pipeline, of which diffusers makes an image-to-image one.

    Args:
        folder: where it is written.
        clip: a folder with a CLIP tokenizer.
        seed: of its weights.
    """
    from diffusers import EulerAncestralDiscreteScheduler, StableDiffusionXLPipeline

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(clip, trust_remote_code=False)
    unet = _unet(
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 2),
        projection_class_embeddings_input_dim=6 * 8 + 32,
        cross_attention_dim=64,
    )
    StableDiffusionXLPipeline(
        vae=_vae(),
        text_encoder=_text(tokenizer),
        text_encoder_2=_text(tokenizer, CLIPTextModelWithProjection),
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        unet=unet,
        scheduler=EulerAncestralDiscreteScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", timestep_spacing="trailing"
        ),
        add_watermarker=False,
    ).save_pretrained(folder)
    return folder


def stable_diffusion(folder: Path, clip: Path, *, flags: bool) -> Path:
    """A Stable Diffusion with a safety checker.

    Args:
        folder: where it is written.
        clip: a folder with a CLIP tokenizer.
        flags: whether the checker flags every image, or none.
    """
    from diffusers import DDIMScheduler, StableDiffusionImg2ImgPipeline
    from diffusers.pipelines.stable_diffusion import StableDiffusionSafetyChecker
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPTextConfig, CLIPVisionConfig

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
        vae=_vae(),
        text_encoder=_text(tokenizer),
        tokenizer=tokenizer,
        unet=_unet(cross_attention_dim=32, attention_head_dim=8),
        scheduler=DDIMScheduler(clip_sample=False, steps_offset=1),
        safety_checker=checker,
        feature_extractor=CLIPImageProcessorPil(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}, do_convert_rgb=True
        ),
        requires_safety_checker=True,
    ).save_pretrained(folder)
    return folder
