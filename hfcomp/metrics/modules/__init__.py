"""The metrics as `evaluate` modules: `evaluate.load(str(module_path("caption_choice")))`, without network."""

from __future__ import annotations

from pathlib import Path

MODULES = (
    "caption_choice",
    "two_positive_choice",
    "group_score",
    "recall_at_k",
    "keyword_ranking",
    "hierarchy",
    "brittleness",
)


def module_path(name: str) -> Path:
    """Returns a metric's folder with its script, card and Space page, for `evaluate.load`."""
    if name not in MODULES:
        raise ValueError(f"{name!r} is not an hfcomp metric: expected one of {', '.join(MODULES)}.")
    return Path(__file__).resolve().parent / name


def module_card(name: str) -> str:
    # The front matter is for the Hub, so it is left out.
    return (module_path(name) / "README.md").read_text(encoding="utf-8").split("---\n", 2)[2]
