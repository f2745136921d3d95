"""Publishes each metric as a Space, for `evaluate.load("<namespace>/<metric>")`."""

from __future__ import annotations

from typing import Any

from hfcomp.hub.repositories import one_line_refusals
from hfcomp.metrics.modules import module_path


def module_files(name: str) -> list[str]:
    return [f"{name}.py", "README.md", "app.py", "requirements.txt"]


def push_metric(api: Any, name: str, namespace: str, *, private: bool = False) -> str:
    """Creates the Space if it does not exist, uploads the metric's files and returns the Space's address."""
    # The Space has the metric's name with its underscores: `evaluate.load("me/recall_at_k")` requests
    # `recall_at_k.py` from it; under another name, it would request a file that does not exist.
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
