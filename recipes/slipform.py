"""Slipform: the Cement loss on hard negative pairs, with its base and controls.

Run `accelerate launch recipes/slipform.py` to train it on the built-in sandbox. `--config
recipes/slipform/vit_b32_coco.yaml` selects the paper's setting, every field can be overridden, and `torchrun
--nproc_per_node 2` runs the same training on two processes.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("slipform")
