"""SPEC (Peng et al. 2024): generated images that differ in the size, position, existence or number of one thing."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.queries import caption_rows, image_rows, query_files
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.protocols.group_match import ImageChoice
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

REPO, REVISION = "wjpoom/SPEC", "694dfdc74fe72acdc932fd5fc919b6b0268f7a07"
SUBSETS = ("absolute_size", "relative_size", "absolute_spatial", "relative_spatial", "existence", "count")
TASKS = (
    ("captions", "image-to-text", "image2text.json", caption_rows, CaptionChoice()),
    ("images", "text-to-image", "text2image.json", image_rows, ImageChoice()),
)

SPEC = tuple(
    Benchmark(
        name=f"spec_{name}",
        title=f"SPEC {direction}",
        suite=COMPOSITIONAL,
        protocol=protocol,
        data=query_files(read, SUBSETS, file, "data.zip", REPO, REVISION),
        averages=(Average("mean of 6 subsets", tuple((subset,) for subset in SUBSETS)),),
        paper="Peng et al. 2024, arXiv:2312.00081",
        licence="not stated",
        obtain=f"Downloaded automatically from the Hub ({REPO}, 1.6 GB).",
        folder="spec",
    )
    for name, direction, file, read, protocol in TASKS
)
