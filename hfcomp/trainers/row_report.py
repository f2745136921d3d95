"""What the rows of a training set lack for an objective, and which show one image: said when training starts."""

from __future__ import annotations

from transformers.utils import logging

from hfcomp.data.image_ids import IMAGE_ID, shared_rows
from hfcomp.data.loading import TrainingRows
from hfcomp.data.streaming import StreamedRows

logger = logging.get_logger(__name__)

NEGATIVE_IMAGE = "negative_image"


def report_rows(rows: TrainingRows | StreamedRows | None, uses: tuple[str, ...]) -> None:
    """Logs how many rows lack negatives, and how many share an image; of a stream nothing is known.

    Args:
        rows: the training set.
        uses: fields that the objective reads.

    Raises:
        ValueError: for an `image_id` that is none, or is that of all rows.
    """
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


def _report_negative_captions(rows: TrainingRows) -> None:
    listed = rows.column("negative_captions")
    # what is no list is refused, with its row, when it is read
    missing = sum(isinstance(texts, list) and not any(texts) for texts in listed)
    if missing:
        logger.warning(f"{missing:,} of {len(listed):,} rows have no negative caption; their pair takes part alone.")
