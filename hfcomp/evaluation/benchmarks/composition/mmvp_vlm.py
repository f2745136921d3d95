"""MMVP-VLM (Tong et al. 2024): two images that CLIP embeds alike, a statement each, in nine visual patterns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.entries import csv_entries
from hfcomp.evaluation.benchmarks.readers.groups import pair_rows
from hfcomp.evaluation.protocols.group_match import GroupMatch
from hfcomp.evaluation.sources import RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

REPO, REVISION = "MMVP/MMVP_VLM", "211372d5357398f914d806d07dc305aea1f257d2"
QUESTIONS, IMAGES = "Questions.csv", "MLLM_VLM Images"
NUMBER, PATTERN, TEXT = "Question ID", "Type", "Statement"


def rows(folder: Path) -> list[dict[str, Any]]:
    """The pairs: lines 2k and 2k + 1 of the authors' table, with the prompt of their script."""
    lines = [line for _, line in csv_entries(folder / QUESTIONS, (NUMBER, PATTERN, TEXT))]
    image = [str(folder / IMAGES / line[PATTERN] / f"{line[NUMBER]}.jpg") for line in lines]
    texts = [f"a photo of {line[TEXT]}" for line in lines]
    return pair_rows([line[PATTERN] for line in lines], image, texts, str(folder / QUESTIONS))


MMVP_VLM = Benchmark(
    name="mmvp_vlm",
    title="MMVP-VLM",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(metrics=("image", "group", "text")),  # the paper's score is the image score
    data=(RawFiles((QUESTIONS, IMAGES), rows, f"the files of {REPO} on the Hub", repo=REPO, revision=REVISION),),
    averages=(Average("mean of 9 patterns"),),
    paper="Tong et al. 2024, arXiv:2401.06209",
    licence="MIT",
    obtain=f"Downloaded automatically from the Hub ({REPO}).",
)
