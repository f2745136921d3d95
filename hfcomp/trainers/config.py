"""`CompositionalConfig`: the arguments of every trainer of hfcomp."""

from __future__ import annotations

import math
import operator
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from numbers import Real
from typing import Any

import torch
from transformers import TrainingArguments

from hfcomp.data.images import MAX_IMAGE_PIXELS
from hfcomp.data.sampling.replay import count_replay_rows
from hfcomp.data.urls import DEFAULT_TIMEOUT, UrlAccess
from hfcomp.trainers._support.fsdp_checks import check_loading
from hfcomp.trainers._support.model_setup import check_adapter_fields, check_attention
from hfcomp.trainers._support.transformers_internals import JSON_FIELDS
from hfcomp.trainers.trackers import check_trackers
from hfcomp.trainers.weight_average import WeightAverage

TORCH_ADAMW = ("adamw_torch", "adamw_torch_fused")
OPTIMIZATION = (
    *("num_train_epochs", "learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay"),
    *("decoupled_weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
)
"""Fields whose defaults each objective's config may set; controls take the values of the method."""
SOURCE = "source"
"""In a field's metadata: where its default is from."""
LIMITS = "limits"
"""In a field's metadata: its `Limits`."""
NEGCLIP = "NegCLIP's released code (Yuksekgonul et al. 2023)"
COMPARISONS = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "above"),
    "le": (operator.le, "at most"),
    "lt": (operator.lt, "below"),
}


@dataclass(frozen=True)
class Limits:
    """Bounds of a number, which a config checks, and a recipe as soon as it is read."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    unset: float | None = None  # a number outside of them that stands for none
    advice: str = ""  # the end of an error, with its punctuation

    def expected(self, value: float | None) -> str:
        """What was expected in place of a value, empty for one that is allowed."""
        if value == self.unset and self.unset is not None:
            return ""
        if not isinstance(value, Real):
            return "a number" + self.advice
        bounds = {name: bound for name in COMPARISONS if (bound := getattr(self, name)) is not None}
        # A NaN is outside: no comparison holds for it.
        if all(COMPARISONS[name][0](value, bound) for name, bound in bounds.items()):
            return ""
        words = [f"{COMPARISONS[name][1]} {bound:g}" for name, bound in bounds.items() if bound != math.inf]
        return " and ".join([*words, *(["finite"] if self.lt == math.inf else [])]) + self.advice


COUNT, SIZE = Limits(ge=0), Limits(ge=1)
WEIGHT = Limits(ge=0, lt=math.inf, advice="; 0 switches the term off")  # of a term of an objective
TEMPERATURE = Limits(gt=0, lt=math.inf, advice=" (cosine)")
# transformers' own fields, whose types allow values that mean nothing. Only recipes check them: in Python, a config
# takes what `TrainingArguments` takes.
INHERITED_LIMITS = {
    **dict.fromkeys(("dataloader_num_workers", "seed", "num_train_epochs", "warmup_steps"), COUNT),
    **dict.fromkeys(("learning_rate", "weight_decay", "max_grad_norm"), COUNT),
    "gradient_accumulation_steps": SIZE,
    "max_steps": Limits(ge=1, unset=-1, advice=", or -1 for the epochs of num_train_epochs"),
}


def option(value: Any, help: str, source: str | None = None, limits: Limits | None = None) -> Any:
    """A field with its default and help, the source of the default if a paper or its code gives it, and its limits."""
    metadata = {"help": help, **({SOURCE: source} if source else {}), **({LIMITS: limits} if limits else {})}
    if isinstance(value, list):
        return field(default_factory=lambda: [*value], metadata=metadata)
    return field(default=value, metadata=metadata)


def setting(value: Any, source: str) -> Any:
    """A field of transformers with another default, whose help says where the value is from."""
    return option(value, f"Default {value}: {source}.", source)


@dataclass
class CompositionalConfig(TrainingArguments):
    """Arguments of every trainer of hfcomp: transformers' `TrainingArguments` and what a contrastive batch needs.

    The optimizer's defaults are for fine-tuning a pretrained CLIP with hard negatives: NegCLIP's, where no paper of
    the objective gives others; the help of each field says where its value is from. transformers' own, 5e-5 without
    warm-up, make a CLIP forget. Further defaults that differ from transformers': `dataloader_drop_last=True` (a
    smaller last batch has other negatives), `remove_unused_columns=False`, `logging_steps=10`,
    `logging_nan_inf_filter=False` (a NaN stops the run instead of being hidden), `ddp_find_unused_parameters=False`
    (parameters that the objective does not use are frozen).
    """

    num_train_epochs: float = setting(5.0, NEGCLIP)
    learning_rate: float = setting(1.0e-6, NEGCLIP)
    lr_scheduler_type: str = setting("cosine", NEGCLIP)
    warmup_steps: float = setting(50, NEGCLIP)
    weight_decay: float = setting(0.1, "ours; NegCLIP's code has 0.2")
    adam_beta2: float = setting(0.98, NEGCLIP)
    adam_epsilon: float = setting(1.0e-6, NEGCLIP)
    max_grad_norm: float = setting(0.0, f"no clipping, as {NEGCLIP}")
    mini_batch_size: int | None = option(
        None,
        "Images and texts encoded at a time, with their activations recomputed in backward: the same loss "
        "and gradient as the whole batch in a fraction of the memory. Gradient accumulation does not do "
        "this: it uses several small contrastive batches.",
        limits=Limits(ge=1, advice=", or leave mini_batch_size out"),
    )
    column_names: dict | str | None = option(
        None, 'Your names of columns, for example {"caption": "text"} (hfcomp\'s name first).'
    )
    draw_captions: bool = option(
        False,
        "If the column caption holds lists, draw one caption of each row in each epoch, the same on any number "
        "of processes. Negatives and concepts then have an entry for each caption.",
    )
    mask_equal_texts: bool = option(
        True,
        "Leave equal texts of a batch, but for upper case and white space, out of each other's negatives "
        "and count them. With false they are negatives, as in the code of most papers.",
    )
    no_duplicates: bool = option(
        False,
        "Draw batches in which no caption and no image (image_id) is twice, and no negative caption is "
        "the caption of another row. Rows that fit into no batch of an epoch are left out of it and counted; "
        "others are repeated in their places.",
    )
    replay_fraction: float = option(
        0.0,
        "Share r of replay rows in a batch: round(r N / (1 - r)) rows of replay_dataset join the N rows "
        "of the task, so 0.5 doubles the batch (docs/forgetting.md). The batch size stays N. 0: no replay.",
        limits=Limits(ge=0, lt=1, advice=", such as 0.5"),
    )
    num_negatives: int = option(0, "Negative captions read per row.", limits=COUNT)
    max_concepts: int = option(0, "Concepts read per image; further ones are counted.", limits=COUNT)
    max_image_pixels: int = option(
        MAX_IMAGE_PIXELS, "An image with more pixels is refused, naming its row.", limits=SIZE
    )
    allow_urls: bool = option(
        False, "Fetch images that the dataset names by URL (http, https, hf). Only for a set you trust."
    )
    url_timeout: float = option(DEFAULT_TIMEOUT, "Seconds to wait for one image with allow_urls.")
    pixel_cache: str | None = option(
        None,
        "Store of `hfcomp build pixels` that images are read from; one that it lacks is decoded and "
        "counted as uncached_images.",
    )
    reduced_jpeg: bool = option(
        False,
        "In training, decode JPEG files at 1/2, 1/4 or 1/8 of their size, as far as the shorter side "
        "stays as long as the model's. Faster for large photographs, but pixels differ "
        "(docs/input_pipeline.md). Evaluation always decodes in full.",
    )
    random_crop: float = option(
        1.0,
        "In training, crop each image at random, drawn in each epoch, and scale it back: the share of its "
        "area that is kept at least, such as 0.9 (docs/input_pipeline.md). 1: no crop. Evaluation never crops.",
        limits=Limits(gt=0, le=1, advice=", such as 0.9; 1 is no crop"),
    )
    max_logit_scale: float | None = option(
        None,
        "Clamp of the logit scale's multiplier after each step. Unset: 100 for CLIP and none for SigLIP; "
        "inf switches it off.",
        limits=Limits(ge=1, advice=", or inf for no clamp"),
    )
    decoupled_weight_decay: bool = option(
        True,
        "AdamW. With false Adam (Kingma and Ba 2015), whose weight decay is part of the gradient (L2); it "
        "needs optim adamw_torch or adamw_torch_fused.",
    )
    shuffle_buffer: int = option(
        2000,
        "Rows of a streamed training set, their images as files, among which the next one is drawn; each worker "
        "of each process holds that many. 1 keeps the order.",
        limits=Limits(ge=1, advice=", which keeps the order"),
    )
    peft: str | None = option(
        None,
        "Train an adapter on the frozen model: lora or dora (weight-decomposed LoRA). logit_scale, "
        "logit_bias and the objective's own state are trained with it, where the objective uses them.",
    )
    lora_rank: int = option(16, "Rank of the LoRA update.", limits=SIZE)
    lora_alpha: float | None = option(
        None,
        "Scale of the LoRA update, which counts lora_alpha / lora_rank times. Unset: twice the rank.",
        limits=Limits(gt=0, advice="; unset it is twice the rank"),
    )
    lora_dropout: float = option(0.0, "Dropout of the LoRA update's inputs.", limits=Limits(ge=0, lt=1))
    lora_targets: list[str] | None = option(
        None,
        "Modules that peft adapts, by default attention mlp (the encoders' layers). Also head (the "
        "projections), pooling (of SigLIP), ends of modules' names, or regular expressions.",
    )
    weight_average_decay: float | None = option(
        None,
        "Exponential moving average of the trained weights, such as 0.999: the final model is the "
        "average. Checkpoints hold the last weights and the average.",
    )
    weight_average_start: int = option(0, "First step of the weight average.")
    profile: bool = option(
        False,
        "Measure some steps: profile.md says what data, encode, loss, backward and optimizer take and how "
        "much of a GPU's arithmetic is used; profile_trace.json.gz is a trace of torch's profiler.",
    )
    attn_implementation: str | None = option(
        None,
        "Attention of the towers: sdpa, eager, or flash_attention_2, which has to be installed. Unset: as "
        "the model says, else sdpa.",
    )
    pad_to_multiple_of: int | None = option(
        None,
        "Pad CLIP's texts to the longest of the batch, rounded up to this multiple. Unset: 8 with "
        "torch_compile, which then meets few lengths, else 1.",
        limits=Limits(ge=1, advice=", or leave pad_to_multiple_of out"),
    )
    freeze_towers: list[str] | None = option(None, "Towers kept as they are: image, text.")
    dataloader_drop_last: bool = option(True, "Leave out the last, smaller batch of an epoch; its rows are counted.")
    remove_unused_columns: bool = option(False, "Kept for transformers; must stay false.")
    logging_nan_inf_filter: bool = option(False, "Kept for transformers; must stay false.")
    logging_steps: float = option(10, "Steps between two lines of the log.")
    ddp_find_unused_parameters: bool | None = option(False, "See the class.")

    # Name of a batch's rows, for the line at the start of a training.
    batch_unit = "pairs"
    # Whether the objective can read negative captions.
    reads_negatives = True
    # Whether one of several captions of a row can be drawn.
    draws_captions = True
    # Whether rows of a general set can join the batch. They cannot if the objective trains on texts only.
    replays = True
    # transformers reads these fields from JSON, which is how a command line gives them.
    _VALID_DICT_FIELDS = [*JSON_FIELDS, "column_names"]

    def __post_init__(self) -> None:
        if not torch.accelerator.is_available():
            half = [name for name in ("bf16", "fp16") if getattr(self, name)]
            if half and not self.use_cpu:
                raise ValueError(
                    f"{half[0]}=True, but no GPU is visible. "
                    "Check the driver and CUDA_VISIBLE_DEVICES (nvidia-smi lists the GPUs), or ask for the CPU: "
                    f"use_cpu=True (--use_cpu true), or {half[0]}=False (--{half[0]} false)."
                )
            # Otherwise accelerate treats each of several processes on a CPU as the only one.
            self.use_cpu = True
        if isinstance(self.fsdp, str) and self.fsdp.lower() in ("true", "false"):  # as other switches are written
            self.fsdp = self.fsdp.lower() == "true"
        super().__post_init__()
        for name, limits in own_limits(type(self)).items():
            value = getattr(self, name)
            if value is None and type(self).__dataclass_fields__[name].default is None:
                continue
            if expected := limits.expected(value):
                raise ValueError(f"{name}={value}: expected {expected}.")
        check_trackers(self.report_to)
        for name in ("remove_unused_columns", "logging_nan_inf_filter"):
            if getattr(self, name):
                raise ValueError(f"{name} must be false: the trainer needs all columns and must see a NaN.")
        if self.accelerator_config.dispatch_batches or not self.accelerator_config.even_batches:
            raise ValueError(
                "accelerator_config: dispatch_batches=True splits batches whose negatives are a flat list, and "
                "even_batches=False gives processes unequal numbers of batches. Keep the defaults."
            )
        self.accelerator_config.dispatch_batches = False  # every process reads a stream
        # A copy from pinned memory need not stop the host.
        self.accelerator_config.non_blocking = self.accelerator_config.non_blocking or self.dataloader_pin_memory
        UrlAccess(self.url_timeout)  # raises
        check_loading(self)
        if self.deepspeed:
            raise ValueError("deepspeed is not supported: checkpoints would hold shards. Use DDP or fsdp.")
        if self.reduced_jpeg and self.pixel_cache:
            raise ValueError(
                "reduced_jpeg=True with a pixel_cache: images that the store lacks would have other pixels. Set one."
            )
        if not self.decoupled_weight_decay and self.optim not in TORCH_ADAMW:
            raise ValueError(
                f"decoupled_weight_decay=False turns AdamW into Adam, but optim is {str(self.optim.value)!r}. Set "
                "optim "
                f"to {' or '.join(TORCH_ADAMW)}, or decoupled_weight_decay to true."
            )
        if self.draw_captions and self.train_sampling_strategy not in ("random", "sequential"):
            raise ValueError(
                f"train_sampling_strategy={str(self.train_sampling_strategy)!r} is not supported with draw_captions. "
                "Use 'random' or 'sequential'."
            )
        if self.draw_captions and not self.draws_captions:
            raise ValueError("draw_captions=True: the objective reads one caption of each row. Leave it out.")
        if self.num_negatives and not self.reads_negatives:
            raise ValueError(
                f"num_negatives={self.num_negatives}: the objective reads no negative captions of rows. Leave it out."
            )
        _check_replay(self)
        check_adapter_fields(self)
        check_attention(self.attn_implementation, half=self.bf16 or self.fp16)
        if self.weight_average_decay is not None:
            WeightAverage(self.weight_average_decay, self.weight_average_start)  # raises
        elif self.weight_average_start:
            raise ValueError(
                f"weight_average_start={self.weight_average_start}: no weights are averaged. Set weight_average_decay."
            )
        unknown = [tower for tower in self.freeze_towers or [] if tower not in ("image", "text")]
        if unknown:
            raise ValueError(f"freeze_towers names {unknown}; the towers are 'image' and 'text'.")

    def batch_notes(self) -> list[str]:
        """Further facts about a batch for the line at the start of training."""
        notes = [] if self.mini_batch_size is None else [f"encoded {self.mini_batch_size} at a time"]
        if number := count_replay_rows(self.replay_fraction, self.per_device_train_batch_size * self.world_size):
            notes.insert(0, f"{number} replay row{'s' if number > 1 else ''} beside them")
        if self.gradient_accumulation_steps > 1:
            notes.append(f"{self.gradient_accumulation_steps} such batches a step")
        return notes


def _check_replay(args: CompositionalConfig) -> None:
    """Checks the fields that go with `replay_fraction`."""
    if not args.replay_fraction:
        return
    start = f"replay_fraction={args.replay_fraction:g}"
    if not args.replays:
        raise ValueError(f"{start}: the objective trains no image-caption pairs, so it has no replay. Leave it out.")
    if args.no_duplicates:
        raise ValueError(
            f"{start} with no_duplicates=True: replay rows are drawn independently of the rows of the task. Leave "
            "no_duplicates out; rows of one image or, with mask_equal_texts, one text are no negatives of each other."
        )
    if not args.dataloader_drop_last:
        raise ValueError(
            f"{start} with dataloader_drop_last=False: only whole batches have replay rows. Set it to true."
        )


def seed_of_order(args: CompositionalConfig) -> int:
    """The seed of all draws of rows: `data_seed`, or `seed` where it is not set."""
    return args.data_seed if args.data_seed is not None else args.seed


def objective_fields(config_class: type) -> list[Field[Any]]:
    """The fields that an objective's config adds to those that all have, and those whose default has a source."""
    common = {one.name for one in fields(CompositionalConfig)}
    return [one for one in fields(config_class) if one.init and (one.name not in common or SOURCE in one.metadata)]


def field_limits(config_class: type) -> dict[str, Limits]:
    """Limits of a config's fields in a recipe, with those of transformers' own fields."""
    return INHERITED_LIMITS | own_limits(config_class)


def own_limits(config_class: type) -> dict[str, Limits]:
    """Limits of hfcomp's fields; one that a subclass declares again without limits keeps its parent's."""
    declared = [one for kind in reversed(config_class.__mro__) if is_dataclass(kind) for one in fields(kind)]
    return {one.name: one.metadata[LIMITS] for one in declared if LIMITS in one.metadata}


def default_sources(members: list[Field[Any]]) -> dict[str, str]:
    """Where the defaults of fields are from, as far as that is stated."""
    return {one.name: one.metadata[SOURCE] for one in members if SOURCE in one.metadata}


def field_default(member: Field[Any]) -> Any:
    return member.default if member.default_factory is MISSING else member.default_factory()
