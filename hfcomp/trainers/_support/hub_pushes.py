"""Pushes to the Hub: as transformers', without the pickle of the arguments, and with a card of the method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, HubStrategy, SaveStrategy
from transformers.utils import PushInProgress, hf_api

from hfcomp.reporting.cards.card import write_card
from hfcomp.trainers._support.model_card import as_list, trainer_card

# Not of the model: underscored files are caches, and pickles run code where they are read.
LEFT_OUT = ["_*", f"{PREFIX_CHECKPOINT_DIR}-*", "training_args.bin"]
LAST_CHECKPOINT = "last-checkpoint"


class HubPushes:
    """`Trainer` with `push_to_hub=True`, whose checkpoints bring no `training_args.bin` into the repository."""

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Pushes the model after a checkpoint, as `hub_strategy` says, while training goes on."""
        args = self.args
        if args.hub_strategy == HubStrategy.END:
            return
        if self.is_fsdp_enabled:  # joining the weights takes all processes
            self.save_model(_internal_call=True)
        if not self.is_world_process_zero():
            return
        is_pushing = self.push_in_progress is not None and not self.push_in_progress.is_done()
        if is_pushing and not args.hub_always_push:
            return
        self.callback_handler.on_push_begin(args, self.state, self.control)
        if not self.is_fsdp_enabled:
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

    def create_model_card(
        self,
        language: str | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        model_name: str | None = None,
        finetuned_from: str | None = None,
        tasks: str | list[str] | None = None,
        dataset_tags: str | list[str] | None = None,
        dataset: str | list[str] | None = None,
        dataset_args: str | list[str] | None = None,
    ) -> None:
        """Writes the model card in `output_dir`, as `push_to_hub` does; one that was changed by hand stays.

        Args:
            language: of the texts, as `en`.
            license: of the model, as `apache-2.0`.
            tags: further ones.
            model_name: not used: the card is named after the method.
            finetuned_from: the base, where the model does not say it.
            tasks: further tags.
            dataset_tags: ids of the training data on the Hub, where the rows do not say it.
            dataset: likewise.
            dataset_args: not used.
        """
        if not self.is_world_process_zero():
            return
        card = trainer_card(
            self,
            base=finetuned_from,
            datasets=[*as_list(dataset_tags), *as_list(dataset)],
            tags=[*as_list(tags), *as_list(tasks)],
            language=language,
            license=license,
        )
        write_card(Path(self.args.output_dir), card)
