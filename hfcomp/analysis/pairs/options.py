"""Options of `hfcomp analyze`."""

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
"""Value that disables a model."""


@dataclass(kw_only=True)
class DataOptions(Options):
    """Data and output."""

    output_dir: Annotated[Path, "Folder for results.json, report.md, report.html, figures and pairs.parquet."] = Path(
        "runs/analyze"
    )
    overwrite: Annotated[bool, "Replace existing results in the output folder."] = False
    caveat: Annotated[
        str, 'Sentence shown above the report and the gallery, such as "Random weights: plumbing, not quality."'
    ] = ""
    split: Annotated[str, "Split of the datasets."] = "train"
    config: Annotated[str | None, "Configuration of all datasets; DIR::CONFIG sets it for one of them."] = None
    column_names: ColumnNames = ""
    caption_choice: Annotated[
        CaptionChoice, "For a row with a list of captions, the one to use; with all, each becomes a row."
    ] = "longest"
    limit: Annotated[Count | None, "Read only the first N rows of each dataset."] = None
    concreteness_ratings: Annotated[
        str | None,
        Spelling("FILE"),
        "File with the published table of ratings. Defaults to a dataset's own negative_concreteness.",
    ] = None
    allow_urls: AllowUrls = False
    url_timeout: UrlTimeout = DEFAULT_TIMEOUT


@dataclass(kw_only=True)
class AnalyzeOptions(DataOptions):
    """Models and figures."""

    models: Annotated[
        tuple[str, ...],
        "Dual encoders for accuracies, logit gaps and CLIP similarities: Hub ids, folders or name=ID, separated by "
        "commas, or none. The default is our choice, because transformers does not support the paper's "
        "PE-Core-L-14-336; size and resolution are the same.",
    ] = ("openai/clip-vit-large-patch14-336",)
    image_model: Annotated[
        str,
        "Vision transformer for DINOScore, or none. The default's size is our choice; the paper names only DINOv2.",
    ] = "facebook/dinov2-base"
    text_model: Annotated[str, "Text model for BERTScore, or none."] = "FacebookAI/roberta-large"
    text_layer: Annotated[
        Size | None,
        "Layer whose outputs BERTScore compares. Defaults to the layer that BERTScore's authors chose for the model, "
        "or to the last layer if they did not test the model.",
    ] = None
    text_baseline: Annotated[
        str | None,
        Spelling("FILE"),
        "File with BERTScore baselines of text_model (LAYER,P,R,F). Built in for roberta-large and roberta-base; "
        "without a baseline, BERTScore is not rescaled.",
    ] = None
    loess_share: Annotated[
        float,
        Field(gt=0, le=1),
        "Share of the pairs used to fit each point of the LOESS curve. The default, that of R and statsmodels, "
        "is our choice.",
    ] = 2 / 3
    gallery: Annotated[Size, "Number of pairs in the gallery; 0 for none."] = 24
    seed: Annotated[int, "Random seed for the gallery and the resampling."] = 0
    batch_size: BatchSize = 128
    device: Device = None
    no_cache: NoCache = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.models or (NONE in self.models and len(self.models) > 1):
            raise ValueError(f"models: found {','.join(self.models)!r}, expected Hub ids or folders, or only {NONE}.")
        if self.text_model == NONE and (self.text_layer is not None or self.text_baseline):
            raise ValueError("text_layer and text_baseline have no effect without a text_model.")
