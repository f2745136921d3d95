"""The page of this metric's Space."""

from pathlib import Path

from hfcomp.metrics.modules.page import page

EXAMPLE = {"caption": [0.9, 0.9, 0.2], "hard_positive": [0.8, 0.3, 0.6], "hard_negative": [0.5, 0.5, 0.4]}

if __name__ == "__main__":
    page(Path(__file__).with_name("brittleness.py"), EXAMPLE).launch()
