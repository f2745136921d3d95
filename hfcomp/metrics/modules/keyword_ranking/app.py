"""The page of this metric's Space."""

from pathlib import Path

from hfcomp.metrics.modules.evaluate_metrics import KeywordRanking
from hfcomp.metrics.modules.page import page

if __name__ == "__main__":
    page(Path(__file__).with_name("keyword_ranking.py"), KeywordRanking.example).launch()
