"""Slipform: the Cement loss on hard negative pairs, beside its base and its control.

accelerate launch recipes/slipform.py
accelerate launch recipes/slipform.py --config recipes/slipform/vit_b32_coco.yaml --output_dir runs/slipform
torchrun --nproc_per_node 2 recipes/slipform.py --max_steps 100
"""

from hfcomp.experiments.program import main

if __name__ == "__main__":
    main("slipform")
