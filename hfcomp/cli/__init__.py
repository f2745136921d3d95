"""The command `hfcomp`: parses, builds, calls."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

USAGE = """usage: hfcomp COMMAND ...

  hfcomp train RECIPE [--config FILE] [--report SWEEP | --search [FILE]] [--field value ...]
      RECIPE   slipform, hard_negatives, negclip, ceclip, tripletclip, dcl,
               slipform/real, ... or a YAML file
      fields   every field of the recipe and of transformers' TrainingArguments;
               hfcomp train RECIPE --help lists them with the recipe's values
  hfcomp evaluate MODEL [MODEL ...] --suite compositional|general|all | --benchmarks A,B
      any models of the Hub or in folders, side by side; --list names the benchmarks
  hfcomp compare A B [C ...]
      stored results against each other, without loading a model
  hfcomp attention MODEL [MODEL] --image FILE --text PHRASE
      where each model's image tokens attend for a phrase, and the difference
  hfcomp levels MODEL [MODEL ...] [--data DIR]
      accuracy by level of abstraction and joint embeddings by group, drawn
  hfcomp build negatives --source DATASET --kinds keyword,swap,mask --output DIR
      hard negative captions for a data set; killed, the same command goes on
  hfcomp build concepts --source DATASET --parser SPEC --output DIR
      the noun phrases of captions, for C2LIP
  hfcomp build neighbours --source DATASET --model MODEL --output DIR
      each image's nearest others, for NegCLIP
  hfcomp cache [clear] [--model NAME] [--older_than DAYS]
      the embeddings and image hashes that are kept for later runs: what there is, and clearing it
  hfcomp push-metrics --namespace NAME
      the `evaluate` modules as Spaces"""

# Each in its module's `main(arguments)`, imported when it is called: `compare` needs neither torch nor transformers.
COMMANDS = {
    "evaluate": "hfcomp.experiments.evaluate_command",
    "compare": "hfcomp.experiments.compare",
    "attention": "hfcomp.experiments.attention_command",
    "levels": "hfcomp.experiments.levels_command",
    "build": "hfcomp.experiments.build_command",
    "cache": "hfcomp.experiments.cache_command",
    "push-metrics": "hfcomp.experiments.push_metrics",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        return
    if words[0] == "--version":
        from hfcomp import __version__

        print(__version__)
        return
    if words[0] in COMMANDS:
        listed = words[0] == "evaluate" and "--list" in words
        import_module("hfcomp.cli.list_benchmarks" if listed else COMMANDS[words[0]]).main(words[1:])
        return
    if words[0] == "train" and words[1:2] in (["-h"], ["--help"]):
        print(USAGE)
        return
    if words[0] != "train" or len(words) < 2:
        raise SystemExit(f"error: {' '.join(words)!r} is no command.\n{USAGE}")
    from hfcomp.experiments.command import main as run

    run(words[1], words[2:])
