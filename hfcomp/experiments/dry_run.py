"""Dry run of a study: trains every kind of arm for a few steps and extrapolates the cost of the whole study.

It loads and checks everything that the study would, in a folder that is removed at the end. It does not score the
base: it only counts the items to encode and times a few of them.
"""

from __future__ import annotations

import json
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import TrainerCallback
from transformers.trainer_utils import has_length

from hfcomp.distributed import run_on_main_process
from hfcomp.evaluation.cells import distinct, image_key
from hfcomp.evaluation.encoding.embed import Embedder, Indexed
from hfcomp.evaluation.engine import embed
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.experiments.arm import Arm
from hfcomp.experiments.prepare import base_model
from hfcomp.experiments.recipes import Recipe
from hfcomp.experiments.session import Session
from hfcomp.experiments.study import Study, evaluation_scoring
from hfcomp.reporting.report import Report, Section, Table
from hfcomp.reporting.terminal import render_terminal
from hfcomp.run_folders import WantsMore
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.cost import Clock, PeakMemory, StageSummary, summarize_stage
from hfcomp.trainers.progress import format_duration, show_progress
from hfcomp.trainers.stages import stage_config, training_sets

# The first step, in which kernels and caches warm up, is not timed.
STEPS = 4
SHOWN = 2  # number of names listed for arms that cost the same
SAMPLE = {"images": 64, "texts": 256}
BRIEF = {"logging_steps": 1, "save_strategy": "no", "eval_strategy": "no", "report_to": "none"}
BYTES = 4  # bytes per weight, which is trained and saved in fp32
STATES = 2  # AdamW states per trained weight
ABOUT = (
    "Times hold for this machine; they are extrapolated from {steps} steps of each kind of run and from {images} "
    "images and {texts} texts. They do not include loading, statistics and fitting probes. Nothing was written."
)


@dataclass(frozen=True)
class Timing:
    """The cost of a kind of arm, measured in a few steps and extrapolated to the whole training."""

    cost: StageSummary
    step_seconds: float
    disk: int  # bytes of its model and of the checkpoints that are kept with it
    weights: int  # bytes of only the model
    names: list[str] = field(default_factory=list)  # names of the arms of this kind


@dataclass(frozen=True)
class Items:
    """Distinct images and texts that a model is scored on."""

    images: int
    texts: int


@dataclass
class DryRun(Study):
    """A study whose arms are timed instead of trained. It leaves no files behind."""

    wanted: Path = Path()  # folder that the study itself would use
    timings: dict[str, Timing] = field(default_factory=dict)
    items: dict[tuple[int, ...], Items] = field(default_factory=dict)
    scored: list[Items] = field(default_factory=list)  # items of each model and checkpoint that would be scored
    guarded: int = 0  # number of interpolated models that the forgetting guard would write
    sample: Sample = field(default_factory=lambda: Sample())
    unknown: bool = False  # whether the study scores something whose items are not counted
    steps: ClassVar[int] = STEPS  # steps that each kind of arm is timed for

    @classmethod
    @contextmanager
    def open(
        cls,
        recipe: Recipe,
        session: Session,
        evaluate: Evaluator | None = None,
        *,
        wants_more: WantsMore = lambda folder: False,
    ) -> Iterator[DryRun]:
        """Opens the study like [`Study.open`], in a temporary folder; at the end prints what the study would cost."""
        scoring = None if evaluate is None else evaluation_scoring(recipe.experiment, evaluate, recipe.column_names)
        with _temporary_folder() as folder:
            session.overlap.check_and_write(folder)
            models = {BASE: base_model(recipe.experiment, folder, recipe.seed)}
            study = cls(recipe.experiment, session, scoring, folder, models, wanted=recipe.folder)
            study._count(study.scoring)
            yield study
            run_on_main_process(study._print)
        session.close()

    def check_base(self, check: Callable[[], Any]) -> None:
        """Does nothing, because the base is not scored."""

    def write_report(self, write: Callable[[], Any]) -> None:
        """Does nothing, because there are no results."""

    def plan_points(self, evaluate: Evaluator, names: Sequence[str], points: int) -> None:
        """Counts the points of the forgetting guard: all are scored, and one per model is written."""
        self.scored += len(names) * points * [self._count_items(evaluate)]
        self.guarded += len(names)

    @property
    def num_parallel(self) -> int:
        # Other arms running at the same time would disturb the timing.
        return 1

    def train(self, arm: Arm) -> StageSummary:
        # Arms that differ only in seeds or row contents cost the same, so a sweep times each variant once.
        kind = _kind(arm)
        if kind not in self.timings:
            self.timings[kind] = self._time(arm)
        timing = self.timings[kind]
        timing.names.append(arm.name)
        self.models[arm.name] = self.models[BASE]
        self.costs[arm.name] = replace(timing.cost, name=arm.name)
        if arm.checkpoints is None:
            self._count(self.scoring)
        else:
            for step in arm.checkpoints.steps(timing.cost.steps):
                self._count(arm.checkpoints.scoring(step))
        return self.costs[arm.name]

    def _time(self, arm: Arm) -> Timing:
        base = self.models[BASE]
        place, memory = self.folder / "timed", PeakMemory()
        config = stage_config(
            arm.trainer_class, place, {**arm.arguments, **BRIEF, "max_steps": self.steps}, arm.batch_size
        )
        trainer = arm.trainer_class(str(base), config, **training_sets(arm.rows, arm.replay))
        show_progress(trainer, f"timing {arm.name}")
        clock = _StepClock()
        trainer.add_callback(Clock())
        trainer.add_callback(clock)
        try:
            trainer.train()
        except torch.OutOfMemoryError as error:
            raise ValueError(
                f"{arm.name}: batch_size={arm.batch_size} does not fit into the memory of {trainer.args.device}. Set "
                "mini_batch_size, which gives the same loss and gradient with less memory."
            ) from error
        brief = summarize_stage(arm.name, trainer, memory)
        full_config = stage_config(arm.trainer_class, place, arm.arguments, arm.batch_size)
        # Loading and the slow first step are constant, so only the time of the other steps is multiplied.
        steps = _total_steps(full_config, self.batches(arm, clock.batches))
        seconds = steps * clock.seconds
        images, texts = (round(steps / brief.steps * number) for number in (brief.images, brief.texts))
        rate = round(images / max(seconds, 1e-9), 2)
        cost = replace(brief, steps=steps, images=images, texts=texts, seconds=seconds, images_per_second=rate)
        weights = BYTES * sum(parameter.numel() for parameter in trainer.model.parameters())
        return Timing(cost, clock.seconds, _disk_bytes(trainer.model, full_config, arm, steps), weights)

    def batches(self, arm: Arm, measured: int) -> int:
        """Number of batches per epoch, from the number that the arm's data loader has."""
        return measured

    def _count(self, scoring: Any) -> None:
        if scoring is None:
            return
        if not isinstance(scoring.score, Evaluator):
            # Embeddings that a sweep follows have no items to count. The report mentions this.
            self.unknown = True
            return
        self.scored.append(self._count_items(scoring.score))

    def _count_items(self, evaluate: Evaluator) -> Items:
        key = tuple(id(loaded.data) for loaded in evaluate.loaded)
        if key not in self.items:
            counter = _Counter(self.sample)
            for loaded in evaluate.loaded:
                embed(loaded.benchmark, loaded.data, counter)
            self.items[key] = Items(len(counter.images), len(counter.texts))
        return self.items[key]

    def _print(self) -> None:
        report, problem = self._report()
        render_terminal(report)
        if problem:
            raise OSError(problem)

    def _report(self) -> tuple[Report, str]:
        """The costs of the study, and a message if the disk is too small."""
        training = sum(self.costs[name].seconds for timing in self.timings.values() for name in timing.names)
        scoring = self.sample.seconds(self.models[BASE], self.session.device, self.scored)
        folder = self.wanted
        needed, free = self.needed, shutil.disk_usage(_existing(folder)).free
        state = self.session.state
        where = f"{state.num_processes} process{'es' if state.num_processes > 1 else ''} on {state.device.type}"
        rows = [
            ["training", f"{len(self.costs)} runs", format_duration(training)],
            ["scoring", f"{len(self.scored)} models, checkpoints and points", format_duration(scoring)],
            ["disk", str(folder), f"{to_gib(needed)}, {to_gib(free)} free"],
            *([["GPU memory", "", to_gib(_gpu_memory())]] if state.device.type == "cuda" else []),
        ]
        notes = [*self.session.notes, *(["the estimate excludes followed embeddings"] if self.unknown else [])]
        report = Report(
            f"{self.experiment.method}: dry run",
            verdict=[f"About {format_duration(training + scoring)} on {where}, {to_gib(needed)} of disk space."],
            sections=[
                Section("Runs", [_runs_table(self.timings.values())]),
                Section("Items scored per model", [_items_table(self.items.values())]),
                Section("Total", [Table("", ["part", "extent", "cost"], rows, labels=2)]),
            ],
            legend=[ABOUT.format(steps=STEPS, **{name: len(items) for name, items in self.sample.examples.items()})],
            notes=notes,
            closing={"would be written to": str(folder)},
        )
        problem = (
            f"{folder}: the study needs {to_gib(needed)}, but only {to_gib(free)} are free. Free some space, or pass "
        )
        return report, f"{problem}another --output_dir or a smaller --save_total_limit." if needed > free else ""

    @property
    def needed(self) -> int:
        """Upper bound of the disk space that the study needs, in bytes."""
        # A user's own model is stored elsewhere and is not written again.
        base = Path(self.models[BASE])
        base_bytes = sum(path.stat().st_size for path in base.rglob("*") if self.folder in path.parents)
        guarded = self.guarded * max((timing.weights for timing in self.timings.values()), default=0)
        return base_bytes + guarded + sum(timing.disk * len(timing.names) for timing in self.timings.values())


class _StepClock(TrainerCallback):
    """Measures seconds per step, from one step's end to the next (data loading included), and batches per epoch."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.batches = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any) -> None:
        self.batches = len(train_dataloader) if has_length(train_dataloader) else 0
        self.ends = [time.perf_counter()]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.device.type == "cuda":
            # Kernels run asynchronously; without waiting, only their launch would be timed.
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        # The median, because one slow step out of three (a checkpoint, another process) must not count for a third.
        lengths = np.diff(self.ends).tolist()
        return statistics.median(lengths[1:] or lengths)


@dataclass
class Sample:
    """A few of the images and texts that would be encoded."""

    examples: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in SAMPLE})

    def add(self, kind: str, item: Any) -> None:
        if len(self.examples[kind]) < SAMPLE[kind]:
            self.examples[kind].append(item)

    def seconds(self, place: Path | str, device: str | None, scored: list[Items]) -> float:
        """Seconds that a model of this size takes to encode all items, extrapolated from the sample."""
        if not scored:
            return 0.0
        embedder, total = Embedder(place, device=device), 0.0
        encode = {"images": embedder.images, "texts": embedder.texts}
        for kind, examples in self.examples.items():
            if examples:
                # The first call loads the weights, which a study does once and not per image.
                encode[kind](examples[:1])
                start = time.perf_counter()
                encode[kind](examples)
                pace = (time.perf_counter() - start) / len(examples)
                total += pace * sum(getattr(items, kind) for items in scored)
        return total


class _Counter:
    """An encoder that counts distinct images and texts and returns the same vector for each of them."""

    def __init__(self, sample: Sample) -> None:
        self.sample, self.images, self.texts = sample, set[bytes](), set[str]()

    def index_images(self, images: Any, *, column: str = "image", progress: bool = False) -> Indexed:
        keys, index, first = distinct(
            image_key(image, f"column '{column}', row {row}") for row, image in enumerate(images)
        )
        for key, row in zip(keys, first, strict=True):
            if key not in self.images:
                self.sample.add("images", images[row])
        self.images.update(keys)
        return Indexed(np.ones((max(1, len(keys)), 1), dtype=np.float32), index, 0, 0)

    def index_texts(self, texts: Any, *, progress: bool = False) -> Indexed:
        for text in texts:
            if text not in self.texts:
                self.sample.add("texts", text)
        self.texts.update(texts)
        return Indexed(np.ones((max(1, len(texts)), 1), dtype=np.float32), np.arange(len(texts)), 0, 0)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Yields a temporary folder that the main process creates for all processes."""
    folder = run_on_main_process(lambda: tempfile.mkdtemp(prefix="hfcomp-dry-run-"))
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _kind(arm: Arm) -> str:
    """Key of everything that determines the number and the length of steps; names, seeds and row contents do not."""
    values = {name: value for name, value in arm.arguments.items() if name not in ("seed", "data_seed")}
    rows = len(arm.rows) if has_length(arm.rows) else None
    every = arm.checkpoints and arm.checkpoints.every
    return json.dumps([str(arm.trainer_class), values, arm.batch_size, rows, every], default=str)


def _total_steps(config: Any, batches: int) -> int:
    """Number of optimizer steps in the whole training, counted like transformers, from the `batches` per epoch."""
    if config.max_steps > 0:
        return config.max_steps
    return math.ceil(config.num_train_epochs * max(1, math.ceil(batches / config.gradient_accumulation_steps)))


def _disk_bytes(model: torch.nn.Module, config: Any, arm: Arm, steps: int) -> int:
    """Bytes of a model and of the checkpoints that exist on disk at the same time."""
    weights = BYTES * sum(parameter.numel() for parameter in model.parameters())
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    states = BYTES * STATES * trained
    if arm.checkpoints is not None:
        # These checkpoints contain only the model, and all of them are kept until they are scored.
        return weights * len(arm.checkpoints.steps(steps))
    every = config.save_steps if config.save_steps >= 1 else math.ceil(config.save_steps * steps)
    written = {"no": 0, "epoch": math.ceil(config.num_train_epochs)}.get(str(config.save_strategy.value))
    number = math.ceil(steps / max(1, every)) if written is None else written
    number = min(number, config.save_total_limit or number)
    return weights + number * (weights + (0 if config.save_only_model else states))


def _runs_table(timings: Any) -> Table:
    rows = []
    for timing in timings:
        cost, others = timing.cost, len(timing.names) - SHOWN
        name = ", ".join(timing.names[:SHOWN]) + (f" and {others} more like these" if others > 0 else "")
        memory = f"{cost.peak_memory_gib:.2f} GiB"
        numbers = [f"{cost.steps:,}", f"{timing.step_seconds:.3g}", format_duration(cost.seconds)]
        rows.append([name, *numbers, f"{cost.images:,}", f"{cost.texts:,}", memory, to_gib(timing.disk)])
    header = ["run", "steps", "seconds per step", "time", "images", "texts", "peak memory", "disk"]
    return Table("", header, rows)


def _items_table(items: Any) -> Table:
    rows = [["distinct", f"{counts.images:,}", f"{counts.texts:,}"] for counts in items]
    return Table("", ["", "images", "texts"], rows)


def _existing(folder: Path) -> Path:
    """The folder itself or its nearest existing parent."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def _gpu_memory() -> int:
    return torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory


def to_gib(number: int) -> str:
    """Formats a number of bytes."""
    return f"{number / 2**30:.2f} GiB"
