"""What runs on one process and on several: each case returns tensors and facts, which the tests compare.

Cases take a folder with the tiny models and a folder to write to. A case divides one global batch by the number of
processes, so that every number of processes should find the same.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
import torch.nn.functional as F
from PIL import ImageOps
from transformers import AutoModel, AutoProcessor, TrainerCallback

from hfcomp.data.loading import load_training_stream
from hfcomp.distributed import gather, gather_sizes, gather_with_grad, rank, sum_loss, world_size
from hfcomp.distributed.shards import gather_whole, is_split
from hfcomp.evaluation import callback
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.losses import (
    ahnpl_loss,
    ce_clip_loss,
    cement_loss,
    dcl_loss,
    info_nce_loss,
    perturb_image,
    replaced_negative_loss,
    sigmoid_loss,
    triplet_clip_loss,
)
from hfcomp.modeling import encode_images, encode_texts
from hfcomp.trainers._support import reference_text
from hfcomp.trainers._support.reference_text import FrozenText
from hfcomp.trainers.ahnpl import AHNPLTrainer
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.c2lip import C2LIPTrainer
from hfcomp.trainers.ce_clip import CEClipTrainer
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.clear_glass import ClearGlassTrainer
from hfcomp.trainers.dcl import DCLTrainer
from hfcomp.trainers.hierarcaps import HierarCapsTrainer
from hfcomp.trainers.hooks import embedding_metrics
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.replaced_negatives import ReplacedNegativesTrainer, draw_slots
from hfcomp.trainers.text_alignment import TextAlignmentTrainer
from hfcomp.trainers.triplet_clip import TripletClipTrainer
from tests import tiny
from tests.evaluation import small_sugarcrepe
from tests.trainers.group_rows import add_groups
from tests.trainers.own_objective import Offset, OwnTrainer

GLOBAL_BATCH = 8
STEPS = 4
EVALUATED = (21, 17, 3)
LOSSES = ("info_nce", "sigmoid", "cement", "joint", "dcl", "hard_negatives", "ce_clip", "triplet_clip", "ahnpl")
NAN_STEP = 3
# the share of moved weights counts those that rounding alone has moved
NOT_COMPARED = ("runtime", "per_second", "epoch", "total_flos", "changed_weight_fraction")

Found = tuple[dict[str, torch.Tensor], dict[str, Any]]
# as in tests/conftest.py, for processes of their own
datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = 0.05

CASES: dict[str, Callable[[Path, Path], Found]] = {}


def case(function: Callable[[Path, Path], Found]) -> Callable[[Path, Path], Found]:
    CASES[function.__name__] = function
    return function


def shares(number: int, processes: int) -> list[int]:
    """8 rows on 3 processes: 3, 3, 2."""
    return [number // processes + (index < number % processes) for index in range(processes)]


@functools.cache
def concept_data(number: int = 20, cut_from: int | None = None):
    """Rows, of seven images, with no to two concepts; truncation takes those of row 1, 7, ... and as of `cut_from`."""

    def change(row, index):
        if index % 6 == 1 or (cut_from is not None and index >= cut_from):
            caption = " and ".join([row["caption"]] * 9)
            return {"caption": caption, "concepts": ["end"], "concept_spans": [[[len(caption) - 4, len(caption)]]]}
        return {"concepts": [], "concept_spans": []} if index % 5 == 2 else {}

    return with_shared_images(tiny.pairs(number, concepts=True).map(change, with_indices=True))


def with_shared_images(rows):
    """The rows as captions of seven images, so that a batch of eight holds several of one."""
    return rows.map(lambda row, index: {"image_id": f"tiny-{index % 7}"}, with_indices=True)


@functools.cache
def data(number: int = 20, concepts: bool = False):
    """Rows, of seven images, that lack a negative image, a caption or a rating here and there; some are cut."""

    def lengthen(row, index):
        return {"caption": " and ".join([row["caption"]] * 9)} if index % 6 == 1 else {}

    return with_shared_images(tiny.pairs(number, concepts=concepts).map(lengthen, with_indices=True))


@functools.cache
def data_with_equal_texts():
    """The rows of `data`, of which some have one caption, and some that caption as a negative."""

    def change(row, index):
        if index % 6 != 1 and index % 4 == 0:
            return {"caption": "a red cube on a table"}
        return (
            {"negative_captions": ["a red  cube on a table", *row["negative_captions"][1:]]} if index % 4 == 2 else {}
        )

    return data().map(change, with_indices=True)


def config(config_class: type, folder: Path, **settings: Any) -> Any:
    defaults = {
        "output_dir": str(folder / "out"),
        "per_device_train_batch_size": GLOBAL_BATCH // world_size(),
        "per_device_eval_batch_size": GLOBAL_BATCH // world_size(),
        "max_steps": STEPS,
        "learning_rate": 1e-3,
        # a larger epsilon: Adam turns gradients that are nothing but rounding into steps of full length
        "adam_epsilon": 1e-2,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "weight_decay": 0.0,
        # so high that nothing is clipped, which would hide a wrong factor; the norm is logged
        "max_grad_norm": 1e9,
        "logging_steps": 2,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "ddp_timeout": 60,
        "dataloader_pin_memory": False,
    }
    return config_class(**{**defaults, **settings})


def gradients_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        f"gradient/{name}": gather_whole(parameter.grad).clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def weights_of(model: torch.nn.Module, prefix: str = "weight") -> dict[str, torch.Tensor]:
    return {
        f"{prefix}/{name}": gather_whole(parameter.detach()).clone() for name, parameter in model.named_parameters()
    }


class Observer(TrainerCallback):
    """Keeps the gradients of the first step."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.gradients: dict[str, torch.Tensor] = {}

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        if state.global_step == 0:
            self.gradients = gradients_of(self.model)


def train(trainer: CompositionalTrainer) -> Found:
    """Weights before and after, gradients of the first step, and every line of the log."""
    observer = Observer(trainer.model)
    trainer.add_callback(observer)
    before = weights_of(trainer.model, "before")
    trainer.train()
    log = [
        {key: value for key, value in line.items() if not any(part in key for part in NOT_COMPARED)}
        for line in trainer.state.log_history
    ]
    trainable = [name for name, parameter in trainer.model.named_parameters() if parameter.requires_grad]
    tensors = {**before, **observer.gradients, **weights_of(trainer.model)}
    args = trainer.args
    adam = {"steps": trainer.state.global_step, "rate": args.learning_rate, "epsilon": args.adam_epsilon}
    split = [name for name, parameter in trainer.model.named_parameters() if is_split(parameter)]
    changed = trainer.state.log_history[-1].get("changed_weight_fraction")
    return tensors, {"log": log, "trainable": trainable, "adam": adam, "split": split, "changed": changed}


def trainer_of(
    trainer_class: type, model: Any, folder: Path, *, processor: Path | None = None, **settings: Any
) -> CompositionalTrainer:
    return trainer_class(
        model,
        config(trainer_class.config_class, folder, **settings),
        train_dataset=data_with_equal_texts(),
        processing_class=None if processor is None else AutoProcessor.from_pretrained(processor),
    )


# Training


@case
def info_nce(models: Path, folder: Path) -> Found:
    return train(trainer_of(InfoNCETrainer, models / "clip", folder))


@case
def info_nce_negatives(models: Path, folder: Path) -> Found:
    return train(trainer_of(InfoNCETrainer, models / "clip", folder, num_negatives=2))


def general_data(number: int = 14) -> Any:
    """Rows to replay, of which two show images of the task."""
    rows = data(number).select_columns(["image", "caption", "image_id"])
    return rows.map(lambda row, n: {"image_id": row["image_id"] if n < 2 else f"general-{n}"}, with_indices=True)


@case
def replay(models: Path, folder: Path) -> Found:
    """A third of each batch. Slots of negatives are drawn by the place of a row in the global batch."""
    settings = config(ReplacedNegativesTrainer.config_class, folder, num_negatives=2, replay_fraction=1 / 3)
    rows = {"train_dataset": data_with_equal_texts(), "replay_dataset": general_data()}
    return train(ReplacedNegativesTrainer(models / "clip", settings, **rows))


@case
def replay_streamed(models: Path, folder: Path) -> Found:
    dataset = data().to_iterable_dataset(num_shards=2)
    settings = config(InfoNCETrainer.config_class, folder, shuffle_buffer=5, random_crop=0.5, replay_fraction=0.5)
    return train(InfoNCETrainer(models / "clip", settings, train_dataset=dataset, replay_dataset=general_data()))


@case
def replay_groups(models: Path, folder: Path) -> Found:
    return train(clear_glass_run(models, folder, replay_fraction=0.5, replay_dataset=general_data()))


@case
def info_nce_siglip(models: Path, folder: Path) -> Found:
    return train(trainer_of(InfoNCETrainer, models / "siglip", folder))


@case
def info_nce_siglip2(models: Path, folder: Path) -> Found:
    """Without the column that says which rows show one image, in batches without equal captions."""
    settings = config(InfoNCETrainer.config_class, folder, no_duplicates=True)
    rows = data_with_equal_texts().remove_columns("image_id")
    return train(InfoNCETrainer(models / "siglip2", settings, train_dataset=rows))


@case
def cement(models: Path, folder: Path) -> Found:
    return train(trainer_of(CementTrainer, models / "clip", folder))


@case
def lone_negative(models: Path, folder: Path) -> Found:
    """One row has a negative pair: of the lines of single batches most have nothing to say of negatives."""
    empty = {"negative_captions": ["", ""], "negative_image": None}
    rows = data(16).map(lambda row, index: empty if index != 5 else {}, with_indices=True, features=data(16).features)
    settings = config(CementTrainer.config_class, folder, logging_steps=1)
    trainer = CementTrainer(str(models / "clip"), settings, train_dataset=rows.map(with_negative_image))
    return train(trainer)


def with_negative_image(row: dict[str, Any]) -> dict[str, Any]:
    """Another picture than the row's own: of two equal ones rounding would say which has the higher score."""
    return {"negative_image": ImageOps.invert(row["image"].convert("RGB"))} if row["negative_captions"][0] else {}


@case
def cement_siglip(models: Path, folder: Path) -> Found:
    return train(trainer_of(CementTrainer, models / "siglip", folder))


@case
def dcl(models: Path, folder: Path) -> Found:
    return train(trainer_of(DCLTrainer, models / "clip", folder, num_negatives=2))


@case
def hard_negatives(models: Path, folder: Path) -> Found:
    """As the paper trains: Adam with L2. Two batches to a step, each with its own slots."""
    adam = {"decoupled_weight_decay": False, "weight_decay": 0.1, "gradient_accumulation_steps": 2}
    return train(trainer_of(ReplacedNegativesTrainer, models / "clip", folder, num_negatives=2, **adam))


@case
def ce_clip(models: Path, folder: Path) -> Found:
    trainer = trainer_of(CEClipTrainer, models / "clip", folder, num_negatives=2)
    tensors, facts = train(trainer)
    trainer.save_model(str(folder / "saved"))
    return tensors | {"threshold": trainer.model.objective_state["threshold"]()}, facts


@case
def ahnpl(models: Path, folder: Path) -> Found:
    """With the frozen source, whose features the processes make together."""
    encoded: list[str] = []
    encode = FrozenText.encode
    FrozenText.encode = lambda self, texts: encoded.extend(texts) or encode(self, texts)
    try:
        tensors, facts = ahnpl_run(models, folder)
    finally:
        FrozenText.encode = encode
    (path,) = (folder / "out" / reference_text.FOLDER).iterdir()
    tensors["features"] = torch.from_numpy(np.load(path))
    return tensors, facts | {"encoded": len(encoded)}


@case
def ahnpl_live(models: Path, folder: Path) -> Found:
    return ahnpl_run(models, folder, shift_source="live", shift_gradient=True, gradient_accumulation_steps=2)


def ahnpl_run(models: Path, folder: Path, **settings: Any) -> Found:
    trainer = trainer_of(AHNPLTrainer, models / "clip", folder, margin_start=0.9, **settings)
    tensors, facts = train(trainer)
    trainer.save_model(str(folder / "saved"))
    return tensors | {"threshold": trainer.model.objective_state["threshold"]()}, facts


@case
def ahnpl_without_disk(models: Path, folder: Path) -> Found:
    """The process that writes fails at it; the others must not wait for it for ever."""
    trainer = trainer_of(AHNPLTrainer, models / "clip", folder, margin_start=0.9)

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    replace, os.replace = os.replace, full
    try:
        trainer.train()
        error = "none"
    except OSError as exception:
        error = str(exception)
    finally:
        os.replace = replace
    return {}, {"error": error}


@case
def streamed(models: Path, folder: Path) -> Found:
    """A set of 20 rows in two shards, read by both processes: four batches of it take a second pass."""
    dataset = data().to_iterable_dataset(num_shards=2)
    settings = config(InfoNCETrainer.config_class, folder, shuffle_buffer=5, random_crop=0.5)
    return train(InfoNCETrainer(models / "clip", settings, train_dataset=dataset))


@case
def streamed_resumed(models: Path, folder: Path) -> Found:
    """From the midst of the first pass and of the second, through a buffer, with hard negatives of Parquet files."""
    source = folder / f"rows-{rank()}"
    for shard in range(2):
        data().shard(2, shard).to_parquet(str(source / "data" / f"train-{shard:05}-of-00002.parquet"))

    def run(first: int = 0) -> tuple[Any, list[list[int]]]:
        settings = {"save_strategy": "steps", "save_steps": 1, "shuffle_buffer": 5, "num_negatives": 2}
        args = config(InfoNCETrainer.config_class, folder, random_crop=0.5, **settings)
        trainer = InfoNCETrainer(models / "clip", args, train_dataset=load_training_stream(str(source)))
        seen: list[list[int]] = []
        encode = trainer.gather_features

        def record(model: Any, inputs: dict[str, Any]) -> Any:
            own = torch.cat([inputs["row"], inputs["input_ids"].sum(1), inputs["negative_input_ids"].sum()[None]])
            seen.append(gather(own, sizes=[len(own)] * world_size())[0].tolist())
            return encode(model, inputs)

        trainer.gather_features = record
        trainer.train(resume_from_checkpoint=str(folder / "out" / f"checkpoint-{first}") if first else None)
        return weights_of(trainer.model, f"from {first}"), seen

    runs = {first: run(first) for first in (0, 1, 3)}
    return {name: tensor for part, _ in runs.values() for name, tensor in part.items()}, {
        "seen": {str(first): seen for first, (_, seen) in runs.items()}
    }


def several_captions(row: dict[str, Any]) -> dict[str, Any]:
    """Three captions, each with a negative of its own."""
    captions = [row["caption"], f"red {row['caption']}", f"blue {row['caption']}"]
    return {"caption": captions, "negative_captions": [[f"no {caption}"] for caption in captions]}


def drawing_run(models: Path, folder: Path, **settings: Any) -> CompositionalTrainer:
    settings |= {"num_negatives": 1, "draw_captions": True, "random_crop": 0.5}
    args = config(InfoNCETrainer.config_class, folder, **settings)
    return InfoNCETrainer(models / "clip", args, train_dataset=data().map(several_captions))


@case
def drawn_captions(models: Path, folder: Path) -> Found:
    return train(drawing_run(models, folder))


@case
def drawn_captions_resumed(models: Path, folder: Path) -> Found:
    """From the midst of the second epoch, which has two batches."""
    settings = {"save_strategy": "steps", "save_steps": 3}
    whole = drawing_run(models, folder, **settings)
    whole.train()
    resumed = drawing_run(models, folder, **settings)
    starts: list[list[int]] = []
    encode = resumed.gather_features

    def record(model: Any, inputs: dict[str, Any]) -> Any:
        own = inputs["input_ids"][:, :4].sum(1)  # of words that only one caption of a row begins with
        starts.append(gather(own, sizes=[len(own)] * world_size())[0].tolist())
        return encode(model, inputs)

    resumed.gather_features = record
    resumed.train(resume_from_checkpoint=str(folder / "out" / "checkpoint-3"))
    return weights_of(whole.model, "whole") | weights_of(resumed.model, "resumed"), {"starts": starts}


@case
def triplet_clip(models: Path, folder: Path) -> Found:
    return train(trainer_of(TripletClipTrainer, models / "clip", folder))


def c2lip_run(model: Path, folder: Path, **settings: Any) -> Found:
    """Trained and evaluated on a set whose last batch ends within the rows of the first process."""
    trainer = C2LIPTrainer(
        model,
        config(C2LIPTrainer.config_class, folder, eval_strategy="steps", eval_steps=2, max_concepts=2, **settings),
        train_dataset=concept_data(),
        eval_dataset=concept_data(17),
    )
    return train(trainer)


@case
def c2lip(models: Path, folder: Path) -> Found:
    return c2lip_run(models / "siglip", folder, cross_attended_weight=1.0)


@case
def c2lip_tokens(models: Path, folder: Path) -> Found:
    """Mini-batches on several processes only."""
    size = 3 if world_size() > 1 else None
    settings = {"concept_source": "tokens", "mini_batch_size": size}
    return c2lip_run(models / "siglip2", folder, cross_attended_weight=1.0, **settings)


@case
def c2lip_clip(models: Path, folder: Path) -> Found:
    settings = {"concept_source": "tokens", "attention_temperature": 0.1}
    return c2lip_run(models / "clip", folder, cross_attended_weight=1.0, **settings)


def clear_glass_run(models: Path, folder: Path, replay_dataset: Any = None, **settings: Any) -> CompositionalTrainer:
    """Two groups of four, of which a process of two holds one; a group of two rows is filled up by repeats."""
    return ClearGlassTrainer(
        models / "clip",
        replay_dataset=replay_dataset,
        args=config(ClearGlassTrainer.config_class, folder, pairs_per_group=GLOBAL_BATCH // 2, **settings),
        train_dataset=add_groups(data()),
        eval_dataset=data(11),
    )


@case
def clear_glass(models: Path, folder: Path) -> Found:
    return train(clear_glass_run(models, folder, eval_strategy="steps", eval_steps=2))


@case
def clear_glass_centroid(models: Path, folder: Path) -> Found:
    return train(clear_glass_run(models, folder, grouping="centroid", gradient_accumulation_steps=2))


@case
def clear_glass_pairs(models: Path, folder: Path) -> Found:
    return train(clear_glass_run(models, folder, grouping="none"))


@case
def clear_glass_resumed(models: Path, folder: Path) -> Found:
    """From the midst of the second epoch, which has six batches."""
    settings = {"max_steps": 10, "save_strategy": "steps", "save_steps": 8}
    whole = clear_glass_run(models, folder, **settings)
    whole.train()
    resumed = clear_glass_run(models, folder, **settings)
    rows: list[list[int]] = []
    encode = resumed.gather_features
    resumed.gather_features = lambda model, inputs: rows.append(inputs["row"].tolist()) or encode(model, inputs)
    resumed.train(resume_from_checkpoint=str(folder / "out" / "checkpoint-8"))
    return weights_of(whole.model, "whole") | weights_of(resumed.model, "resumed"), {"rows": rows}


@case
def three_groups(models: Path, folder: Path) -> Found:
    try:
        clear_glass_run(models, folder, groups_per_batch=3, per_device_train_batch_size=0)
        error = "none"
    except ValueError as exception:
        error = str(exception)
    return {}, {"error": error}


@case
def hierarcaps(models: Path, folder: Path) -> Found:
    rows = add_groups(data()).map(lambda row: {"level_4": row["group"]})
    settings = {"chain_columns": ["level_4", "generalized_caption", "caption"]}
    trainer = HierarCapsTrainer(
        str(models / "clip"),
        config(HierarCapsTrainer.config_class, folder, **settings),
        train_dataset=rows,
        processing_class=AutoProcessor.from_pretrained(models / "clip"),
    )
    return train(trainer)


@case
def text_alignment(models: Path, folder: Path) -> Found:
    backbone = AutoModel.from_pretrained(models / "clip")
    # the scale that the tiny model has is nearly the best one: little but rounding is left of its gradient
    backbone.logit_scale.data.fill_(3.5)
    evaluated = {"eval_strategy": "steps", "eval_steps": 2}
    texts = {"aligned_with": ["generalized_caption", "group"], "allow_levels": True}
    trainer = TextAlignmentTrainer(
        backbone,
        config(TextAlignmentTrainer.config_class, folder, **texts, **evaluated),
        train_dataset=add_groups(data()),
        eval_dataset=add_groups(data(11)),
        processing_class=AutoProcessor.from_pretrained(models / "clip"),
    )
    return train(trainer)


@case
def mini_batches(models: Path, folder: Path) -> Found:
    # cut unevenly: 3 divides neither the images of a process nor its texts
    return train(trainer_of(CementTrainer, models / "clip", folder, mini_batch_size=3 if world_size() > 1 else None))


@case
def after_evaluation(models: Path, folder: Path) -> Found:
    """transformers marks a model that it evaluates as prepared, and accelerate leaves such a one without DDP."""
    trainer = trainer_of(CementTrainer, models / "clip", folder)
    trainer.evaluate(data(8))
    return train(trainer)


@case
def accumulation(models: Path, folder: Path) -> Found:
    return train(trainer_of(CementTrainer, models / "clip", folder, gradient_accumulation_steps=2, max_steps=4))


@case
def frozen_images(models: Path, folder: Path) -> Found:
    return train(trainer_of(CementTrainer, models / "clip", folder, freeze_towers=["image"]))


@case
def frozen_by_hand(models: Path, folder: Path) -> Found:
    backbone = AutoModel.from_pretrained(models / "siglip")
    for name, parameter in backbone.named_parameters():
        parameter.requires_grad_("vision_model" in name)
    return train(trainer_of(InfoNCETrainer, backbone, folder, processor=models / "siglip"))


@case
def adapted(models: Path, folder: Path) -> Found:
    settings = {"peft": "dora", "lora_rank": 2, "mini_batch_size": 3, "weight_average_decay": 0.5}
    trainer = trainer_of(CementTrainer, models / "clip", folder, **settings)
    outcome = train(trainer)
    trainer.save_model(str(folder / "saved"))
    return outcome


@case
def adapted_pooling(models: Path, folder: Path) -> Found:
    settings = {"peft": "lora", "lora_targets": ["attention", "pooling"], "freeze_towers": ["text"]}
    return train(trainer_of(InfoNCETrainer, models / "siglip", folder, **settings))


@case
def own_objective(models: Path, folder: Path) -> Found:
    trainer = trainer_of(OwnTrainer, models / "clip", folder, num_negatives=2)
    outcome = train(trainer)
    trainer.save_model(str(folder / "saved"))
    return outcome


# Evaluation


@case
def evaluation(models: Path, folder: Path) -> Found:
    """In the midst of training, on sets that end in a ragged batch, in one row, and within the first batch."""
    seen: list[tuple[np.ndarray, ...]] = []

    def metrics(prediction):
        seen.append(prediction.predictions)
        return embedding_metrics(prediction) | {"rows": len(prediction.predictions[0])}

    trainer = InfoNCETrainer(
        models / "clip",
        config(InfoNCETrainer.config_class, folder, num_negatives=2, max_steps=2, eval_strategy="steps", eval_steps=1),
        train_dataset=data(),
        eval_dataset={str(number): data(number) for number in EVALUATED},
        compute_metrics=metrics,
    )
    tensors, facts = train(trainer)
    for number, predictions in zip(EVALUATED, seen[-len(EVALUATED) :], strict=True):
        tensors |= {f"{number}/{index}": torch.from_numpy(part) for index, part in enumerate(predictions)}
    rows = trainer.get_eval_dataloader(data(EVALUATED[0])).dataset
    inputs = trainer.data_collator([rows[index] for index in range(len(rows))])
    model = trainer.whole_model().eval()
    with torch.no_grad():
        tensors["image"] = encode_images(model.backbone, model.normalize_pixels(inputs["pixels"].pixels))
        tensors["text"] = encode_texts(model.backbone, inputs["input_ids"])
    return tensors, facts


@case
def benchmarks(models: Path, folder: Path) -> Found:
    """The best checkpoint by a benchmark, scored in batches of three before training and after each of two steps."""
    root = small_sugarcrepe.write(folder / f"data-{rank()}")
    made: list[Embedder] = []

    def embedder(*args: Any, **settings: Any) -> Embedder:
        made.append(Embedder(*args, **settings))
        return made[-1]

    key = "eval_sugarcrepe_caption_choice"
    chosen = {"load_best_model_at_end": True, "metric_for_best_model": key, "save_strategy": "best"}
    trainer = trainer_of(InfoNCETrainer, models / "clip", folder, max_steps=2, **chosen)
    callback.Embedder = embedder
    try:
        settings = {"folders": root, "steps": 1, "batch_size": 3, "save_items": True, "details": True}
        trainer.add_callback(callback.EvaluateBenchmarks(trainer, ["sugarcrepe"], **settings))
        tensors, facts = train(trainer)
    finally:
        callback.Embedder = Embedder
    state = trainer.state
    facts["best"] = [state.best_metric, state.best_global_step, Path(state.best_model_checkpoint).name]
    facts["encoded"] = [
        sum(embedder.encoded_images for embedder in made),
        sum(embedder.encoded_texts for embedder in made),
    ]
    return tensors, facts | {"written": sorted(path.name for path in (folder / "out").glob("*.parquet"))}


# Errors


class BrokenTrainer(InfoNCETrainer):
    """The part of the last process is NaN in one step."""

    batches: list[list[int]]

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        self.batches.append(inputs["row"].tolist())
        f = self.gather_features(model, inputs)
        loss, metrics = info_nce_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale, rows=f.rows)
        if self.state.global_step == NAN_STEP - 1 and rank() == world_size() - 1:
            loss = loss * torch.nan
        return self.reduce_loss(loss, metrics, f, return_outputs)


def broken(models: Path, folder: Path, **settings: Any) -> Found:
    trainer = trainer_of(BrokenTrainer, models / "clip", folder, **settings)
    trainer.batches = []
    try:
        trainer.train()
        error = "none"
    except FloatingPointError as exception:
        error = str(exception)
    return {}, {"error": error, "batches": trainer.batches, "steps": trainer.state.global_step}


@case
def nan_when_logging(models: Path, folder: Path) -> Found:
    return broken(models, folder, save_strategy="steps", save_steps=2, logging_steps=1)


@case
def nan_when_saving(models: Path, folder: Path) -> Found:
    return broken(models, folder, save_strategy="steps", save_steps=2, logging_steps=50)


@case
def nan_at_the_end(models: Path, folder: Path) -> Found:
    return broken(models, folder, logging_steps=50)


@case
def ragged_training(models: Path, folder: Path) -> Found:
    trainer = trainer_of(InfoNCETrainer, models / "clip", folder, dataloader_drop_last=False)
    try:
        trainer.train()
        error = "none"
    except ValueError as exception:
        error = str(exception)
    return {}, {"error": error, "steps": trainer.state.global_step}


# Uneven batches, and the collectives alone


class ConceptTrainer(CompositionalTrainer):
    """Every field that is gathered has a part in the loss, and the owners point to their images."""

    required_features = (
        "image_embeds",
        "text_embeds",
        "negative_image_embeds",
        "negative_text_embeds",
        "negative_image_mask",
        "negative_text_mask",
        "negative_kind",
        "negative_concreteness",
        "concept_embeds",
        "concept_image_index",
        "logit_scale",
        "learned",
    )

    def objective_state(self, args):
        return {"offset": Offset()}

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        f = self.gather_features(model, inputs)
        logits = f.logit_scale * f.image_embeds[f.rows] @ f.concept_embeds.T + f.learned["offset"]
        own = f.concept_image_index == torch.arange(len(f.image_embeds))[f.rows].unsqueeze(1)
        concepts = F.softplus(torch.where(own, -logits, logits)) * (f.concept_image_index >= 0)
        loss, metrics = cement_loss(
            f.image_embeds,
            f.text_embeds,
            f.negative_image_embeds,
            f.negative_text_embeds[:, 0],
            logit_scale=f.logit_scale,
            margin=f.negative_concreteness[:, 0].nan_to_num() / 4 + f.negative_kind[:, 0] / 8,
            negative_image_mask=f.negative_image_mask,
            negative_text_mask=f.negative_text_mask[:, 0],
            rows=f.rows,
        )
        return self.reduce_loss(loss + concepts.sum() / (f.concept_image_index >= 0).sum(), metrics, f, return_outputs)


@case
def uneven(models: Path, folder: Path) -> Found:
    """3, 3 and 2 rows of one batch of 8 on three processes."""
    trainer = ConceptTrainer(
        models / "clip",
        config(ConceptTrainer.config_class, folder, num_negatives=1, max_concepts=2, dataloader_drop_last=False),
        train_dataset=data(concepts=True),
    )
    return one_batch(trainer)


@case
def uneven_concepts(models: Path, folder: Path) -> Found:
    """The same sizes; the last of several processes has images without a concept only."""
    settings = {"concept_source": "tokens", "cross_attended_weight": 1.0, "max_concepts": 2}
    trainer = C2LIPTrainer(
        models / "siglip",
        config(C2LIPTrainer.config_class, folder, dataloader_drop_last=False, **settings),
        train_dataset=concept_data(8, cut_from=4),
    )
    return one_batch(trainer)


def one_batch(trainer: CompositionalTrainer) -> Found:
    """The gathered features of rows 0 to 7, their loss and its gradients."""
    encode, seen = trainer.gather_features, []
    trainer.gather_features = lambda *inputs: seen.append(encode(*inputs)) or seen[-1]
    sizes = shares(GLOBAL_BATCH, world_size())
    start = sum(sizes[: rank()])
    inputs = trainer.data_collator([trainer.train_dataset[index] for index in range(start, start + sizes[rank()])])
    model = trainer.accelerator.prepare(trainer.model.train())
    loss = trainer.compute_loss(model, inputs)
    loss.backward()
    (features,) = seen
    fields = {f"field/{name}": value.detach() for name, value in features.items() if isinstance(value, torch.Tensor)}
    trainer.log({"loss": 0.0})
    log = {key: value for key, value in trainer.state.log_history[0].items() if key != "epoch"}
    facts = {"rows": [features.rows.start, features.rows.stop], "wrapped": type(model).__name__, "log": log}
    return {"loss": loss.detach(), **fields, **gradients_of(trainer.model)}, facts


def leaves() -> dict[str, torch.Tensor]:
    """Random embeddings, margins and scalars of a batch of 7, in float64."""
    generator = torch.Generator().manual_seed(0)

    def unit(*shape):
        return F.normalize(torch.randn(*shape, 16, generator=generator, dtype=torch.float64), dim=-1)

    sizes = {"image": (7,), "text": (7,), "negative_image": (7,), "negative_text": (7, 2)}
    tensors = {name: unit(*size) for name, size in sizes.items()}
    tensors["margin"] = torch.randn(7, generator=generator, dtype=torch.float64)
    tensors["scale"] = torch.tensor(7.0, dtype=torch.float64)
    tensors["bias"] = torch.tensor(-3.0, dtype=torch.float64)
    return {name: value.requires_grad_() for name, value in tensors.items()}


MASKS = {
    "negative_image_mask": torch.tensor([True, False, True, True, True, False, True]),
    "negative_text_mask": torch.tensor([[True, True]] * 3 + [[False, True]] + [[True, False]] * 3),
}


def loss_of(name: str, f: dict[str, torch.Tensor], rows: slice | None) -> torch.Tensor:
    if name == "info_nce":
        negatives = {"negative_text": f["negative_text"], "negative_mask": f["negative_text_mask"]}
        return info_nce_loss(f["image"], f["text"], logit_scale=f["scale"], **negatives, rows=rows)[0]
    if name == "sigmoid":
        return sigmoid_loss(f["image"], f["text"], logit_scale=f["scale"], logit_bias=f["bias"], rows=rows)[0]
    if name == "joint":
        # autograd hands one and the same gradient to both terms of a sum
        joint = (f["image"] + f["text"])[slice(None) if rows is None else rows]
        return F.softplus(f["scale"] * joint @ f["negative_image"].T).sum() / len(f["image"])
    if name in ("dcl", "hard_negatives", "ce_clip", "ahnpl"):
        return loss_with_negative_texts(name, f, rows)
    negatives = [f["negative_image"], f["negative_text"][:, 0]]
    masks = {"negative_image_mask": f["negative_image_mask"], "negative_text_mask": f["negative_text_mask"][:, 0]}
    scale, margin = f["scale"], f["margin"]
    if name == "triplet_clip":
        return triplet_clip_loss(f["image"], f["text"], *negatives, logit_scale=scale, **masks, rows=rows)[0]
    return cement_loss(f["image"], f["text"], *negatives, logit_scale=scale, margin=margin, **masks, rows=rows)[0]


def loss_with_negative_texts(name: str, f: dict[str, torch.Tensor], rows: slice | None) -> torch.Tensor:
    texts, mask = (f["image"], f["text"], f["negative_text"]), f["negative_text_mask"]
    settings = {"logit_scale": f["scale"], "rows": rows}
    if name == "dcl":
        return dcl_loss(*texts[:2], negative_text=texts[2], negative_mask=mask, **settings)[0]
    if name == "hard_negatives":
        slots = draw_slots(*mask.shape, seed=(0,)).masked_fill(~mask, -1)
        return replaced_negative_loss(*texts, slots=slots, **settings)[0]
    settings |= {"threshold": torch.tensor([0.0, 0.1, 0.2]).double()}
    kinds = {"negative_kind": torch.arange(14).view(7, 2) % 3, "negative_mask": mask}
    if name == "ahnpl":
        margin = f["margin"].mean()
        return ahnpl_loss(*texts[:2], perturb_image(*texts), texts[2], margin=margin, **kinds, **settings)[0]
    return ce_clip_loss(*texts, **kinds, **settings)[0]


@case
def rows_and_whole(models: Path, folder: Path) -> Found:
    """The losses alone, as the trainer calls them; gradients are those of this process, before DDP's mean."""
    shared = ("margin", "scale", "bias")
    sizes = shares(7, world_size())
    start = sum(sizes[: rank()])
    part = slice(start, start + sizes[rank()])
    tensors, facts = {}, {"sizes": gather_sizes(sizes[rank()], torch.device("cpu"))}
    for name in LOSSES:
        full = leaves()
        local = [value[part] for key, value in full.items() if key not in shared]
        names = [key for key in full if key not in shared]
        f = {key: full[key] for key in shared}
        f |= zip(names, gather_with_grad(*local, sizes=sizes), strict=True)
        f |= zip(MASKS, gather(*(mask[part] for mask in MASKS.values()), sizes=sizes), strict=True)
        loss = sum_loss(loss_of(name, f, part))
        loss.backward()
        tensors[f"{name}/loss"] = loss.detach()
        tensors |= {f"{name}/{key}": torch.zeros_like(x) if x.grad is None else x.grad for key, x in full.items()}
    return tensors, facts


@case
def embeddings(models: Path, folder: Path) -> Found:
    """Seven images and eleven texts in batches of two: cold, with a part of them cached by one process, and warm."""
    pictures = [tiny.image(seed, (40 + seed, 50)) for seed in (0, 1, 2, 1, 3, 4, 5, 6)]
    texts = [text[: 10 + 3 * number] for number, text in enumerate(tiny.captions()[:11])]
    if rank() == 0:
        part = Embedder(models / "siglip", device="cpu", batch_size=2, cache=EmbeddingCache(folder / "part"))
        part.images(pictures[:3]), part.texts(texts[:5])
    caches = {"cold": None, "part": folder / "part", "warm": folder / "part"}
    tensors, counts = {}, {}
    for name, cache in caches.items():
        kept = None if cache is None else EmbeddingCache(cache)
        embedder = Embedder(models / "siglip", device="cpu", batch_size=2, cache=kept, split=True)
        tensors[f"{name}/images"] = torch.from_numpy(embedder.images(pictures))
        tensors[f"{name}/texts"] = torch.from_numpy(embedder.texts(texts).vectors)
        counts[name] = [embedder.encoded_images, embedder.encoded_texts]
    embedder = Embedder(models / "clip", device="cpu", batch_size=1, split=True)
    try:
        embedder.images([*pictures, b"none"])
        failure = ""
    except (RuntimeError, ValueError) as error:
        failure = str(error)
    return tensors, {"encoded": counts, "failure": failure}


def family_case(name: str, models: Path, folder: Path) -> Found:
    """Two steps of a family with negatives and negative images, in mini-batches on several processes only."""
    size = 3 if world_size() > 1 else None
    trainer = trainer_of(CementTrainer, models / name, folder, mini_batch_size=size, max_steps=2)
    backbone = trainer.model.backbone
    # without the noise of dropout and of GroupViT's groups, which every process draws for itself
    backbone.eval()
    backbone.train = lambda mode=True: backbone
    return train(trainer)


@case
def naflex(models: Path, folder: Path) -> Found:
    """With several tensors per image."""
    return family_case("naflex", models, folder)
