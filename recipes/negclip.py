"""NegCLIP: InfoNCE with a negative caption and a hard image for each image, with its base and controls.

Run `accelerate launch recipes/negclip.py` to train it on the built-in sandbox. `--config` selects another recipe,
every field can be overridden, and `torchrun --nproc_per_node 2` runs the same training on two processes.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("negclip")
