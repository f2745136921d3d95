"""ConcreteBatch (Slipform): the options of `hfcomp build concretebatch`, and the text of the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from hfcomp.factory.builder import ANSWERS, CAPTIONS, DROPPED, FLAGGED, IMAGES, MADE, Builder, CardText, Counts
from hfcomp.factory.images.options import ImageOptions
from hfcomp.factory.options import CaptionOptions, GrammarTolerance, Parser, Preset, PresetOptions, preset_help
from hfcomp.factory.targets.candidates import Lookup, Prepositions, Words
from hfcomp.factory.targets.choice import CONFIGS, MODES, Choice, Mode
from hfcomp.factory.writer_options import WriterOptions, check_writer
from hfcomp.negatives.concreteness import HOW_TO_GET
from hfcomp.options import THIS_MACHINE, Count, Share, Spelling, check
from hfcomp.parsing import DEFAULT_PARSER

Step = Literal["targets", "captions", "images"]
STEPS: tuple[Step, ...] = get_args(Step)
UNRATED = "words: without a rating"
CANDIDATES = Counts(
    "candidates: ", "words that may change", "category", also=((UNRATED, "of these, without a rating"),)
)


@dataclass(kw_only=True)
class TargetOptions(PresetOptions, CaptionOptions):
    """Target words (Concrete Jungle)."""

    paper: ClassVar[Mapping[str, Any]] = {"target_words": "all"}
    preset: Annotated[Preset, THIS_MACHINE, preset_help(paper)] = None

    order: Annotated[
        Literal["top_k", "category_first", "sample"] | None,
        "How the category is chosen: top_k applies the category rule to the k best words, category_first to all "
        "words, sample applies no rule (default: top_k for high_concreteness, otherwise sample).",
    ] = None
    top_k: Annotated[Count | None, "Number of best words to draw from (default: 3; for low_concreteness 8)."] = None
    rating_temperature: Annotated[
        float, Field(gt=0, allow_inf_nan=False), "Temperature of the softmax over ratings; 1 as in the paper."
    ] = 1.0
    lookup: Annotated[
        Lookup, "What to look up in the ratings first: the word, or the two-word expression that contains it."
    ] = "expression_first"
    prepositions: Annotated[Prepositions, "specific excludes at, by, in and on."] = "specific"
    target_words: Annotated[
        Words,
        "filtered leaves out words that name nothing themselves, such as group, front, photo and several; all keeps "
        "every word of the paper's parts of speech.",
    ] = "filtered"
    attribute_share: Annotated[
        Share,
        "Among rows without a relation, the share in which an attribute is changed; in the rest an object is changed.",
    ] = 0.5
    seed: Annotated[int, "Random seed."] = 0
    parser: Parser = DEFAULT_PARSER
    concreteness_ratings: Annotated[
        str | None, Spelling("FILE"), "Your file with the ratings of Brysbaert et al. 2014."
    ] = None
    download_ratings: Annotated[
        bool, "Show the license of the ratings (CC BY-NC-ND 3.0) and download them to the cache."
    ] = False

    @check
    def check_ratings(concreteness_ratings: str | None, download_ratings: bool) -> None:
        if concreteness_ratings and download_ratings:
            raise ValueError("--concreteness_ratings and --download_ratings are both given; expected one of them.")

    def choice(self, mode: Mode) -> Choice:
        """The rule for choosing targets of a caption."""
        return Choice.of(mode, order=self.order, k=self.top_k, temperature=self.rating_temperature)


@dataclass(kw_only=True)
class ConcreteBatchOptions(WriterOptions, ImageOptions, TargetOptions):
    """Pairs of a negative caption and a negative image, chosen by concreteness (ConcretePlant)."""

    what: ClassVar[str] = "concretebatch"
    steps: ClassVar[tuple[str, ...]] = STEPS
    captions: Literal["longest", "all"] = field(default="longest", init=False)  # a row has one negative image
    configs: Annotated[
        tuple[str, ...],
        THIS_MACHINE,
        "Configurations: any of high_concreteness, low_concreteness and random. The first built one, in this order, "
        "is the dataset's default.",
    ] = ("high_concreteness",)
    until: Annotated[Step, THIS_MACHINE, "Last step to run."] = "images"
    grammar_model: Annotated[
        str | None, "Reject negative captions that this causal language model finds ungrammatical."
    ] = None
    grammar_tolerance: GrammarTolerance = None

    @check
    def check_configs(configs: tuple[str, ...]) -> None:
        for name in configs:
            if name not in CONFIGS or configs.count(name) > 1:
                raise ValueError(f"configs: found {name!r}, expected some of {', '.join(CONFIGS)}, each once.")
        if not configs:
            raise ValueError(f"configs: found none, expected some of {', '.join(CONFIGS)}.")

    @check
    def check_given_ratings(concreteness_ratings: str | None, download_ratings: bool) -> None:
        if (
            not concreteness_ratings and not download_ratings
        ):  # required for random too, because its margins depend on them
            raise ValueError(f"expected --concreteness_ratings FILE or --download_ratings. {HOW_TO_GET}")

    @check
    def check_captions(until: str, writer: str, base_url: str | None, request_options: str) -> None:
        if until != "targets":
            instead = "--writer transformers with a small --llm, or --writer substitute, which needs no model"
            check_writer(writer, base_url, request_options, instead)

    @check
    def check_images(until: str, executor: str, image_dtype: str) -> None:
        if executor == "ray" and until == "images" and image_dtype == "auto":
            raise ValueError("--executor ray needs --image_dtype, such as float16: this machine may have no GPU.")


CONCRETEBATCH = Builder(
    ConcreteBatchOptions,
    CardText(
        "ConcreteBatch",
        "Pairs of a caption and an image, each with a hard negative caption and image: a word of the caption, chosen "
        "by its concreteness, is replaced, and the image is edited to match (Slipform, arXiv:2604.13313). The "
        "negatives were not reviewed individually: some may still be true of the image, and some images do not show "
        "what their caption says.",
        {
            "`image`, `caption`": "the image, and its longest caption",
            "`negative_image`": "the image edited by its negative caption",
            "`negative_captions`": "a list with one text: the caption with a word replaced",
            "`negative_kinds`, `negative_categories`": "`replace_att`, `replace_obj` or `replace_rel`; `attribute`, "
            "`object` or `relation`",
            "`negative_keywords`, `negative_spans`": "the replaced text, and its position as `[start, end)` in "
            "characters of `caption`",
            "`negative_rated_words`": "the keyword's entry in the concreteness ratings, by which ratings are joined",
        },
        header=("caption", "negative caption", "category"),
        reads=("caption", "negative_captions", "negative_categories"),
        cells=lambda caption, texts, names: [(caption, text, name) for text, name in zip(texts, names, strict=True)],
        counts=(MADE, FLAGGED, CANDIDATES, CAPTIONS, IMAGES, DROPPED, ANSWERS),
    ),
    "hfcomp.factory.concretebatch.chain:ConcreteBatchChain",
    configs={config: MODES[mode] for config, mode in CONFIGS.items()},
)
