"""A stage's progress bar: its name, the steps, and the numbers that one looks at while it runs."""

from __future__ import annotations

from typing import Any

from transformers import ProgressCallback
from transformers.trainer_callback import PrinterCallback

# Of all metrics, which are in `history.json`.
SHOWN = {
    "loss": "loss",
    "accuracy_image_to_text": "accuracy",
    "hard_negative_accuracy_image_to_text": "hard negatives",
    "hard_negative_accuracy": "hard negatives",
    "logit_scale": "scale",
}


class StageProgress(ProgressCallback):
    """Shows a few metrics behind the bar instead of printing every line of the log."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Opens the bar, named."""
        super().on_train_begin(args, state, control, **kwargs)
        if self.training_bar is not None:
            self.training_bar.set_description(self.name)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Updates the numbers."""
        if self.training_bar is not None and logs and "loss" in logs:
            self.training_bar.set_postfix({label: f"{logs[key]:.3g}" for key, label in SHOWN.items() if key in logs})


def show_progress(trainer: Any, name: str) -> None:
    """Puts the bar in the place of transformers' own; with `disable_tqdm` nothing is shown but warnings."""
    trainer.remove_callback(ProgressCallback)
    trainer.remove_callback(PrinterCallback)
    if not trainer.args.disable_tqdm:
        trainer.add_callback(StageProgress(name))
