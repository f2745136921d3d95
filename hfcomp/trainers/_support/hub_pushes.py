"""Pushes during training: as transformers', without the pickle of the arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, HubStrategy, SaveStrategy
from transformers.utils import PushInProgress, hf_api

# Not of the model: underscored files are caches, and pickles run code where they are read.
LEFT_OUT = ["_*", f"{PREFIX_CHECKPOINT_DIR}-*", "training_args.bin"]
LAST_CHECKPOINT = "last-checkpoint"


class HubPushes:
    """`Trainer` with `push_to_hub=True`, whose checkpoints bring no `training_args.bin` into the repository."""

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Pushes the model after a checkpoint, as `hub_strategy` says, while training goes on."""
        args = self.args
        if not self.is_world_process_zero() or args.hub_strategy == HubStrategy.END:
            return
        is_pushing = self.push_in_progress is not None and not self.push_in_progress.is_done()
        if is_pushing and not args.hub_always_push:
            return
        self.callback_handler.on_push_begin(args, self.state, self.control)
        self.save_model(_internal_call=True)
        by_steps = args.save_strategy == SaveStrategy.STEPS
        at = f"step {self.state.global_step}" if by_steps else f"epoch {int(self.state.epoch)}"
        message = f"Training in progress, {at}"
        jobs = [self._start_upload(args.output_dir, message, ignore_patterns=LEFT_OUT)]
        if args.hub_strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
            is_last = args.hub_strategy == HubStrategy.CHECKPOINT
            place = LAST_CHECKPOINT if is_last else Path(checkpoint_folder).name
            jobs.append(self._start_upload(checkpoint_folder, f"{message}, checkpoint", path_in_repo=place))
        self.push_in_progress = PushInProgress(jobs)

    def _start_upload(self, folder: str, message: str, **how: Any) -> Any:
        """An upload in a thread of its own."""
        return hf_api().upload_folder(
            repo_id=self.hub_model_id,
            folder_path=folder,
            commit_message=message,
            token=self.args.hub_token,
            revision=self.args.hub_revision,
            run_as_future=True,
            **how,
        )
