"""Means over benchmarks that are plain means of a table's columns: the rows that the papers print."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from hfcomp.evaluation.benchmarks import benchmarks
from hfcomp.evaluation.benchmarks.means import MEANS
from hfcomp.statistics.summary import summarize
from tests.evaluation.benchmarks.test_means import with_columns

TABLES = {
    # Add, Replace, Swap; SugarCrepe++ replace ITT, TOT, swap ITT, TOT; ImageNet, Flickr30k, COCO, DOCCI, IIW; average
    "Pham et al. 2026, Table 2": """
SigLIP   86.5 84.1 65.8 73.8 62.8 48.0 34.7 76.1 95.2 78.9 58.9 75.3 70.0
CLIP-32  73.0 80.0 62.7 69.5 60.5 45.7 27.4 63.3 89.0 65.4 47.1 69.5 62.8
NegCLIP  85.8 85.0 75.3 69.1 70.9 53.4 39.1 55.7 92.4 73.9 45.2 66.4 67.7
DAC-LLM  93.7 89.5 74.6 53.7 59.6 32.2 18.1 51.1 83.7 59.0 27.1 43.9 57.2
C2LIP    94.2 88.3 73.1 79.7 75.3 55.2 44.2 73.5 97.0 82.7 60.0 76.4 75.0
SigLIP2  89.0 86.0 71.9 77.7 69.7 57.9 42.0 78.5 96.5 82.8 62.2 78.1 74.4
""",
    "Pham et al. 2026, Table 3": """
SigLIP   86.7 71.5 75.5 64.2 56.3 46.4 66.8
NegCLIP  85.9 75.4 67.1 70.7 55.0 50.3 67.4
DAC-SAM  85.9 75.1 44.3 56.0 33.5 25.4 53.3
C2LIP    89.2 78.8 79.8 80.2 66.2 59.8 75.7
""",
    # replace ITT, replace TOT, swap ITT, swap TOT; the averages of each are not columns of the mean
    "Pham et al. 2026, Table A4": """
SigLIP   91.2 75.5 54.8 79.2 64.2 45.0 39.6 56.3 22.9 46.4 57.5
NegCLIP  87.0 67.1 53.1 93.3 70.7 48.6 51.8 55.0 27.8 50.3 60.5
C2LIP    93.9 79.8 65.4 91.1 80.2 54.7 44.1 66.2 28.6 59.8 66.4
""",
    # Flickr30k, COCO, DOCCI, IIW: t2i and i2t of each; the paper has COCO first
    "Pham et al. 2026, Table A5": """
SigLIP   92.3 98.0 72.4 85.4 35.8 82.0 53.0 97.5 77.1
CLIP-32  83.4 94.6 56.0 74.9 27.1 67.1 44.7 94.3 67.8
NegCLIP  89.5 95.2 68.4 79.3 26.4 64.0 43.5 89.4 69.5
C2LIP    95.2 98.8 77.9 87.5 38.0 81.9 56.1 96.7 79.0
""",
    "Pham et al. 2026, Table A6": """
SigLIP   76.1 91.6 92.3 72.2 69.9 90.9 43.8 64.7 94.1 88.0 86.0 79.0
CLIP-32  63.3 83.9 89.8 64.3 63.2 59.7 19.6 44.0 87.5 83.8 66.5 66.0
C2LIP    73.5 88.7 92.7 72.6 68.1 87.4 32.8 65.1 92.3 87.2 82.9 76.7
""",
    "Huang et al. 2025, Table 1": """
CLIP     59.3 62.9 61.1
NegCLIP  80.2 70.5 75.4
CE-CLIP  83.0 76.4 79.7
AHNPL    83.8 77.0 80.4
""",
    "Huang et al. 2025, Table 3": """
CLIP     59.3 62.9 67.0 73.0 65.6
MHNL     82.1 72.9 73.0 85.1 78.3
DMCL     80.1 71.9 72.7 87.5 78.1
AHNPL    83.8 77.0 75.9 93.6 82.3
""",
}
# columns and mean are rounded to 0.1: half of that each
ROUNDING = 0.05 + 0.05
MISFIT = {("Huang et al. 2025, Table 3", "AHNPL"): 0.275}
"""How far a row's mean is above the printed one where rounding cannot be why: the paper's own row is misprinted."""


@pytest.mark.parametrize("source", TABLES)
def test_the_rows_of_the_papers_tables(source):
    (mean,) = MEANS[source]
    printed, items = {}, []
    for row in TABLES[source].strip().splitlines():
        name, *columns, last = row.split()
        printed[name] = float(last)
        # every part of a group, such as the three replacements, has the group's column
        groups = zip(mean.groups, map(float, columns), strict=True)
        parts = {part: value for group, value in groups for part in group}
        items.append(with_columns(parts).assign(arm=name))
    averages = {benchmark.title: benchmark.averages for benchmark in benchmarks().values()} | {source: (mean,)}
    line = summarize(pd.concat(items), averages=averages, intervals=False, references=[])[0]
    assert (line["benchmark"], line["metric"]) == (source, mean.name)
    for name, value in printed.items():
        off = 100 * line["models"][name]["value"] - value
        if (source, name) in MISFIT:
            assert off == pytest.approx(MISFIT[source, name]) and off > ROUNDING
        else:
            assert abs(off) <= ROUNDING + 1e-9, name


def test_the_columns_of_c2lips_table_2_are_in_its_order():
    (mean,) = MEANS["Pham et al. 2026, Table 2"]
    titles = [group[0][0] for group in mean.groups]
    assert titles == [
        *["SugarCrepe"] * 3,
        *["SugarCrepe++"] * 4,
        "ImageNet-1k zero-shot",
        *("Flickr30k retrieval", "COCO retrieval", "DOCCI retrieval", "ImageInWords retrieval"),
    ]
    ways = {tuple(re.split(" recall", part[2])[0] for part in group) for group in mean.groups[8:]}
    assert ways == {("text-to-image", "image-to-text")}
    assert mean.groups[3] == tuple(
        ("SugarCrepe++", f"replace_{kind}", "image-to-text") for kind in ("att", "obj", "rel")
    )


def test_slipforms_second_general_mean_is_of_all_photographs():
    first, second = MEANS["Im et al. 2026, Table 3"]
    changed = {part[0] for part in set(first.parts) ^ set(second.parts)}
    assert changed == {"Flickr30k retrieval", "Flickr30k retrieval, all images"}
