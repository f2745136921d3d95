"""CLEAR GLASS: groups of pairs that share a concept, contrasted with easily confused groups, with its controls.

Run `accelerate launch recipes/clear_glass.py` to train it on the built-in sandbox. `--config` selects another recipe,
every field can be overridden, and `torchrun --nproc_per_node 2` runs the same training on two processes.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("clear_glass")
