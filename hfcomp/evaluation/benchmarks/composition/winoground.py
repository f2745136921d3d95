"""Winoground (Thrush et al. 2022): two images, two captions of the same words: which belongs to which?"""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.groups import columns_from, example_files, one_negative
from hfcomp.evaluation.protocols.group_match import GroupMatch
from hfcomp.evaluation.sources import HubData
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

REPO = "facebook/winoground"
COMMIT = "b400e173549071916ad1b3d449293bc8d8b4b763"  # the one that MTEB reads
COLUMNS = columns_from(0, item="id", subset="collapsed_tag")
WEB = f"https://huggingface.co/datasets/{REPO}/resolve/{COMMIT}/data"

WINOGROUND = Benchmark(
    name="winoground",
    title="Winoground",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(),
    data=(
        HubData(REPO, COLUMNS, reshape=one_negative, revision=COMMIT),
        *example_files(f"examples.jsonl of {REPO}/data on the Hub with its images", COLUMNS, web=WEB),
    ),
    # the paper's scores; its table by linguistic tag has the three subsets
    averages=(Average("all items", pooled=True),),
    subsets=("Object", "Relation", "Both"),
    paper="Thrush et al. 2022, arXiv:2204.03162",
    licence="its own, on the Hub (license_agreement.txt); the images are Getty's",
    obtain=f"Accept its terms at https://huggingface.co/datasets/{REPO} and run `hf auth login`.",
    gated=True,
)
