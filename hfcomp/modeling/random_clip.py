"""CLIP models with random weights, which need no download."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from transformers import CLIPConfig, set_seed

_TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}


def _vit_tiny() -> CLIPConfig:
    """Returns two layers of width 64 on the tokens and patches of ViT-B/32, which take a hundredth of its time."""
    return CLIPConfig(text_config=_TINY, vision_config=_TINY, projection_dim=64)


RANDOM_CLIPS: dict[str, Callable[[], CLIPConfig]] = {"vit_b32": CLIPConfig, "vit_tiny": _vit_tiny}
"""Configurations of random CLIP models by name."""


def check_vocabulary(vocabulary: str | None) -> None:
    """Raises ValueError if a folder does not contain CLIP's vocabulary."""
    if not vocabulary or not all((Path(vocabulary) / name).is_file() for name in ("vocab.json", "merges.txt")):
        raise ValueError(
            f"clip_vocabulary: found {vocabulary!r}, expected a folder with CLIP's vocab.json and merges.txt. "
            "With a Hub connection use --model openai/clip-vit-base-patch32 instead."
        )


def write_random_clip(folder: Path, vocabulary: str | None, *, seed: int, config: CLIPConfig | None = None) -> None:
    """Writes a CLIP with random weights and CLIP's real vocabulary, in the Hub's layout.

    Its scores say nothing about quality: use it to check the plumbing, speed and memory without a download.

    `vocabulary` is a folder with CLIP's `vocab.json` and `merges.txt`, which determine the token ids. The default size
    is that of ViT-B/32.
    """
    from transformers import CLIPModel, CLIPProcessor, CLIPTokenizer

    from hfcomp.modeling.image_processors import CLIPImageProcessorPil

    check_vocabulary(vocabulary)
    set_seed(seed)
    files = {name: str(Path(vocabulary) / file) for name, file in (("vocab", "vocab.json"), ("merges", "merges.txt"))}
    tokenizer = CLIPTokenizer(**files, model_max_length=77)
    config = config or CLIPConfig()
    for name in ("bos_token_id", "eos_token_id"):
        setattr(config.text_config, name, getattr(tokenizer, name))
    config.text_config.vocab_size = len(tokenizer)
    CLIPModel(config).save_pretrained(folder)
    CLIPProcessor(image_processor=CLIPImageProcessorPil(), tokenizer=tokenizer).save_pretrained(folder)
