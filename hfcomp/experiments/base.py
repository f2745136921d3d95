"""Models that a run starts from without a download: the sandbox's, and a ViT-B/32 with random weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from accelerate import PartialState
from transformers import CLIPConfig, set_seed

from hfcomp.sandbox.bases import base_folder
from hfcomp.writing import replacing_folder


def make_base(folder: Path, write: Callable[[Path], None]) -> None:
    """Lets the main process write a model that is not there yet, and the others wait for it.

    Args:
        folder: where it goes.
        write: writes a model to the folder that it is given.

    Raises:
        RuntimeError: on the other processes, when the main one could not write it.
    """
    state = PartialState()
    try:
        if state.is_main_process and not (folder / "config.json").is_file():
            with replacing_folder(folder) as part:
                write(part)
    finally:
        state.wait_for_everyone()  # an error of the main process must not leave the others waiting
    if not (folder / "config.json").is_file():
        raise RuntimeError(
            f"{folder} holds no model: the main process could not write it (its own error says why), or the folder "
            "is on a disk that the processes do not share."
        )


def copy_sandbox_base(folder: Path, architecture: str) -> None:
    """Copies a base model of the sandbox out of the package.

    Args:
        folder: where it goes.
        architecture: `clip` or `siglip`.
    """
    shutil.copytree(base_folder(architecture), folder, dirs_exist_ok=True)


def check_vocabulary(vocabulary: str | None) -> None:
    """Refuses a folder without CLIP's vocabulary.

    Raises:
        ValueError: naming what is expected and the way out.
    """
    if not vocabulary or not all((Path(vocabulary) / name).is_file() for name in ("vocab.json", "merges.txt")):
        raise ValueError(
            f"clip_vocabulary={vocabulary!r}: expected a folder with CLIP's vocab.json and merges.txt. "
            "With a Hub connection use --model openai/clip-vit-base-patch32 instead."
        )


def write_vit_b32(folder: Path, vocabulary: str | None, *, seed: int, config: CLIPConfig | None = None) -> None:
    """Writes a CLIP of ViT-B/32's size with random weights and CLIP's real vocabulary, as the Hub lays it out.

    Its scores say nothing about quality: it is for checking the plumbing, speed and memory without a download.

    Args:
        folder: where it goes.
        vocabulary: folder with CLIP's `vocab.json` and `merges.txt`.
        seed: of the weights.
        config: of another size than ViT-B/32's.

    Raises:
        ValueError: without a vocabulary.
    """
    from transformers import CLIPImageProcessorPil, CLIPModel, CLIPProcessor, CLIPTokenizer

    check_vocabulary(vocabulary)
    set_seed(seed)
    files = {name: str(Path(vocabulary) / file) for name, file in (("vocab", "vocab.json"), ("merges", "merges.txt"))}
    tokenizer = CLIPTokenizer(**files, model_max_length=77)
    CLIPModel(config or CLIPConfig()).save_pretrained(folder)
    CLIPProcessor(image_processor=CLIPImageProcessorPil(), tokenizer=tokenizer).save_pretrained(folder)
