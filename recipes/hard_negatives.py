"""Hard negatives by keyword (HN1 to HN3): InfoNCE in which an image's own negatives replace other texts of the batch.

Run `accelerate launch recipes/hard_negatives.py` to train it on the built-in sandbox. `--report tradeoff` plots the
cost of each concept in retrieval, and `--config recipes/hard_negatives/vit_b32_coco.yaml` selects the paper's
setting.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("hard_negatives")
