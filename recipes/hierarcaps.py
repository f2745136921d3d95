"""HierarCaps' own training: chains of texts from general to specific, ordered around the empty text by the text tower.

Run `accelerate launch recipes/hierarcaps.py` to train it on the built-in sandbox. `--config` selects another recipe,
every field can be overridden, and `torchrun --nproc_per_node 2` runs the same training on two processes.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("hierarcaps")
