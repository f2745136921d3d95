"""The page of this metric's Space."""

from pathlib import Path

from hfcomp.metrics.modules.page import page

EXAMPLE = {"true_score": [0.9, 0.4, 0.5], "other_scores": [[0.1], [0.3, 0.6, 0.2], [0.5, 0.1]]}

if __name__ == "__main__":
    page(Path(__file__).with_name("keyword_ranking.py"), EXAMPLE).launch()
