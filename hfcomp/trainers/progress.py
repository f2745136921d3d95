"""A stage's progress bar: which of how many it is, the time left for all, and the numbers one looks at meanwhile."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from transformers import ProgressCallback, TrainerCallback
from transformers.trainer_callback import PrinterCallback

# The metrics that are shown, by their names in the log. `history.json` has all metrics.
SHOWN = {
    "loss": "loss",
    "accuracy_image_to_text": "accuracy",
    "hard_negative_accuracy_image_to_text": "hard negatives",
    "hard_negative_accuracy": "hard negatives",
    "logit_scale": "scale",
}
NOTEBOOK_COLUMNS, NOT_LOGGED = {**SHOWN, "loss": "Training Loss"}, "No log"


@dataclass
class Pace:
    """Which stage of a run this is, and how fast the steps before it were.

    Attributes:
        stage: from 1.
        stages: of the whole run, this one included.
        steps: of the stages before.
        seconds: that these took.
        counter: A number shared between processes, which counts steps in place of a bar.
    """

    stage: int = 1
    stages: int = 1
    steps: int = 0
    seconds: float = 0.0
    counter: Any = None

    def add(self, steps: int, seconds: float) -> None:
        self.stage, self.steps, self.seconds = self.stage + 1, self.steps + steps, self.seconds + seconds

    def left(self, done: int, seconds: float, *, step: int, of: int) -> float | None:
        """Seconds left for all stages, where later ones have as many steps as this one; `None` before any step.

        Args:
            done: steps of this stage since it was started or resumed.
            seconds: that these took.
            step: where this stage stands.
            of: its steps.
        """
        steps = self.steps + done
        ahead = of - step + (self.stages - self.stage) * of
        return (self.seconds + seconds) / steps * ahead if steps else None


class StageProgress(ProgressCallback):
    """Shows the stage, the time left and a few metrics at the bar instead of printing every line of the log."""

    def __init__(self, name: str, pace: Pace | None = None) -> None:
        super().__init__()
        self.name = name
        self.pace = pace

    def describe(self, step: int, of: int) -> str:
        if self.pace is None:
            return self.name
        name = f"stage {self.pace.stage} of {self.pace.stages}: {self.name}"
        left = self.pace.left(step - self.first, time.perf_counter() - self.started, step=step, of=of)
        return name if left is None else f"{name}, {in_words(left)} left"

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
            self.training_bar.set_postfix({label: f"{logs[key]:.3g}" for key, label in SHOWN.items() if key in logs})


class StepCounter(TrainerCallback):
    """Counts steps for the bar of another process."""

    def __init__(self, counter: Any) -> None:
        self.counter = counter

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # A resumed run counts the steps before it.
        self._add(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._add(1)

    def _add(self, steps: int) -> None:
        # `+=` on a shared number reads and writes, and another process may come in between.
        with self.counter.get_lock():
            self.counter.value += steps


def in_words(seconds: float) -> str:
    """A time as `40 s`, `12 min` or `1 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def show_in_notebook(trainer: Any) -> None:
    """Replaces the table that transformers shows in a notebook, if it does, by one with the numbers of hfcomp."""
    for one in trainer.callback_handler.callbacks:
        # Compared by name: importing the class needs IPython, which only a notebook has.
        if type(one).__name__ == "NotebookProgressCallback":
            trainer.remove_callback(type(one))
            trainer.add_callback(_notebook_progress())
            return


def _notebook_progress() -> TrainerCallback:
    # A class within a function: importing its parent needs IPython.
    from transformers.utils.notebook import NotebookProgressCallback

    class NotebookProgress(NotebookProgressCallback):
        """Shows the objective's metrics, and values of benchmarks that are scored between evaluations.

        transformers' own shows the loss alone where the trainer does not evaluate.
        """

        def on_log(self, args: Any, state: Any, control: Any, logs: dict | None = None, **kwargs: Any) -> None:
            """Writes a line, or adds to that of the same step."""
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
    """Replaces transformers' progress bar; with `disable_tqdm` only warnings are shown."""
    trainer.remove_callback(ProgressCallback)
    # transformers prints every line of the log instead of a bar that is switched off.
    trainer.remove_callback(PrinterCallback)
    if pace is not None and pace.counter is not None:
        trainer.add_callback(StepCounter(pace.counter))
    elif not trainer.args.disable_tqdm:
        trainer.add_callback(StageProgress(name, pace))
