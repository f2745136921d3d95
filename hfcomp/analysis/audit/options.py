"""What is audited and how: the options of `hfcomp audit`."""

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

    output_dir: Annotated[Path, "Folder that receives audit.html and audit.json."] = Path("runs/audit")
    overwrite: Annotated[bool, "Replace an audit in the output folder."] = False
    captions: Annotated[
        str | None,
        "Captions that the bigram model is counted on: a file, folder or Hub id, or coco; by default COCO's if they "
        "are on this machine, else the set's own captions of other images. Those of the set's own photographs are "
        "true captions for the check known_true.",
    ] = None
    caption_choice: Annotated[
        CaptionChoice, "Which caption is used of a row with a list of captions; with all, each is a row."
    ] = "longest"
    language_model: Annotated[
        str | None, "A causal language model that judges likelihood in place of bigrams: a Hub id or folder."
    ] = None
    model: Annotated[
        str | None,
        "A dual encoder for probes of embeddings and for negatives that may be true: a Hub id or folder.",
    ] = None
    margin: Annotated[
        float, Field(ge=0), "Cosine by which it has to prefer a negative to its caption. Our choice."
    ] = 0.02
    benchmarks: Annotated[
        tuple[str, ...],
        "Benchmarks whose images are looked for in the set; by default those with data under data_dir.",
    ] = ()
    data_dir: Annotated[Path | None, "Folder with a sub-folder for each benchmark's data."] = None
    skip_damaged: Annotated[
        bool,
        Needs("model", advice=": without a model, damaged images are counted and not read"),
        "Leave out images that --model cannot read, and count them; otherwise they are an error.",
    ] = False
    examples: Annotated[Size, "Examples of a check, shown in the page; 0 for none."] = 6
    seed: Annotated[Size, "Random seed of the folds of probes."] = 0
    batch_size: BatchSize = 128
    device: Device = None
    no_cache: NoCache = False
