"""Processor of a converted model: its tokenizer, and an image processor that follows open_clip's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from PIL.Image import Resampling
from transformers import AutoTokenizer, CLIPTokenizer
from transformers.image_utils import IMAGENET_STANDARD_MEAN, IMAGENET_STANDARD_STD, OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from hfcomp.modeling.image_processors import CLIPImageProcessorPil, SiglipImageProcessorPil
from hfcomp.modeling.weight_checks import OtherNetwork
from hfcomp.reading import check_place

RESAMPLING = {"bicubic": Resampling.BICUBIC, "bilinear": Resampling.BILINEAR}
SHORTEST, SQUASH = "shortest", "squash"
# Tags in open_clip's `pretrained.py` at 89fb801 (June 2026) whose preprocessing is not OpenAI's.
_HALF_MEAN_TAG, _SQUASH_TAG = re.compile("laion2b_s32b_b82k"), re.compile("dfn5b")
CLIP_TOKENIZER = "openai/clip-vit-base-patch32"
TOKENIZER_FILES = ("tokenizer.json", "vocab.json")
# SigLIP tokenizers by number of tokens.
SIGLIP_TOKENIZERS = {
    32_000: "google/siglip-base-patch16-224",
    250_000: "google/siglip-base-patch16-256-multilingual",
    256_000: "google/siglip2-base-patch16-224",
}


class Preprocessing(NamedTuple):
    """open_clip's preprocessing settings.

    Attributes:
        mean: Mean of each channel, for pixels in 0 to 1.
        std: Standard deviation of each channel, for pixels in 0 to 1.
        interpolation: `bicubic` or `bilinear`.
        resize_mode: `shortest` scales the shorter side and crops the center, `squash` scales both sides.
        source: Source that states the settings.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str
    resize_mode: str
    source: str


def preprocessing(config: Mapping[str, Any] | None, tag: str | None) -> Preprocessing:
    """Returns the settings in `open_clip_config.json`; without this file, those of the tag.

    Without a known tag, returns OpenAI's settings, which are open_clip's default.

    Args:
        config: Content of the whole file, if any.
        tag: open_clip's tag for the weights that training started from.
    """
    openai = (tuple(OPENAI_CLIP_MEAN), tuple(OPENAI_CLIP_STD))
    if config is None:
        has_half_mean = tag is not None and _HALF_MEAN_TAG.fullmatch(tag)
        mean, std = (tuple(IMAGENET_STANDARD_MEAN), tuple(IMAGENET_STANDARD_STD)) if has_half_mean else openai
        mode = SQUASH if tag is not None and _SQUASH_TAG.fullmatch(tag) else SHORTEST
        return Preprocessing(mean, std, "bicubic", mode, f"--pretrained {tag}" if tag else "open_clip's default")
    values = config.get("preprocess_cfg") or {}
    mean, std = (_channels(values.get(name), default) for name, default in zip(("mean", "std"), openai, strict=True))
    interpolation, mode = values.get("interpolation") or "bicubic", values.get("resize_mode") or SHORTEST
    # "random" means that training draws an interpolation per image; open_clip then evaluates with bicubic.
    interpolation = "bicubic" if interpolation == "random" else interpolation
    if interpolation not in RESAMPLING or mode not in (SHORTEST, SQUASH):
        raise OtherNetwork(
            f"open_clip_config.json: interpolation={interpolation!r} with resize_mode={mode!r} has no counterpart in "
            f"transformers. Expected interpolation {' or '.join(RESAMPLING)}, and resize_mode {SHORTEST} or {SQUASH}."
        )
    return Preprocessing(mean, std, interpolation, mode, "open_clip_config.json")


def image_processor(settings: Preprocessing, size: int, *, siglip: bool = False) -> Any:
    """Makes a tower's image processor for square images with sides of `size` pixels."""
    # open_clip resizes Pillow images, and so do these processors. The torchvision processors resize tensors, which
    # gives different pixels.
    kind = SiglipImageProcessorPil if siglip else CLIPImageProcessorPil
    square = {"height": size, "width": size}
    crop = settings.resize_mode == SHORTEST
    # CLIP's processor crops unless it is told not to. SigLIP's does not crop, so its setting is added only for a crop.
    cropping = {"do_center_crop": crop, "crop_size": square} if crop or not siglip else {}
    return kind(
        image_mean=list(settings.mean),
        image_std=list(settings.std),
        resample=RESAMPLING[settings.interpolation],
        size={"shortest_edge": size} if crop else square,
        **cropping,
    )


def preprocess_config(processor: Any, size: int) -> dict[str, Any]:
    """Makes open_clip's `preprocess_cfg` for an image processor."""
    images = processor.image_processor
    sides, square = dict(images.size), {"height": size, "width": size}
    names = {int(value): name for name, value in RESAMPLING.items()}
    crops = bool(getattr(images, "do_center_crop", False))
    if crops and sides == {"shortest_edge": size} and dict(images.crop_size) == square:
        mode = SHORTEST
    elif not crops and sides == square:
        mode = SQUASH
    else:
        mode = ""
    switches = ("do_resize", "do_rescale", "do_normalize")
    if not mode or int(images.resample) not in names or not all(getattr(images, name) for name in switches):
        raise ValueError(
            f"the image processor resizes to {sides} (center crop: {crops}, resampling {int(images.resample)}), but "
            f"open_clip cannot express this for a model with an input of {size} pixels."
        )
    return {
        "mean": list(images.image_mean),
        "std": list(images.image_std),
        "interpolation": names[int(images.resample)],
        "resize_mode": mode,
    }


def _channels(value: Any, default: tuple[float, ...]) -> tuple[float, ...]:
    if value is None:
        return default
    return tuple(value) if isinstance(value, list | tuple) else (float(value),) * 3


def tokenizer_folder(checkpoint: Path) -> str | None:
    """Returns the folder of a checkpoint if it contains a tokenizer, as open_clip repositories do."""
    folder = checkpoint.parent
    return str(folder) if any((folder / name).is_file() for name in TOKENIZER_FILES) else None


def clip_tokenizer(source: str | None, *, own_name: str | None, vocabulary: int, length: int) -> Any:
    """Loads a CLIP tokenizer and checks that the checkpoint's model pools at its end-of-text token.

    Args:
        source: Folder (with a tokenizer, or with `vocab.json` and `merges.txt`) or Hub id. Defaults to OpenAI's.
        own_name: `hf_tokenizer_name` in the checkpoint's configuration.
        vocabulary: Number of tokens in the model's vocabulary.
        length: Maximum number of tokens of a text.
    """
    if own_name and source is None:
        raise OtherNetwork(
            f"open_clip_config.json: hf_tokenizer_name={own_name!r}, so the model does not use CLIP's tokens. Pass "
            "--processor with a folder or Hub id that has this tokenizer."
        )
    source = source or CLIP_TOKENIZER
    tokenizer = _load_tokenizer(CLIPTokenizer, source, length)
    # open_clip's text tower takes a text's embedding from its highest token id. If that is not the end of the text,
    # the embedding silently comes from somewhere in the middle.
    if len(tokenizer) != vocabulary or tokenizer.eos_token_id != vocabulary - 1:
        raise ValueError(
            f"{source}: the tokenizer has {len(tokenizer):,} tokens and ends texts with token "
            f"{tokenizer.eos_token_id}, but the model has {vocabulary:,} tokens and takes a text's embedding from the "
            "highest token id. Pass --processor with the tokenizer that the model was trained with."
        )
    return tokenizer


def siglip_tokenizer(source: str | None, *, vocabulary: int, length: int) -> Any:
    """Loads a SigLIP tokenizer, which pads to the full length."""
    # Google's three vocabularies have different sizes, so the size identifies the tokenizer.
    source = source or SIGLIP_TOKENIZERS.get(vocabulary)
    if source is None:
        raise ValueError(
            f"no SigLIP model from Google has {vocabulary:,} tokens. Pass --processor with the model's tokenizer."
        )
    tokenizer = _load_tokenizer(AutoTokenizer, source, length)
    # The ids of additional tokens would lie outside the model's embedding table. Fewer tokens are harmless.
    if len(tokenizer) > vocabulary:
        raise ValueError(
            f"{source}: the tokenizer has {len(tokenizer):,} tokens, but the model has {vocabulary:,}. Pass "
            "--processor with the tokenizer that the model was trained with."
        )
    return tokenizer


def _load_tokenizer(kind: Any, source: str, length: int) -> Any:
    check_place(source, "--processor")
    files = {name: Path(source) / file for name, file in (("vocab", "vocab.json"), ("merges", "merges.txt"))}
    plain = kind is CLIPTokenizer and all(path.is_file() for path in files.values())
    if plain and not (Path(source) / "tokenizer_config.json").is_file():
        return CLIPTokenizer(**{name: str(path) for name, path in files.items()}, model_max_length=length)
    try:
        tokenizer = kind.from_pretrained(source, model_max_length=length, trust_remote_code=False)
        # If files are missing, transformers makes a tokenizer that has only special tokens.
        if len(tokenizer) <= len(tokenizer.all_special_tokens):
            raise ValueError("Its vocabulary was not found.")
        return tokenizer
    except (OSError, ValueError) as error:
        where = "" if Path(source).is_dir() else " (a Hub id, which needs a connection)"
        raise ValueError(
            f"{source}{where}: the tokenizer cannot be loaded. Pass --processor with a folder or Hub id of a model "
            f"that has the same tokens. {error}"
        ) from error
