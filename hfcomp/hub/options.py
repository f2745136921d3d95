"""Options of pushes to the Hub; the fields are command-line options, their descriptions the help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(kw_only=True)
class RepositoryOptions:
    """Repository.

    Attributes:
        repo: id on the Hub, as my-org/my-name.
        private: a new repository is private; a public one that exists is refused.
        revision: branch to push to, made from main where it is missing (default: main).
        dry_run: check everything, list what would be sent, and send nothing.
    """

    repo: str
    private: bool = False
    revision: str | None = None
    dry_run: bool = False


@dataclass(kw_only=True)
class PushOptions(RepositoryOptions):
    """Data set.

    Attributes:
        card: README.md whose text and metadata come first, as dataset_builders/negatives/README.md.
        allow_unknown_licenses: push rows without a known licence too; you know that all may be published.
    """

    card: Path | None = None
    allow_unknown_licenses: bool = False


@dataclass(kw_only=True)
class ModelPushOptions(RepositoryOptions):
    """Model.

    Attributes:
        model: its folder in that of a run, as controls/plain (default: method).
        force: replace what others committed; the history keeps it.
    """

    model: str | None = None
    force: bool = False
