"""Suggestions that no test can follow, with the reason."""

from __future__ import annotations

NETWORK = "the Hub, or a site, has to answer"
GPU = "the advice applies to a machine with several GPUs, or one of a kind that tests lack"
PROCESSES = "several processes have to be started; tests/distributed runs what is advised"
INSTALLATION = "a package has to be missing, or be installed"
PERSON = "a person does something in the page, or to a file, that only a person can decide"

EXEMPT: list[tuple[str, str, str]] = [
    # path, fragment of the sentence, reason
    ("hfcomp/trainers/_support/model_checks.py", "accelerate launch --num_processes {args.n_gpu} <your script>", GPU),
    ("hfcomp/trainers/_support/sharding/checks.py", "Start with `accelerate launch --config_file recipes/", PROCESSES),
    (
        "hfcomp/trainers/_support/sharding/mixin.py",
        "Evaluate after it, set eval_on_start=True, or evaluate",
        PROCESSES,
    ),
    ("hfcomp/trainers/base.py", "are false negatives. Leave it at true.", PROCESSES),
]
