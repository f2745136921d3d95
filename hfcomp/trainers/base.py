"""`CompositionalTrainer`: transformers' Trainer for objectives that contrast a whole batch of images and texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.utils import logging

from hfcomp.data.collators import exact_collator
from hfcomp.data.columns import BATCH_KEYS, COUNTED_KEYS, RESERVED_KEYS, TEXT_IDS
from hfcomp.data.sampling.draws import require_lists, without_crops
from hfcomp.data.sampling.streaming import SkippingCollator, StreamedRows
from hfcomp.distributed import gather_sizes, sum_loss, sum_over_processes, world_size
from hfcomp.distributed.shards import local_part
from hfcomp.fields import Features
from hfcomp.modeling import DualEncoder, freeze_towers, load_backbone, load_processor
from hfcomp.reading import nearest
from hfcomp.trainers._support.callbacks import default_callbacks
from hfcomp.trainers._support.gathering import first_rows, gather_over_processes
from hfcomp.trainers._support.model_setup import (
    align_special_tokens,
    check_processes,
    check_trainable,
    check_used,
    compile_towers,
    list_first,
    set_attention,
    with_adapter,
)
from hfcomp.trainers._support.replay import add_replay, batch_row_numbers, check_replay, replay_rows
from hfcomp.trainers._support.row_report import (
    check_boxes,
    check_image_ids,
    check_streamed_rows,
    check_text_ids,
    report_rows,
)
from hfcomp.trainers._support.sampling import EpochSampling, sample_epochs
from hfcomp.trainers._support.saving import SavingTrainer
from hfcomp.trainers._support.sharded_weights import make_weights
from hfcomp.trainers._support.step_log import ChangedWeights, StepLog
from hfcomp.trainers._support.transformers_internals import (
    forget_preparation,
    prepare_loader,
    rows_of_last_batch,
    set_loader_sampler,
    train_batch_size,
    without_checkpoint_pushes,
)
from hfcomp.trainers.config import CompositionalConfig
from hfcomp.trainers.hooks import COUNTED_FEATURES, ObjectiveHooks
from hfcomp.trainers.progress import show_in_notebook
from hfcomp.writing import write_text

logger = logging.get_logger(__name__)


class CompositionalTrainer(ObjectiveHooks, SavingTrainer):
    """Base of every objective: a subclass lists the features it requires and computes its loss in `compute_loss`.

    The subclass calls [`gather_features`] once, passes the features of the global batch to a loss of `hfcomp.losses`
    with `rows=features.rows`, and returns [`reduce_loss`]. The result is exact on any number of processes.
    [`hfcomp.trainers.hooks.ObjectiveHooks`] lists what else a subclass may override.

    Args:
        model: Hub id, folder (of a model or an adapter), `PreTrainedModel` or `PeftModel`. A module is trained in
            place, and weights that the objective does not use stay frozen in it afterwards. Weights from a file are
            loaded as fp32, whatever their type; `bf16=True` computes in half precision.
        args: Config, an instance of the class's `config_class`.
        train_dataset: `datasets.Dataset` that follows the column contract in `hfcomp.data.columns`.
        eval_dataset: Dataset of the same form, or a dictionary of such datasets.
        processing_class: Processor of the model. Defaults to the one in the model's folder.
        data_collator: Replacement for `CompositionalCollator` that returns keys of `BATCH_KEYS`.
        replay_dataset: `datasets.Dataset` in the same column contract. Its rows join those of `train_dataset` in
            every batch; the config's `replay_fraction` sets how many.
        peft_config: `PeftConfig` to use instead of the config's `peft` and `lora_` fields: a new adapter is trained
            on the frozen model. `logit_scale`, `logit_bias` and the objective's own state are trained with it.
        kwargs: Passed on to `transformers.Trainer`.

    Raises:
        ValueError: For a missing column, an adapter without effect, a dataset smaller than a batch, unknown or
            reserved batch keys, or several GPUs without a launcher.
    """

    # Every loss is a mean over the batch: the Trainer divides it by the number of accumulation steps, once.
    loss_is_scaled_for_ga = False

    def __init__(
        self,
        model: str | Path | nn.Module,
        args: CompositionalConfig | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        data_collator: Any = None,
        compute_metrics: Any = None,
        peft_config: Any = None,
        replay_dataset: Any = None,
        **kwargs: Any,
    ) -> None:
        args = args if args is not None else self.config_class(output_dir="trainer_output")
        if not isinstance(args, self.config_class):
            raise TypeError(f"{type(self).__name__} takes a {self.config_class.__name__}, not {type(args).__name__}.")
        check_processes(args)
        check_replay(replay_dataset, args)
        # In the file's own half precision a small learning rate would move almost no weight.
        backbone = load_backbone(model, dtype=torch.float32)
        set_attention(backbone, args.attn_implementation)
        check_trainable(backbone)
        freeze_towers(backbone, args.freeze_towers or [])
        if processing_class is None:
            processing_class = load_processor(model, argument="processing_class")
        # Must come first: it sets the required features, which determine what is read, computed and frozen.
        self.setup(args, backbone)
        self._check_settings(args)
        adapted = with_adapter(backbone, args, peft_config, self.required_features)
        has_new_adapter, backbone = adapted is not backbone, adapted
        own = self.collator_class(processing_class, backbone.config, **self.collator_settings(args))
        encoder = DualEncoder(
            backbone,
            self.objective_state(args),
            required_features=self.required_features,
            image_mean=own.transform.mean,
            image_std=own.transform.std,
            rescale_factor=own.transform.rescale_factor,
            mini_batch_size=args.mini_batch_size,
        )
        align_special_tokens(encoder.config, processing_class.tokenizer)
        frozen = encoder.freeze_unused()
        if has_new_adapter:
            check_used([name for name in frozen if ".lora_" in name])
        if frozen:
            logger.warning(f"{type(self).__name__} freezes weights that it does not use: {list_first(frozen)}")
        rows = self.training_rows(without_crops(train_dataset), args)
        rows = self._sample_crops(add_replay(rows, replay_dataset, args), args)
        if args.draw_captions and rows is not None:
            require_lists(getattr(rows, "dataset", rows).features or {})
        super().__init__(
            model=encoder,
            args=args,
            train_dataset=rows,
            eval_dataset={name: self.read_rows(part, args) for name, part in eval_dataset.items()}
            if isinstance(eval_dataset, dict)
            else self.read_rows(eval_dataset, args),
            processing_class=processing_class,
            data_collator=data_collator or own,
            compute_metrics=compute_metrics or self.evaluation_metrics,
            **kwargs,
        )
        # Whether weights are sharded is a setting of the accelerator, which the Trainer has just created.
        self.weights = make_weights(self)
        compile_towers(self)
        # The Trainer computes a loss in evaluation only if it finds labels, or if none are expected and the model can
        # return a loss.
        self.label_names = []
        self.can_return_loss = True
        self.step_log = StepLog()
        self.changed_weights = ChangedWeights(encoder)
        self._outputs: dict[str, torch.Tensor] = {}
        self._sampling: EpochSampling | None = None
        self._eval_loaders: dict[str, Any] = {}
        for callback in default_callbacks(self):
            self.add_callback(callback)
        if self.args.push_to_hub:
            self.args = without_checkpoint_pushes(self.args)
        show_in_notebook(self)

    # The two steps of every loss

    def gather_features(self, model: nn.Module, inputs: dict[str, Any]) -> Features:
        """Runs one forward pass and returns the features of the global batch on every process.

        Embeddings are gathered with gradient; masks, kinds, ratings and ids without. Tokens are not gathered.

        Args:
            model: The model passed to `compute_loss`, so DDP sees the forward pass.
            inputs: Batch returned by the collator.

        Returns:
            `Features` of the `N` global rows; `rows` is this process's slice of them.
        """
        self._check_keys(inputs)
        check_image_ids(inputs, self.train_dataset if self.model.training else None, self.required_features)
        if self.model.training and self.args.mask_equal_texts:
            check_text_ids(inputs, self.required_features)
        if self.model.training and self.args.random_crop < 1:
            check_boxes(inputs, self.args.random_crop)
        left_out = COUNTED_KEYS if self.args.mask_equal_texts else (*COUNTED_KEYS, *TEXT_IDS)
        local = model(**{key: inputs[key] for key in inputs if key in BATCH_KEYS and key not in left_out})
        if self.model.training:
            self.step_log.count(inputs)
        else:
            self._outputs = self.evaluation_outputs(local, inputs)
        return self._gather(local, len(inputs["row"]))

    def reduce_loss(
        self,
        loss: torch.Tensor,
        metrics: dict[str, torch.Tensor],
        features: Features,
        return_outputs: bool = False,
    ) -> Any:
        """Sums the loss over processes and stores the values to log, without waiting for the device.

        Args:
            loss: This process's part, as returned by a loss with `rows`.
            metrics: Detached scalars, also a part; logged as the mean over steps of the sum over processes.
                NaN marks a step with nothing to measure, on all processes or none, and is left out of the mean.
            features: The return value of [`gather_features`].
            return_outputs: As in `compute_loss`.

        Returns:
            The loss of the global batch, or `(loss, outputs)` with `return_outputs`. The outputs are those of
            [`ObjectiveHooks.evaluation_outputs`].
        """
        total = sum_loss(loss)
        if self.model.training:
            state = {"logit_scale": features.logit_scale, "logit_bias": features.logit_bias}
            self.step_log.record(total, metrics, {**state, **(features.learned or {})})
        if not return_outputs:
            return total
        return total, {"loss": total, **self._outputs}

    # Batches

    def _gather(self, local: Features, size: int) -> Features:
        # With `dataloader_drop_last`, the batches of all processes have the same number of rows, in evaluation too,
        # where accelerate fills up the last batch. The sizes then need no collective and no wait for the device.
        equal = self.args.dataloader_drop_last
        sizes = [size] * world_size() if equal else gather_sizes(size, self.args.device)
        features = gather_over_processes(local, sizes)
        if self.model.training or world_size() == 1:
            return features
        # In evaluation, accelerate pads the last batch with rows from the start; they would be false negatives.
        return first_rows(features, rows_of_last_batch(self.accelerator), sum(sizes))

    def _check_keys(self, inputs: dict[str, Any]) -> None:
        for key in inputs:
            if key in RESERVED_KEYS:
                raise ValueError(f"the collator returned the reserved key {key!r}. Rename it.")
            if key not in BATCH_KEYS and key not in self.extra_batch_keys:
                raise ValueError(
                    f"the collator returned the key {key!r}, which nothing reads.{nearest(key, BATCH_KEYS)} "
                    f"If compute_loss reads it itself, add it to {type(self).__name__}.extra_batch_keys."
                )
        if "row" not in inputs:
            raise ValueError("the collator returned no 'row'. Add a long tensor [B] of row indices in the dataset.")

    def _check_settings(self, args: CompositionalConfig) -> None:
        clash = set(self.extra_batch_keys) & {*BATCH_KEYS, *RESERVED_KEYS}
        if clash:
            raise ValueError(f"{type(self).__name__}.extra_batch_keys clashes with hfcomp's own keys {sorted(clash)}.")
        for name, field_name in COUNTED_FEATURES.items():
            value = getattr(args, name)
            if value and field_name not in self.required_features:
                raise ValueError(f"{name}={value}, but {type(self).__name__} does not use {field_name!r}. Remove it.")
            if not value and field_name in self.required_features:
                raise ValueError(f"{type(self).__name__} needs {name} to be at least 1, not {value}.")

    def get_train_dataloader(self) -> Any:
        """Returns the training batches. Rejects a dataset smaller than a global batch and counts the rows left out."""
        if self.train_dataset is None:
            raise ValueError("Training requires a train_dataset.")
        rows, size = self.read_rows(self.train_dataset, self.args), train_batch_size(self)
        is_stream = isinstance(rows, StreamedRows)  # which yields only full batches
        if not is_stream and not self.args.dataloader_drop_last and self.args.world_size > 1:
            raise ValueError(
                "dataloader_drop_last=False with several processes would pad the last batch with repeated rows, which "
                "are false negatives. Leave it at true."
            )
        if not is_stream and self.args.dataloader_drop_last:
            self.check_epoch(size * self.args.world_size)
        report_rows(self.train_dataset, type(self), self.args, self.required_features)
        collator = self.collator_of(rows)
        self._sampling = None if is_stream else sample_epochs(self, rows)
        loader = prepare_loader(
            self,
            rows,
            batch_size=self.all_rows_per_batch(size),
            collate=SkippingCollator(collator) if is_stream else collator,
            sampler=self._sampling and self._sampling.sampler,
            is_training=True,
        )
        if self._sampling and self._sampling.is_own:
            set_loader_sampler(loader)
        return loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Returns the batches of an evaluation set: all of its rows, in their order.

        Args:
            eval_dataset: Dataset, or the name of one in `self.eval_dataset`. Defaults to `self.eval_dataset` itself.
        """
        name = eval_dataset if isinstance(eval_dataset, str) else "" if eval_dataset is None else None
        if name in self._eval_loaders:  # with its workers
            return self._eval_loaders[name]
        rows = self.eval_dataset[name] if name else self.eval_dataset if name == "" else eval_dataset
        if rows is None:
            raise ValueError("Evaluation requires an eval_dataset.")
        self.weights.check_evaluation()
        rows = self.read_rows(without_crops(rows), self.args)
        if isinstance(rows, StreamedRows):
            raise TypeError("An evaluation set cannot be streamed. Load it without streaming=True.")
        loader = prepare_loader(self, rows, batch_size=self.args.eval_batch_size, collate=self._exact_collator(rows))
        if name is not None and self.args.dataloader_persistent_workers:
            self._eval_loaders[name] = loader
        return loader

    def _exact_collator(self, rows: Any) -> Any:
        # An objective wraps `self.data_collator` in `collator_of`. For the duration of the call, it is the collator
        # that decodes images in full.
        original, self.data_collator = self.data_collator, exact_collator(self.data_collator)
        try:
            return self.collator_of(rows)
        finally:
            self.data_collator = original

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Returns the batches as in evaluation."""
        return self.get_eval_dataloader(test_dataset)

    def all_rows_per_batch(self, batch_size: int) -> int:
        """Returns the rows per training batch and process, including rows that others bring along and replay rows.

        Args:
            batch_size: Task rows per process, `per_device_train_batch_size`.
        """
        return self.rows_per_batch(batch_size) + replay_rows(self.args, batch_size) // self.args.world_size

    # Logging

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds the objective's metrics to a log line, and stops a run whose loss is not finite."""
        # "train_loss" is in the last line of a run, which may fall between two logging steps.
        if "loss" in logs or "train_loss" in logs:
            self._stop_if_not_finite()
            changed_fraction = self.changed_weights.value()
            if "train_loss" in logs:
                self._stop_if_weights_not_finite()
                self.changed_weights.warn(changed_fraction, self.args.learning_rate)
            logs |= {**self.step_log.drain(), "changed_weight_fraction": changed_fraction}
            check_streamed_rows(self.train_dataset, logs, self.state.log_history, type(self), self.args)
        if "loss" in logs and self._sampling:
            logs |= self._sampling.unplaced_rows()
        super().log(logs, start_time)

    def check_finite(self) -> None:
        """Stops a run whose loss or weights are not finite."""
        self._stop_if_not_finite()
        self._stop_if_weights_not_finite()

    def _stop_if_not_finite(self) -> None:
        failure = self.step_log.first_not_finite()
        if failure is None:
            return
        batches_ago, loss, rows = failure
        # With gradient accumulation a step consists of several batches.
        step = self.state.global_step - batches_ago // self.args.gradient_accumulation_steps
        path = Path(self.args.output_dir) / "nonfinite_batch.json"
        if self.args.should_save:
            write_text(path, json.dumps({"step": step, "loss": str(loss), **batch_row_numbers(self, rows)}))
        raise FloatingPointError(
            f"the loss is {loss} at step {step}; the rows of that batch are listed in {path}. Nothing was saved after "
            "it. Fix or remove these rows and resume from the last checkpoint. To change the learning rate or "
            "precision, start a new run with that checkpoint's folder as the model."
        )

    def _stop_if_weights_not_finite(self) -> None:
        # A finite loss may have a non-finite gradient, which damages the weights before the next loss shows it. The
        # sum is taken over processes because all must raise together; with FSDP each process sees only its own part.
        trained = [local_part(weight.detach()) for weight in self.model.parameters() if weight.requires_grad]
        if trained and not torch.isfinite(sum_over_processes(sum(weight.float().abs().sum() for weight in trained))):
            raise FloatingPointError(
                f"the weights are not finite at step {self.state.global_step}, although the loss was: a gradient was "
                "NaN or infinite. Nothing was saved. Start a new run from the last checkpoint's folder with a lower "
                "learning rate, or bf16 instead of fp16; or check the objective for a square root or logarithm of 0."
            )

    # Optimizer, checkpoints

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Selects matrices only: scalars and vectors (scale, bias, norms, class embedding) have no weight decay."""
        return [name for name, parameter in model.named_parameters() if parameter.ndim >= 2]

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Creates transformers' optimizer, or Adam instead of AdamW with `decoupled_weight_decay=False`."""
        if not self.args.decoupled_weight_decay and self.optimizer is None and self.optimizer_cls_and_kwargs is None:
            # transformers has no `optim` for torch's Adam, which takes the same arguments as AdamW.
            _, settings = self.get_optimizer_cls_and_kwargs(self.args, self.model)
            self.optimizer_cls_and_kwargs = torch.optim.Adam, settings
        # transformers before 5.3 takes no model.
        optimizer = super().create_optimizer() if model is None else super().create_optimizer(model)
        # transformers calls this last before accelerate prepares the model.
        forget_preparation(self.model)
        self.weights.prepare(optimizer)
        return optimizer
