"""CE-CLIP: negatives contrasted within text and ranked across image and text, with its base and controls.

`accelerate launch recipes/ceclip.py` runs it on the built-in sandbox. `--config` names another recipe, any field
is an override, and `torchrun --nproc_per_node 2` does the same on two processes.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("ceclip")
