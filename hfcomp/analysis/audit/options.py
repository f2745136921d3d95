"""Options of `hfcomp audit`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from hfcomp.analysis.gallery.options import DataOptions
from hfcomp.options import BatchSize, Device, Needs, NoCache, Size
from hfcomp.parsing.tokens import CaptionChoice


@dataclass(kw_only=True)
class AuditOptions(DataOptions):
    """The audit."""

    output_dir: Annotated[Path, "Folder for audit.html and audit.json."] = Path("runs/audit")
    overwrite: Annotated[bool, "Replace an existing audit in the output folder."] = False
    captions: Annotated[
        str | None,
        "Captions for the bigram model: a file, folder or Hub id, or 'coco'. Defaults to COCO captions if they are on "
        "this machine, otherwise to the dataset's own captions of other images. Captions of the dataset's own "
        "photographs also count as true captions in the check known_true.",
    ] = None
    caption_choice: Annotated[
        CaptionChoice, "For a row with a list of captions, the one to use; with all, each becomes a row."
    ] = "longest"
    language_model: Annotated[
        str | None,
        "Causal language model (Hub id or folder) for the check language_model, instead of the bigram model.",
    ] = None
    model: Annotated[
        str | None, "Dual encoder (Hub id or folder) for embedding probes and for negatives that may be true."
    ] = None
    margin: Annotated[
        float,
        Field(ge=0),
        "Cosine margin by which --model must prefer a negative to its caption; the default is our choice.",
    ] = 0.02
    benchmarks: Annotated[
        tuple[str, ...],
        "Benchmarks whose images to search for in the dataset. Defaults to those with data in data_dir.",
    ] = ()
    data_dir: Annotated[Path | None, "Folder with one subfolder of data per benchmark."] = None
    skip_damaged: Annotated[
        bool,
        Needs("model", advice=": without a model, damaged images are only counted, never read"),
        "Leave out and count images that --model cannot read, instead of stopping with an error.",
    ] = False
    examples: Annotated[Size, "Examples per check on the page; 0 for none."] = 6
    seed: Annotated[Size, "Random seed for the probes' folds."] = 0
    batch_size: BatchSize = 128
    device: Device = None
    no_cache: NoCache = False
