"""How sets of pairs are analysed; the fields are the options of `hfcomp analyze`, their descriptions its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hfcomp.data.urls import DEFAULT_TIMEOUT
from hfcomp.parsing.tokens import CaptionChoice

NONE = "none"
"""In place of a model: it is not used."""


@dataclass(kw_only=True)
class DataOptions:
    """Data and output.

    Attributes:
        output_dir: receives results.json, report.md, report.html, figures and, of analyze, pairs.parquet.
        overwrite: replace results in the output folder.
        caveat: a sentence above report and gallery, such as "Random weights: plumbing, not quality."
        split: of the sets.
        config: the configuration of all sets; DIR::CONFIG names it for one of them.
        column_names: hfcomp's name=the set's name, as caption=text; or JSON.
        caption_choice: used of a row with a list of captions; with all, each is a row.
        limit: read the first N rows of each set only.
        concreteness_ratings: file of the published table of ratings; without it a set's own negative_concreteness.
        allow_urls: fetch images that the data names by URL; only for data you trust.
        url_timeout: seconds for one image.
    """

    output_dir: Path = Path("runs/analyze")
    overwrite: bool = False
    caveat: str = ""
    split: str = "train"
    config: str | None = None
    column_names: str = ""
    caption_choice: CaptionChoice = "longest"
    limit: int | None = None
    concreteness_ratings: str | None = None
    allow_urls: bool = False
    url_timeout: float = DEFAULT_TIMEOUT


@dataclass(kw_only=True)
class AnalyzeOptions(DataOptions):
    """Models and figures.

    Attributes:
        models: dual encoders of accuracies, logit gaps and CLIP similarities: Hub ids, folders or name=ID, separated
            by commas, or none. Our choice, as transformers has no PE-Core-L-14-336, the paper's; size and resolution
            are the same.
        image_model: vision transformer of DINOScore, or none. Our choice of size; the paper names DINOv2 only.
        text_model: of BERTScore, or none.
        text_layer: whose outputs BERTScore compares; by default the layer that its authors chose for a model, the last
            one of models that they did not try.
        text_baseline: file of BERTScore's baselines of text_model (LAYER,P,R,F); known for roberta-large and
            roberta-base, and without one BERTScore is not rescaled.
        loess_share: of the pairs that a point of the LOESS curve is fitted to. Our choice, the default of R and of
            statsmodels.
        gallery: pairs in the gallery; 0 for none.
        seed: of the gallery and the resampling.
        batch_size: images or texts at a time.
        device: such as cpu or cuda:1; by default a GPU where there is one.
        no_cache: encode everything anew and keep nothing.
    """

    models: tuple[str, ...] = ("openai/clip-vit-large-patch14-336",)
    image_model: str = "facebook/dinov2-base"
    text_model: str = "FacebookAI/roberta-large"
    text_layer: int | None = None
    text_baseline: str | None = None
    loess_share: float = 2 / 3
    gallery: int = 24
    seed: int = 0
    batch_size: int = 128
    device: str | None = None
    no_cache: bool = False

    def __post_init__(self) -> None:
        for name, least in (("limit", 1), ("gallery", 0), ("batch_size", 1), ("text_layer", 0)):
            number = getattr(self, name)
            if number is not None and number < least:
                raise ValueError(f"{name}: found {number}, expected {least} or more.")
        if not 0 < self.loess_share <= 1:
            raise ValueError(f"loess_share: found {self.loess_share:g}, expected a share above 0, at most 1.")
        if not self.models or (NONE in self.models and len(self.models) > 1):
            raise ValueError(f"models: found {','.join(self.models)!r}, expected ids or folders, or {NONE} alone.")
        if self.text_model == NONE and (self.text_layer is not None or self.text_baseline):
            raise ValueError("text_layer and text_baseline need a text_model.")
