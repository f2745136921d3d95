"""A recipe's `--push_to_hub`: pushes the result of a finished run to one repository, once."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hfcomp.hub.models import KIND, ModelPushOptions, push_model
from hfcomp.hub.repositories import Repository, check_replaceable, was_pushed

PUSH, REPOSITORY = "push_to_hub", "hub_model_id"
DETAILS = ("hub_private_repo", "hub_revision")
ADVICE = (
    "Pass --hub_revision BRANCH for a separate branch or another --hub_model_id; or leave --push_to_hub out, and "
    "replace them afterwards with `hfcomp push RUN --repo NAME --force`."
)


@dataclass
class RunPush:
    """The repository that a run's method is pushed to, with its card and results. Controls are not pushed."""

    options: ModelPushOptions
    repository: Repository

    @classmethod
    def of(cls, given: Mapping[str, Any], method: str) -> RunPush | None:
        """Reads the push fields of a recipe; None without `push_to_hub`."""
        if not given.get(PUSH):
            useless = next((name for name in (REPOSITORY, *DETAILS) if given.get(name)), None)
            if useless:
                raise ValueError(f"{useless} has no effect without --{PUSH}. Pass both, or leave {useless} out.")
            return None
        if not given.get(REPOSITORY):
            raise ValueError(f"{PUSH} needs --{REPOSITORY}, such as my-org/my-{method}.".lower())
        options = ModelPushOptions(
            repo=given[REPOSITORY],
            private=bool(given.get("hub_private_repo")),
            revision=given.get("hub_revision"),
        )
        return cls(options, Repository.of(options, KIND))

    def check(self) -> None:
        """Creates the repository and checks that the run may be pushed to it, before anything is trained."""
        check_replaceable(self.repository, self.repository.open(), advice=ADVICE)

    def is_missing(self, folder: Path) -> bool:
        return not was_pushed(folder, self.repository)

    def push(self, folder: Path, log: Callable[[str], None]) -> None:
        try:
            push_model(folder, self.options, log=log, api=self.repository.api, advice=ADVICE)
        except ValueError as error:
            # The models exist: the user needs to repeat one command, not the run.
            words = ["hfcomp", "push", str(folder), "--repo", self.options.repo]
            words += ["--private"] if self.options.private else []
            words += ["--revision", self.options.revision] if self.options.revision else []
            raise ValueError(
                f"the run in {folder} is finished, but {error} Then push it: `{shlex.join(words)}`."
            ) from error


def reject_push(values: Mapping[str, Any], plan: str) -> None:
    """Raises for `push_to_hub` with a plan, because none of a plan's models is the result."""
    if values.get(PUSH):
        raise ValueError(
            f"{PUSH} works only for a single run of a recipe, but {plan} trains several models. Leave it out, and "
            "push one of them with `hfcomp push FOLDER --repo NAME`."
        )
