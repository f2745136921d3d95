"""Options of `hfcomp annotate`: candidates, models, page and automatic drafts."""

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
from hfcomp.factory.options import CaptionOptions
from hfcomp.factory.writer_options import LanguageModelOptions, check_writer
from hfcomp.options import THIS_MACHINE, Amount, Count, Device, Options, Share, Size, Spelling, declared_options

DEFAULT_SEGMENTER = "CIDAS/clipseg-rd64-refined"
"""The paper's segmentation model (section 4)."""
DEFAULT_INPAINTER = "sd2-community/stable-diffusion-2-inpainting"
"""A community copy of the paper's inpainting model (section 4), stabilityai/stable-diffusion-2-inpainting, which its
makers removed from the Hub in November 2025."""
SIZE, STEPS, GUIDANCE = 512, 50, 7.5
"""Longer side in pixels, number of denoising steps, and scale of classifier-free guidance: the defaults of the
diffusers pipeline. The paper does not state them."""
PASSWORD = "HFCOMP_ANNOTATE_PASSWORD"
"""Environment variable for the password."""


@dataclass(kw_only=True)
class ModelOptions(Options):
    """Models."""

    segmenter: Annotated[str, "Hub id or folder of a CLIPSeg model."] = DEFAULT_SEGMENTER
    inpainter: Annotated[str, "Hub id or folder of a diffusers inpainting pipeline."] = DEFAULT_INPAINTER
    inpaint_steps: Annotated[Count, "Number of denoising steps."] = STEPS
    inpaint_guidance: Annotated[Amount, "Scale of classifier-free guidance."] = GUIDANCE
    inpaint_size: Annotated[Count, "Longer side of the image passed to the pipeline, in pixels."] = SIZE
    inpaint_dtype: Annotated[
        DType, "Data type of the pipeline's weights; auto uses float16 on a GPU and float32 on a CPU."
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
    any_license: Annotated[bool, "Include images whose license forbids adaptation or is unknown."] = False
    seed: Annotated[int, "Random seed for the order of the candidates."] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [name for name in self.concepts if name not in CONCEPTS]
        if unknown or not self.concepts:
            raise ValueError(
                f"concepts: found {', '.join(self.concepts)!r}, expected one or more of {', '.join(CONCEPTS)}."
            )


@dataclass(kw_only=True)
class ServeOptions(ModelOptions):
    """Page."""

    host: Annotated[str, "Address to listen on; any address except loopback requires a password."] = "127.0.0.1"
    port: Annotated[
        int | None, Field(ge=1, le=65535), "Port to listen on. Defaults to the first free port from 7860."
    ] = None
    public_names: Annotated[
        tuple[str, ...],
        "Comma-separated host names, such as that of a reverse proxy, that the page accepts in addition to --host; "
        "include the port unless it is 80 or 443.",
    ] = ()
    password_file: Annotated[
        str | None,
        Spelling("FILE"),
        f"File with one shared password. Without it, the password in the environment variable {PASSWORD} is used.",
    ] = None
    people: Annotated[
        str | None,
        Spelling("FILE"),
        "File with a password for each person, written by `hfcomp annotate add_person NAME --people FILE`.",
    ] = None
    lease_minutes: Annotated[
        float, Field(gt=0), "Minutes until an item whose page was closed is assigned to someone else."
    ] = 15.0
    concept: Annotated[Concept | None, "Limit the items to this concept (default: all)."] = None

    def passwords(self) -> Passwords | None:
        """Returns the passwords that people sign in with, or None if there is no password.

        Raises:
            ValueError: If both a shared password and `people` are set, the password is empty or too short, or the file
                is not a file of people.
            OSError: If a file cannot be read.
        """
        shared = self.password()
        if self.people is None:
            return None if shared is None else SharedPassword(shared)
        if shared is not None:
            source = PASSWORD if self.password_file is None else "password_file"
            raise ValueError(
                f"people and {source} exclude each other: people gives each person a password, {source} gives "
                "everyone the same one. Remove one of them."
            )
        return PeopleFile(Path(self.people))

    def password(self) -> str | None:
        """Returns the shared password, or None if there is none. The password is never logged.

        Raises:
            ValueError: If the file is empty.
            OSError: If the file cannot be read.
        """
        if self.password_file is None:
            return os.environ.get(PASSWORD) or None
        password = Path(self.password_file).read_text(encoding="utf-8").strip()
        if not password:
            raise ValueError(f"{self.password_file} is empty, expected a password.")
        return password


CANDIDATES = 3
"""Number of images painted per edit (section A.3)."""


@dataclass(kw_only=True)
class DraftOptions(ModelOptions, LanguageModelOptions):
    """Drafts.

    All numbers except the number of candidates are our choice, because the paper's edits were made by people.
    """

    writer: Annotated[
        Literal["rules", "endpoint", "transformers"],
        "Source of the edits: rules replaces a keyword of a caption and needs no language model; endpoint queries the "
        "server at base_url; transformers runs a small model in this process.",
    ] = "rules"
    attempts: Annotated[Count, "Number of rejected answers per item after which the item is left for people."] = 3
    number: Annotated[Count | None, THIS_MACHINE, "Number of open items to try to draft (default: all)."] = None
    concept: Annotated[Concept | None, THIS_MACHINE, "Limit the items to this concept (default: all)."] = None
    edits: Annotated[Count, "Number of different edits to try before the item is left for people."] = 3
    candidates: Annotated[Count, "Images to paint per edit; the best one is kept."] = CANDIDATES
    threshold: Annotated[Share, "Minimum probability for a pixel to belong to the mask."] = THRESHOLD
    enlarge_x: Annotated[Size, "Pixels to enlarge the mask by on the left and on the right."] = 8
    enlarge_y: Annotated[Size, "Pixels to enlarge the mask by at the top and at the bottom."] = 8
    min_area: Annotated[Share, "Minimum share of the image that the mask covers."] = 0.005
    max_area: Annotated[Share, "Maximum share of the image that the mask covers."] = 0.5
    min_change: Annotated[
        float,
        Field(ge=0),
        "Minimum change of the pixels in the mask, as a root mean square on 255 levels.",
    ] = 8.0
    clip_model: Annotated[str, "Dual encoder (Hub id or folder) that checks pairs; none skips this check."] = (
        "openai/clip-vit-large-patch14"
    )
    original_margin: Annotated[
        float, "Cosine margin by which the original image must prefer its caption to the new one; a tie fails."
    ] = 0.0
    edited_margin: Annotated[
        float, "Cosine margin by which the edited image must prefer the new caption to the original one; a tie fails."
    ] = 0.0
    seed: Annotated[int, "Random seed for proposing and painting edits."] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_area > self.max_area:
            raise ValueError(f"min_area: found {self.min_area}, expected at most max_area={self.max_area}.")
        check_writer(self.writer, self.base_url, self.request_options, "--writer rules")

    @property
    def has_clip_model(self) -> bool:
        """Whether a dual encoder checks pairs."""
        return self.clip_model != "none"

    def result_settings(self) -> dict[str, Any]:
        """Returns the settings that determine an item's draft, in addition to the model files."""
        # The facts of the proposer already include the request options.
        recorded = [
            name
            for name, option in declared_options(type(self)).items()
            if option.is_recorded and name != "request_options"
        ]
        model = {} if self.writer != "rules" else declared_options(LanguageModelOptions)
        return {name: getattr(self, name) for name in recorded if name not in model}
