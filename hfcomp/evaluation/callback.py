"""A trainer callback that scores benchmarks during training, to log them and to choose the best checkpoint."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn
from transformers import Trainer, TrainerCallback

from hfcomp.distributed import fail_together, first_process_first, gather_objects
from hfcomp.distributed.shards import is_sharded
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.evaluation.spec import Benchmark, Unavailable, data_folders
from hfcomp.modeling import load_processor
from hfcomp.statistics.measures import Measure, all_measures
from hfcomp.statistics.outcomes import Outcomes
from hfcomp.statistics.summary import summarize

logger = logging.getLogger(__name__)

DIGITS = 12


class EvaluateBenchmarks(TrainerCallback):
    """Scores benchmarks at chosen steps of a `transformers.Trainer`, whether from hfcomp or not.

    `trainer.add_callback(EvaluateBenchmarks(trainer, ["sugarcrepe"]))` scores at every evaluation of the trainer and
    adds the values to the metrics of that evaluation. `metric_for_best_model="eval_sugarcrepe_caption_choice"` then
    chooses the checkpoint that is kept or loaded at the end, and works with `EarlyStoppingCallback`. Without an
    evaluation dataset (`eval_strategy="no"`), `steps` sets the number of steps between scorings, and
    `save_strategy="best"` saves whenever the chosen value is higher than before.

    The values are those of the saved checkpoint: the trained weights in their own precision, in eval mode. Training is
    not affected, because modes and random states are restored. Processes share the encoding, and all have the same
    values. If FSDP shards the weights, each process makes a full copy on its device.

    The keys, which also appear in the log and in trackers:

    | key | value |
    |---|---|
    | `eval_<benchmark>_<metric>` | the average (see below); higher is better, ties are wrong |
    | `eval_<benchmark>_<metric>_ties` | share of items that are wrong only because of a tie, averaged the same way |
    | `eval_<benchmark>_<metric>/<part>` | with `details`: each further average and each subset |
    | `eval_<benchmark>_<metric>_best` | at the end of training: the highest value |
    | `eval_<benchmark>_<metric>_best_step` | the first step with it; 0 is the initial model |

    The callback does not check whether the training set contains images that are scored, because the trainer already
    has its rows. Remove such rows first, with `hfcomp.data.overlap.without_overlap` (docs/datasets.md).

    The average is the benchmark's first average whose subsets are all available, otherwise the mean over items. Names
    are in lower case, with `_` for everything except letters, digits and `@`: `eval_docci_text_to_image_recall@1`.

    Args:
        trainer: Trainer whose model is a CLIP- or SigLIP-like `PreTrainedModel`, a `PeftModel` of one, or a module
            with one of these as its `backbone`, such as `DualEncoder`.
        benchmarks: Names as on the command line (including your own `package.module:NAME`, and group names such as
            `vtab`, which run the whole group), or `Benchmark` objects.
        folders: Local data: one folder with a subfolder per benchmark and image set, or folders by name. Missing data
            comes from the Hub.
        steps: Number of steps between scorings; also scores after the last step. By default, scores at the trainer's
            evaluations instead.
        processing_class: The model's processor. Defaults to the trainer's own, otherwise to the one at the place the
            model was loaded from.
        batch_size: Images or texts per encoding batch on each process.
        at_start: Also score before the first step. This finds an unreadable image or a `metric_for_best_model` that
            does not exist before training, and logs the initial values.
        details: Also add a key for each further average and each subset.
        save_items: Write every item's outcome, at each scoring during training, to `benchmarks-<step>.parquet` in the
            trainer's output folder, with the column `step`.

    Raises:
        TypeError: If `benchmarks` is a single benchmark instead of a list.
        ValueError: If a benchmark is unknown or duplicated, the data is invalid, a model or processor cannot be
            used, or DeepSpeed or another trainer's FSDP shards the weights.
        Unavailable: If a benchmark's data is unavailable; has the reason and how to get it.
    """

    def __init__(
        self,
        trainer: Trainer,
        benchmarks: Sequence[str | Benchmark],
        *,
        folders: str | Path | Mapping[str, str | Path] | None = None,
        steps: int | None = None,
        processing_class: Any = None,
        batch_size: int = 128,
        at_start: bool = True,
        details: bool = False,
        save_items: bool = False,
    ) -> None:
        if steps is not None and steps < 1:
            raise ValueError(f"steps: found {steps}, expected at least 1, or leave it out.")
        if trainer.is_deepspeed_enabled or (trainer.is_fsdp_enabled and not hasattr(trainer, "whole_model")):
            raise ValueError(
                "the weights are sharded (FSDP or DeepSpeed), so no process can encode with them. Use DDP, a trainer "
                "of hfcomp with FSDP, or score the saved checkpoints."
            )
        self.trainer = trainer
        self.steps = steps
        self.batch_size = batch_size
        self.at_start = at_start
        self.details = details
        self.save_items = save_items
        with first_process_first():  # the other processes read what the first one downloaded
            self._processor = self._find_processor(processing_class)
            self._embedder()  # a mismatch of model and processor is reported now rather than during training
        self.benchmarks = _resolve(benchmarks)
        self._evaluator = Evaluator(logger.warning)
        self._evaluator.load(self.benchmarks, data_folders(folders, option="folders"))
        for skip in self._evaluator.skipped:
            raise Unavailable(f"{skip['benchmark']}: {skip['reason']}", skip["how_to_fix"])
        self._values: dict[str, float] | None = None
        self._headlines: list[str] = []

    # Events

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Checks that benchmarks will be scored, and scores the initial model.

        Raises:
            ValueError: If the callback was created for another trainer, would never score, or does not provide the
                value by which the trainer chooses checkpoints.
        """
        self._values, self._headlines = None, []
        self._check_schedule(args)
        handler = self.trainer.callback_handler
        # Callbacks that read an evaluation's metrics, such as early stopping, must run later.
        handler.callbacks = [self, *(callback for callback in handler.callbacks if callback is not self)]
        if self.at_start and state.global_step == 0:
            self._check_best(args, self._score_now())

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Discards the values, because the weights change."""
        self._values = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Scores every `steps` steps. If the trainer never evaluates, also decides which step is the best."""
        if self.steps is None or (state.global_step % self.steps and state.global_step < state.max_steps):
            return
        values = self._score_now()
        if args.eval_strategy == "no" and args.metric_for_best_model is not None:
            self._check_best(args, values)
            # The Trainer applies this rule only after its own evaluations.
            is_best = self.trainer._determine_best_metric(metrics=values, trial=None)
            if is_best and args.save_strategy == "best":
                control.should_save = True

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float], **kwargs: Any) -> None:
        """Adds the values to the metrics, by which the trainer then chooses checkpoints.

        Raises:
            ValueError: If a metric already exists.
        """
        if self.steps is not None and self.trainer.is_in_train and self._values is None:
            return
        values = self._score_now()
        taken = sorted(values.keys() & metrics.keys())
        if taken:
            raise ValueError(
                f"the evaluation already has a metric {taken[0]!r}. Give the evaluation set or metric another name."
            )
        metrics.update(values)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Logs the best of each value and its step, including those from before a resume."""
        self._values = None
        chosen = _with_prefix(args.metric_for_best_model)
        best = {}
        for key in self._headlines:
            seen = [(line[key], line["step"]) for line in state.log_history if key in line]
            # Higher is better for all values of benchmarks; the user may declare otherwise only for the chosen value.
            choose = min if key == chosen and not args.greater_is_better else max
            best[f"{key}_best"], best[f"{key}_best_step"] = choose(seen, key=lambda entry: entry[0])
        if best:
            self.trainer.log(best)

    # Checks

    def _check_schedule(self, args: Any) -> None:
        if args is not self.trainer.args:
            raise ValueError("EvaluateBenchmarks was created for another trainer. Create one with this trainer.")
        if self.steps is None and args.eval_strategy == "no":
            raise ValueError(
                "eval_strategy is 'no', so benchmarks would never be scored. Pass EvaluateBenchmarks(..., "
                "steps=N), or set eval_strategy and give the trainer an eval_dataset."
            )
        if self.steps is not None and args.eval_strategy != "no" and self._is_own(args.metric_for_best_model):
            raise ValueError(
                f"metric_for_best_model={args.metric_for_best_model!r} is read at every evaluation, but benchmarks "
                f"are scored every {self.steps} steps. Remove `steps`, or set eval_strategy='no'."
            )

    def _check_best(self, args: Any, values: Mapping[str, float]) -> None:
        """Raises if the value to choose by does not exist. The trainer's own values exist if it evaluates."""
        name = args.metric_for_best_model
        if name is None or _with_prefix(name) in values or (args.eval_strategy != "no" and not self._is_own(name)):
            return
        raise ValueError(
            f"metric_for_best_model={name!r} is not a value of the benchmarks: {', '.join(values)}. "
            "EvaluateBenchmarks(..., details=True) adds further averages and subsets."
        )

    def _is_own(self, name: str | None) -> bool:
        return name is not None and _with_prefix(name).startswith(
            tuple(f"{_key(benchmark.name)}_" for benchmark in self.benchmarks)
        )

    # Scoring

    def _score_now(self) -> dict[str, float]:
        """Returns the values of the current weights, scored and logged once between two steps."""
        # A trainer's evaluation and a step of this callback may score the same weights.
        if self._values is not None:
            return self._values
        embedder = self._embedder()
        with fail_together():  # only the main process scores and writes
            values = self._score(embedder)
        self.trainer.log(dict(values))
        if self.trainer.is_in_train:
            self._values = values
        return values

    def _score(self, embedder: Embedder) -> dict[str, float]:
        trainer, main = self.trainer, self.trainer.is_world_process_zero()
        values: dict[str, float] = {}
        tables = []
        # Training must give the same weights with and without this callback.
        with _preserve_random_states(embedder.device):
            for loaded, report in self._evaluator.score(embedder, progress=not trainer.args.disable_tqdm):
                if main:
                    values |= benchmark_values(loaded.benchmark, report.items, details=self.details)
                    tables.append(report.items)
        if main and self.save_items and trainer.is_in_train:
            step = trainer.state.global_step
            outcomes = Outcomes(pd.concat(tables, ignore_index=True)).assign(arm=f"step {step}", step=step)
            outcomes.write(Path(trainer.args.output_dir) / f"benchmarks-{step}.parquet")
        # All processes must choose the same checkpoint.
        values = gather_objects(values)[0]
        self._headlines = [key for key in values if "/" not in key and not key.endswith("_ties")]
        return values

    def _embedder(self) -> Embedder:
        cache = EmbeddingCache()  # for these weights only, so benchmarks that share images encode them once
        backbone = self._backbone()
        return Embedder(backbone, self._processor, batch_size=self.batch_size, cache=cache, split=True)

    def _backbone(self) -> nn.Module:
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        if is_sharded(model):  # each process encodes with its own full copy
            model = self.trainer.whole_model().to(self.trainer.args.device)
        return getattr(model, "backbone", model)

    def _find_processor(self, given: Any) -> Any:
        if given is not None and not _is_processor(given):
            raise ValueError(
                f"processing_class: found a {type(given).__name__}, expected a processor with a tokenizer and an "
                "image_processor, such as one from AutoProcessor.from_pretrained(...)."
            )
        own = self.trainer.processing_class if given is None else given
        return own if _is_processor(own) else load_processor(self._backbone(), argument="processing_class")


def benchmark_values(benchmark: Benchmark, items: pd.DataFrame, *, details: bool = False) -> dict[str, float]:
    """Returns a benchmark's main values to watch during training, under the keys of [`EvaluateBenchmarks`].

    Args:
        details: Whether to also add further averages and the subsets. An average takes precedence over a subset of
            the same name.
    """
    if not len(items):
        return {}
    measures: dict[str, Measure] = {}
    outcomes = Outcomes(items)
    own = all_measures(outcomes.aspects, {title: benchmark.averages for title, _, _ in outcomes.aspects})
    for metric in dict.fromkeys(measure.labels["metric"] for measure in own):
        key = f"{_key(benchmark.name)}_{_word(metric)}"
        averages, subsets = [], []
        for measure in (measure for measure in own if measure.labels["metric"] == metric):
            (averages if measure.is_average else subsets).append(measure)
        # Several subsets without a declared average still need a single number to watch.
        if not averages:
            averages = [Measure("mean over items", [tuple(line for subset in subsets for line in subset.lines)])]
        measures[key] = averages[0]
        for measure in (*averages[1:], *(subsets if len(subsets) > 1 else ())) if details else ():
            # An average may have the same name as a subset. The average comes first and keeps the key.
            measures.setdefault(f"{key}/{_word(measure.labels['subset'])}", measure)
    values: dict[str, float] = {}
    for key, line in zip(measures, summarize(outcomes, measures=[*measures.values()], intervals=False), strict=True):
        (estimate,) = line["models"].values()
        values[key] = _round(estimate["value"])
        if "/" not in key:
            values[f"{key}_ties"] = _round(estimate["tie_rate"])
    return values


def _round(mean: float) -> float:
    # Rounding errors of sums must not make one of two equally good steps the better one.
    return round(float(mean), DIGITS)


def _word(name: str) -> str:
    return re.sub(r"[^a-z0-9@]+", "_", name.lower()).strip("_")


def _key(name: str) -> str:
    return f"eval_{_word(name)}"


def _with_prefix(name: str | None) -> str | None:
    """Adds the prefix with which the Trainer searches for a metric."""
    return name if name is None or name.startswith("eval_") else f"eval_{name}"


def _is_processor(value: Any) -> bool:
    return hasattr(value, "tokenizer") and hasattr(value, "image_processor")


def _resolve(benchmarks: Sequence[str | Benchmark]) -> list[Benchmark]:
    if isinstance(benchmarks, str | Benchmark):
        raise TypeError("benchmarks: found a single benchmark, expected a list.")
    resolved = [benchmark for entry in benchmarks for benchmark in find_benchmarks([entry])]
    names = [_word(benchmark.name) for benchmark in resolved]
    duplicates = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if not names or duplicates:
        raise ValueError(f"benchmarks: expected at least one, with no name twice; found {duplicates or 'none'}.")
    return resolved


@contextmanager
def _preserve_random_states(device: torch.device) -> Iterator[None]:
    """Restores the states of Python's, NumPy's and torch's generators, because a probe or protocol may use them."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
