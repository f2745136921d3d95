"""The page of this metric's Space."""

from pathlib import Path

from hfcomp.metrics.modules.page import page

EXAMPLE = {
    "caption": [0.9, 0.9, 0.5],
    "paraphrase": [0.8, 0.2, 0.6],
    "negative": [0.3, 0.3, 0.5],
    "caption_paraphrase": [0.9, 0.7, 0.8],
    "caption_negative": [0.5, 0.8, 0.8],
    "paraphrase_negative": [0.4, 0.1, 0.2],
}

if __name__ == "__main__":
    page(Path(__file__).with_name("two_positive_choice.py"), EXAMPLE).launch()
