"""Each metric as a Space, for `evaluate.load("<namespace>/<metric>")`."""

from __future__ import annotations

from typing import Any

from hfcomp.hub.repositories import one_line_refusals
from hfcomp.metrics.modules import module_path


def module_files(name: str) -> list[str]:
    """What a metric's Space holds: the module of the Space's own name, its card, its page and what that needs."""
    return [f"{name}.py", "README.md", "app.py", "requirements.txt"]


def push_metric(api: Any, name: str, namespace: str, *, private: bool = False) -> str:
    """Makes the Space where there is none and uploads the metric's files.

    The Space has the metric's name with its underscores: `evaluate.load("me/recall_at_k")` asks the Space for
    `recall_at_k.py`, and would for any other name ask for a file that is not there.

    Args:
        api: `huggingface_hub.HfApi`.
        name: one of `hfcomp.metrics.modules.MODULES`.
        namespace: user or organisation.
        private: whether a new Space is private; one that exists stays as it is.

    Returns:
        The Space's address.

    Raises:
        ValueError: where the Hub refuses it or cannot be reached.
    """
    space = f"{namespace}/{name}"
    with one_line_refusals(f"Space {space}"):
        address = api.create_repo(space, repo_type="space", space_sdk="gradio", private=private, exist_ok=True)
        api.upload_folder(
            repo_id=space,
            repo_type="space",
            folder_path=module_path(name),
            allow_patterns=module_files(name),
            commit_message=f"hfcomp: the metric {name}",
        )
    return str(address)
