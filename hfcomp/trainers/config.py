"""`CompositionalConfig`: the arguments shared by all hfcomp trainers."""

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
"""Metadata key for the source of a field's default."""
LIMITS = "limits"
"""Metadata key for a field's `Limits`."""
NEGCLIP = "NegCLIP's released code (Yuksekgonul et al. 2023)"
COMPARISONS = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "above"),
    "le": (operator.le, "at most"),
    "lt": (operator.lt, "below"),
}


@dataclass(frozen=True)
class Limits:
    """Bounds of a number. A config checks them, and a recipe does as soon as it is read."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    unset: float | None = None  # a value outside the bounds that means "not set"
    advice: str = ""  # the end of the error message, with its punctuation

    def describe_expected(self, value: float | None) -> str:
        """Describes what was expected instead of a value. Empty if the value is allowed."""
        if value == self.unset and self.unset is not None:
            return ""
        if not isinstance(value, Real):
            return "a number" + self.advice
        bounds = {name: bound for name in COMPARISONS if (bound := getattr(self, name)) is not None}
        # A NaN is out of bounds, because no comparison holds for it.
        if all(COMPARISONS[name][0](value, bound) for name, bound in bounds.items()):
            return ""
        words = [f"{COMPARISONS[name][1]} {bound:g}" for name, bound in bounds.items() if bound != math.inf]
        return " and ".join([*words, *(["finite"] if self.lt == math.inf else [])]) + self.advice


COUNT, SIZE = Limits(ge=0), Limits(ge=1)
WEIGHT = Limits(ge=0, lt=math.inf, advice="; 0 switches the term off")  # for a term of an objective
TEMPERATURE = Limits(gt=0, lt=math.inf, advice=" (cosine)")
# transformers' own fields, whose types allow meaningless values. Only recipes check them; in Python, a config accepts
# whatever `TrainingArguments` accepts.
INHERITED_LIMITS = {
    **dict.fromkeys(("dataloader_num_workers", "seed", "num_train_epochs", "warmup_steps"), COUNT),
    **dict.fromkeys(("learning_rate", "weight_decay", "max_grad_norm"), COUNT),
    "gradient_accumulation_steps": SIZE,
    "max_steps": Limits(ge=1, unset=-1, advice=", or -1 for the epochs of num_train_epochs"),
}


def option(value: Any, help: str, source: str | None = None, limits: Limits | None = None) -> Any:
    """Creates a field with its default, help and limits, and the source of the default if a paper or its code."""
    metadata = {"help": help, **({SOURCE: source} if source else {}), **({LIMITS: limits} if limits else {})}
    if isinstance(value, list):
        return field(default_factory=lambda: [*value], metadata=metadata)
    return field(default=value, metadata=metadata)


def setting(value: Any, source: str) -> Any:
    """Creates a transformers field with a different default, whose help names the source of the value."""
    return option(value, f"Default {value}: {source}.", source)


@dataclass
class CompositionalConfig(TrainingArguments):
    """Arguments of every hfcomp trainer: transformers' `TrainingArguments` plus what a contrastive batch needs.

    The optimizer defaults are meant for fine-tuning a pretrained CLIP with hard negatives. They are NegCLIP's unless
    the objective's paper gives others; the help of each field names the source of its value. transformers' own
    defaults (5e-5, no warm-up) make a CLIP forget. These defaults also differ from transformers:
    `dataloader_drop_last=True` (a smaller last batch would have different negatives), `remove_unused_columns=False`,
    `logging_steps=10`, `logging_nan_inf_filter=False` (a NaN stops the run instead of being hidden) and
    `ddp_find_unused_parameters=False` (parameters that the objective does not use are frozen).
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
        "Images and texts to encode at a time; activations are recomputed in the backward pass. Gives the same loss "
        "and gradient as the whole batch in a fraction of the memory. Gradient accumulation does not: it uses "
        "several small contrastive batches.",
        limits=Limits(ge=1, advice=", or omit mini_batch_size"),
    )
    column_names: dict | str | None = option(
        None, 'Column mapping from hfcomp\'s names to yours, for example {"caption": "text"}.'
    )
    draw_captions: bool = option(
        False,
        "If the caption column holds lists, sample one caption per row in each epoch, the same for any number of "
        "processes. Negatives and concepts then have one entry per caption.",
    )
    mask_equal_texts: bool = option(
        True,
        "Exclude equal texts in a batch (ignoring case and whitespace) from each other's negatives, and count them. "
        "If false, they are negatives, as in the code of most papers.",
    )
    no_duplicates: bool = option(
        False,
        "Build batches in which no caption or image (image_id) occurs twice and no negative caption is the caption "
        "of another row. Rows that do not fit into any batch of an epoch are left out of it and counted; other rows "
        "are repeated in their place.",
    )
    replay_fraction: float = option(
        0.0,
        "Share r of replay rows in a batch: round(r N / (1 - r)) rows of replay_dataset are added to the N task "
        "rows, so 0.5 doubles the batch (docs/forgetting.md). The batch size option still means N. 0 disables replay.",
        limits=Limits(ge=0, lt=1, advice=", such as 0.5"),
    )
    num_negatives: int = option(0, "Negative captions read per row.", limits=COUNT)
    max_concepts: int = option(0, "Concepts read per image; any others are only counted.", limits=COUNT)
    max_image_pixels: int = option(
        MAX_IMAGE_PIXELS, "Maximum pixels per image. A larger image raises an error that names its row.", limits=SIZE
    )
    allow_urls: bool = option(
        False, "Download images that the dataset references by URL (http, https, hf). Only for data you trust."
    )
    url_timeout: float = option(DEFAULT_TIMEOUT, "Download timeout per image in seconds, for allow_urls.")
    pixel_cache: str | None = option(
        None,
        "Pixel store built with `hfcomp build pixels` to read images from. An image missing from it is decoded and "
        "counted in uncached_images.",
    )
    reduced_jpeg: bool = option(
        False,
        "Decode JPEG files at 1/2, 1/4 or 1/8 of their size in training, as long as the shorter side is not shorter "
        "than the model's input. Faster for large photographs, but the pixels differ (docs/input_pipeline.md). "
        "Evaluation always decodes in full.",
    )
    random_crop: float = option(
        1.0,
        "Minimum share of an image's area that a random crop keeps, such as 0.9. In training, each image is cropped "
        "differently in each epoch and scaled back (docs/input_pipeline.md). 1 disables it. Evaluation never crops.",
        limits=Limits(gt=0, le=1, advice=", such as 0.9; 1 is no crop"),
    )
    max_logit_scale: float | None = option(
        None,
        "Upper limit of the logit scale's multiplier, applied after each step. Unset: 100 for CLIP, no limit for "
        "SigLIP. inf disables it.",
        limits=Limits(ge=1, advice=", or inf for no limit"),
    )
    decoupled_weight_decay: bool = option(
        True,
        "Use AdamW. If false, use Adam (Kingma and Ba 2015), whose weight decay is part of the gradient (L2); this "
        "requires optim adamw_torch or adamw_torch_fused.",
    )
    shuffle_buffer: int = option(
        2000,
        "Number of rows of a streamed training set, with images as encoded files, from which the next row is drawn. "
        "Each worker of each process holds this many. 1 keeps the order.",
        limits=Limits(ge=1, advice="; 1 keeps the order"),
    )
    peft: str | None = option(
        None,
        "Train an adapter on the frozen model: lora or dora (weight-decomposed LoRA). logit_scale, logit_bias and "
        "the objective's own state are trained as well, if the objective uses them.",
    )
    lora_rank: int = option(16, "Rank of the LoRA update.", limits=SIZE)
    lora_alpha: float | None = option(
        None,
        "Scale of the LoRA update, which is multiplied by lora_alpha / lora_rank. Unset: twice the rank.",
        limits=Limits(gt=0, advice="; leave it unset for twice the rank"),
    )
    lora_dropout: float = option(0.0, "Dropout on the inputs of the LoRA update.", limits=Limits(ge=0, lt=1))
    lora_targets: list[str] | None = option(
        None,
        "Modules to adapt with peft. Default: attention mlp (the encoders' layers). Others: head (the projections), "
        "pooling (SigLIP), suffixes of module names, or regular expressions.",
    )
    weight_average_decay: float | None = option(
        None,
        "Decay of an exponential moving average of the trained weights, such as 0.999. The final model is the "
        "average; checkpoints hold both the last weights and the average.",
    )
    weight_average_start: int = option(0, "First step of the weight average.")
    profile: bool = option(
        False,
        "Profile a few steps. profile.md reports the time for data, encode, loss, backward and optimizer, and the GPU "
        "utilization in arithmetic; profile_trace.json.gz is a PyTorch profiler trace.",
    )
    attn_implementation: str | None = option(
        None,
        "Attention implementation of the towers: sdpa, eager or flash_attention_2 (must be installed). Unset: the "
        "model's setting, otherwise sdpa.",
    )
    pad_to_multiple_of: int | None = option(
        None,
        "Pad CLIP texts to the longest one in the batch, rounded up to a multiple of this. Unset: 8 with "
        "torch_compile, so it sees few different lengths; otherwise 1.",
        limits=Limits(ge=1, advice=", or omit pad_to_multiple_of"),
    )
    freeze_towers: list[str] | None = option(None, "Towers to freeze: image, text.")
    dataloader_drop_last: bool = option(True, "Drop an epoch's last, smaller batch; its rows are counted.")
    remove_unused_columns: bool = option(False, "Inherited from transformers; must be false.")
    logging_nan_inf_filter: bool = option(False, "Inherited from transformers; must be false.")
    logging_steps: float = option(10, "Steps between log lines.")
    ddp_find_unused_parameters: bool | None = option(
        False, "Inherited from transformers. Parameters that the objective does not use are frozen."
    )

    if "train_sampling_strategy" not in TrainingArguments.__dataclass_fields__:  # before transformers 5.2
        train_sampling_strategy: str = option("random", "Order of the rows: random, sequential or group_by_length.")
    if TrainingArguments.trackio_space_id is not None:  # before transformers 5.6: a public Space
        trackio_space_id: str | None = option(None, "Space that Trackio sends its log to. Unset: none.")

    # What a batch consists of, for the line printed at the start of training.
    batch_unit = "pairs"
    # Whether the objective can read negative captions.
    reads_negatives = True
    # Whether one of a row's several captions can be sampled.
    draws_captions = True
    # Whether rows of a general dataset can join the batch. They cannot if the objective trains on texts only.
    replays = True
    # transformers reads these fields from JSON, the form in which a command line passes them.
    _VALID_DICT_FIELDS = [*JSON_FIELDS, "column_names"]

    def __post_init__(self) -> None:
        if not torch.accelerator.is_available():
            half = [name for name in ("bf16", "fp16") if getattr(self, name)]
            if half and not self.use_cpu:
                raise ValueError(
                    f"{half[0]}=True, but no GPU is visible. "
                    "Check the driver and CUDA_VISIBLE_DEVICES (nvidia-smi lists the GPUs), or use the CPU: "
                    f"use_cpu=True (--use_cpu true), or {half[0]}=False (--{half[0]} false)."
                )
            # Otherwise accelerate treats every process on a CPU as the only one.
            self.use_cpu = True
        if isinstance(self.fsdp, str) and self.fsdp.lower() in ("true", "false"):  # spelled like the other switches
            self.fsdp = self.fsdp.lower() == "true"
        super().__post_init__()
        if getattr(self, "group_by_length", False):  # its name before transformers 5.2
            self.train_sampling_strategy = "group_by_length"
        for name, limits in own_limits(type(self)).items():
            value = getattr(self, name)
            if value is None and type(self).__dataclass_fields__[name].default is None:
                continue
            if expected := limits.describe_expected(value):
                raise ValueError(f"{name}: found {value}, expected {expected}.")
        check_trackers(self.report_to)
        for name in ("remove_unused_columns", "logging_nan_inf_filter"):
            if getattr(self, name):
                raise ValueError(f"{name} must be false: the trainer needs all columns and must see NaN values.")
        if self.accelerator_config.dispatch_batches or not self.accelerator_config.even_batches:
            raise ValueError(
                "accelerator_config: dispatch_batches=True splits batches whose negatives are a flat list, and "
                "even_batches=False gives processes different numbers of batches. Keep the defaults."
            )
        self.accelerator_config.dispatch_batches = False  # every process reads a stream
        # A copy from pinned memory does not have to block the host.
        self.accelerator_config.non_blocking = self.accelerator_config.non_blocking or self.dataloader_pin_memory
        UrlAccess(self.url_timeout)  # raises
        check_loading(self)
        if self.deepspeed:
            raise ValueError("deepspeed is not supported: its checkpoints would be sharded. Use DDP or fsdp.")
        if self.reduced_jpeg and self.pixel_cache:
            raise ValueError(
                "reduced_jpeg=True with a pixel_cache: images missing from the store would get different pixels. Set "
                "one or the other."
            )
        if not self.decoupled_weight_decay and self.optim not in TORCH_ADAMW:
            raise ValueError(
                f"decoupled_weight_decay=False turns AdamW into Adam, but optim is {str(self.optim.value)!r}. Set "
                f"optim to {' or '.join(TORCH_ADAMW)}, or decoupled_weight_decay to true."
            )
        if self.draw_captions and self.train_sampling_strategy not in ("random", "sequential"):
            raise ValueError(
                f"train_sampling_strategy={str(self.train_sampling_strategy)!r} is not supported with draw_captions. "
                "Use 'random' or 'sequential'."
            )
        if self.draw_captions and not self.draws_captions:
            raise ValueError(
                "draw_captions=True has no effect: the objective reads a single caption per row. Remove draw_captions."
            )
        if self.num_negatives and not self.reads_negatives:
            raise ValueError(
                f"num_negatives={self.num_negatives} has no effect: the objective reads no negative captions. Remove "
                "num_negatives."
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
            raise ValueError(f"freeze_towers={unknown}: unknown tower. The towers are 'image' and 'text'.")

    def batch_notes(self) -> list[str]:
        """Notes about a batch for the line printed at the start of training."""
        notes = [] if self.mini_batch_size is None else [f"encoded {self.mini_batch_size} at a time"]
        if number := count_replay_rows(self.replay_fraction, self.per_device_train_batch_size * self.world_size):
            notes.insert(0, f"{number} replay row{'s' if number > 1 else ''} added")
        if self.gradient_accumulation_steps > 1:
            notes.append(f"{self.gradient_accumulation_steps} such batches per step")
        return notes


def _check_replay(args: CompositionalConfig) -> None:
    """Checks the fields that `replay_fraction` depends on."""
    if not args.replay_fraction:
        return
    start = f"replay_fraction={args.replay_fraction:g}"
    if not args.replays:
        raise ValueError(f"{start}: the objective does not train on image-caption pairs. Remove it.")
    if args.no_duplicates:
        raise ValueError(
            f"{start} with no_duplicates=True: replay rows are drawn independently of the task rows. Remove "
            "no_duplicates; rows with the same image or, with mask_equal_texts, the same text are never negatives "
            "of each other."
        )
    if not args.dataloader_drop_last:
        raise ValueError(
            f"{start} with dataloader_drop_last=False: only full batches get replay rows. Set it to true."
        )


def sampling_seed(args: CompositionalConfig) -> int:
    """Returns the seed for all sampling of rows: `data_seed`, or `seed` if it is not set."""
    return args.data_seed if args.data_seed is not None else args.seed


def objective_fields(config_class: type) -> list[Field[Any]]:
    """Returns the fields that an objective's config adds, and common fields whose default has a source."""
    common = {member.name for member in fields(CompositionalConfig)}
    return [
        member
        for member in fields(config_class)
        if member.init and (member.name not in common or SOURCE in member.metadata)
    ]


def field_limits(config_class: type) -> dict[str, Limits]:
    """Limits of a config's fields in a recipe, including transformers' own fields."""
    return INHERITED_LIMITS | own_limits(config_class)


def own_limits(config_class: type) -> dict[str, Limits]:
    """Limits of hfcomp's fields. A field that a subclass redeclares without limits keeps its parent's."""
    declared = [member for kind in reversed(config_class.__mro__) if is_dataclass(kind) for member in fields(kind)]
    return {member.name: member.metadata[LIMITS] for member in declared if LIMITS in member.metadata}


def default_sources(members: list[Field[Any]]) -> dict[str, str]:
    """Returns the sources of the fields' defaults, for the fields that state one."""
    return {member.name: member.metadata[SOURCE] for member in members if SOURCE in member.metadata}


def field_default(member: Field[Any]) -> Any:
    return member.default if member.default_factory is MISSING else member.default_factory()
