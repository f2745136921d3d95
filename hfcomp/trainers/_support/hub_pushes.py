"""Pushes of checkpoints to the Hub while a model trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, HubStrategy, SaveStrategy
from transformers.utils import PushInProgress, hf_api, logging

logger = logging.get_logger(__name__)

# Not of the model: underscored files are caches, and pickles run code where they are read.
LEFT_OUT = ["_*", f"{PREFIX_CHECKPOINT_DIR}-*", "training_args.bin"]
LAST_CHECKPOINT = "last-checkpoint"


class HubPushes(TrainerCallback):
    """Pushes model and checkpoint of a training with `push_to_hub=True`, as its `hub_strategy` says.

    As transformers does it, but without `training_args.bin`, and with the objective's state and a card of the method.

    Args:
        trainer: the trainer, whose config is the one that the user gave.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._strategy = trainer.args.hub_strategy
        self._uploads = PushInProgress()

    def wait(self) -> None:
        """Waits for uploads, which read the files of `output_dir`."""
        if not self._uploads.is_done():
            logger.info("Waiting for a push to the Hub to finish.")
        self._uploads.wait_until_done()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Starts the uploads; training goes on meanwhile."""
        trainer = self._trainer
        if self._strategy == HubStrategy.END:
            return
        if trainer.weights.is_sharded:  # joining the weights takes all processes
            trainer.save_model(_internal_call=True)
        if not state.is_world_process_zero or (not self._uploads.is_done() and not args.hub_always_push):
            return
        trainer.callback_handler.on_push_begin(args, state, control)
        if not trainer.weights.is_sharded:
            trainer.save_model(_internal_call=True)
        by_steps = args.save_strategy == SaveStrategy.STEPS
        at = f"step {state.global_step}" if by_steps else f"epoch {int(state.epoch)}"
        message = f"Training in progress, {at}"
        jobs = [self._start_upload(args.output_dir, message, ignore_patterns=LEFT_OUT)]
        if self._strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
            checkpoint = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
            place = LAST_CHECKPOINT if self._strategy == HubStrategy.CHECKPOINT else checkpoint.name
            jobs.append(self._start_upload(checkpoint, f"{message}, checkpoint", path_in_repo=place))
        self._uploads = PushInProgress(jobs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Waits for the last upload."""
        self.wait()

    def _start_upload(self, folder: str | Path, message: str, **how: Any) -> Any:
        args = self._trainer.args
        return hf_api().upload_folder(
            repo_id=self._trainer.hub_model_id,
            folder_path=folder,
            commit_message=message,
            token=args.hub_token,
            revision=args.hub_revision,
            run_as_future=True,
            **how,
        )
