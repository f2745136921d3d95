"""The tokenizer of a converted model, which a checkpoint of open_clip does not hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, CLIPTokenizer

from hfcomp.reading import check_place

CLIP_PLACE = "openai/clip-vit-base-patch32"
FILES = ("tokenizer.json", "vocab.json")
# SigLIP's tokenizers by their number of tokens.
SIGLIP_PLACES = {
    32_000: "google/siglip-base-patch16-224",
    250_000: "google/siglip-base-patch16-256-multilingual",
    256_000: "google/siglip2-base-patch16-224",
}


def beside(checkpoint: Path) -> str | None:
    """The folder of a checkpoint if it holds a tokenizer, as repositories of open_clip do."""
    folder = checkpoint.parent
    return str(folder) if any((folder / name).is_file() for name in FILES) else None


def clip_tokenizer(place: str | None, *, own_name: str | None, vocabulary: int, length: int) -> Any:
    """A CLIP tokenizer whose end-of-text token is the one that the checkpoint's model pools at.

    Args:
        place: folder (with a tokenizer, or with `vocab.json` and `merges.txt`) or Hub id; by default OpenAI's.
        own_name: `hf_tokenizer_name` of the checkpoint's configuration.
        vocabulary: number of tokens that the model has.
        length: tokens of the longest text.

    Raises:
        ValueError: for a place without a tokenizer, or with one of another vocabulary.
    """
    if own_name and place is None:
        raise ValueError(
            f"open_clip_config.json: hf_tokenizer_name={own_name!r}, so the texts are not CLIP's tokens. Pass "
            "--processor with a folder or Hub id that has this tokenizer."
        )
    place = place or CLIP_PLACE
    tokenizer = _load(CLIPTokenizer, place, length)
    if len(tokenizer) != vocabulary or tokenizer.eos_token_id != vocabulary - 1:
        raise ValueError(
            f"{place}: the tokenizer has {len(tokenizer):,} tokens and ends texts with token "
            f"{tokenizer.eos_token_id}; the model has {vocabulary:,} tokens and reads a text at its highest one. Pass "
            "--processor with the tokenizer that it was trained with."
        )
    return tokenizer


def siglip_tokenizer(place: str | None, *, vocabulary: int, length: int) -> Any:
    """A SigLIP tokenizer, which pads to the full length.

    Args:
        place: folder or Hub id; by default Google's with as many tokens.
        vocabulary: number of tokens that the model has.
        length: tokens of every text.

    Raises:
        ValueError: for a place without a tokenizer, or with one of more tokens than the model has.
    """
    place = place or SIGLIP_PLACES.get(vocabulary)
    if place is None:
        raise ValueError(
            f"no SigLIP of Google has {vocabulary:,} tokens. Pass --processor with the model's tokenizer."
        )
    tokenizer = _load(AutoTokenizer, place, length)
    if len(tokenizer) > vocabulary:
        raise ValueError(
            f"{place}: the tokenizer has {len(tokenizer):,} tokens, the model {vocabulary:,}. Pass --processor with "
            "the tokenizer that it was trained with."
        )
    return tokenizer


def _load(kind: Any, place: str, length: int) -> Any:
    check_place(place, "--processor")
    files = {name: Path(place) / file for name, file in (("vocab", "vocab.json"), ("merges", "merges.txt"))}
    plain = kind is CLIPTokenizer and all(path.is_file() for path in files.values())
    if plain and not (Path(place) / "tokenizer_config.json").is_file():
        return CLIPTokenizer(**{name: str(path) for name, path in files.items()}, model_max_length=length)
    try:
        tokenizer = kind.from_pretrained(place, model_max_length=length, trust_remote_code=False)
        if len(tokenizer) <= len(tokenizer.all_special_tokens):  # of files that were not found
            raise ValueError("Its vocabulary was not found.")
        return tokenizer
    except (OSError, ValueError) as error:
        where = "" if Path(place).is_dir() else " (a Hub id, which needs a connection)"
        raise ValueError(
            f"{place}{where}: no tokenizer can be loaded. Pass --processor with a folder or Hub id of a model that "
            f"has the same tokens. {error}"
        ) from error
