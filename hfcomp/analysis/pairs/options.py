"""How sets of pairs are analyzed: the options of `hfcomp analyze`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from hfcomp.analysis.gallery.options import ColumnNames
from hfcomp.data.urls import DEFAULT_TIMEOUT
from hfcomp.options import AllowUrls, BatchSize, Count, Device, NoCache, Options, Size, Spelling, UrlTimeout
from hfcomp.parsing.tokens import CaptionChoice

NONE = "none"
"""In place of a model: it is not used."""


@dataclass(kw_only=True)
class DataOptions(Options):
    """Data and output."""

    output_dir: Annotated[
        Path, "Folder that receives results.json, report.md, report.html, figures and, of analyze, pairs.parquet."
    ] = Path("runs/analyze")
    overwrite: Annotated[bool, "Replace results in the output folder."] = False
    caveat: Annotated[str, 'A sentence above report and gallery, such as "Random weights: plumbing, not quality."'] = (
        ""
    )
    split: Annotated[str, "Split of the sets."] = "train"
    config: Annotated[str | None, "The configuration of all sets; DIR::CONFIG names it for one of them."] = None
    column_names: ColumnNames = ""
    caption_choice: Annotated[
        CaptionChoice, "Which caption is used of a row with a list of captions; with all, each is a row."
    ] = "longest"
    limit: Annotated[Count | None, "Read the first N rows of each set only."] = None
    concreteness_ratings: Annotated[
        str | None,
        Spelling("FILE"),
        "File of the published table of ratings; without it a set's own negative_concreteness.",
    ] = None
    allow_urls: AllowUrls = False
    url_timeout: UrlTimeout = DEFAULT_TIMEOUT


@dataclass(kw_only=True)
class AnalyzeOptions(DataOptions):
    """Models and figures."""

    models: Annotated[
        tuple[str, ...],
        "Dual encoders of accuracies, logit gaps and CLIP similarities: Hub ids, folders or name=ID, separated by "
        "commas, or none. Our choice, as transformers has no PE-Core-L-14-336, the paper's; size and resolution are "
        "the same.",
    ] = ("openai/clip-vit-large-patch14-336",)
    image_model: Annotated[
        str, "Vision transformer of DINOScore, or none. Our choice of size; the paper names DINOv2 only."
    ] = "facebook/dinov2-base"
    text_model: Annotated[str, "Model of BERTScore, or none."] = "FacebookAI/roberta-large"
    text_layer: Annotated[
        Size | None,
        "Layer whose outputs BERTScore compares; by default the one that its authors chose for a model, the last one "
        "of models that they did not try.",
    ] = None
    text_baseline: Annotated[
        str | None,
        Spelling("FILE"),
        "File of BERTScore's baselines of text_model (LAYER,P,R,F); known for roberta-large and roberta-base, and "
        "without one BERTScore is not rescaled.",
    ] = None
    loess_share: Annotated[
        float,
        Field(gt=0, le=1),
        "Share of the pairs that a point of the LOESS curve is fitted to. Our choice, the default of R and of "
        "statsmodels.",
    ] = 2 / 3
    gallery: Annotated[Size, "Pairs in the gallery; 0 for none."] = 24
    seed: Annotated[int, "Random seed of the gallery and the resampling."] = 0
    batch_size: BatchSize = 128
    device: Device = None
    no_cache: NoCache = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.models or (NONE in self.models and len(self.models) > 1):
            raise ValueError(f"models: found {','.join(self.models)!r}, expected ids or folders, or {NONE} alone.")
        if self.text_model == NONE and (self.text_layer is not None or self.text_baseline):
            raise ValueError("text_layer and text_baseline need a text_model.")
