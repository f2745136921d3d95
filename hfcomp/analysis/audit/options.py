"""What is audited and how; the fields are the options of `hfcomp audit`, their descriptions its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hfcomp.analysis.gallery.options import DataOptions
from hfcomp.parsing.tokens import CaptionChoice


@dataclass(kw_only=True)
class AuditOptions(DataOptions):
    """The audit.

    Attributes:
        output_dir: receives audit.html and audit.json.
        overwrite: replace an audit in the output folder.
        captions: what the bigram model is counted on: a file, folder or Hub id with captions, or coco; by default
            COCO's where they are on this machine, else the set's own captions of other images. Those of the set's own
            photographs are true captions for the check known_true.
        caption_choice: used of a row with a list of captions; with all, each is a row.
        language_model: a causal language model that judges likelihood in place of bigrams: a Hub id or folder.
        model: a dual encoder for probes of embeddings and for negatives that may be true: a Hub id or folder.
        margin: by how much it has to prefer a negative to its caption, in cosine. Our choice.
        benchmarks: whose images are looked for in the set; by default those with data under data_dir.
        data_dir: folder with a sub-folder for each benchmark's data.
        skip_damaged: leave out images that --model cannot read, and count them; otherwise they are an error.
        examples: of a check, shown in the page; 0 for none.
        seed: of the folds of probes.
        batch_size: images or texts that a model encodes at a time.
        device: such as cpu or cuda:1; by default a GPU where there is one.
        no_cache: encode everything anew and keep nothing.
    """

    output_dir: Path = Path("runs/audit")
    overwrite: bool = False
    captions: str | None = None
    caption_choice: CaptionChoice = "longest"
    language_model: str | None = None
    model: str | None = None
    margin: float = 0.02
    benchmarks: tuple[str, ...] = ()
    data_dir: Path | None = None
    skip_damaged: bool = False
    examples: int = 6
    seed: int = 0
    batch_size: int = 128
    device: str | None = None
    no_cache: bool = False

    def __post_init__(self) -> None:
        for name, least in (("examples", 0), ("batch_size", 1), ("seed", 0), ("margin", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected {least} or more.")
        if self.skip_damaged and self.model is None:
            raise ValueError("--skip_damaged needs --model: without a model, damaged images are counted and not read.")
