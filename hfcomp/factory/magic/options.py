"""MAGIC (CLEAR GLASS): the options of `hfcomp build magic`, and the text of the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from hfcomp.factory.builder import ANSWERS, CAPTIONS, Builder, CardText
from hfcomp.factory.options import CaptionOptions
from hfcomp.factory.writer_options import LanguageModelOptions, check_writer
from hfcomp.options import THIS_MACHINE, Count, Device, Options, Share, Spelling, declared_options

MagicStep = Literal["concepts", "hierarchy", "captions", "parts"]
MAGIC_STEPS: tuple[MagicStep, ...] = get_args(MagicStep)
DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
"""Our choice; the paper names none."""
BY_CAPTIONS = "captions"
"""Name of the encoder that needs no model."""
SERVER_OPTIONS = ("concurrency", "retries", "llm_timeout", "answer_cache")
"""Options of a language model's server that an encoder's server also has."""
TAXONOMY: Literal["taxonomy"] = "taxonomy"
"""Name of the writer that needs no language model."""
ENDPOINT = "endpoint:"
"""Prefix of an encoder that a server runs, before the name of its model."""
PAPER_SIMILARITY = 0.85
Cosine = Annotated[float, Field(ge=-1, le=1)]


@dataclass(kw_only=True)
class GraphSettings(Options):
    """Hierarchy (CLEAR GLASS, section 3.1).

    The paper's text merges and mines above a similarity, but its Algorithm 1 includes the similarity itself; we use
    "above". `negative_quantile`, `max_negatives` and fewer `shared_levels` are our choices.
    """

    min_images: Annotated[
        Count, "Minimum images per concept; a smaller concept is merged into the most similar one, or removed."
    ] = 5
    merge_similarity: Annotated[Cosine, "Cosine that a merge must exceed."] = 0.9
    negative_similarity: Annotated[Cosine, "Cosine that hard-negative concepts must exceed."] = PAPER_SIMILARITY
    negative_quantile: Annotated[
        Share | None,
        "Take this quantile of the cosines of all pairs of concepts, such as 0.99, instead of negative_similarity; it "
        "fits any encoder.",
    ] = None
    max_negatives: Annotated[
        Count, "Maximum number of hard-negative concepts per concept; the nearest ones are kept."
    ] = 20
    shared_levels: Annotated[
        int,
        Field(ge=0, le=4),
        "Number of levels, counted down from level 4, at which a hard-negative concept may have the same name as the "
        "concept; 4 sets no condition, as in the paper, and 0 allows none.",
    ] = 4
    test_share: Annotated[
        float, Field(gt=0, lt=1), "Share of each concept's images, and of the concepts, for testing."
    ] = 0.2
    seed: Annotated[int, "Random seed of both splits and of a language model's answers."] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.negative_quantile is not None and self.negative_similarity != PAPER_SIMILARITY:
            raise ValueError("--negative_similarity has no effect with --negative_quantile. Remove one of them.")

    def facts(self) -> dict[str, Any]:
        """These settings, without other options of a subclass."""
        settings = {name: getattr(self, name) for name in declared_options(GraphSettings)}
        # An option that replaces another one is left out while it does not, so builds of an earlier hfcomp resume.
        return {name: value for name, value in settings.items() if value is not None}


@dataclass(kw_only=True)
class MagicOptions(LanguageModelOptions, GraphSettings, CaptionOptions):
    """A hierarchy of abstract concepts over captioned images (MAGIC)."""

    what: ClassVar[str] = "magic"
    steps: ClassVar[tuple[str, ...]] = MAGIC_STEPS
    captions: Literal["longest", "all"] = field(
        default="all", init=False
    )  # a concept comes from all captions of an image
    writer: Annotated[
        Literal["endpoint", "transformers", "taxonomy"],
        "endpoint queries the server at base_url; transformers runs a small model in this process; taxonomy searches "
        "the captions for the words of a list of concepts and needs no model.",
    ] = "endpoint"
    taxonomy: Annotated[
        str | None,
        Spelling("FILE"),
        "YAML file with your own concepts for --writer taxonomy (default: concepts of everyday photographs).",
    ] = None
    prompts: Annotated[
        str,
        Spelling("SET"),
        "Prompts for a language model: released asks what the released code of CLEAR GLASS asks, ours is our own set; "
        "or a YAML file in the same form.",
    ] = "released"
    captions_per_image: Annotated[
        Count,
        "Maximum number of generalized captions per image, each from one of its captions; more than 1 makes the "
        "column a list.",
    ] = 1
    encoder: Annotated[
        str,
        "Encoder of concept names: Hub id or folder of a sentence encoder, or of a dual encoder, whose text tower is "
        "used; endpoint:MODEL for a server's embeddings; or the word captions, which uses no model.",
    ] = DEFAULT_ENCODER
    encoder_url: Annotated[
        str | None,
        THIS_MACHINE,
        "Address of the OpenAI-compatible server of an endpoint encoder; an API key is read only from "
        "HFCOMP_ENCODER_API_KEY.",
    ] = None
    until: Annotated[MagicStep, THIS_MACHINE, "Last step to run."] = "parts"
    device: Device = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_encoder()
        if self.writer == TAXONOMY:
            self._check_unused()
        elif self.taxonomy is not None:
            raise ValueError(f"--taxonomy works only with --writer taxonomy; found --writer {self.writer}.")
        else:
            instead = "--writer taxonomy, which needs no model"
            check_writer(self.writer, self.base_url, self.request_options, instead)
            from hfcomp.factory.writers.concept_prompts import concept_prompts_file, read_concept_prompts

            read_concept_prompts(concept_prompts_file(self.prompts))

    def _check_encoder(self) -> None:
        """Raises ValueError for a server without an address, and for an address that is not used."""
        if self.encoder.startswith(ENDPOINT):
            if self.encoder_url is None:
                raise ValueError(f"--encoder {self.encoder} needs --encoder_url, such as http://127.0.0.1:8000/v1.")
            from hfcomp.factory.writers.embeddings import EmbeddingWriter
            from hfcomp.factory.writers.endpoint import check_base_url, check_installed

            check_base_url(self.encoder_url, EmbeddingWriter.url_option, EmbeddingWriter.key_variable)
            check_installed()
        elif self.encoder_url is not None:
            raise ValueError(
                f"--encoder_url has no effect with --encoder {self.encoder}. Remove it, or name the server's model, "
                f"such as --encoder {ENDPOINT}text-embedding-3-small."
            )

    def _check_unused(self) -> None:
        """Raises ValueError for options that have no effect without a language model."""
        used = SERVER_OPTIONS if self.encoder_url else ()
        self.reject_model_options("prompts", used=used)
        if self.device is not None and (self.encoder == BY_CAPTIONS or used):
            raise ValueError(
                f"--device has no effect: no model runs here with --writer {self.writer} and --encoder {self.encoder}."
            )

    def encoder_settings(self) -> dict[str, Any]:
        """The settings of `hfcomp.factory.writers.embeddings.EmbeddingClient`, except for the model."""
        names = {"concurrency": self.concurrency, "retries": self.retries, "timeout": self.llm_timeout}
        return {"base_url": self.encoder_url, "answer_cache": self.answer_cache} | names

    def source_settings(self) -> Mapping[str, Any]:
        """The settings of `hfcomp.factory.magic.stages.make_source`."""
        if self.writer == TAXONOMY:
            names = ("writer", "taxonomy", "captions_per_image")
            return {name: getattr(self, name) for name in names}
        names = ("attempts", "seed", "device", "prompts", "captions_per_image")
        return {"writer": self.writer, "model": self.writer_settings()} | {name: getattr(self, name) for name in names}


MAGIC = Builder(
    MagicOptions,
    CardText(
        "MAGIC",
        "Images grouped by the abstract concept of their captions. Each concept has more abstract concepts on three "
        "further levels, and hard-negative concepts (CLEAR GLASS). The authors have not released their dataset; this "
        "one follows the paper's description. Concepts and captions were not reviewed individually.",
        {
            "`image`, `caption`": "the image and its captions, as in the source",
            "`generalized_caption`": "a caption, or a list of captions, of what the image shares with other images of "
            "its concept",
            "`group`": "the image's concept on level 1",
            "`hard_negative_groups`": "concepts that are easily confused with it, the most similar first",
            "`level_1` to `level_4`": "names of its concepts, from specific to abstract: for evaluation, not for "
            "training",
            "`image_id`": "identifies an image; rows of one image share it",
        },
        header=("generalized caption", "level 1", "level 2", "level 3", "level 4"),
        reads=("generalized_caption", "level_1", "level_2", "level_3", "level_4"),
        cells=lambda captions, *levels: [
            (caption, *levels) for caption in (captions if isinstance(captions, list) else [captions])
        ],
        counts=(CAPTIONS, ANSWERS),
    ),
    "hfcomp.factory.magic.chain:MagicChain",
    configs={
        "captions": "images with generalized captions, split by image",
        "levels": "the same images with the names of their concepts on each level",
        "captions_by_concept": "images with generalized captions, split by concept",
        "levels_by_concept": "the same images with the names of their concepts on each level",
    },
)
