"""C2LIP: images contrasted with the noun phrases of their captions, no hard negatives, with its base and controls.

Run `accelerate launch recipes/c2lip.py` to train it on the built-in sandbox; `--report ablation` trains its parts
separately. `--config` selects another recipe, every field can be overridden, and `torchrun --nproc_per_node 2` runs
the same training on two processes.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("c2lip")
