"""CLEAR GLASS: groups of pairs of one concept, contrasted with easily confused groups, with its controls.

`accelerate launch recipes/clear_glass.py` runs it on the built-in sandbox. `--config` names another recipe, any field
is an override, and `torchrun --nproc_per_node 2` does the same on two processes.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("clear_glass")
