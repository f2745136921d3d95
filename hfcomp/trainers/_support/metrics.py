"""What a trainer's evaluation reports by default."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import choose, pair_scores
from hfcomp.metrics.retrieval import recall_at_k


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
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    values, numbers = np.unique(whole, return_inverse=True)
    return numbers if len(values) > 1 else np.arange(len(rows))
