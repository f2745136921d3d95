"""What is annotated, and what annotators decide (Rösch et al. 2024, sections 4 and A.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Quality = Literal["very good", "okay"]
QUALITIES: tuple[Quality, ...] = get_args(Quality)
State = Literal["open", "annotated", "accepted", "skipped"]
"""Of an item: to be annotated, to be reviewed, finished, or left out with a reason."""
STATES: tuple[State, ...] = get_args(State)
Action = Literal["submit", "skip", "accept", "send back", "undo"]
ACTIONS: tuple[Action, ...] = get_args(Action)
AUTOMATIC = "automatic"
"""Who submits the edits of the automatic mode; no person may have this name."""


@dataclass(frozen=True)
class Item:
    """A candidate: an image with captions that hold a keyword of a concept.

    Attributes:
        id: of the item: the image's id and the concept, as `139/color`.
        image: file of the original in the project's `images`, by its content, as `ab/ab12....jpg`.
        concept: such as object, color or size.
        captions: of the image, those with a keyword of the concept.
        keywords: of each caption the keyword, in the same order.
        facts: about the image: `image_id`, `license`, `source` and the like; JSON values.
    """

    id: str
    image: str
    concept: str
    captions: tuple[str, ...]
    keywords: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Edit:
    """What an annotator made of an item.

    Attributes:
        image: file of the edited image in the project's `images`.
        mask: file of the mask, white where the image was painted anew.
        caption: true of the edited image.
        original: the caption of the item that it is based on.
        mask_prompt: what was segmented; empty for a mask drawn by hand.
        threshold: of the segmentation, 0 to 1.
        enlarge: pixels by which the mask was enlarged to each side, in x and in y.
        is_corrected: whether the mask was corrected with the brush.
        inpaint_prompt: what was painted.
        seed: of the chosen candidate.
        quality: of the edited image, by the annotator.
    """

    image: str
    mask: str
    caption: str
    original: str
    mask_prompt: str
    threshold: float
    enlarge: tuple[int, int]
    is_corrected: bool
    inpaint_prompt: str
    seed: int
    quality: Quality


@dataclass(frozen=True)
class Accepted:
    """A finished item.

    Attributes:
        item: that was annotated.
        edit: that was accepted.
        annotator: who made it; `AUTOMATIC` for the automatic mode.
        reviewer: who accepted it.
        reviewed_quality: the reviewer's own rating, made without the annotator's.
    """

    item: Item
    edit: Edit
    annotator: str
    reviewer: str
    reviewed_quality: Quality
