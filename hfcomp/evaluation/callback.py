"""Benchmarks scored while a model is trained: for the log, and to choose the best checkpoint by."""

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
    """Scores benchmarks at chosen steps of a `transformers.Trainer`, one of hfcomp or any other.

    `trainer.add_callback(EvaluateBenchmarks(trainer, ["sugarcrepe"]))` scores at every evaluation of the trainer and
    adds the values to the metrics of that evaluation, so that `metric_for_best_model="eval_sugarcrepe_caption_choice"`
    chooses the checkpoint that is kept, loaded at the end, or waited for by `EarlyStoppingCallback`. Without a set for
    evaluation (`eval_strategy="no"`), `steps` scores every so many steps, and `save_strategy="best"` then saves
    whenever the chosen value is higher than before.

    Values are those that the saved checkpoint gets: the trained weights in their own precision, in eval mode. Training
    is unaffected: modes and random states are restored. Processes share the encoding, and all
    have the same values. Of weights that FSDP shards, each process makes a whole copy for it on its device.

    The keys, which the log and trackers show too:

    | key | what |
    |---|---|
    | `eval_<benchmark>_<metric>` | its average (see below); higher is better, ties are wrong |
    | `eval_<benchmark>_<metric>_ties` | share of items that are wrong only because of a tie, averaged the same way |
    | `eval_<benchmark>_<metric>/<part>` | with `details`: each further average and each subset |
    | `eval_<benchmark>_<metric>_best` | at the end of training: the highest value |
    | `eval_<benchmark>_<metric>_best_step` | its first step; 0 is the model that training began with |

    Whether the training set shows images that are scored is not looked at here: the trainer has its rows by then.
    Leave such rows out before, with `hfcomp.data.overlap.without_overlap` (docs/datasets.md).

    The average is the first of the benchmark's own whose subsets are all there, else the mean over items. Names are in
    lower case, with `_` for all but letters, digits and `@`: `eval_docci_text_to_image_recall@1`.

    Args:
        trainer: whose model is a CLIP- or SigLIP-like `PreTrainedModel`, a `PeftModel` of one, or a module with one of
            these as its `backbone`, such as `DualEncoder`.
        benchmarks: names as on the command line (also `package.module:NAME` of your own, and the name of a group,
            such as `vtab`, for all of it), or `Benchmark` objects.
        folders: local data: one folder with a sub-folder for each benchmark and set of images, or
            a folder for each by name. What is not there comes from the Hub.
        steps: score every so many steps and after the last one, instead of at the trainer's evaluations.
        processing_class: the model's processor; by default the trainer's own, else from where the model was loaded.
        batch_size: images or texts at a time, on each process.
        at_start: score before the first step too. An image that cannot be read or a `metric_for_best_model` that does
            not exist is then found before training, and the log has the initial values.
        details: give a key to each further average and each subset too.
        save_items: write every item's outcome at each scoring in training to `benchmarks-<step>.parquet` in the
            trainer's output folder, with the column `step`.

    Raises:
        TypeError: for one benchmark instead of a list of them.
        ValueError: for an unknown or duplicate benchmark, data that is not as expected, a model or
            processor that cannot be used, or weights that are sharded by DeepSpeed or by another trainer's FSDP.
        Unavailable: when a benchmark's data is unavailable, with the reason and how to get it.
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
        with first_process_first():  # the others find what it downloaded
            self._processor = self._found_processor(processing_class)
            self._embedder()  # whether model and processor fit is said now rather than after some training
        self.benchmarks = _resolve(benchmarks)
        self._evaluator = Evaluator(logger.warning)
        self._evaluator.load(self.benchmarks, data_folders(folders, option="folders"))
        for one in self._evaluator.skipped:
            raise Unavailable(f"{one['benchmark']}: {one['reason']}", one["how_to_fix"])
        self._values: dict[str, float] | None = None
        self._headlines: list[str] = []

    # Events

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Checks that something will be scored; scores the model that training begins with.

        Raises:
            ValueError: for a callback that was made for another trainer, that would never score, or that would lack
                the value which the trainer is to choose by.
        """
        self._values, self._headlines = None, []
        self._check_schedule(args)
        handler = self.trainer.callback_handler
        # Callbacks that read the metrics of an evaluation, such as early stopping, must come later.
        handler.callbacks = [self, *(callback for callback in handler.callbacks if callback is not self)]
        if self.at_start and state.global_step == 0:
            self._check_best(args, self._score_now())

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Values hold until the weights change."""
        self._values = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Scores at the steps asked for; where the trainer never evaluates, decides for it which step is the best."""
        if self.steps is None or (state.global_step % self.steps and state.global_step < state.max_steps):
            return
        values = self._score_now()
        if args.eval_strategy == "no" and args.metric_for_best_model is not None:
            self._check_best(args, values)
            # The Trainer's own rule, which it applies only after its own evaluations.
            is_best = self.trainer._determine_best_metric(metrics=values, trial=None)
            if is_best and args.save_strategy == "best":
                control.should_save = True

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float], **kwargs: Any) -> None:
        """Adds the values to the metrics, from which the trainer chooses afterwards.

        Raises:
            ValueError: for a metric that is there already.
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
        """Logs the best of each value, of before a resume too, and its step."""
        self._values = None
        chosen = _with_prefix(args.metric_for_best_model)
        best = {}
        for key in self._headlines:
            seen = [(line[key], line["step"]) for line in state.log_history if key in line]
            # Higher is better for every value of a benchmark. Only the chosen value may be declared otherwise.
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
        """Whether the value to choose by is there; one of the trainer's own is, wherever the trainer evaluates."""
        name = args.metric_for_best_model
        if name is None or _with_prefix(name) in values or (args.eval_strategy != "no" and not self._is_own(name)):
            return
        raise ValueError(
            f"metric_for_best_model={name!r} is not a value of the benchmarks: {', '.join(values)}. "
            "EvaluateBenchmarks(..., details=True) adds further averages and subsets."
        )

    def _is_own(self, name: str | None) -> bool:
        return name is not None and _with_prefix(name).startswith(
            tuple(f"{_key(one.name)}_" for one in self.benchmarks)
        )

    # Scoring

    def _score_now(self) -> dict[str, float]:
        """The values of the weights as they are, scored and logged once between two steps."""
        # An evaluation of the trainer and a step of this callback may fall on the same weights.
        if self._values is not None:
            return self._values
        embedder = self._embedder()
        with fail_together():  # scoring and writing are the main process's alone
            values = self._score(embedder)
        self.trainer.log(dict(values))
        if self.trainer.is_in_train:
            self._values = values
        return values

    def _score(self, embedder: Embedder) -> dict[str, float]:
        trainer, main = self.trainer, self.trainer.is_world_process_zero()
        values: dict[str, float] = {}
        tables = []
        # Training with and without this callback must give the same weights.
        with _random_states_kept(embedder.device):
            for one, report in self._evaluator.score(embedder, progress=not trainer.args.disable_tqdm):
                if main:
                    values |= benchmark_values(one.benchmark, report.items, details=self.details)
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
        cache = EmbeddingCache()  # of these weights: benchmarks that share images encode them once
        backbone = self._backbone()
        return Embedder(backbone, self._processor, batch_size=self.batch_size, cache=cache, split=True)

    def _backbone(self) -> nn.Module:
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        if is_sharded(model):  # each process encodes with a copy of its own
            model = self.trainer.whole_model().to(self.trainer.args.device)
        return getattr(model, "backbone", model)

    def _found_processor(self, given: Any) -> Any:
        if given is not None and not _is_processor(given):
            raise ValueError(
                f"processing_class: found a {type(given).__name__}, expected a processor with a tokenizer and an "
                "image_processor, such as one from AutoProcessor.from_pretrained(...)."
            )
        own = self.trainer.processing_class if given is None else given
        return own if _is_processor(own) else load_processor(self._backbone(), argument="processing_class")


def benchmark_values(benchmark: Benchmark, items: pd.DataFrame, *, details: bool = False) -> dict[str, float]:
    """The few numbers of a benchmark that are watched in training, by the keys of [`EvaluateBenchmarks`].

    Args:
        details: whether further averages and the subsets have keys too; an average goes before a subset that is
            called the same.
    """
    if not len(items):
        return {}
    measures: dict[str, Measure] = {}
    outcomes = Outcomes(items)
    own = all_measures(outcomes.aspects, {title: benchmark.averages for title, _, _ in outcomes.aspects})
    for metric in dict.fromkeys(one.labels["metric"] for one in own):
        key = f"{_key(benchmark.name)}_{_word(metric)}"
        averages, lines = [], []
        for one in (one for one in own if one.labels["metric"] == metric):
            (averages if one.is_average else lines).append(one)
        # Several subsets without a declared average still need one number to watch.
        if not averages:
            averages = [Measure("mean over items", [tuple(line for one in lines for line in one.lines)])]
        measures[key] = averages[0]
        for one in (*averages[1:], *(lines if len(lines) > 1 else ())) if details else ():
            # An average may have the name of a subset. The average comes first and keeps the key.
            measures.setdefault(f"{key}/{_word(one.labels['subset'])}", one)
    values: dict[str, float] = {}
    for key, line in zip(measures, summarize(outcomes, measures=[*measures.values()], intervals=False), strict=True):
        (found,) = line["models"].values()
        values[key] = _number(found["value"])
        if "/" not in key:
            values[f"{key}_ties"] = _number(found["tie_rate"])
    return values


def _number(mean: float) -> float:
    # Between two equally good steps, rounding errors of sums must not make one the better.
    return round(float(mean), DIGITS)


def _word(name: str) -> str:
    return re.sub(r"[^a-z0-9@]+", "_", name.lower()).strip("_")


def _key(name: str) -> str:
    return f"eval_{_word(name)}"


def _with_prefix(name: str | None) -> str | None:
    """A metric's name as the Trainer looks for it."""
    return name if name is None or name.startswith("eval_") else f"eval_{name}"


def _is_processor(value: Any) -> bool:
    return hasattr(value, "tokenizer") and hasattr(value, "image_processor")


def _resolve(benchmarks: Sequence[str | Benchmark]) -> list[Benchmark]:
    if isinstance(benchmarks, str | Benchmark):
        raise TypeError("benchmarks: found a single one, expected a list.")
    found = [own for one in benchmarks for own in find_benchmarks([one])]
    names = [_word(one.name) for one in found]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if not names or twice:
        raise ValueError(f"benchmarks: found {twice or 'none'}, expected at least one, and each name once.")
    return found


@contextmanager
def _random_states_kept(device: torch.device) -> Iterator[None]:
    """Puts back the states of Python's, NumPy's and torch's generators: a probe or protocol may draw from them."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
