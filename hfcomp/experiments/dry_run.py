"""A dry run of a study: every kind of arm trains for a few steps, and what the whole study costs is extrapolated.

It loads and checks all that the study would, in a folder that is removed at the end. What the base scores, and what
is read of it later, is not computed: the items to encode are counted, and a few of them are timed.
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
from typing import Any

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
SHOWN = 2  # names of arms that cost the same
SAMPLE = {"images": 64, "texts": 256}
BRIEF = {"max_steps": STEPS, "logging_steps": 1, "save_strategy": "no", "eval_strategy": "no", "report_to": "none"}
BYTES = 4  # of a weight, which is trained and saved in fp32
STATES = 2  # that AdamW keeps of a trained weight
ABOUT = (
    "Times are of this machine, extrapolated from {steps} steps of each kind of run and from {images} images and "
    "{texts} texts. Loading, statistics and the fitting of probes are not in them. Nothing was written."
)


@dataclass(frozen=True)
class Timing:
    """What a kind of arm costs, measured in a few steps; its whole training by extrapolation."""

    cost: StageSummary
    step_seconds: float
    disk: int  # bytes of its model and of the checkpoints that are kept beside it
    weights: int  # bytes of its model alone
    alike: list[str] = field(default_factory=list)  # the arms of the kind


@dataclass(frozen=True)
class Items:
    """Distinct images and texts that a model is scored on."""

    images: int
    texts: int


@dataclass
class DryRun(Study):
    """A study whose arms are timed and not trained; it writes nothing that stays."""

    wanted: Path = Path()  # the folder that the study itself would take
    timings: dict[str, Timing] = field(default_factory=dict)
    items: dict[tuple[int, ...], Items] = field(default_factory=dict)
    scored: list[Items] = field(default_factory=list)  # of each model and checkpoint that would be scored
    guarded: int = 0  # models between the base and a trained one that would be written
    sample: Sample = field(default_factory=lambda: Sample())
    unknown: bool = False  # whether something is scored whose items are not counted

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
        """As [`Study.open`], in a folder that is removed; at the end prints what the study would cost."""
        scoring = None if evaluate is None else evaluation_scoring(recipe.experiment, evaluate, recipe.column_names)
        with _passing_folder() as folder:
            session.overlap.check_and_write(folder)
            models = {BASE: base_model(recipe.experiment, folder, recipe.seed)}
            study = cls(recipe.experiment, session, scoring, folder, models, wanted=recipe.folder)
            study._count(study.scoring)
            yield study
            run_on_main_process(study._print)
        session.close()

    def check_base(self, check: Callable[[], Any]) -> None:
        """Checks nothing: the base is not scored."""

    def write_report(self, write: Callable[[], Any]) -> None:
        """Writes nothing: there are no results."""

    def plan_points(self, evaluate: Evaluator, names: Sequence[str], points: int) -> None:
        """Counts the points of the forgetting guard: each is scored, and one for each model is written."""
        self.scored += len(names) * points * [self._items_of(evaluate)]
        self.guarded += len(names)

    @property
    def at_once(self) -> int:
        # Other arms would disturb the time of an arm.
        return 1

    def train(self, arm: Arm) -> StageSummary:
        # Arms that differ only in seeds or in the content of rows cost the same: a sweep times each variant once.
        kind = _kind(arm)
        if kind not in self.timings:
            self.timings[kind] = self._time(arm)
        timing = self.timings[kind]
        timing.alike.append(arm.name)
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
        config = stage_config(arm.trainer_class, place, {**arm.arguments, **BRIEF}, arm.batch_size)
        trainer = arm.trainer_class(str(base), config, **training_sets(arm.rows, arm.replay))
        show_progress(trainer, f"timing {arm.name}")
        clock = _StepClock()
        trainer.add_callback(Clock())
        trainer.add_callback(clock)
        try:
            trainer.train()
        except torch.OutOfMemoryError as error:
            raise ValueError(
                f"{arm.name}: batch_size={arm.batch_size} does not fit the memory of {trainer.args.device}. Set "
                "mini_batch_size: the same loss and gradient in less memory."
            ) from error
        brief = summarize_stage(arm.name, trainer, memory)
        asked = stage_config(arm.trainer_class, place, arm.arguments, arm.batch_size)
        # Loading and the first, slow step are constant, so only the pace of the other steps is multiplied.
        steps = _total_steps(asked, clock.batches)
        seconds = steps * clock.seconds
        images, texts = (round(steps / brief.steps * number) for number in (brief.images, brief.texts))
        rate = round(images / max(seconds, 1e-9), 2)
        cost = replace(brief, steps=steps, images=images, texts=texts, seconds=seconds, images_per_second=rate)
        weights = BYTES * sum(one.numel() for one in trainer.model.parameters())
        return Timing(cost, clock.seconds, _disk(trainer.model, asked, arm, steps), weights)

    def _count(self, scoring: Any) -> None:
        if scoring is None:
            return
        if not isinstance(scoring.score, Evaluator):
            # The embeddings that a sweep follows have no items to count. The report mentions this.
            self.unknown = True
            return
        self.scored.append(self._items_of(scoring.score))

    def _items_of(self, evaluate: Evaluator) -> Items:
        key = tuple(id(one.data) for one in evaluate.loaded)
        if key not in self.items:
            counter = _Counter(self.sample)
            for one in evaluate.loaded:
                embed(one.benchmark, one.data, counter)
            self.items[key] = Items(len(counter.images), len(counter.texts))
        return self.items[key]

    def _print(self) -> None:
        report, lacking = self._report()
        render_terminal(report)
        if lacking:
            raise OSError(lacking)

    def _report(self) -> tuple[Report, str]:
        """The costs of the study, and what is wrong with the disk, if anything."""
        training = sum(self.costs[name].seconds for one in self.timings.values() for name in one.alike)
        scoring = self.sample.seconds(self.models[BASE], self.session.device, self.scored)
        folder = self.wanted
        needed, free = self.needed, shutil.disk_usage(_existing(folder)).free
        state = self.session.state
        where = f"{state.num_processes} process{'es' if state.num_processes > 1 else ''} on {state.device.type}"
        rows = [
            ["training", f"{len(self.costs)} runs", format_duration(training)],
            ["scoring", f"{len(self.scored)} models, checkpoints and points", format_duration(scoring)],
            ["disk", str(folder), f"{_gib(needed)}, {_gib(free)} free"],
            *([["memory of the GPU", "", _gib(_gpu_memory())]] if state.device.type == "cuda" else []),
        ]
        notes = [*self.session.notes, *(["followed embeddings are not in the estimate"] if self.unknown else [])]
        report = Report(
            f"{self.experiment.method}: a dry run",
            verdict=[f"About {format_duration(training + scoring)} on {where}, {_gib(needed)} of disk."],
            sections=[
                Section("Runs", [_runs(self.timings.values())]),
                Section("A model is scored on", [_items(self.items.values())]),
                Section("Together", [Table("", ["what", "of", "cost"], rows, labels=2)]),
            ],
            legend=[ABOUT.format(steps=STEPS, **{name: len(found) for name, found in self.sample.found.items()})],
            notes=notes,
            closing={"would be written to": str(folder)},
        )
        lacking = f"{folder}: the study needs {_gib(needed)}, but {_gib(free)} are free. Make room, or pass another "
        return report, f"{lacking}--output_dir or a smaller --save_total_limit." if needed > free else ""

    @property
    def needed(self) -> int:
        """Bytes of disk that the study needs at most."""
        # A user's own model is somewhere else and is not written again.
        base = Path(self.models[BASE])
        made_here = sum(path.stat().st_size for path in base.rglob("*") if self.folder in path.parents)
        guarded = self.guarded * max((one.weights for one in self.timings.values()), default=0)
        return made_here + guarded + sum(one.disk * len(one.alike) for one in self.timings.values())


class _StepClock(TrainerCallback):
    """Seconds of a step, from the end of one to the end of the next: the data's too; and the batches of an epoch."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.batches = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any) -> None:
        self.batches = len(train_dataloader) if has_length(train_dataloader) else 0
        self.ends = [time.perf_counter()]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.device.type == "cuda":
            # Kernels run asynchronously: without waiting, only their launch would be timed.
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        # The median, because one slow step in three (a checkpoint, another process) must not count a third.
        lengths = np.diff(self.ends).tolist()
        return statistics.median(lengths[1:] or lengths)


@dataclass
class Sample:
    """A few of the images and texts that would be encoded."""

    found: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in SAMPLE})

    def add(self, kind: str, one: Any) -> None:
        if len(self.found[kind]) < SAMPLE[kind]:
            self.found[kind].append(one)

    def seconds(self, place: Path | str, device: str | None, scored: list[Items]) -> float:
        """Seconds that a model's size takes to encode all of some items, by the pace of the sample."""
        if not scored:
            return 0.0
        embedder, total = Embedder(place, device=device), 0.0
        encode = {"images": embedder.images, "texts": embedder.texts}
        for kind, examples in self.found.items():
            if examples:
                # The first call loads the weights, which a study does once and not for each image.
                encode[kind](examples[:1])
                start = time.perf_counter()
                encode[kind](examples)
                pace = (time.perf_counter() - start) / len(examples)
                total += pace * sum(getattr(items, kind) for items in scored)
        return total


class _Counter:
    """An encoder that counts distinct images and texts, and gives each the same vector."""

    def __init__(self, sample: Sample) -> None:
        self.sample, self.images, self.texts = sample, set[bytes](), set[str]()

    def index_images(self, images: Any, *, column: str = "image", progress: bool = False) -> Indexed:
        keys, index, first = distinct(
            image_key(one, f"column '{column}', row {row}") for row, one in enumerate(images)
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
def _passing_folder() -> Iterator[Path]:
    """A folder that the main process makes for all."""
    folder = run_on_main_process(lambda: tempfile.mkdtemp(prefix="hfcomp-dry-run-"))
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _kind(arm: Arm) -> str:
    """Text that decides how long a step takes and how many there are: all but names, seeds and the rows themselves."""
    values = {name: value for name, value in arm.arguments.items() if name not in ("seed", "data_seed")}
    rows = len(arm.rows) if has_length(arm.rows) else None
    of_checkpoints = arm.checkpoints and arm.checkpoints.every
    return json.dumps([str(arm.trainer_class), values, arm.batch_size, rows, of_checkpoints], default=str)


def _total_steps(config: Any, batches: int) -> int:
    """The optimizer's steps of a whole training, as transformers counts them; `batches` are those of an epoch."""
    if config.max_steps > 0:
        return config.max_steps
    return math.ceil(config.num_train_epochs * max(1, math.ceil(batches / config.gradient_accumulation_steps)))


def _disk(model: torch.nn.Module, config: Any, arm: Arm, steps: int) -> int:
    """Bytes of a model and of the checkpoints that are on the disk at the same time."""
    weights = BYTES * sum(one.numel() for one in model.parameters())
    states = BYTES * STATES * sum(one.numel() for one in model.parameters() if one.requires_grad)
    if arm.checkpoints is not None:
        # Checkpoints of only the model, which are all kept until they are scored.
        return weights * len(arm.checkpoints.steps(steps))
    every = config.save_steps if config.save_steps >= 1 else math.ceil(config.save_steps * steps)
    written = {"no": 0, "epoch": math.ceil(config.num_train_epochs)}.get(str(config.save_strategy.value))
    number = math.ceil(steps / max(1, every)) if written is None else written
    number = min(number, config.save_total_limit or number)
    return weights + number * (weights + (0 if config.save_only_model else states))


def _runs(timings: Any) -> Table:
    rows = []
    for one in timings:
        cost, others = one.cost, len(one.alike) - SHOWN
        name = ", ".join(one.alike[:SHOWN]) + (f" and {others} alike" if others > 0 else "")
        memory = f"{cost.peak_memory_gib:.2f} GiB"
        numbers = [f"{cost.steps:,}", f"{one.step_seconds:.3g}", format_duration(cost.seconds)]
        rows.append([name, *numbers, f"{cost.images:,}", f"{cost.texts:,}", memory, _gib(one.disk)])
    header = ["run", "steps", "seconds a step", "time", "images", "texts", "peak memory", "disk"]
    return Table("", header, rows)


def _items(items: Any) -> Table:
    rows = [["distinct", f"{one.images:,}", f"{one.texts:,}"] for one in items]
    return Table("", ["", "images", "texts"], rows)


def _existing(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def _gpu_memory() -> int:
    return torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory


def _gib(number: int) -> str:
    return f"{number / 2**30:.2f} GiB"
