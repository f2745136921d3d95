"""Slipform: the Cement loss on hard negative pairs, with its base and controls.

`accelerate launch recipes/slipform.py` runs it on the built-in sandbox; `--config recipes/slipform/vit_b32_coco.yaml`
is the paper's setting, any field is an override, and `torchrun --nproc_per_node 2` does the same on two processes.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("slipform")
