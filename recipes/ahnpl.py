"""AHNPL: negatives shifted into image space, contrasts within each modality and adaptive margins, with its controls.

`accelerate launch recipes/ahnpl.py` runs it on the built-in sandbox, `--report ablation` its parts one by one.
`--config` names another recipe, any field is an override, and `torchrun --nproc_per_node 2` does the same on two
processes.
"""

from hfcomp.experiments.command import main

if __name__ == "__main__":
    main("ahnpl")
