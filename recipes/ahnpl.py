"""AHNPL: negatives shifted into image space, contrasts within each modality and adaptive margins, with its controls.

Run `accelerate launch recipes/ahnpl.py` to train it on the built-in sandbox; `--report ablation` trains its parts
separately. `--config` selects another recipe, every field can be overridden, and `torchrun --nproc_per_node 2` runs
the same training on two processes.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("ahnpl")
