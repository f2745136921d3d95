"""Settings of the automatic mode; the fields are the options of `hfcomp annotate draft`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from hfcomp.annotation.captions import CONCEPTS
from hfcomp.annotation.options import ModelOptions
from hfcomp.data.annotations.masks import THRESHOLD
from hfcomp.generation.options import LanguageModelOptions

CANDIDATES = 3
"""Images that are painted for an edit (section A.3)."""
_OF_THIS_RUN = (
    *("number", "concept", "device", "base_url", "concurrency", "retries", "llm_timeout", "llm_batch_size"),
    *("answer_cache", "request_options"),
)
"""Fields that say where, how and how far drafts are made, or that the proposer's facts have."""


@dataclass(kw_only=True)
class DraftOptions(ModelOptions, LanguageModelOptions):
    """Drafts.

    All numbers but that of the candidates are our choice: the paper's edits were made by people.

    Attributes:
        writer: rules replaces a keyword of a caption and needs no language model; endpoint asks the server at
            base_url; transformers runs a small model in process.
        number: open items that are tried; by default all.
        concept: of the items; by default all.
        edits: different edits that are tried, before an item is left to people.
        candidates: images that are painted for an edit, of which the best is kept.
        threshold: probability from which a pixel belongs to the mask.
        enlarge_x: pixels by which the mask grows to the left and to the right.
        enlarge_y: pixels by which the mask grows up and down.
        min_area: share of the image that the mask has to cover.
        max_area: share of the image that the mask may cover.
        min_change: by which the pixels of the mask have to differ, root mean square of 255 levels.
        clip_model: dual encoder by Hub id or folder that judges pairs; none for no such test.
        original_margin: cosine by which the original image has to prefer its caption over the new one; a tie fails.
        edited_margin: cosine by which the edited image has to prefer the new caption over the original one; a tie
            fails.
        seed: of what is proposed and painted.
    """

    writer: Literal["rules", "endpoint", "transformers"] = "rules"
    number: int | None = None
    concept: Literal["object", "color", "size"] | None = None
    edits: int = 3
    candidates: int = CANDIDATES
    threshold: float = THRESHOLD
    enlarge_x: int = 8
    enlarge_y: int = 8
    min_area: float = 0.005
    max_area: float = 0.5
    min_change: float = 8.0
    clip_model: str = "openai/clip-vit-large-patch14"
    original_margin: float = 0.0
    edited_margin: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("number", "edits", "candidates", "attempts", "concurrency", "llm_batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: found {value}, expected 1 or more.")
        for name in ("enlarge_x", "enlarge_y", "min_change"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected 0 or more.")
        for name in ("threshold", "min_area", "max_area"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected 0 to 1.")
        if self.min_area > self.max_area:
            raise ValueError(f"min_area: found {self.min_area}, expected at most max_area={self.max_area}.")
        if self.concept is not None and self.concept not in CONCEPTS:
            raise ValueError(f"concept: found {self.concept!r}, expected one of {', '.join(CONCEPTS)}.")
        self.check_writer("--writer rules")

    @property
    def has_clip_model(self) -> bool:
        """Whether a dual encoder judges pairs."""
        return self.clip_model != "none"

    def result_settings(self) -> dict[str, Any]:
        """The settings that decide what a draft of an item is, besides the files of the models."""
        names = [field.name for field in fields(self) if field.name not in _OF_THIS_RUN]
        model = {field.name for field in fields(LanguageModelOptions)}
        return {name: getattr(self, name) for name in names if self.writer != "rules" or name not in model}
