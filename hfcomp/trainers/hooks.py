"""What an objective may override: the hooks of `CompositionalTrainer`, each with a default."""

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
from hfcomp.trainers.config import CompositionalConfig, seed_of_order

logger = logging.get_logger(__name__)

# Fields of a config that say how many entries of a row are read, and the features made of these.
COUNTED_FEATURES = {"num_negatives": "negative_text_embeds", "max_concepts": "concept_embeds"}


class InfoNCEForm(NamedTuple):
    """A trainer and its arguments that make an objective plain InfoNCE on the same batch."""

    trainer_class: type  # the objective's own class, or another where no setting of it is InfoNCE
    arguments: Mapping[str, Any]  # switch margins and further terms off; none where the objective is InfoNCE


INFO_NCE_FORMS: dict[type, InfoNCEForm] = {}
"""By the objective's class. A subclass has an entry of its own: it may have terms that its parent's does not know."""


def declare_info_nce(objective: type, *, by: type | None = None, **arguments: Any) -> None:
    """Says how an objective becomes InfoNCE, for the control `same-batch`; call it in the module of your trainer.

    Args:
        objective: a subclass of `CompositionalTrainer`.
        by: another trainer that is InfoNCE on the same batch; by default the objective itself.
        arguments: config fields that switch its margins and further terms off, such as `margin="none"`.
    """
    INFO_NCE_FORMS[objective] = InfoNCEForm(by or objective, arguments)


def embedding_metrics(prediction: Any) -> dict[str, float]:
    """Recall@1 both ways over the whole set and, with negatives, caption choice.

    An image that fills several rows, one for each of its captions, is correct for all of them, as is a caption shared
    by several images. Rows whose embeddings are equal to the last bit count as the same image or caption. A tower that
    gives all rows the same embedding distinguishes nothing: there every row counts as its own and ties with the
    others.

    Args:
        prediction: `EvalPrediction` with the outputs of `CompositionalTrainer.evaluation_outputs`: embeddings of
            images and texts `[n, D]` and, for objectives with negative captions, of these `[n, K, D]`, and their mask.

    Returns:
        `image_to_text_recall@1`, `text_to_image_recall@1`, `caption_choice` and `caption_choice_ties` (shares; rows
        without a valid negative do not take part in the choice, and without any other row it is left out).
    """
    image, text, *negatives = prediction.predictions
    images, texts = _distinct(image), _distinct(text)

    # A function, because the whole matrix of pairs of an evaluation set may not fit in memory.
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


def _distinct(embeddings: NDArray[np.floating]) -> NDArray[np.intp]:
    """`[n]`, a number for each row: the same for rows that are equal to the last bit, unless all rows are."""
    rows = np.ascontiguousarray(embeddings)
    # Each row as one value of all its bytes: `unique` then compares rows, to the last bit.
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    values, numbers = np.unique(whole, return_inverse=True)
    return numbers if len(values) > 1 else np.arange(len(rows))


class ObjectiveHooks:
    """Hooks that define an objective; the defaults fit image-caption pairs.

    Attributes:
        config_class: of its arguments.
        required_features: fields of `hfcomp.Features` that the loss reads; only these are computed.
        optional_columns: columns that a dataset may lack; a subclass takes those away without which it would be
            another objective.
        extra_batch_keys: keys of a batch that `compute_loss` reads itself.
        collator_class: makes batches.
        evaluation_metrics: of an `EvalPrediction`, unless the trainer is given others.
        negative_images_advice: how to fix a training set without a single negative image, for an objective that is
            another one without: it is refused, unless its config has `allow_missing_negative_images` set.
        contrasted_columns: of texts that are in no batch twice with `no_duplicates`; empty for an objective that
            contrasts no rows.
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
        """Binds what the configuration or the model decides; called once, before anything is built.

        Here `required_features` and `optional_columns` of the instance are set where the class's do not fit, and
        settings such as a margin are kept for `compute_loss`. It runs before `Trainer.__init__`: `self.args`,
        `self.model` and the datasets are not there yet.

        Args:
            args: the config.
            backbone: the model as it was loaded, or its `PeftModel`.

        Raises:
            ValueError: for settings that do not fit the model.
        """

    def objective_state(self, args: CompositionalConfig) -> dict[str, nn.Module]:
        """Learned modules of the objective by name; `forward()` of each returns what `Features.learned` holds."""
        return {}

    def collator_settings(self, args: CompositionalConfig) -> dict[str, Any]:
        """Keyword arguments of the trainer's own `collator_class`.

        Raises:
            ValueError: for a setting of images, where the objective reads none.
        """
        for name, unset in {"pixel_cache": None, "reduced_jpeg": False, "random_crop": 1.0}.items():
            if getattr(args, name) != unset and "image" not in columns_of(self.required_features):
                raise ValueError(
                    f"{name}={getattr(args, name)!r}: {type(self).__name__} reads no images. Leave it out."
                )
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
    def check_rows(cls, rows: Any, args: CompositionalConfig) -> str | None:
        """Looks for what rows lack, before a model is loaded or a folder taken.

        Args:
            rows: of a training set, in the column contract: a dataset, a stream or `TrainingRows`.
            args: the config.

        Returns:
            A line about rows without a negative image, where the objective reads them and some have none.

        Raises:
            ValueError: for a missing column, naming those that are there, a row without caption or image or with
                fewer negative captions than are read, or rows without any negative image where the objective needs
                them.
            FileNotFoundError: for image files that are missing, with the first and their number.
        """
        counted = [feature for name, feature in COUNTED_FEATURES.items() if getattr(args, name)]
        columns = columns_of(dict.fromkeys((*cls.required_features, *counted)))
        dataset = getattr(rows, "dataset", rows)
        if dataset.column_names is not None:  # a stream may not know them
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
        """The rows of the training set, by [`read_rows`]; evaluation sets do not come here."""
        return self.read_rows(dataset, args)

    def read_rows(self, dataset: Any, args: CompositionalConfig, further: tuple[str, ...] = ()) -> Any:
        """The rows of a dataset with the columns that the objective reads, renamed and validated.

        Args:
            dataset: a `datasets.Dataset`, a stream, or rows that were read before, which come back as they are.
            args: the config.
            further: required columns besides those of `required_features`.

        Returns:
            `TrainingRows`, or `StreamedRows` of a stream; `None` without a dataset.

        Raises:
            ValueError: for a missing column, naming those that are there.
            FileNotFoundError: for image files that are missing, with the first and their number.
        """
        if dataset is None or isinstance(dataset, TrainingRows | StreamedRows):
            return self._with_drawn_captions(dataset, args)
        columns = [*columns_of(self.required_features), *further]
        read = [*dict.fromkeys((*columns, IMAGE_ID))]
        if not hasattr(dataset, "select_columns"):
            return TrainingRows(dataset, read)
        check_names(dataset)
        transform = self._image_transform(dataset, args)
        # Rows are read as they are stored; a transform of the dataset is applied to them afterwards, below.
        dataset = rename_columns(dataset.with_format(None), args.column_names)
        # Relative names of image files are looked up in the current folder.
        dataset = with_image_files(dataset, Folders((Path.cwd(),)))
        required = [name for name in columns if name not in self.optional_columns]
        require_columns(dataset, required, needed_by=type(self).__name__)
        absent = [name for name in columns if name in self.optional_columns and name not in dataset.column_names]
        if absent:
            logger.warning(f"{type(self).__name__}: the dataset has no {', '.join(absent)}; treated as empty.")
        check_contents(dataset, columns, lists=args.draw_captions)
        if not isinstance(dataset, IterableDataset):
            # Rows that show one photograph have one id from here on, so no loss takes them for negatives of each
            # other.
            rows = TrainingRows(with_shared_ids(dataset), read)
            rows = TransformedRows(rows, transform, args.column_names) if transform else rows
            return self._with_drawn_captions(rows, args)
        if args.no_duplicates:
            raise ValueError("no_duplicates=True orders all rows, and the dataset is streamed. Leave one of them out.")
        settings = {name: getattr(args, name) for name in ("seed", "draw_captions", "random_crop")}
        # A stream has no length: it drops what does not fill a global batch itself, so that processes end together.
        batch = args.per_device_train_batch_size * args.world_size
        return StreamedRows(dataset, read, batch_size=batch, buffer=args.shuffle_buffer, **settings)

    def _image_transform(self, dataset: Any, args: CompositionalConfig) -> ImageTransform | None:
        """The dataset's transform, which is refused beside what it would make useless."""
        urls = UrlAccess.from_settings(args.allow_urls, args.url_timeout)
        transform = image_transform(dataset, partial(decode_image, max_pixels=args.max_image_pixels, urls=urls))
        if transform is None:
            return None
        if "image" not in columns_of(self.required_features):
            raise ValueError(
                f"{type(self).__name__} reads no images, and only images are taken from the transform of a dataset. "
                "Pass the dataset without it: dataset.with_format(None)."
            )
        for name in ("pixel_cache", "reduced_jpeg"):
            if value := getattr(args, name):
                raise ValueError(
                    f"{name}={value!r} has no effect on a dataset with a transform, which gets whole images. Leave "
                    f"{name} out, or pass the dataset without the transform: dataset.with_format(None)."
                )
        return transform

    @staticmethod
    def _with_drawn_captions(rows: Any, args: CompositionalConfig) -> Any:
        """Rows whose captions are drawn; those of an evaluation set may have one caption each."""
        if not args.draw_captions or not isinstance(rows, TrainingRows) or isinstance(rows, DrawnRows):
            return rows
        return DrawnCaptions(rows, seed=seed_of_order(args)) if has_lists(rows.features) else rows

    @staticmethod
    def _with_drawn_crops(rows: Any, args: CompositionalConfig) -> Any:
        """Training rows with what their images are cropped to; a stream draws it as it reads."""
        if args.random_crop == 1 or not isinstance(rows, TrainingRows):
            return rows
        return DrawnCrops(rows, seed=seed_of_order(args), smallest=args.random_crop)

    def row_order(self, order: Sampler) -> Sampler:
        """The order of the training rows. A custom one receives the epoch by `set_epoch`; a stream has none.

        Args:
            order: what the config asks for.
        """
        return order

    def rows_per_batch(self, batch_size: int) -> int:
        """Rows of a training batch on each process, where rows bring others along.

        Args:
            batch_size: `per_device_train_batch_size`.
        """
        return batch_size

    def rows_together(self, args: CompositionalConfig) -> int:
        """Neighboring rows of a training batch that stay together among replay rows; a batch is made of such runs."""
        return 1

    def collator_of(self, rows: Any) -> Any:
        """What makes batches of a dataset's rows; called for each data loader.

        Args:
            rows: of a training or evaluation set, as [`read_rows`] returned them.
        """
        return self.data_collator

    def evaluation_outputs(self, local: Features, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """What `evaluation_metrics` get as predictions, one row per example of this process.

        Args:
            local: features of this process's batch.
            inputs: the batch.
        """
        names = ("image_embeds", "text_embeds", "negative_text_embeds", "negative_text_mask")
        return {name: local[name] for name in names if name in local}

    def after_save(self, folder: Path) -> None:
        """Writes what else a resumed run needs into a checkpoint; called on the processes that save.

        Args:
            folder: of the checkpoint.
        """

    def after_load(self, folder: Path) -> None:
        """Reads or validates what [`after_save`] wrote, when resuming.

        Args:
            folder: of the checkpoint.
        """

    def check_epoch(self, batch: int) -> None:
        """Reports rows that do not fill a global batch of `batch` rows in an epoch.

        Raises:
            ValueError: for a set smaller than one batch.
        """
        number = len(self.train_dataset)
        if number < batch:
            raise ValueError(
                f"the training set has {number} rows, fewer than one batch of {batch} "
                f"({train_batch_size(self)} on each of {self.args.world_size} processes). "
                "Lower per_device_train_batch_size."
            )
        if number % batch:
            logger.warning(f"{number % batch} of {number} rows are dropped from each epoch (not a full batch).")
