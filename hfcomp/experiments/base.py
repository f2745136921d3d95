"""Models that a run starts from without a download: the sandbox's, and a ViT-B/32 with random weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from accelerate import PartialState
from transformers import CLIPConfig, set_seed

from hfcomp.distributed import fail_together
from hfcomp.experiments.experiment_config import SANDBOX_MODELS
from hfcomp.experiments.recipe_files import check_place
from hfcomp.experiments.recipes import Recipe
from hfcomp.experiments.stages import damage, write_checksums
from hfcomp.modeling import load_config, load_processor
from hfcomp.sandbox.bases import base_folder
from hfcomp.writing import replacing_folder


def prepare_base(recipe: Recipe) -> None:
    """Looks for the base and the files of a recipe, so that a mistyped name costs nothing.

    Raises:
        OSError: for a path without a file or folder, or a Hub id that cannot be loaded.
        ValueError: for a model that is not a supported dual encoder, or whose weights are incomplete.
    """
    config = recipe.experiment
    for name in ("model", "dataset", "evaluation_dataset", "captions_file", "concreteness_ratings"):
        check_place(name, getattr(config, name))
    if config.model:
        try:
            load_config(config.model)
            load_processor(config.model, argument="--model")
        except OSError as error:
            place = "" if Path(config.model).is_dir() else "no such folder here, and from the Hub: "
            raise OSError(f"model={config.model}: {place}{error}") from error
    elif config.fresh_model not in SANDBOX_MODELS:
        check_vocabulary(config.clip_vocabulary)


def base_model(recipe: Recipe, folder: Path) -> Path | str:
    """The model that all arms start from: the recipe's, or one written to `base/` in a folder."""
    config = recipe.experiment
    if config.model:
        return config.model
    base = folder / "base"
    if config.fresh_model in SANDBOX_MODELS:
        make_base(base, partial(copy_sandbox_base, architecture=SANDBOX_MODELS[config.fresh_model]))
    else:
        make_base(base, partial(write_vit_b32, vocabulary=config.clip_vocabulary, seed=training_seed(recipe)))
    return base


def training_seed(recipe: Recipe) -> int:
    """The seed of rows, training and a base that is made."""
    return int(recipe.trainer_arguments.get("seed", 42))


def make_base(folder: Path, write: Callable[[Path], None]) -> None:
    """Lets the main process write a model that is not there whole, while the others wait for it.

    Args:
        folder: where it goes.
        write: writes a model to the folder that it is given.

    Raises:
        RuntimeError: on the other processes, when the main one could not write it or they do not see what it wrote.
    """
    with fail_together():
        if PartialState().is_main_process and damage(folder) is not None:
            with replacing_folder(folder) as part:
                write(part)
                write_checksums(part)
    if not (folder / "config.json").is_file():
        raise RuntimeError(f"{folder}: the main process wrote a model that this one does not see. Share the disk.")


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
        ValueError: naming what is expected and how to fix it.
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
