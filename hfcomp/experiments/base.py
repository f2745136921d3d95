"""Models made on the spot: the sandbox's base, and a ViT-B/32 with random weights in the Hub's layout."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import CLIPConfig, set_seed

from hfcomp.experiments.stages import StageSummary, train_stage
from hfcomp.trainers.info_nce import InfoNCETrainer

# Our choice, found by trial: long enough for words, too short for binding (see recipes/slipform/README.md).
SANDBOX_BASE = {
    "learning_rate": 1e-3,
    "warmup_steps": 50,
    "lr_scheduler_type": "cosine",
    "weight_decay": 0.05,
    "adam_beta2": 0.98,
    "max_grad_norm": 1.0,
    "logging_steps": 50,
    "save_strategy": "no",
}
SANDBOX_BATCH = 128


def sandbox_base(
    folder: Path, *, steps: int, rows: int, seed: int, common: dict[str, Any], resume: bool
) -> StageSummary:
    """Trains the sandbox's tiny CLIP by plain InfoNCE until it knows words and no word order.

    Args:
        folder: where the model goes.
        steps: of training.
        rows: scenes.
        seed: of weights and scenes.
        common: trainer arguments that concern the machine (`use_cpu`, `disable_tqdm`, ...).
        resume: keep a base that is finished.
    """
    from transformers import CLIPModel

    from hfcomp.sandbox import pretraining_set, sandbox_clip_config, sandbox_processor

    def build() -> tuple[Any, Any, Any]:
        set_seed(seed)
        return CLIPModel(sandbox_clip_config()), sandbox_processor(), pretraining_set(rows, seed)

    arguments = {**SANDBOX_BASE, "max_steps": steps, "seed": seed, **common}
    return train_stage("base", InfoNCETrainer, build, folder, arguments, batch_size=SANDBOX_BATCH, resume=resume)


def fresh_vit_b32(folder: Path, vocabulary: str | None, *, seed: int, resume: bool) -> None:
    """Lets the main process write the model and the others wait for it.

    Args:
        folder: where it goes.
        vocabulary: folder with CLIP's `vocab.json` and `merges.txt`.
        seed: of the weights.
        resume: keep a model that is there.

    Raises:
        RuntimeError: on the other processes, when the main one could not write it.
    """
    state = PartialState()
    try:
        if state.is_main_process and not (resume and (folder / "config.json").is_file()):
            write_vit_b32(folder, vocabulary, seed=seed)
    finally:
        state.wait_for_everyone()  # an error of the main process must not leave the others waiting
    if not (folder / "config.json").is_file():
        raise RuntimeError(
            f"{folder} holds no model: the main process could not write it (its own error says why), or the folder "
            "is on a disk that the processes do not share."
        )


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

    Its scores say nothing about quality: it is for checking the plumbing, speed and memory without a download. The
    folder appears when it is complete.

    Args:
        folder: where it goes; a model that is there is replaced.
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
    unfinished = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    CLIPModel(config or CLIPConfig()).save_pretrained(unfinished)
    CLIPProcessor(image_processor=CLIPImageProcessorPil(), tokenizer=tokenizer).save_pretrained(unfinished)
    if folder.exists():
        shutil.rmtree(folder)
    unfinished.rename(folder)
