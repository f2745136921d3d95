"""Suggestions that no test can follow, with the reason."""

from __future__ import annotations

GPU = "the advice applies to a machine with several GPUs, or one of a kind that tests lack"
PROCESSES = "several processes have to be started; tests/distributed runs what is advised"
SERVER = "a language model server has to answer; tests/factory/writers start one"
MINUTES = "the advice is a training of minutes; `make factory` does it"

EXEMPT: list[tuple[str, str, str]] = [
    # path, fragment of the sentence, reason
    ("hfcomp/trainers/_support/model_setup.py", "accelerate launch --num_processes {args.n_gpu} <your script>", GPU),
    ("hfcomp/trainers/_support/fsdp_checks.py", "Start with `accelerate launch --config_file recipes/", PROCESSES),
    (
        "hfcomp/trainers/_support/sharded_weights.py",
        "Evaluate after training, set eval_on_start=True, or evaluate",
        PROCESSES,
    ),
    ("hfcomp/distributed/__init__.py", "Do not create a process group yourself, and start the script with", PROCESSES),
    ("hfcomp/factory/images/editor.py", "Choose a smaller image_batch_size and another output folder", GPU),
    ("hfcomp/factory/writers/endpoint.py", "or check --{self.url_option}, --{self.model_option}{self._model}", SERVER),
    ("dataset_builders/inpaintcoco/factory.py", "Train one with `accelerate launch recipes/slipform.py", MINUTES),
    ("hfcomp/trainers/base.py", "are false negatives. Leave it at true.", PROCESSES),
]
