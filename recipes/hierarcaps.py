"""HierarCaps' own training: chains of texts from general to specific, ordered around the empty text by the text tower.

`accelerate launch recipes/hierarcaps.py` runs it on the built-in sandbox. `--config` names another recipe, any field
is an override, and `torchrun --nproc_per_node 2` does the same on two processes.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("hierarcaps")
