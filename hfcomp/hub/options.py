"""Options of pushes to the Hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hfcomp.options import Options, Spelling

Private = Annotated[bool, "Create the repository as private; an existing public one is rejected."]
Revision = Annotated[
    str | None, Spelling("BRANCH"), "Branch to push to, created from main if missing (default: main)."
]
Card = Annotated[
    Path | None,
    Spelling("FILE"),
    "README.md whose text and metadata are placed at the top of the card, for example "
    "dataset_builders/negatives/README.md.",
]
AllowUnknown = Annotated[
    bool,
    "Also push rows without a known license. Use this only if you know that all of them may be published.",
]


@dataclass(kw_only=True)
class RepositoryOptions(Options):
    """Repository."""

    repo: Annotated[str, Spelling("NAME"), "Hub id of the repository, for example my-org/my-name."]
    private: Private = False
    revision: Revision = None
    dry_run: Annotated[bool, "Check everything and list the files to upload, without uploading them."] = False


@dataclass(kw_only=True)
class PushOptions(RepositoryOptions):
    """Dataset."""

    card: Card = None
    allow_unknown_licenses: AllowUnknown = False


@dataclass(kw_only=True)
class ModelPushOptions(RepositoryOptions):
    """Model."""

    model: Annotated[
        str | None, "Folder of the model inside the run folder, for example controls/plain (default: method)."
    ] = None
    force: Annotated[bool, "Replace files that others committed; the Git history keeps the old versions."] = False
