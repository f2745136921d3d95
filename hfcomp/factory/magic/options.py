"""MAGIC (CLEAR GLASS): its options, which are those of `hfcomp build magic`, and its card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from hfcomp.factory.builder import ANSWERS, CAPTIONS, Builder, CardText
from hfcomp.factory.options import CaptionOptions, LanguageModelOptions
from hfcomp.options import THIS_MACHINE, Count, Device, Options, Spelling, declared_options

MagicStep = Literal["concepts", "hierarchy", "captions", "parts"]
MAGIC_STEPS: tuple[MagicStep, ...] = get_args(MagicStep)
DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
"""Our choice; the paper names none."""
BY_CAPTIONS = "captions"
"""The encoder that needs no model."""
TAXONOMY: Literal["taxonomy"] = "taxonomy"
"""The writer that needs no language model."""
Cosine = Annotated[float, Field(ge=-1, le=1)]


@dataclass(kw_only=True)
class GraphSettings(Options):
    """Hierarchy (CLEAR GLASS, section 3.1).

    The paper's text merges and mines above a similarity, its Algorithm 1 from it on; here it is above. That hard
    negatives share no names by default is our choice, as such a name would fit both, and so is `max_negatives`.
    """

    min_images: Annotated[
        Count, "Images of a concept; one with fewer is merged into the most similar one, or removed."
    ] = 5
    merge_similarity: Annotated[Cosine, "Cosine that a merge has to exceed."] = 0.9
    negative_similarity: Annotated[Cosine, "Cosine that hard-negative concepts have to exceed."] = 0.85
    max_negatives: Annotated[Count, "Hard-negative concepts of one concept, the nearest."] = 20
    shared_levels: Annotated[
        int, Field(ge=0, le=3), "Names from level 4 downwards that a hard negative may share; 0 allows none."
    ] = 0
    test_share: Annotated[
        float, Field(gt=0, lt=1), "Share of the images of each concept, and of the concepts, that are for testing."
    ] = 0.2
    seed: Annotated[int, "Random seed of both splits, and of a language model's answers."] = 0

    def facts(self) -> dict[str, Any]:
        """The settings alone, of options that have more."""
        return {name: getattr(self, name) for name in declared_options(GraphSettings)}


@dataclass(kw_only=True)
class MagicOptions(LanguageModelOptions, GraphSettings, CaptionOptions):
    """A hierarchy of abstract concepts over captioned images (MAGIC)."""

    what: ClassVar[str] = "magic"
    steps: ClassVar[tuple[str, ...]] = MAGIC_STEPS
    captions: Literal["longest", "all"] = field(default="all", init=False)  # a concept is of all captions of an image
    writer: Annotated[
        Literal["endpoint", "transformers", "taxonomy"],
        "endpoint asks the server at base_url; transformers runs a small model in process; taxonomy finds the words "
        "of a list of concepts in captions and needs no model.",
    ] = "endpoint"
    taxonomy: Annotated[
        str | None,
        Spelling("FILE"),
        "YAML file of your own concepts, for the writer of this name; by default one for everyday photographs.",
    ] = None
    encoder: Annotated[
        str,
        "Encoder of names of concepts: a sentence encoder by Hub id or folder, or captions, which needs no model.",
    ] = DEFAULT_ENCODER
    until: Annotated[MagicStep, THIS_MACHINE, "The last step that is run."] = "parts"
    device: Device = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.writer == TAXONOMY:
            self._check_unused()
        elif self.taxonomy is not None:
            raise ValueError(f"--taxonomy is of --writer taxonomy; found --writer {self.writer}.")
        else:
            self.check_writer("--writer taxonomy, which needs no model")

    def _check_unused(self) -> None:
        """An option that changes nothing is a mistake."""
        for one in declared_options(LanguageModelOptions).values():
            if getattr(self, one.name) != one.default:
                raise ValueError(f"--{one.name} is of a language model; found --writer {self.writer}. Leave it out.")
        if self.device is not None and self.encoder == BY_CAPTIONS:
            raise ValueError(f"--device is of models; found --writer {self.writer} and --encoder {BY_CAPTIONS}.")

    def source_settings(self) -> Mapping[str, Any]:
        """The settings of `hfcomp.factory.magic.stages.make_source`."""
        if self.writer == TAXONOMY:
            return {"writer": self.writer, "taxonomy": self.taxonomy}
        names = ("attempts", "seed", "device")
        return {"writer": self.writer, "model": self.writer_settings()} | {name: getattr(self, name) for name in names}


MAGIC = Builder(
    MagicOptions,
    CardText(
        "MAGIC",
        "Images grouped by the abstract concept of their captions, each concept with more abstract ones on three "
        "further levels and with hard-negative concepts (CLEAR GLASS). The authors' own set is not released; this one "
        "is made as the paper describes it. Concepts and captions were not reviewed individually.",
        {
            "`image`, `caption`": "the image and its captions, as in the source",
            "`generalized_caption`": "a caption of what the image has in common with others of its concept",
            "`group`": "the image's concept, of level 1",
            "`hard_negative_groups`": "concepts that are easily confused with it, the most similar first",
            "`level_1` to `level_4`": "names of its concepts, from the specific to the abstract: for evaluation, not "
            "for training",
            "`image_id`": "identifies an image; rows of one image share it",
        },
        header=("generalized caption", "level 1", "level 2", "level 3", "level 4"),
        reads=("generalized_caption", "level_1", "level_2", "level_3", "level_4"),
        cells=lambda *texts: [texts],
        counts=(CAPTIONS, ANSWERS),
    ),
    "hfcomp.factory.magic.chain:MagicChain",
    configs={
        "captions": "images with generalized captions, split by image",
        "levels": "the same with the names of their concepts on each level",
        "captions_by_concept": "images with generalized captions, split by concept",
        "levels_by_concept": "the same with the names of their concepts on each level",
    },
)
