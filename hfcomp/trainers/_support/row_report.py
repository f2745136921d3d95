"""Reports what rows of a training set lack for an objective, and which rows share an image, when training starts."""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from transformers.utils import logging

from hfcomp.data.image_ids import IMAGE_ID, shared_rows
from hfcomp.data.loading import TrainingRows, number_of_entries
from hfcomp.data.row_values import rows_with_equal_texts
from hfcomp.data.sampling.draws import CROP_BOX
from hfcomp.data.sampling.streaming import StreamedRows
from hfcomp.fields import columns_of

logger = logging.get_logger(__name__)

NEGATIVE_IMAGE = "negative_image"
ALLOW_FIELD = "allow_missing_negative_images"
# Number of streamed rows after which a stream counts as having no negative image at all
STREAMED_ROWS_CHECKED = 10_000


def report_rows(rows: Any, trainer_class: Any, args: Any, required: tuple[str, ...]) -> None:
    """Logs how many rows lack negatives and how many share an image. Nothing is known of a stream's rows."""
    columns = columns_of(required)
    if NEGATIVE_IMAGE in columns:
        line = missing_negative_images(rows, trainer_class, args)
        if line:
            logger.warning(line)
    if not isinstance(rows, TrainingRows):
        return
    if "negative_captions" in columns:
        _report_negative_captions(rows)
    if _masks_images(required) and args.mask_equal_texts and "caption" in rows.dataset.column_names:
        equal = rows_with_equal_texts(rows.column("caption"))
        if equal:
            logger.warning(
                f"{equal:,} of {len(rows):,} rows share their caption with another row. Within a batch, hfcomp's "
                "losses do not use them as negatives of each other, and the log counts them in same_text_pairs. To "
                "keep them as negatives, set mask_equal_texts=False (--mask_equal_texts false)."
            )
    if _masks_images(required) and IMAGE_ID in rows.dataset.column_names:
        shared = shared_rows(rows.column(IMAGE_ID))
        if shared:
            logger.warning(
                f"{shared:,} of {len(rows):,} rows share their image with another row (by {IMAGE_ID!r}, otherwise by "
                "file). Within a batch, hfcomp's losses do not use them as negatives of each other, and the log "
                "counts them in same_image_pairs."
            )


def missing_negative_images(rows: Any, trainer_class: Any, args: Any) -> str | None:
    """Returns a line about rows without a negative image; None if there are none, or a stream's are unknown."""
    if isinstance(rows, TrainingRows):
        number, present = len(rows), rows.number_of_entries(NEGATIVE_IMAGE)
    elif isinstance(rows, Dataset):
        number, present = len(rows), number_of_entries(rows, NEGATIVE_IMAGE)
    else:
        dataset = rows.dataset if isinstance(rows, StreamedRows) else rows
        if dataset is None or NEGATIVE_IMAGE in dataset.column_names:
            return None
        number, present = None, 0
    if not present:
        subject = f"none of the {number:,} rows has" if number else "the stream lacks the column, so no row has"
        _require_negative_images(f"{subject} a {NEGATIVE_IMAGE}", trainer_class, args)
        note = f" ({ALLOW_FIELD}): not its paper's objective" if trainer_class.negative_images_advice else ""
        return f"{subject} a negative image, so {trainer_class.__name__} trains without negative images{note}."
    if present == number:
        return None
    return f"{number - present:,} of {number:,} rows have no negative image and use only their negative captions."


def check_streamed_rows(
    rows: Any, line: dict[str, float], history: list[dict[str, float]], trainer_class: Any, args: Any
) -> None:
    """Checks the rows of a stream that have been read so far. Called with each log line.

    Warns at the first line if no row had a negative image, or if all rows of each batch showed the same image.
    """
    if not isinstance(rows, StreamedRows):
        return
    lines = [*(past for past in history if "images_encoded" in past), line]
    # All pairs of a batch: every row is excluded as a negative of every other.
    pairs = rows.batch_size * (rows.batch_size - 1)
    if len(lines) == 1 and pairs and line.get("same_image_pairs") == pairs:
        logger.warning(
            f"column {IMAGE_ID!r}: all rows of each batch so far have the same value, so no row is a negative of "
            "another. Give different images different values, or remove the column to compare the images themselves."
        )
    counts = [past["negative_images"] for past in lines if "negative_images" in past]
    if not counts or any(counts) or not _needs_negative_images(trainer_class, args):
        return
    read = sum(past.get("images_encoded", 0) for past in lines)
    if rows.replay is not None:  # whose rows are not part of the stream
        read *= rows.batch_size / (rows.batch_size + rows.replay.draws.number)
    problem = f"none of the {read:,.0f} rows read so far has a {NEGATIVE_IMAGE}"
    if read >= STREAMED_ROWS_CHECKED or "train_loss" in line:
        _require_negative_images(problem, trainer_class, args)
    elif len(lines) == 1:
        logger.warning(
            f"{problem}. Training stops if none of the first {STREAMED_ROWS_CHECKED:,} rows, or of all rows, has one."
        )


def check_image_ids(inputs: dict[str, Any], rows: Any, required: tuple[str, ...]) -> None:
    """Checks that a batch has the key `image_id` if the training set has the column.

    A collator that omits it would train on false negatives. A collator that returns it only in some batches would make
    processes wait for each other.
    """
    if rows is None or not _masks_images(required):
        return
    expected = rows.has_image_ids if isinstance(rows, StreamedRows) else IMAGE_ID in rows.dataset.column_names
    if (IMAGE_ID in inputs) == expected:
        return
    if IMAGE_ID in inputs:
        raise ValueError(
            f"the collator returned the key {IMAGE_ID!r}, but the training set has no column of that name. Add the "
            "column, so every batch has the key, or remove the key."
        )
    raise ValueError(
        f"the rows of the training set have an {IMAGE_ID!r}, given or computed from their images, but the collator "
        "returned no key of that name, so rows with the same image would be negatives of each other. Add "
        "hfcomp.data.row_values.row_fields(rows, names) to the collator's batch."
    )


def check_text_ids(inputs: dict[str, Any], required: tuple[str, ...]) -> None:
    """Checks that a batch marks equal texts, which a user's collator may omit."""
    negatives = "negative_text_embeds" in required and "negative_text_id" not in inputs
    if not _masks_images(required) or ("text_id" in inputs and not negatives):
        return
    missing = "text_id" if "text_id" not in inputs else "negative_text_id"
    addition = {
        "text_id": "hfcomp.data.row_values.row_fields(rows, names)",
        "negative_text_id": "hfcomp.data.row_values.text_key of each negative, a long tensor [B, K],",
    }[missing]
    raise ValueError(
        f"the collator returned no {missing!r}, so equal texts in a batch would be negatives of each other. Add "
        f"{addition} to the collator's batch, or set mask_equal_texts=False."
    )


def check_boxes(inputs: dict[str, Any], random_crop: float) -> None:
    """Checks that the pixels of a training batch come with crop boxes, which a user's collator may omit."""
    if getattr(inputs.get("pixels"), "boxes", None) is None:
        raise ValueError(
            f"random_crop={random_crop}, but the collator returned pixels without boxes, so no image would be "
            f"cropped. Return PixelBatch(pixels, boxes) with the rows' {CROP_BOX!r}, or remove random_crop."
        )


def _masks_images(required: tuple[str, ...]) -> bool:
    return bool({"image_embeds", "logit_scale"} & set(required))


def _needs_negative_images(trainer_class: Any, args: Any) -> bool:
    return bool(trainer_class.negative_images_advice) and not getattr(args, ALLOW_FIELD, False)


def _require_negative_images(problem: str, trainer_class: Any, args: Any) -> None:
    if _needs_negative_images(trainer_class, args):
        raise ValueError(f"{trainer_class.__name__}: {problem}. {trainer_class.negative_images_advice}")


def _report_negative_captions(rows: TrainingRows) -> None:
    listed = rows.column("negative_captions")
    # An entry that is not a list raises an error that names its row when it is read.
    missing = sum(isinstance(texts, list) and not any(texts) for texts in listed)
    if missing:
        logger.warning(f"{missing:,} of {len(listed):,} rows have no negative caption; only their pair is used.")
