"""Hooks of `CompositionalTrainer` that an objective may override, each with a default."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset, IterableDataset
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import Sampler
from transformers.utils import logging

from hfcomp.data.collators import CompositionalCollator, too_few_negatives
from hfcomp.data.columns import rename_columns, require_columns
from hfcomp.data.formats.image_files import Folders, with_image_files
from hfcomp.data.image_ids import IMAGE_ID, with_shared_ids
from hfcomp.data.images import decode_image
from hfcomp.data.loading import TrainingRows, first_short_row
from hfcomp.data.pair_table import has_lists
from hfcomp.data.pixels.store import read_manifest
from hfcomp.data.row_checks import check_contents
from hfcomp.data.sampling.draws import DrawnCaptions, DrawnCrops, DrawnRows, check_drawn_captions
from hfcomp.data.sampling.streaming import StreamedRows, check_names
from hfcomp.data.transforms import ImageTransform, TransformedRows, image_transform
from hfcomp.data.urls import UrlAccess
from hfcomp.fields import FIELDS, Features, columns_of
from hfcomp.metrics.choice import choose, pair_scores
from hfcomp.metrics.retrieval import recall_at_k
from hfcomp.trainers._support.model_setup import text_multiple
from hfcomp.trainers._support.row_report import missing_negative_images
from hfcomp.trainers._support.transformers_internals import train_batch_size
from hfcomp.trainers.config import CompositionalConfig, sampling_seed

logger = logging.get_logger(__name__)

# Config fields that set how many entries per row are read, and the features computed from them.
COUNTED_FEATURES = {"num_negatives": "negative_text_embeds", "max_concepts": "concept_embeds"}


class InfoNCEForm(NamedTuple):
    """The trainer and arguments that turn an objective into plain InfoNCE on the same batch."""

    trainer_class: type  # the objective's own class, or another one if no setting turns it into InfoNCE
    arguments: Mapping[str, Any]  # switch off margins and further terms; empty if the objective is InfoNCE


INFO_NCE_FORMS: dict[type, InfoNCEForm] = {}
"""Keyed by the objective's class. A subclass has its own entry, because it may have terms that its parent lacks."""


def declare_info_nce(objective: type, *, by: type | None = None, **arguments: Any) -> None:
    """Declares how an objective becomes InfoNCE, for the control `same-batch`. Call it in your trainer's module.

    Args:
        objective: Subclass of `CompositionalTrainer`.
        by: Another trainer that is InfoNCE on the same batch. Defaults to the objective itself.
        arguments: Config fields that switch off the objective's margins and further terms, such as `margin="none"`.
    """
    INFO_NCE_FORMS[objective] = InfoNCEForm(by or objective, arguments)


def embedding_metrics(prediction: Any) -> dict[str, float]:
    """Computes recall@1 in both directions over the whole set and, with negatives, caption choice.

    If an image fills several rows, one per caption, all of its captions are correct for it; the same holds for a
    caption shared by several images. Rows with bit-identical embeddings count as the same image or caption. A tower
    that gives all rows the same embedding distinguishes nothing: every row then counts as its own and ties with all
    others.

    Args:
        prediction: `EvalPrediction` with the outputs of `CompositionalTrainer.evaluation_outputs`: image and text
            embeddings `[n, D]`, and for objectives with negative captions also their embeddings `[n, K, D]` and mask.

    Returns:
        `image_to_text_recall@1`, `text_to_image_recall@1`, `caption_choice` and `caption_choice_ties` (shares). Rows
        without a valid negative are excluded from caption choice, which is omitted if no row remains.
    """
    image, text, *negatives = prediction.predictions
    images, texts = _row_identities(image), _row_identities(text)

    # A function, because the full matrix of an evaluation set's pairs may not fit in memory.
    def positive(start: int, stop: int) -> NDArray[np.bool_]:
        return (images[start:stop, None] == images) | (texts[start:stop, None] == texts)

    metrics = {
        "image_to_text_recall@1": recall_at_k(image, text, positive),
        "text_to_image_recall@1": recall_at_k(text, image, positive),
    }
    if negatives:
        negative_text, mask = negatives
        rows = mask.astype(bool).any(axis=1)
        if not rows.any():
            return metrics
        true_score, other_scores = pair_scores(image[rows], text[rows]), pair_scores(image[rows], negative_text[rows])
        outcome = choose(true_score, other_scores, mask.astype(bool)[rows])
        metrics |= {"caption_choice": outcome.accuracy, "caption_choice_ties": outcome.tie_rate}
    return metrics


def _row_identities(embeddings: NDArray[np.floating]) -> NDArray[np.intp]:
    """Returns `[n]`, a number per row: equal for bit-identical rows, unless all rows are identical."""
    rows = np.ascontiguousarray(embeddings)
    # View each row as a single value of all its bytes, so `unique` compares whole rows bit by bit.
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    values, numbers = np.unique(whole, return_inverse=True)
    return numbers if len(values) > 1 else np.arange(len(rows))


class ObjectiveHooks:
    """Hooks that define an objective; the defaults fit image-caption pairs.

    Attributes:
        config_class: Class of its arguments.
        required_features: Fields of `hfcomp.Features` that the loss reads; only these are computed.
        optional_columns: Columns that a dataset may lack. A subclass removes those without which it would be another
            objective.
        extra_batch_keys: Batch keys that `compute_loss` reads itself.
        collator_class: Class of the collator that builds batches.
        evaluation_metrics: Function from an `EvalPrediction` to metrics, unless the trainer is given another.
        negative_images_advice: How to fix a training set without a single negative image, for an objective that
            becomes another one without them. Such a dataset is rejected unless the config has
            `allow_missing_negative_images` set.
        contrasted_columns: Text columns whose texts occur at most once per batch with `no_duplicates`. Empty for an
            objective that does not contrast rows.
    """

    config_class = CompositionalConfig
    required_features: tuple[str, ...] = ("image_embeds", "text_embeds", "logit_scale")
    optional_columns: tuple[str, ...] = tuple(field.column for field in FIELDS.values() if field.optional)
    extra_batch_keys: tuple[str, ...] = ()
    collator_class: type[CompositionalCollator] = CompositionalCollator
    evaluation_metrics = staticmethod(embedding_metrics)
    negative_images_advice: str | None = None
    contrasted_columns: tuple[str, ...] = ("caption",)

    def setup(self, args: CompositionalConfig, backbone: nn.Module) -> None:
        """Sets what depends on the configuration or the model. Called once, before anything is built.

        Set `required_features` and `optional_columns` on the instance here if the class's do not fit, and keep
        settings such as a margin for `compute_loss`. It runs before `Trainer.__init__`, so `self.args`, `self.model`
        and the datasets do not exist yet.

        Args:
            args: Config.
            backbone: The loaded model, or its `PeftModel`.

        Raises:
            ValueError: For settings that do not fit the model.
        """

    def objective_state(self, args: CompositionalConfig) -> dict[str, nn.Module]:
        """Returns the objective's learned modules by name. Each `forward()` gives its entry of `Features.learned`."""
        return {}

    def collator_settings(self, args: CompositionalConfig) -> dict[str, Any]:
        """Returns the keyword arguments of the trainer's own `collator_class`.

        Raises:
            ValueError: For an image setting if the objective reads no images.
        """
        self._check_image_settings(args)
        return {
            "num_negatives": args.num_negatives if "negative_text_embeds" in self.required_features else 0,
            "negative_image": "negative_image_embeds" in self.required_features,
            "max_concepts": args.max_concepts if "concept_embeds" in self.required_features else 0,
            "max_image_pixels": args.max_image_pixels,
            "pad_to_multiple_of": text_multiple(args),
            "urls": UrlAccess.from_settings(args.allow_urls, args.url_timeout),
            "pixel_cache": args.pixel_cache,
            "reduced_jpeg": args.reduced_jpeg,
        }

    @classmethod
    def _check_image_settings(cls, args: CompositionalConfig) -> None:
        for name, unset in {"pixel_cache": None, "reduced_jpeg": False, "random_crop": 1.0}.items():
            if getattr(args, name) != unset and "image" not in columns_of(cls.required_features):
                raise ValueError(
                    f"{name}={getattr(args, name)!r} has no effect: {cls.__name__} reads no images. Remove it."
                )

    @classmethod
    def check_rows(cls, rows: Any, args: CompositionalConfig) -> str | None:
        """Checks rows for missing content, before a model is loaded or a folder is claimed.

        Args:
            rows: Training set in the column contract: a dataset, a stream or `TrainingRows`.
            args: Config.

        Returns:
            A line about rows without a negative image, if the objective reads them and some rows have none.

        Raises:
            ValueError: For an image setting if the objective reads no images, a missing column (lists the existing
                ones), a row without caption or image or with fewer negative captions than are read, or rows without
                any negative image if the objective needs them.
            FileNotFoundError: For missing image files; names the first one and their number.
        """
        cls._check_image_settings(args)
        counted = [feature for name, feature in COUNTED_FEATURES.items() if getattr(args, name)]
        columns = columns_of(dict.fromkeys((*cls.required_features, *counted)))
        dataset = getattr(rows, "dataset", rows)
        if dataset.column_names is not None:  # a stream may not have them
            required = [name for name in columns if name not in cls.optional_columns]
            require_columns(dataset, required, needed_by=cls.__name__)
        check_contents(dataset, columns, lists=args.draw_captions)
        if args.pixel_cache is not None:
            read_manifest(Path(args.pixel_cache))  # raises
        if args.draw_captions:
            check_drawn_captions(rows, columns, num_negatives=args.num_negatives)
        elif args.num_negatives and isinstance(dataset, Dataset):
            short = first_short_row(dataset, "negative_captions", args.num_negatives)
            if short is not None:
                raise ValueError(too_few_negatives(*short, args.num_negatives))
        return missing_negative_images(rows, cls, args) if "negative_image" in columns else None

    def training_rows(self, dataset: Any, args: CompositionalConfig) -> TrainingRows | None:
        """Reads the rows of the training set with [`read_rows`]. Not called for evaluation sets."""
        return self.read_rows(dataset, args)

    def read_rows(self, dataset: Any, args: CompositionalConfig, further: tuple[str, ...] = ()) -> Any:
        """Reads the columns of a dataset that the objective needs, renamed and validated.

        Args:
            dataset: `datasets.Dataset`, a stream, or rows that were read before, which are returned unchanged.
            args: Config.
            further: Required columns in addition to those of `required_features`.

        Returns:
            `TrainingRows`, or `StreamedRows` for a stream; `None` without a dataset.

        Raises:
            ValueError: For a missing column; lists the existing ones.
            FileNotFoundError: For missing image files; names the first one and their number.
        """
        if dataset is None or isinstance(dataset, TrainingRows | StreamedRows):
            return self._sample_captions(dataset, args)
        columns = [*columns_of(self.required_features), *further]
        read = [*dict.fromkeys((*columns, IMAGE_ID))]
        if not hasattr(dataset, "select_columns"):
            return TrainingRows(dataset, read)
        check_names(dataset)
        transform = self._image_transform(dataset, args)
        # Rows are read as stored; the dataset's transform is applied to them below.
        dataset = rename_columns(dataset.with_format(None), args.column_names)
        # Relative image file names are resolved against the current folder.
        dataset = with_image_files(dataset, Folders((Path.cwd(),)))
        required = [name for name in columns if name not in self.optional_columns]
        require_columns(dataset, required, needed_by=type(self).__name__)
        absent = [name for name in columns if name in self.optional_columns and name not in dataset.column_names]
        if absent:
            logger.warning(f"{type(self).__name__}: the dataset has no {', '.join(absent)}; treated as empty.")
        check_contents(dataset, columns, lists=args.draw_captions)
        if not isinstance(dataset, IterableDataset):
            # Rows that show the same photograph share an id from here on, so no loss treats them as negatives of each
            # other.
            rows = TrainingRows(with_shared_ids(dataset), read)
            rows = TransformedRows(rows, transform, args.column_names) if transform else rows
            return self._sample_captions(rows, args)
        if args.no_duplicates:
            raise ValueError("no_duplicates=True orders all rows, but the dataset is streamed. Remove one of the two.")
        settings = {name: getattr(args, name) for name in ("seed", "draw_captions", "random_crop")}
        # A stream has no length: it drops the rows that do not fill a global batch itself, so all processes end
        # together.
        batch = args.per_device_train_batch_size * args.world_size
        return StreamedRows(dataset, read, batch_size=batch, buffer=args.shuffle_buffer, **settings)

    def _image_transform(self, dataset: Any, args: CompositionalConfig) -> ImageTransform | None:
        """Returns the dataset's transform. Raises if other settings make it useless."""
        urls = UrlAccess.from_settings(args.allow_urls, args.url_timeout)
        transform = image_transform(dataset, partial(decode_image, max_pixels=args.max_image_pixels, urls=urls))
        if transform is None:
            return None
        if "image" not in columns_of(self.required_features):
            raise ValueError(
                f"{type(self).__name__} reads no images, and only images are taken from a dataset's transform. Pass "
                "the dataset without it: dataset.with_format(None)."
            )
        for name in ("pixel_cache", "reduced_jpeg"):
            if value := getattr(args, name):
                raise ValueError(
                    f"{name}={value!r} has no effect on a dataset with a transform, which gets whole images. Remove "
                    f"{name}, or pass the dataset without the transform: dataset.with_format(None)."
                )
        return transform

    @staticmethod
    def _sample_captions(rows: Any, args: CompositionalConfig) -> Any:
        """Rows with sampled captions. The rows of an evaluation set may have a single caption each."""
        if not args.draw_captions or not isinstance(rows, TrainingRows) or isinstance(rows, DrawnRows):
            return rows
        return DrawnCaptions(rows, seed=sampling_seed(args)) if has_lists(rows.features) else rows

    @staticmethod
    def _sample_crops(rows: Any, args: CompositionalConfig) -> Any:
        """Returns training rows with a random crop for each image. A stream draws its crops while reading."""
        if args.random_crop == 1 or not isinstance(rows, TrainingRows):
            return rows
        return DrawnCrops(rows, seed=sampling_seed(args), smallest=args.random_crop)

    def row_order(self, order: Sampler) -> Sampler:
        """Returns the order of the training rows. A custom one gets the epoch via `set_epoch`; a stream has none.

        Args:
            order: The order that the config asks for.
        """
        return order

    def rows_per_batch(self, batch_size: int) -> int:
        """Returns the number of rows per training batch and process, including rows that others bring along.

        Args:
            batch_size: Value of `per_device_train_batch_size`.
            batch_size: `per_device_train_batch_size`.
        """
        return batch_size

    def rows_together(self, args: CompositionalConfig) -> int:
        """Returns how many neighboring rows replay rows must not separate; a batch consists of such runs."""
        return 1

    def collator_of(self, rows: Any) -> Any:
        """Returns the collator for a dataset's rows. Called once per data loader.

        Args:
            rows: Rows of a training or evaluation set, as returned by [`read_rows`].
        """
        return self.data_collator

    def evaluation_outputs(self, local: Features, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Returns what `evaluation_metrics` gets as predictions, one row per example of this process.

        Args:
            local: Features of this process's batch.
            inputs: The batch.
        """
        names = ("image_embeds", "text_embeds", "negative_text_embeds", "negative_text_mask")
        return {name: local[name] for name in names if name in local}

    def after_save(self, folder: Path) -> None:
        """Writes anything else that a resumed run needs into a checkpoint. Called on the processes that save.

        Args:
            folder: Folder of the checkpoint.
        """

    def after_load(self, folder: Path) -> None:
        """Reads or validates what [`after_save`] wrote, when resuming.

        Args:
            folder: Folder of the checkpoint.
        """

    def check_epoch(self, batch: int) -> None:
        """Reports rows that do not fill a global batch of `batch` rows in an epoch.

        Raises:
            ValueError: For a dataset smaller than a batch.
        """
        number = len(self.train_dataset)
        if number < batch:
            raise ValueError(
                f"the training set has {number} rows, fewer than one batch of {batch} "
                f"({train_batch_size(self)} on each of {self.args.world_size} processes). "
                "Lower per_device_train_batch_size."
            )
        if number % batch:
            logger.warning(f"{number % batch} of {number} rows do not fill a batch and are dropped in each epoch.")
