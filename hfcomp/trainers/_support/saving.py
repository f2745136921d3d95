"""Saves a trainer's model as plain files that transformers reads without hfcomp, in checkpoints and at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import upload_folder
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, HubStrategy, SaveStrategy
from transformers.utils import PushInProgress, logging

from hfcomp.modeling import DualEncoder
from hfcomp.reporting.cards.card import write_card
from hfcomp.trainers._support.model_card import as_list, trainer_card
from hfcomp.trainers._support.transformers_internals import AdaptedTrainer
from hfcomp.trainers.weight_average import WeightAverage


class SavingTrainer(AdaptedTrainer):
    """transformers' Trainer that saves plain models, plus what callbacks and the objective add to a checkpoint."""

    def whole_model(self, *, kept: bool = True) -> DualEncoder:
        """Returns the model with all its weights: the model itself, or a CPU copy if FSDP shards it.

        A collective if the model is sharded: all processes must call it, even those that do not need the copy.

        Args:
            kept: Whether this process needs the copy. Otherwise it gets weights without values.
        """
        return self.weights.whole_model(kept=kept)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the model, its processor, the objective's state and a model card (`README.md`).

        With FSDP, all processes must call it.
        """
        folder, saves = Path(output_dir or self.args.output_dir), self.args.should_save
        is_checkpoint = _internal_call and output_dir is not None
        if is_checkpoint:
            # Check before the first file is written, so no run resumes from a checkpoint with a NaN.
            self.check_finite()
        model = self.whole_model(kept=saves)
        if saves:
            folder.mkdir(parents=True, exist_ok=True)
            # An upload in a thread may still be reading the files that are written next.
            for pushes in self._find_callbacks(HubPushes):
                pushes.wait()
            model.save_pretrained(folder)
            self.processing_class.save_pretrained(folder)
        if is_checkpoint:
            for average in self._find_callbacks(WeightAverage):
                average.save(folder, self.model, writes=saves)
            if saves:
                self.after_save(folder)
        if not _internal_call:
            if self.args.push_to_hub:
                self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)
            if saves:
                write_card(folder, trainer_card(self))

    def load_checkpoint(self, folder: Path) -> None:
        """Loads a checkpoint's weights, and what callbacks and the objective saved with them."""
        super().load_checkpoint(folder)
        for average in self._find_callbacks(WeightAverage):
            average.load(folder)
        self.after_load(folder)

    def _find_callbacks(self, kind: type) -> list[Any]:
        return [callback for callback in self.callback_handler.callbacks if isinstance(callback, kind)]

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
        """Writes the model card in `output_dir`, as `push_to_hub` does. A card that was edited by hand is kept.

        Args:
            language: Language of the texts, such as `en`.
            license: License of the model, such as `apache-2.0`.
            tags: Further tags.
            model_name: Not used; the card is named after the method.
            finetuned_from: Base model, if the model does not name it.
            tasks: Further tags.
            dataset_tags: Hub ids of the training data, if the rows do not name them.
            dataset: Further Hub ids of the training data.
            dataset_args: Not used.
        """
        if not self.is_world_process_zero():
            return
        # These arguments are transformers' own, which `push_to_hub` passes on. Our card does not use all of them.
        data, further = [*as_list(dataset_tags), *as_list(dataset)], [*as_list(tags), *as_list(tasks)]
        facts = {"language": language, "license": license}
        card = trainer_card(self, base=finetuned_from, datasets=data, tags=further, **facts)
        write_card(Path(self.args.output_dir), card)


logger = logging.get_logger(__name__)

# Not part of the model: underscored files are caches, and pickles can run code when they are loaded.
LEFT_OUT = ["_*", f"{PREFIX_CHECKPOINT_DIR}-*", "training_args.bin"]
LAST_CHECKPOINT = "last-checkpoint"


class HubPushes(TrainerCallback):
    """Pushes the model and checkpoints of a training with `push_to_hub=True`, according to `hub_strategy`.

    Works as in transformers, but without `training_args.bin`, and with the objective's state and a card of the method.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._strategy = trainer.args.hub_strategy
        self._uploads = PushInProgress()

    def wait(self) -> None:
        """Waits for uploads, which read the files in `output_dir`."""
        if not self._uploads.is_done():
            logger.info("Waiting for a push to the Hub to finish.")
        self._uploads.wait_until_done()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer = self._trainer
        if self._strategy == HubStrategy.END:
            return
        if trainer.weights.is_sharded:  # joining the weights needs all processes
            trainer.save_model(_internal_call=True)
        if not state.is_world_process_zero or (not self._uploads.is_done() and not args.hub_always_push):
            return
        trainer.callback_handler.on_push_begin(args, state, control)
        # The upload reads output_dir, which has no model until training ends.
        if not trainer.weights.is_sharded:
            trainer.save_model(_internal_call=True)
        by_steps = args.save_strategy == SaveStrategy.STEPS
        position = f"step {state.global_step}" if by_steps else f"epoch {int(state.epoch)}"
        message = f"Training in progress, {position}"
        jobs = [self._start_upload(args.output_dir, message, ignore_patterns=LEFT_OUT)]
        if self._strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
            checkpoint = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
            place = LAST_CHECKPOINT if self._strategy == HubStrategy.CHECKPOINT else checkpoint.name
            jobs.append(self._start_upload(checkpoint, f"{message}, checkpoint", path_in_repo=place))
        self._uploads = PushInProgress(jobs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.wait()

    def _start_upload(self, folder: str | Path, message: str, **options: Any) -> Any:
        args = self._trainer.args
        return upload_folder(
            repo_id=self._trainer.hub_model_id,
            folder_path=folder,
            commit_message=message,
            token=args.hub_token,
            revision=args.hub_revision,
            run_as_future=True,
            **options,
        )
