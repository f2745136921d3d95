"""What a hierarchy of concepts is built with; the fields are the options of `hfcomp build magic`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, get_args

from hfcomp.generation.magic.graph.settings import GraphSettings
from hfcomp.generation.options import CaptionOptions, LanguageModelOptions

MagicStep = Literal["concepts", "hierarchy", "captions", "parts"]
MAGIC_STEPS: tuple[MagicStep, ...] = get_args(MagicStep)
DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
"""Our choice; the paper names none."""
CAPTIONS = "captions"
"""The encoder that needs no model."""
TAXONOMY: Literal["taxonomy"] = "taxonomy"
"""The writer that needs no language model."""
GRAPH_FIELDS = tuple(one.name for one in fields(GraphSettings))


@dataclass(kw_only=True)
class GraphOptions(CaptionOptions):
    """Hierarchy (CLEAR GLASS, section 3.1).

    Attributes:
        min_images: of a concept; one with fewer is merged into the most similar one, or removed.
        merge_similarity: cosine that a merge has to exceed.
        negative_similarity: cosine that hard-negative concepts have to exceed.
        max_negatives: hard-negative concepts of one concept, the nearest.
        shared_levels: names from level 4 downwards that a hard negative may share; 0 allows none.
        test_share: of the images of each concept, and of the concepts.
        seed: of both splits, and of a language model's answers.
    """

    captions: Literal["longest", "all"] = field(default="all", init=False)  # a concept is of all captions of an image
    min_images: int = GraphSettings.min_images
    merge_similarity: float = GraphSettings.merge_similarity
    negative_similarity: float = GraphSettings.negative_similarity
    max_negatives: int = GraphSettings.max_negatives
    shared_levels: int = GraphSettings.shared_levels
    test_share: float = GraphSettings.test_share
    seed: int = GraphSettings.seed

    def __post_init__(self) -> None:
        super().__post_init__()
        self.graph_settings()

    def graph_settings(self) -> GraphSettings:
        """The settings of the hierarchy.

        Raises:
            ValueError: for a number out of its range.
        """
        return GraphSettings(**{name: getattr(self, name) for name in GRAPH_FIELDS})


@dataclass(kw_only=True)
class MagicOptions(LanguageModelOptions, GraphOptions):
    """A hierarchy of abstract concepts over captioned images (MAGIC).

    Attributes:
        writer: endpoint asks the server at base_url; transformers runs a small model in process; taxonomy finds the
            words of a list of concepts in captions and needs no model.
        taxonomy: YAML file of your own concepts, for the writer of this name; by default one for everyday photographs.
        encoder: of names of concepts: a sentence encoder by Hub id or folder, or captions, which needs no model.
        until: the last step that is run.
        device: such as cpu or cuda:1; by default a GPU where there is one.
    """

    what: ClassVar[str] = "magic"
    writer: Literal["endpoint", "transformers", "taxonomy"] = "endpoint"
    taxonomy: str | None = None
    encoder: str = DEFAULT_ENCODER
    until: MagicStep = "parts"
    device: str | None = None

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
        for one in fields(LanguageModelOptions):
            if getattr(self, one.name) != one.default:
                raise ValueError(f"--{one.name} is of a language model; found --writer {self.writer}. Leave it out.")
        if self.device is not None and self.encoder == CAPTIONS:
            raise ValueError(f"--device is of models; found --writer {self.writer} and --encoder {CAPTIONS}.")

    def runs(self, step: MagicStep) -> bool:
        """Whether a step is to be run."""
        return MAGIC_STEPS.index(step) <= MAGIC_STEPS.index(self.until)

    def source_settings(self) -> Mapping[str, Any]:
        """The settings of `hfcomp.generation.magic.making.make_source`."""
        if self.writer == TAXONOMY:
            return {"writer": self.writer, "taxonomy": self.taxonomy}
        names = ("attempts", "seed", "device")
        return {"writer": self.writer, "model": self.writer_settings()} | {name: getattr(self, name) for name in names}
