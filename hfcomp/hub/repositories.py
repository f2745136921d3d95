"""Uploads to a Hub repository: all files in one commit, one-line errors, and a record of pushes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import CommitOperationAdd, CommitOperationDelete
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id
from huggingface_hub.utils.sha import git_hash

from hfcomp.checksums import read_checked
from hfcomp.data.publishing import TOKEN
from hfcomp.hub.options import RepositoryOptions
from hfcomp.writing import write_json

Kind = Literal["model", "dataset"]
TITLES: dict[Kind, str] = {"model": "model", "dataset": "dataset"}
MAIN = "main"
# Files per upload batch. An interrupted push does not resend finished batches.
FILES_PER_BATCH = 16
# Includes the base classes: an unreachable Hub raises only an error of the HTTP client, a missing login only an
# OSError, and a failed upload a RuntimeError with either of them as its cause.
_ERRORS = (*HfHubHTTPError.__bases__, HFValidationError, RuntimeError)
_LOGIN = "Log in with `hf auth login` and a token with write access to the namespace, then repeat the command"
_CONNECTION = "The Hub is unreachable: check the connection, HF_ENDPOINT and HF_HUB_OFFLINE, then repeat the command"
_LATER = "The Hub answered but could not complete the request: repeat the command later"
_BUSY = 429
_CONFLICT = "Someone else committed during the push: repeat the command"
_CONFLICTS = (409, 412)
PUSHED_FILE = "pushed.json"
PUSHES = "pushes"
# Files in a repository that was created but never pushed to.
EMPTY = {".gitattributes"}
ADVICE = "Pass --force to replace them (the Git history keeps them), --revision BRANCH for a separate branch, or "
ADVICE += "another --repo."


@contextmanager
def one_line_refusals(what: str) -> Iterator[None]:
    """Turns every Hub error into a one-line ValueError. `what` names the repository: `Space me/recall_at_k`."""
    try:
        yield
    except _ERRORS as error:
        message = f"{error} {error.__cause__ or ''}" if isinstance(error, RuntimeError) else str(error)
        line = " ".join(TOKEN.sub("TOKEN", message).split()).removesuffix(".")
        # The error itself may hold the token.
        raise ValueError(f"{what} was not pushed: {line}. {_advice(error)}") from None


def _advice(error: BaseException) -> str:
    if isinstance(error, HFValidationError):
        return "Choose another name."
    is_upload = isinstance(error, RuntimeError)
    advice = _how_to_go_on((error.__cause__ if is_upload else None) or error)
    return f"{advice}." if advice == _LOGIN and not is_upload else f"{advice}; finished uploads are not repeated."


def _how_to_go_on(cause: BaseException) -> str:
    if isinstance(cause, HfHubHTTPError):
        status = cause.response.status_code
        return _LATER if status >= 500 or status == _BUSY else _CONFLICT if status in _CONFLICTS else _LOGIN
    if isinstance(cause, OSError) and not isinstance(cause, ConnectionError | TimeoutError):
        return _LOGIN  # no token, or a malformed one
    return _CONNECTION


@dataclass(frozen=True)
class State:
    """The contents of a branch of a repository.

    Attributes:
        head: Last commit of the branch.
        files: Paths of the files in the repository.
        equals_main: Whether this is a branch other than main that has no commits of its own.
    """

    head: str
    files: Collection[str]
    equals_main: bool = False


@dataclass
class Repository:
    """A Hub model or dataset.

    Attributes:
        name: Repository id.
        kind: `model` or `dataset`.
        private: Whether to create a new repository as private.
        branch: Branch to push to.
        api: A `huggingface_hub.HfApi`; defaults to one with the login of this machine.
        address: URL of the repository, set when it is opened.
    """

    name: str
    kind: Kind
    private: bool = False
    branch: str = MAIN
    api: Any = field(default=None, repr=False)
    address: str = ""

    def __post_init__(self) -> None:
        with one_line_refusals(self.what):
            validate_repo_id(self.name)

    @classmethod
    def of(cls, options: RepositoryOptions, kind: Kind, api: Any = None) -> Repository:
        return cls(options.repo, kind, options.private, options.revision or MAIN, api)

    @property
    def what(self) -> str:
        return f"{TITLES[self.kind]} {self.name}"

    def open(self) -> State:
        """Creates the repository and the branch if they do not exist, and checks write access."""
        if self.api is None:
            from huggingface_hub import HfApi

            self.api = HfApi()
        with one_line_refusals(self.what):
            # A name without a namespace belongs to the logged-in user; only the response of create_repo says who.
            if "/" not in self.name or not self.api.repo_exists(self.name, repo_type=self.kind):
                made = self.api.create_repo(
                    self.name, repo_type=self.kind, private=self.private or None, exist_ok=True
                )
                self.name = made.repo_id
            # With exist_ok, a repository without write access would also pass.
            self.api.auth_check(self.name, repo_type=self.kind, write=True)
            # `private=True` has no effect on a repository that exists.
            is_private = self.api.repo_info(self.name, repo_type=self.kind).private
        self.address = f"{self.api.endpoint}/{'datasets/' * (self.kind == 'dataset')}{self.name}"
        if self.private and not is_private:
            raise ValueError(
                f"{self.what} exists and is public, but --private was passed. Make it private in its settings, or "
                "choose another name."
            )
        with one_line_refusals(self.what):
            if self.branch != MAIN:
                self.api.create_branch(self.name, branch=self.branch, repo_type=self.kind, exist_ok=True)
            return self.state()

    def state(self) -> State:
        """Reads the current state of the branch."""
        head, main = (
            self.api.repo_info(self.name, repo_type=self.kind, revision=revision).sha
            for revision in (self.branch, MAIN)
        )
        files = self.api.list_repo_files(self.name, repo_type=self.kind, revision=head)
        return State(head, files, self.branch != MAIN and head == main)

    def commit(self, files: Mapping[str, Path | bytes], removed: Iterable[str], message: str, onto: State) -> str:
        """Uploads files, the largest first, and makes all of them visible in one commit.

        Files that were uploaded before are not sent again, because the Hub recognizes them by their hash. If nothing
        changes, there is no commit. The keys of `files` and the entries of `removed` are paths in the repository;
        `onto` is the expected state, and the commit fails if another one was made since.
        """
        where = {"repo_type": self.kind, "revision": self.branch}
        with one_line_refusals(self.what):
            added = additions(files)
            for start in range(0, len(added), FILES_PER_BATCH):
                group = added[start : start + FILES_PER_BATCH]
                # Each batch is complete before the next starts, so an interrupted push loses at most one batch. The
                # files become visible with the commit below.
                self.api.preupload_lfs_files(self.name, additions=group, free_memory=False, **where)
            operations = [*added, *(CommitOperationDelete(path_in_repo=place) for place in removed)]
            done = self.api.create_commit(
                self.name, operations=operations, commit_message=message, parent_commit=onto.head, **where
            )
        return done.oid

    def has(self, files: Mapping[str, Path | bytes], state: State) -> bool:
        """Whether the repository already has all of these files with the same content."""
        if not files.keys() <= set(state.files):
            return False
        with one_line_refusals(self.what):
            infos = self.api.get_paths_info(self.name, list(files), repo_type=self.kind, revision=state.head)
        # Large files are identified by the SHA-256 of their content, small ones by git's hash of the blob.
        hashes = {info.path: info.lfs.sha256 if info.lfs else info.blob_id for info in infos}
        return all(
            hashes.get(file.path_in_repo) in (file.upload_info.sha256.hex(), _git_hash(file))
            for file in additions(files)
        )


def additions(files: Mapping[str, Path | bytes]) -> list[CommitOperationAdd]:
    """Commit operations that add files, the largest first."""
    added = [CommitOperationAdd(path_in_repo=place, path_or_fileobj=file) for place, file in files.items()]
    return sorted(added, key=lambda operation: -operation.upload_info.size)


def _git_hash(file: CommitOperationAdd) -> str:
    with file.as_file() as stream:
        return git_hash(stream.read())


def pushes_of(folder: Path) -> list[dict[str, str]]:
    """Reads the recorded pushes from a folder: `address` and `branch` of the repository, and the `commit`."""
    path = folder / PUSHED_FILE
    if not path.is_file():
        return []
    return read_checked(path, "Remove it; the next push then needs --force.")[PUSHES]


def was_pushed(folder: Path, repository: Repository) -> bool:
    return any(_is_to(push, repository) for push in pushes_of(folder))


def record_push(folder: Path, repository: Repository, commit: str) -> None:
    """Records a push. A later push from the same folder may then replace it."""
    pushes = [push for push in pushes_of(folder) if not _is_to(push, repository)]
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
    """Raises ValueError, with `advice`, if an open repository holds more than what was pushed from a folder."""
    known = {push["commit"] for push in pushes_of(folder) if _is_to(push, repository)} if folder else set()
    if state.head in known or state.equals_main or set(state.files) <= EMPTY:
        return
    # The Hub's response to a push may get lost after the commit. The head is then unknown, but all files match.
    if files is not None and repository.has(files, state):
        return
    with one_line_refusals(repository.what):
        last = repository.api.list_repo_commits(
            repository.name, repo_type=repository.kind, revision=repository.branch
        )[0]
    others = sorted(set(state.files) - EMPTY)
    raise ValueError(
        f"{repository.what} was not pushed: its branch {repository.branch} has {len(others)} files that were not "
        f"pushed from {folder or 'this run'} (last commit {last.commit_id[:8]}: {last.title!r}). {advice}"
    )


def _is_to(push: Mapping[str, str], repository: Repository) -> bool:
    return (push["address"], push["branch"]) == (repository.address, repository.branch)
