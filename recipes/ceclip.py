"""CE-CLIP: negatives contrasted within text and ranked across image and text, with its base and controls.

Run `accelerate launch recipes/ceclip.py` to train it on the built-in sandbox. `--config` selects another recipe, every
field can be overridden, and `torchrun --nproc_per_node 2` runs the same training on two processes.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("ceclip")
