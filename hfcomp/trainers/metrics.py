"""What a trainer's evaluation reports by default."""

from __future__ import annotations

from typing import Any

from hfcomp.metrics.choice import choose
from hfcomp.metrics.retrieval import recall_at_k


def embedding_metrics(prediction: Any) -> dict[str, float]:
    """Recall@1 both ways over the whole set and, with negatives, caption choice.

    Args:
        prediction: `EvalPrediction` with the outputs of `CompositionalTrainer.report`: `image [n, D]`, `text [n, D]`
            and, for objectives with negative captions, `negative_text [n, K, D]` and its mask.

    Returns:
        `image_to_text_recall@1`, `text_to_image_recall@1`, `caption_choice` and `caption_choice_ties` (shares; rows
        without a valid negative do not take part in the choice).
    """
    image, text, *negatives = prediction.predictions
    metrics = {
        "image_to_text_recall@1": recall_at_k(image, text),
        "text_to_image_recall@1": recall_at_k(text, image),
    }
    if negatives:
        negative_text, mask = negatives
        rows = mask.astype(bool).any(axis=1)
        true_score = (image[rows] * text[rows]).sum(axis=-1)
        other_scores = (image[rows, None] * negative_text[rows]).sum(axis=-1)
        outcome = choose(true_score, other_scores, mask.astype(bool)[rows])
        metrics |= {"caption_choice": outcome.accuracy, "caption_choice_ties": outcome.tie_rate}
    return metrics
