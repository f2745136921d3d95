"""Models made on the spot: the sandbox's base, and a ViT-B/32 with random weights in the Hub's layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import set_seed

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


def write_vit_b32(folder: Path, vocabulary: str | None, *, seed: int) -> None:
    """Writes a CLIP of ViT-B/32's size with random weights and CLIP's real vocabulary, as the Hub lays it out.

    Its scores say nothing about quality: it is for checking the plumbing, speed and memory without a download.

    Args:
        folder: where it goes.
        vocabulary: folder with CLIP's `vocab.json` and `merges.txt`.
        seed: of the weights.

    Raises:
        ValueError: without a vocabulary.
    """
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, CLIPProcessor, CLIPTokenizer

    if not vocabulary or not (Path(vocabulary) / "vocab.json").is_file():
        raise ValueError(
            f"clip_vocabulary={vocabulary!r}: expected a folder with CLIP's vocab.json and merges.txt. "
            "With a Hub connection use --model openai/clip-vit-base-patch32 instead."
        )
    set_seed(seed)
    tokenizer = CLIPTokenizer(
        vocab=str(Path(vocabulary) / "vocab.json"), merges=str(Path(vocabulary) / "merges.txt"), model_max_length=77
    )
    CLIPModel(CLIPConfig()).save_pretrained(folder)
    CLIPProcessor(image_processor=CLIPImageProcessorPil(), tokenizer=tokenizer).save_pretrained(folder)
