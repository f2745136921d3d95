"""A Hub repository that files go to: all of them in one commit, errors in one line, and a record of pushes."""

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
# Files that are uploaded before the next ones begin. An interrupted push does not send finished groups again.
FILES_AT_A_TIME = 16
# Includes the bases: an unreachable Hub is only an error of the HTTP client, a missing login only an OSError, and an
# upload that breaks a RuntimeError with either as its cause.
_ERRORS = (*HfHubHTTPError.__bases__, HFValidationError, RuntimeError)
_LOGIN = "Log in with `hf auth login` and a token with write access to the namespace, then repeat the command"
_CONNECTION = "The Hub was not reached: check the connection, HF_ENDPOINT and HF_HUB_OFFLINE, then repeat the command"
_LATER = "The Hub was reached but did not do it: repeat the command later"
_BUSY = 429
_CONFLICT = "Another commit came in between: repeat the command"
_CONFLICTS = (409, 412)
PUSHED_FILE = "pushed.json"
PUSHES = "pushes"
# Files of a repository that was created but never pushed to.
EMPTY = {".gitattributes"}
ADVICE = "Pass --force to replace them (the history keeps them), --revision BRANCH for a branch of its own, or "
ADVICE += "another --repo."


@contextmanager
def one_line_refusals(what: str) -> Iterator[None]:
    """Turns every error of the Hub into a ValueError of one line; `what` is pushed, such as `Space me/recall_at_k`."""
    try:
        yield
    except _ERRORS as error:
        said = f"{error} {error.__cause__ or ''}" if isinstance(error, RuntimeError) else str(error)
        line = " ".join(TOKEN.sub("TOKEN", said).split()).removesuffix(".")
        # The error itself may hold the token.
        raise ValueError(f"{what} was not pushed: {line}. {_advice(error)}") from None


def _advice(error: BaseException) -> str:
    if isinstance(error, HFValidationError):
        return "Choose another name."
    is_upload = isinstance(error, RuntimeError)
    advice = _how_to_go_on((error.__cause__ if is_upload else None) or error)
    return f"{advice}." if advice == _LOGIN and not is_upload else f"{advice}: what was uploaded is not sent again."


def _how_to_go_on(cause: BaseException) -> str:
    if isinstance(cause, HfHubHTTPError):
        status = cause.response.status_code
        return _LATER if status >= 500 or status == _BUSY else _CONFLICT if status in _CONFLICTS else _LOGIN
    if isinstance(cause, OSError) and not isinstance(cause, ConnectionError | TimeoutError):
        return _LOGIN  # no token, or one of a wrong form
    return _CONNECTION


@dataclass(frozen=True)
class State:
    """What is in a repository.

    Attributes:
        head: the last commit of the branch.
        files: their paths there.
        is_as_main: whether it is another branch than main and holds nothing of its own.
    """

    head: str
    files: Collection[str]
    is_as_main: bool = False


@dataclass
class Repository:
    """A model or dataset of the Hub.

    Attributes:
        name: its id.
        kind: model or dataset.
        private: whether a new one is.
        branch: that is pushed to.
        api: a `huggingface_hub.HfApi`; by default one with the login of this machine.
        address: once it is open.
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
            # A name without a namespace is the user's own, which only the answer of create_repo tells.
            if "/" not in self.name or not self.api.repo_exists(self.name, repo_type=self.kind):
                made = self.api.create_repo(
                    self.name, repo_type=self.kind, private=self.private or None, exist_ok=True
                )
                self.name = made.repo_id
            # With exist_ok alone, a repository without write access would pass too.
            self.api.auth_check(self.name, repo_type=self.kind, write=True)
            # `private=True` has no effect on a repository that exists.
            is_private = self.api.repo_info(self.name, repo_type=self.kind).private
        self.address = f"{self.api.endpoint}/{'datasets/' * (self.kind == 'dataset')}{self.name}"
        if self.private and not is_private:
            raise ValueError(
                f"{self.what} exists and is public, and a private one was asked for. Make it private in its settings, "
                "or choose another name."
            )
        with one_line_refusals(self.what):
            if self.branch != MAIN:
                self.api.create_branch(self.name, branch=self.branch, repo_type=self.kind, exist_ok=True)
            return self.state()

    def state(self) -> State:
        """What is on the branch now."""
        head, main = (
            self.api.repo_info(self.name, repo_type=self.kind, revision=revision).sha
            for revision in (self.branch, MAIN)
        )
        files = self.api.list_repo_files(self.name, repo_type=self.kind, revision=head)
        return State(head, files, self.branch != MAIN and head == main)

    def commit(self, files: Mapping[str, Path | bytes], removed: Iterable[str], message: str, onto: State) -> str:
        """Uploads files, the largest first, and makes all of them visible in one commit.

        What was uploaded before is not sent again: the Hub knows it by its hash. Where nothing changes there is no
        commit. Files and `removed` are named by their place in the repository; `onto` is what it held, and another
        commit since is refused.
        """
        where = {"repo_type": self.kind, "revision": self.branch}
        with one_line_refusals(self.what):
            added = additions(files)
            for start in range(0, len(added), FILES_AT_A_TIME):
                group = added[start : start + FILES_AT_A_TIME]
                # In groups, each complete before the next: an interrupted push loses at most one group. The files
                # become visible with the commit below.
                self.api.preupload_lfs_files(self.name, additions=group, free_memory=False, **where)
            operations = [*added, *(CommitOperationDelete(path_in_repo=place) for place in removed)]
            done = self.api.create_commit(
                self.name, operations=operations, commit_message=message, parent_commit=onto.head, **where
            )
        return done.oid

    def has(self, files: Mapping[str, Path | bytes], state: State) -> bool:
        """Whether all of these files are there with the same content."""
        if not files.keys() <= set(state.files):
            return False
        with one_line_refusals(self.what):
            found = self.api.get_paths_info(self.name, list(files), repo_type=self.kind, revision=state.head)
        # Large files are known by the SHA-256 of their content, small ones by git's hash of the blob.
        there = {one.path: one.lfs.sha256 if one.lfs else one.blob_id for one in found}
        return all(
            there.get(one.path_in_repo) in (one.upload_info.sha256.hex(), _git_hash(one)) for one in additions(files)
        )


def additions(files: Mapping[str, Path | bytes]) -> list[CommitOperationAdd]:
    """Files as the operations of a commit, the largest first."""
    added = [CommitOperationAdd(path_in_repo=place, path_or_fileobj=file) for place, file in files.items()]
    return sorted(added, key=lambda one: -one.upload_info.size)


def _git_hash(file: CommitOperationAdd) -> str:
    with file.as_file() as stream:
        return git_hash(stream.read())


def pushes_of(folder: Path) -> list[dict[str, str]]:
    """The pushes from a folder: `address` and `branch` of the repository, and the `commit`."""
    path = folder / PUSHED_FILE
    if not path.is_file():
        return []
    return read_checked(path, "Remove it: the next push needs --force then.")[PUSHES]


def was_pushed(folder: Path, repository: Repository) -> bool:
    return any(_is_to(one, repository) for one in pushes_of(folder))


def record_push(folder: Path, repository: Repository, commit: str) -> None:
    """Records a push, by which a later one from the same folder knows that it may replace it."""
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
    """Raises ValueError, with `advice`, if an open repository holds more than what was pushed from a folder."""
    known = {one["commit"] for one in pushes_of(folder) if _is_to(one, repository)} if folder else set()
    if state.head in known or state.is_as_main or set(state.files) <= EMPTY:
        return
    # The Hub's answer to a push may get lost after the commit: then the head is unknown, but the files are all there.
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
