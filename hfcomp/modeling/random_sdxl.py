"""A tiny SDXL with random weights, which needs no download: it tests the plumbing, and its images are noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

# layers of the denoiser and of the decoder
_SHAPE = {
    "block_out_channels": (32, 64),
    "layers_per_block": 1,
    "sample_size": 32,
    "in_channels": 4,
    "out_channels": 4,
}


def tiny_text_model(tokenizer: Any, kind: type = CLIPTextModel) -> Any:
    """A text encoder of a class, for a CLIP tokenizer."""
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
    """An autoencoder of two levels."""
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=[32, 64],
        down_block_types=["DownEncoderBlock2D"] * 2,
        up_block_types=["UpDecoderBlock2D"] * 2,
        latent_channels=4,
    )


def tiny_unet(**settings: Any) -> Any:
    """A denoiser of two levels, with further settings of diffusers' class."""
    from diffusers import UNet2DConditionModel

    blocks = {
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    }
    return UNet2DConditionModel(**_SHAPE | blocks | settings)


def write_tiny_sdxl(folder: Path, clip: Path, *, seed: int = 0) -> Path:
    """Writes an SDXL as SDXL-Turbo is published: a text-to-image pipeline, which diffusers can turn.

    Args:
        folder: where it is written.
        clip: a folder with a CLIP tokenizer.
        seed: of its weights.
    """
    from diffusers import EulerAncestralDiscreteScheduler, StableDiffusionXLPipeline

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(clip, trust_remote_code=False)
    unet = tiny_unet(
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
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
