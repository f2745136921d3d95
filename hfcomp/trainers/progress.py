"""Progress bar of a stage: its number, the time left for all stages, and the metrics to watch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from transformers import ProgressCallback, TrainerCallback
from transformers.trainer_callback import PrinterCallback

# Displayed metrics, by their name in the log. `history.json` has all metrics.
DISPLAYED = {
    "loss": "loss",
    "accuracy_image_to_text": "accuracy",
    "hard_negative_accuracy_image_to_text": "hard negatives",
    "hard_negative_accuracy": "hard negatives",
    "logit_scale": "scale",
}
NOTEBOOK_COLUMNS, NOT_LOGGED = {**DISPLAYED, "loss": "Training Loss"}, "No log"


@dataclass
class Pace:
    """Position of a stage in its run, and the speed of the steps before it.

    Attributes:
        stage: Number of this stage, from 1.
        stages: Number of stages in the run, including this one.
        steps: Total steps of the previous stages.
        seconds: Total seconds of the previous stages.
        counter: Number shared between processes that counts steps instead of a bar.
    """

    stage: int = 1
    stages: int = 1
    steps: int = 0
    seconds: float = 0.0
    counter: Any = None

    def add(self, steps: int, seconds: float) -> None:
        self.stage, self.steps, self.seconds = self.stage + 1, self.steps + steps, self.seconds + seconds

    def seconds_left(self, done: int, seconds: float, *, step: int, total: int) -> float | None:
        """Estimates the seconds left for all stages, if later ones have as many steps; `None` before the first step.

        Args:
            done: Steps of this stage since it was started or resumed.
            seconds: Seconds these steps took.
            step: Current step of this stage.
            total: Number of steps of this stage.
        """
        steps = self.steps + done
        ahead = total - step + (self.stages - self.stage) * total
        return (self.seconds + seconds) / steps * ahead if steps else None


class StageProgress(ProgressCallback):
    """Shows the stage, the time left and a few metrics next to the bar instead of printing every log line."""

    def __init__(self, name: str, pace: Pace | None = None) -> None:
        super().__init__()
        self.name = name
        self.pace = pace

    def describe(self, step: int, total: int) -> str:
        if self.pace is None:
            return self.name
        name = f"stage {self.pace.stage} of {self.pace.stages}: {self.name}"
        left = self.pace.seconds_left(step - self.first, time.perf_counter() - self.started, step=step, total=total)
        return name if left is None else f"{name}, {format_duration(left)} left"

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        self.first, self.started = state.global_step, time.perf_counter()
        if self.training_bar is not None:
            self.training_bar.set_description(self.describe(state.global_step, state.max_steps))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.training_bar is not None:
            self.training_bar.set_description(self.describe(state.global_step, state.max_steps), refresh=False)
        super().on_step_end(args, state, control, **kwargs)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if self.training_bar is not None and logs and "loss" in logs:
            values = {label: f"{logs[key]:.3g}" for key, label in DISPLAYED.items() if key in logs}
            self.training_bar.set_postfix(values)


class StepCounter(TrainerCallback):
    """Counts steps for another process's bar."""

    def __init__(self, counter: Any) -> None:
        self.counter = counter

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # A resumed run also counts the steps before it.
        self._add(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._add(1)

    def _add(self, steps: int) -> None:
        # `+=` on a shared number is a read and a write; another process may interfere between them.
        with self.counter.get_lock():
            self.counter.value += steps


def format_duration(seconds: float) -> str:
    """Formats a time as `40 s`, `12 min` or `1 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def show_in_notebook(trainer: Any) -> None:
    """Replaces the table that transformers shows in a notebook, if any, with one that has hfcomp's metrics."""
    for callback in trainer.callback_handler.callbacks:
        # Compare names, because importing the class needs IPython, which only a notebook has.
        if type(callback).__name__ == "NotebookProgressCallback":
            trainer.remove_callback(type(callback))
            trainer.add_callback(_notebook_progress())
            return


def _notebook_progress() -> TrainerCallback:
    # The class is local because importing its parent needs IPython.
    from transformers.utils.notebook import NotebookProgressCallback

    class NotebookProgress(NotebookProgressCallback):
        """Shows the objective's metrics, and scores of benchmarks that are run between evaluations.

        transformers' own callback shows only the loss if the trainer does not evaluate.
        """

        def on_log(self, args: Any, state: Any, control: Any, logs: dict | None = None, **kwargs: Any) -> None:
            """Writes a line, or extends the line of the same step."""
            tracker, logs = self.training_tracker, logs or {}
            values = {label: logs[key] for key, label in NOTEBOOK_COLUMNS.items() if key in logs}
            values |= {
                key.removeprefix("eval_").replace("_", " "): value
                for key, value in logs.items()
                if key.startswith("eval_") and not key.endswith(("_ties", "_best", "_best_step"))
            }
            if args.eval_strategy != "no" or tracker is None or not values:
                return
            columns, *rows = tracker.inner_table
            fresh = {} if rows and rows[-1][0] == state.global_step else dict.fromkeys(columns, NOT_LOGGED)
            tracker.write_line({**fresh, **values, "Step": state.global_step})
            self._force_next_update = True

    return NotebookProgress()


def show_progress(trainer: Any, name: str, pace: Pace | None = None) -> None:
    """Replaces transformers' progress bar. With `disable_tqdm`, only warnings are shown."""
    trainer.remove_callback(ProgressCallback)
    # If the bar is off, transformers prints every log line instead.
    trainer.remove_callback(PrinterCallback)
    if pace is not None and pace.counter is not None:
        trainer.add_callback(StepCounter(pace.counter))
    elif not trainer.args.disable_tqdm:
        trainer.add_callback(StageProgress(name, pace))
