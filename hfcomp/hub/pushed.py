"""What was pushed from a folder, and whether a repository holds something else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hfcomp.checksums import read_checked
from hfcomp.hub.refusals import one_line_refusals
from hfcomp.hub.repositories import Repository, State
from hfcomp.writing import write_json

PUSHED_FILE = "pushed.json"
PUSHES = "pushes"
# What a repository has that was made but never pushed to.
EMPTY = {".gitattributes"}
ADVICE = "Pass --force to replace them (the history keeps them), --revision BRANCH for a branch of its own, or "
ADVICE += "another --repo."


def pushes_of(folder: Path) -> list[dict[str, str]]:
    """The pushes from a folder: `address` and `branch` of the repository, and the `commit`.

    Raises:
        ValueError: for a damaged record.
    """
    path = folder / PUSHED_FILE
    if not path.is_file():
        return []
    return read_checked(path, "Remove it: the next push needs --force then.")[PUSHES]


def was_pushed(folder: Path, repository: Repository) -> bool:
    """Whether something was pushed from a folder to the branch of an open repository."""
    return any(_is_to(one, repository) for one in pushes_of(folder))


def record_push(folder: Path, repository: Repository, commit: str) -> None:
    """Records a push, by which a later one from the same folder knows that it may replace it.

    Raises:
        OSError: where the folder cannot be written to.
    """
    pushes = [one for one in pushes_of(folder) if not _is_to(one, repository)]
    pushes.append({"address": repository.address, "branch": repository.branch, "commit": commit})
    write_json(folder / PUSHED_FILE, {PUSHES: pushes})


def check_replaceable(
    repository: Repository,
    state: State,
    folder: Path | None = None,
    files: Mapping[str, Path | bytes] | None = None,
    *,
    advice: str = ADVICE,
) -> None:
    """Checks that a repository holds nothing but what was pushed from a folder.

    Args:
        repository: which is open.
        state: of it.
        folder: that is pushed; None before there is one.
        files: that are sent; a repository that has them all is as a push left it whose answer was lost.
        advice: how to go on.

    Raises:
        ValueError: for other commits.
    """
    known = {one["commit"] for one in pushes_of(folder) if _is_to(one, repository)} if folder else set()
    if state.head in known or state.is_as_main or set(state.files) <= EMPTY:
        return
    if files is not None and repository.has(files, state):
        return
    with one_line_refusals(repository.what):
        last = repository.api.list_repo_commits(
            repository.name, repo_type=repository.kind, revision=repository.branch
        )[0]
    others = sorted(set(state.files) - EMPTY)
    raise ValueError(
        f"{repository.what} was not pushed: its branch {repository.branch} has {len(others)} files that did not come "
        f"from {folder or 'this run'} (last commit {last.commit_id[:8]}: {last.title!r}). {advice}"
    )


def _is_to(push: Mapping[str, str], repository: Repository) -> bool:
    return (push["address"], push["branch"]) == (repository.address, repository.branch)
