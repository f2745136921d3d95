"""The table that a notebook shows while training runs, with the numbers of hfcomp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers.utils.notebook import NotebookProgressCallback

LOSS, NOT_LOGGED = "Training Loss", "No log"


class NotebookProgress(NotebookProgressCallback):
    """Shows the objective's metrics, and values of benchmarks that are scored between evaluations.

    transformers' own shows the loss alone where the trainer does not evaluate.

    Args:
        labels: Headings of the objective's metrics, by their key in the log.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__()
        self._labels = {**labels, "loss": LOSS}

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Writes a line, or adds to that of the same step."""
        tracker, logs = self.training_tracker, logs or {}
        values = {label: logs[key] for key, label in self._labels.items() if key in logs}
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
