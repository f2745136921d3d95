"""The command `hfcomp push-metrics`: each metric as a Space, for `evaluate.load("<namespace>/<metric>")`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from hfcomp.hub import TOKEN
from hfcomp.metrics.modules import MODULES, module_path

# the bases too: a Hub that is not reached is an error of the HTTP client alone, a missing login an OSError alone
_ERRORS = (*HfHubHTTPError.__bases__, HFValidationError)


def main(arguments: Sequence[str]) -> None:
    """Pushes the metrics and says what it did.

    Args:
        arguments: of the command line; `--help` lists them.
    """
    options = _parser().parse_args(list(arguments))
    names = options.only or list(MODULES)
    api = HfApi()
    for name in names:
        space = f"{options.namespace}/{name}"
        sent = ", ".join(module_files(name))
        if options.dry_run:
            print(f"would push to Space {space}{' (private)' * options.private}: {sent}")
            continue
        try:
            address = push_metric(api, name, options.namespace, private=options.private)
        except _ERRORS as error:
            raise SystemExit(
                f"error: Space {space} was not pushed: {TOKEN.sub('TOKEN', str(error))}\n"
                "Log in by `hf auth login` with a token that may write to the namespace, and run the command again."
            ) from None
        print(f"pushed to {address}: {sent}")


def module_files(name: str) -> list[str]:
    """What a metric's Space holds: the module of the Space's own name, its card, its page and what that needs.

    Args:
        name: one of `hfcomp.metrics.modules.MODULES`.
    """
    return [f"{name}.py", "README.md", "app.py", "requirements.txt"]


def push_metric(api: Any, name: str, namespace: str, *, private: bool = False) -> str:
    """Makes the Space where there is none and uploads the metric's files.

    The Space bears the metric's name with its underscores: `evaluate.load("me/recall_at_k")` asks the Space for
    `recall_at_k.py`, and would for any other name ask for a file that is not there.

    Args:
        api: `huggingface_hub.HfApi`.
        name: one of `hfcomp.metrics.modules.MODULES`.
        namespace: user or organisation.
        private: whether a new Space is private; one that exists stays as it is.

    Returns:
        The Space's address.
    """
    space = f"{namespace}/{name}"
    address = api.create_repo(space, repo_type="space", space_sdk="gradio", private=private, exist_ok=True)
    api.upload_folder(
        repo_id=space,
        repo_type="space",
        folder_path=module_path(name),
        allow_patterns=module_files(name),
        commit_message=f"hfcomp: the metric {name}",
    )
    return str(address)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hfcomp push-metrics",
        description="Pushes hfcomp's metrics to the Hub, each as a Space that evaluate.load reads.",
        allow_abbrev=False,
    )
    parser.add_argument("--namespace", required=True, help="user or organisation on the Hub")
    parser.add_argument("--only", nargs="+", choices=MODULES, metavar="METRIC", help=f"some of {', '.join(MODULES)}")
    parser.add_argument("--private", action="store_true", help="new Spaces are private")
    parser.add_argument("--dry_run", action="store_true", help="list what would be sent, and send nothing")
    return parser
