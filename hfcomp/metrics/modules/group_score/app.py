"""The page of this metric's Space."""

from pathlib import Path

from hfcomp.metrics.modules.page import page

EXAMPLE = {"c0_i0": [0.9, 0.9, 0.5], "c0_i1": [0.1, 0.3, 0.5], "c1_i0": [0.2, 0.7, 0.1], "c1_i1": [0.8, 0.6, 0.6]}

if __name__ == "__main__":
    page(Path(__file__).with_name("group_score.py"), EXAMPLE).launch()
