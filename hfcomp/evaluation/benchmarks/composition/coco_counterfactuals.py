"""COCO-Counterfactuals (Le et al. 2023): a COCO caption and the same with another noun, a generated image of each."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.groups import columns_from, example_files
from hfcomp.evaluation.protocols.group_match import GroupMatch
from hfcomp.evaluation.spec import COMPOSITIONAL, Benchmark

REPO, REVISION = "Intel/COCO-Counterfactuals", "958a3e0b32421b9f07c4c3f78aecbf98019a3402"

COCO_COUNTERFACTUALS = Benchmark(
    name="coco_counterfactuals",
    title="COCO-Counterfactuals",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(),
    data=example_files(
        f"examples.jsonl of {REPO}/data on the Hub with its images",
        columns_from(0, item="id"),
        photograph=lambda name: name.partition("_")[0],  # "236308_0_img_0": the number of COCO's photograph
        repo=REPO,
        inside="data",
        revision=REVISION,
    ),
    paper="Le et al. 2023, arXiv:2309.14356",
    licence="CC BY 4.0",
    obtain=f"Downloaded automatically from the Hub ({REPO}, 6.4 GB).",
)
