"""Options of pushes to the Hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hfcomp.options import Options, Spelling

Private = Annotated[bool, "A new repository is private; a public one that exists is refused."]
Revision = Annotated[
    str | None, Spelling("BRANCH"), "Branch to push to, made from main if it is missing (default: main)."
]
Card = Annotated[
    Path | None,
    Spelling("FILE"),
    "README.md whose text and metadata come first, as dataset_builders/negatives/README.md.",
]
AllowUnknown = Annotated[bool, "Push rows without a known license too; you know that all may be published."]


@dataclass(kw_only=True)
class RepositoryOptions(Options):
    """Repository."""

    repo: Annotated[str, Spelling("NAME"), "Id on the Hub, as my-org/my-name."]
    private: Private = False
    revision: Revision = None
    dry_run: Annotated[bool, "Check everything, list what would be sent, and send nothing."] = False


@dataclass(kw_only=True)
class PushOptions(RepositoryOptions):
    """Dataset."""

    card: Card = None
    allow_unknown_licenses: AllowUnknown = False


@dataclass(kw_only=True)
class ModelPushOptions(RepositoryOptions):
    """Model."""

    model: Annotated[str | None, "Its folder in that of a run, as controls/plain (default: method)."] = None
    force: Annotated[bool, "Replace what others committed; the history keeps it."] = False
