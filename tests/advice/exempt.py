"""Suggestions that no test can follow, with the reason."""

from __future__ import annotations

NETWORK = "the Hub, or a site, has to answer"
GPU = "the advice applies to a machine with several GPUs, or one of a kind that tests lack"
INSTALLATION = "a package has to be missing, or be installed"
PERSON = "a person does something in the page, or to a file, that only a person can decide"

EXEMPT: list[tuple[str, str, str]] = [
    # (path, fragment of the sentence, reason)
]
