"""The page of this metric's Space."""

from pathlib import Path

from hfcomp.metrics.modules.page import page

EXAMPLE = {"scores": [[0.9, 0.1, 0.3], [0.8, 0.2, 0.5], [0.4, 0.4, 0.1]], "right": [[0], [1], [1]], "k": 1}

if __name__ == "__main__":
    page(Path(__file__).with_name("recall_at_k.py"), EXAMPLE).launch()
