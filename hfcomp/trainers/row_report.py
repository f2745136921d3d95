"""What the rows of a training set lack for an objective, and which show one image: said when training starts."""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from transformers.utils import logging

from hfcomp.data.image_ids import IMAGE_ID, shared_rows
from hfcomp.data.loading import TrainingRows, number_of_entries
from hfcomp.data.streaming import StreamedRows

logger = logging.get_logger(__name__)

NEGATIVE_IMAGE = "negative_image"
TEXTS_ONLY = "allow_missing_negative_images"


def report_rows(rows: Any, trainer_class: Any, args: Any, uses: tuple[str, ...]) -> None:
    """Logs how many rows lack negatives, and how many share an image; of a stream nothing is known.

    Args:
        rows: the training set.
        trainer_class: the objective.
        args: its config.
        uses: fields that it reads.

    Raises:
        ValueError: for a set without one negative image where the objective needs some, an `image_id` that is none, or
            one that is that of all rows.
    """
    if "negative_image" in uses:
        line = missing_negative_images(rows, trainer_class, args)
        if line:
            logger.warning(line)
    if not isinstance(rows, TrainingRows):
        return
    if "negative_text" in uses:
        _report_negative_captions(rows)
    if {"image", "logit_scale"} & set(uses) and IMAGE_ID in rows.dataset.column_names:
        shared = shared_rows(rows.column(IMAGE_ID))
        if shared:
            logger.warning(
                f"{shared:,} of {len(rows):,} rows share their image with another row (column {IMAGE_ID!r}): where a "
                "batch holds several of an image, hfcomp's losses take none of them as a negative of another, and the "
                "log counts them as same_image_pairs."
            )


def missing_negative_images(rows: Any, trainer_class: Any, args: Any) -> str | None:
    """A line about rows that lack a negative image; nothing where none lacks it, or a stream's are not known yet.

    Args:
        rows: a data set in the column contract, `TrainingRows` or `StreamedRows`.
        trainer_class: the objective, which reads negative images.
        args: its config.

    Raises:
        ValueError: when no row has one, the objective is another without them, and its config does not allow it.
    """
    if isinstance(rows, TrainingRows):
        number, found = len(rows), rows.number_of_entries(NEGATIVE_IMAGE)
    elif isinstance(rows, Dataset):
        number, found = len(rows), number_of_entries(rows, NEGATIVE_IMAGE)
    else:
        dataset = rows.dataset if isinstance(rows, StreamedRows) else rows
        if dataset is None or NEGATIVE_IMAGE in dataset.column_names:
            return None
        number, found = None, 0
    which = f"none of {number:,} rows has" if number else "the streamed set has no column, so that no row has"
    if not found:
        _refuse(f"{which} a {NEGATIVE_IMAGE}", trainer_class, args)
        not_it = f" ({TEXTS_ONLY}): not its paper's objective" if trainer_class.without_negative_images else ""
        return f"{which} a negative image, {trainer_class.__name__} trains without{not_it}."
    if found == number:
        return None
    return (
        f"{number - found:,} of {number:,} rows have no negative image; they take part with their negative captions."
    )


def check_streamed_images(rows: Any, line: dict[str, float], trainer_class: Any, args: Any) -> None:
    """Refuses a stream of whose rows none has had a negative image up to the first line of the log.

    Args:
        rows: the training set.
        line: the first line.
        trainer_class: the objective.
        args: its config.

    Raises:
        ValueError: when the objective needs some.
    """
    if isinstance(rows, StreamedRows) and line.get("negative_images") == 0:
        read = f"none of the {line['images_encoded']:,.0f} rows that were read so far has a {NEGATIVE_IMAGE}"
        _refuse(f"{read} (raise logging_steps if they come later)", trainer_class, args)


def _refuse(found: str, trainer_class: Any, args: Any) -> None:
    if trainer_class.without_negative_images and not getattr(args, TEXTS_ONLY, False):
        raise ValueError(f"{trainer_class.__name__}: {found}. {trainer_class.without_negative_images}")


def _report_negative_captions(rows: TrainingRows) -> None:
    listed = rows.column("negative_captions")
    # what is no list is refused, with its row, when it is read
    missing = sum(isinstance(texts, list) and not any(texts) for texts in listed)
    if missing:
        logger.warning(f"{missing:,} of {len(listed):,} rows have no negative caption; their pair takes part alone.")
