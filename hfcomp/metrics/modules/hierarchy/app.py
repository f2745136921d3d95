"""The page of this metric's Space."""

from pathlib import Path

from hfcomp.metrics.modules.page import page

EXAMPLE = {
    "image": [[0.6, 0.8], [0.6, -0.8]],
    "text": [
        [[1.0, 0.0], [0.96, 0.28], [0.8, 0.6], [0.6, 0.8]],
        [[1.0, 0.0], [0.96, -0.28], [0.8, -0.6], [0.6, -0.8]],
    ],
    "captions": [["animal", "dog", "a brown dog", "a brown dog runs"], ["animal", "cat", "a cat", "a cat sits"]],
    "root": [1.0, 0.0],
}

if __name__ == "__main__":
    page(Path(__file__).with_name("hierarchy.py"), EXAMPLE).launch()
