"""Classification by words: is the image nearest to its own class's name?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome, choose, pair_scores


def class_embeddings(prompts: NDArray[np.float32], classes: Sequence[int]) -> NDArray[np.float32]:
    """The mean of each class's prompts, normalised again (Radford et al. 2021, section 3.1.4).

    Args:
        prompts: `[m, D]`, L2-normalised.
        classes: `[m]`, each prompt's class, 0 to C - 1; every class has at least one.

    Returns:
        `[C, D]`, L2-normalised.

    Raises:
        ValueError: for a class without prompts.
    """
    index = np.asarray(classes)
    sums = np.zeros((index.max() + 1, prompts.shape[1]), dtype=np.float64)
    np.add.at(sums, index, prompts)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    if not norms.all():
        raise ValueError(f"class {int(np.flatnonzero(norms[:, 0] == 0)[0])} has no prompt, or prompts that cancel.")
    return (sums / norms).astype(np.float32)


def zero_shot(image: NDArray[np.float32], classes: NDArray[np.float32], label: NDArray[np.integer]) -> ChoiceOutcome:
    """Whether an image's own class scores strictly higher than every other, in fp32.

    Args:
        image: `[n, D]`, L2-normalised.
        classes: `[C, D]`, L2-normalised, C at least 2.
        label: `[n]`, 0 to C - 1.

    Returns:
        Correct and tied items. Chance is 1/C.
    """
    scores = np.stack([pair_scores(image, np.broadcast_to(one, image.shape)) for one in classes], axis=1)
    own = np.arange(len(classes)) == label[:, None]
    return choose(scores[own], scores, ~own)
