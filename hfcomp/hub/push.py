"""Each metric as a Space, for `evaluate.load("<namespace>/<metric>")`."""

from __future__ import annotations

from typing import Any

from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from hfcomp.data.publishing import TOKEN
from hfcomp.metrics.modules import module_path

# the bases too: an unreachable Hub is an error of the HTTP client alone, a missing login an OSError alone
_ERRORS = (*HfHubHTTPError.__bases__, HFValidationError)


def module_files(name: str) -> list[str]:
    """What a metric's Space holds: the module of the Space's own name, its card, its page and what that needs.

    Args:
        name: one of `hfcomp.metrics.modules.MODULES`.
    """
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
    try:
        address = api.create_repo(space, repo_type="space", space_sdk="gradio", private=private, exist_ok=True)
        api.upload_folder(
            repo_id=space,
            repo_type="space",
            folder_path=module_path(name),
            allow_patterns=module_files(name),
            commit_message=f"hfcomp: the metric {name}",
        )
    except _ERRORS as error:
        raise ValueError(
            f"Space {space} was not pushed: {TOKEN.sub('TOKEN', str(error))} Log in with `hf auth login` and a token "
            "with write access to the namespace, then repeat the command."
        ) from None  # the error itself may hold the token
    return str(address)
