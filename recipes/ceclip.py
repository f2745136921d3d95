"""CE-CLIP: negatives told apart within text and by rank across image and text, beside its base and its controls.

`accelerate launch recipes/ceclip.py` runs it on the built-in sandbox. `--config` names another recipe, any field
is an override, and `torchrun --nproc_per_node 2` does the same on two processes.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("ceclip")
