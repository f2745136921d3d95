"""C2LIP: images contrasted with the noun phrases of their captions, no hard negatives, with its base and controls.

`accelerate launch recipes/c2lip.py` runs it on the built-in sandbox, `--report ablation` its parts one by one.
`--config` names another recipe, any field is an override, and `torchrun --nproc_per_node 2` does the same on two
processes.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("c2lip")
