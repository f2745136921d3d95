"""Distances between images, texts, negative texts and perturbed images, by one model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from hfcomp.evaluation.embed import Embedder
from hfcomp.experiments.embedding_rows import HeldOutRows
from hfcomp.losses import perturb_image
from hfcomp.metrics.choice import pair_scores

IMAGE, TEXT, NEGATIVE, PERTURBED = "image", "text", "negative text", "perturbed image"
PAIRS = {
    f"{one}, {other}": (one, other)
    for one, other in (
        (IMAGE, TEXT),
        (IMAGE, NEGATIVE),
        (IMAGE, PERTURBED),
        (TEXT, NEGATIVE),
        (PERTURBED, TEXT),
        (PERTURBED, NEGATIVE),
    )
}
"""The six distances, by name."""


def distances(embedder: Embedder, rows: HeldOutRows) -> tuple[pd.DataFrame, int]:
    """The six distances of every row and negative by one model.

    The perturbed image is made of this model's own embeddings, image + (negative text - text), normalised, as the
    paper's Table 5 has it, whatever the shift's source in training.

    Args:
        embedder: of the model.
        rows: whose images, captions and negatives are embedded.

    Returns:
        A table with a line per row and negative, and the number of texts that were cut. Columns: `row` and `slot`,
        their numbers, the names of `PAIRS`, each 1 - cosine in 0..2, and `nearer`, whether the image scores its text
        strictly higher than this negative.
    """
    index = np.repeat(np.arange(len(rows)), [len(texts) for texts in rows.negatives])
    flat = [text for texts in rows.negatives for text in texts]
    texts = embedder.texts([*rows.captions, *flat])
    found = {
        IMAGE: embedder.images(rows.images)[index],
        TEXT: texts.vectors[: len(rows)][index],
        NEGATIVE: texts.vectors[len(rows) :],
    }
    image, text, negative = map(torch.from_numpy, found.values())
    found[PERTURBED] = perturb_image(image, text, negative.unsqueeze(1)).squeeze(1).numpy()
    table = pd.DataFrame({"row": index, "slot": [slot for texts in rows.negatives for slot in range(len(texts))]})
    for name, (one, other) in PAIRS.items():
        cosine = np.einsum("nd,nd->n", found[one], found[other], dtype=np.float64)
        table[name] = np.clip(1 - cosine, 0, 2)  # of equal embeddings rounding makes a little less than 0
    table["nearer"] = pair_scores(found[IMAGE], found[TEXT]) > pair_scores(found[IMAGE], found[NEGATIVE])
    return table, texts.truncated
