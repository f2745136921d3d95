"""Hard negatives by keyword (HN1 to HN3): InfoNCE in which an image's own negatives replace other texts of the batch.

`accelerate launch recipes/hard_negatives.py` runs it on the built-in sandbox, `--report tradeoff` draws what each
concept costs in retrieval, `--config recipes/hard_negatives/vit_b32_coco.yaml` is the paper's setting.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("hard_negatives")
