"""Repositories of the stand-in Hub, in memory: files, commits, and who may read and write them."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from typing import Any

LFS_ENDINGS = (".parquet", ".safetensors", ".bin", ".arrow", ".zip", ".tar", ".png", ".jpg")
LFS_SIZE = 10 * 2**20
MAIN = "main"
WRITE_TOKEN, READ_TOKEN = "hf_" + "Write1Me" * 4, "hf_" + "Read1Me0" * 4
OTHER_TOKEN, WRONG_TOKEN = "hf_" + "Other1Us" * 4, "hf_" + "Wrong1No" * 4


class Refused(Exception):
    """An answer of 400 or more, with the code by which clients tell errors apart."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True)
class User:
    name: str
    may_write: bool = True


USERS = {WRITE_TOKEN: User("me"), READ_TOKEN: User("me", may_write=False), OTHER_TOKEN: User("somebody")}


@dataclass(frozen=True)
class File:
    content: bytes
    lfs: bool = False

    @property
    def git_oid(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.git_oid

    def facts(self, path: str) -> dict[str, Any]:
        """The entry that `tree` and `paths-info` list."""
        facts = {"type": "file", "path": path, "oid": self.git_oid, "size": len(self.content)}
        if self.lfs:
            facts["lfs"] = {"oid": self.sha256, "size": len(self.content), "pointerSize": 134}
        return facts


@dataclass(frozen=True)
class Commit:
    oid: str
    message: str
    files: dict[str, File]


@dataclass
class Repository:
    """One model, dataset or Space.

    Attributes:
        kind: models, datasets or spaces.
        name: owner/name.
        private: only its owner sees it.
        gated: its owner alone reads its files; everybody sees its name.
        branches: by name, the commits of each from the first to the last.
    """

    kind: str
    name: str
    private: bool = False
    gated: bool = False
    branches: dict[str, list[Commit]] = field(default_factory=lambda: {MAIN: []})

    def __post_init__(self) -> None:
        self.commit("initial commit", {".gitattributes": File(b"*.parquet filter=lfs diff=lfs merge=lfs -text\n")})

    @property
    def owner(self) -> str:
        return self.name.partition("/")[0]

    @property
    def commits(self) -> list[Commit]:
        """Those of main."""
        return self.branches[MAIN]

    @property
    def files(self) -> dict[str, File]:
        """Those of main."""
        return self.commits[-1].files

    def commit(self, message: str, files: dict[str, File], branch: str = MAIN) -> Commit:
        commits = self.branches[branch]
        content = "".join(f"{path} {files[path].git_oid}\n" for path in sorted(files))
        oid = hashlib.sha1(f"{self.name} {branch} {len(commits)} {message}\n{content}".encode()).hexdigest()
        commits.append(Commit(oid, message, dict(files)))
        return commits[-1]

    def add_branch(self, branch: str, revision: str) -> None:
        if branch in self.branches:
            raise Refused(409, f"Reference already exists: refs/heads/{branch}")
        last = self.at(revision)
        commits = next(branch for branch in self.branches.values() if last in branch)
        self.branches[branch] = commits[: commits.index(last) + 1]

    def at(self, revision: str) -> Commit:
        branch = revision.removeprefix("refs/heads/")
        if branch in self.branches:
            return self.branches[branch][-1]
        every = (commit for commits in self.branches.values() for commit in commits)
        commit = next((commit for commit in every if commit.oid == revision), None)
        if commit is None:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    def file(self, revision: str, path: str) -> File:
        files = self.at(revision).files
        if path not in files:
            raise Refused(404, f"Entry not found: {path}", "EntryNotFound")
        return files[path]

    def check_read(self, user: User | None, *, content: bool = False) -> None:
        own = user is not None and user.name == self.owner
        if self.private and not own:
            raise Refused(401 if user is None else 404, "Repository not found", "RepoNotFound")
        if self.gated and content and not own:
            raise Refused(401 if user is None else 403, f"Access to {self.name} is restricted", "GatedRepo")

    def check_write(self, user: User | None) -> None:
        self.check_read(user)
        if user is None:
            raise Refused(401, "Invalid username or password.")
        if user.name != self.owner or not user.may_write:
            raise Refused(403, f"You don't have the rights to write to {self.name}. Your token may be read-only.")

    def facts(self, revision: str = "main") -> dict[str, Any]:
        """The API's description of a repository."""
        commit = self.at(revision)
        facts: dict[str, Any] = {"_id": "0" * 24, "id": self.name, "author": self.owner, "sha": commit.oid}
        facts |= {"private": self.private, "gated": "manual" if self.gated else False, "disabled": False, "tags": []}
        facts |= {"lastModified": "2026-01-01T00:00:00.000Z", "createdAt": "2026-01-01T00:00:00.000Z"}
        facts |= {"downloads": 0, "likes": 0, "siblings": [{"rfilename": path} for path in sorted(commit.files)]}
        return facts | ({"modelId": self.name} if self.kind == "models" else {})

    def tree(self, revision: str, folder: str, *, recursive: bool) -> list[dict[str, Any]]:
        """Files and folders in a folder; "" is the root."""
        start, files = f"{folder}/" if folder else "", self.at(revision).files
        inside = {path.removeprefix(start): file for path, file in files.items() if path.startswith(start)}
        if folder and not inside:
            raise Refused(404, f"{folder} does not exist on {revision}", "EntryNotFound")
        split = [path.split("/") for path in inside]
        folders = {"/".join(parts[:number]) for parts in split for number in range(1, len(parts))}
        shown = [name for name in sorted({*inside, *folders}) if recursive or "/" not in name]
        return [
            inside[name].facts(start + name) if name in inside else self.folder_facts(start + name) for name in shown
        ]

    def folder_facts(self, path: str) -> dict[str, Any]:
        return {"type": "directory", "path": path, "oid": hashlib.sha1(path.encode()).hexdigest(), "size": 0}

    def paths_info(self, revision: str, paths: list[str]) -> list[dict[str, Any]]:
        files = self.at(revision).files
        facts = [files[path].facts(path) for path in paths if path in files]
        folders = [path for path in paths if any(name.startswith(f"{path}/") for name in files)]
        return facts + [self.folder_facts(path) for path in folders]

    def apply(self, lines: list[dict[str, Any]], blobs: dict[str, bytes], branch: str = MAIN) -> Commit:
        """A commit from the lines of its request; large files are named by the hash of what was uploaded before."""
        if branch not in self.branches:
            raise Refused(404, f"Invalid rev id: {branch}", "RevisionNotFound")
        head, message = self.branches[branch][-1], ""
        files = dict(head.files)
        for line in lines:
            value = line["value"]
            path = value.get("path", "")
            if line["key"] == "header":
                message = value["summary"]
                if value.get("parentCommit") not in (None, head.oid):
                    raise Refused(412, "A commit has happened since. Please refresh and try again.")
            elif line["key"] == "file":
                files[path] = File(base64.b64decode(value["content"]))
            elif line["key"] == "lfsFile":
                if value["oid"] not in blobs:
                    raise Refused(400, f"LFS pointer of {path} points to a file that does not exist")
                files[path] = File(blobs[value["oid"]], lfs=True)
            elif line["key"] == "deletedFile":
                files.pop(path)
            elif line["key"] == "deletedFolder":
                files = {name: file for name, file in files.items() if not name.startswith(path)}
            else:
                raise Refused(400, f"unknown operation {line['key']}")
        return self.commit(message, files, branch)


def upload_mode(path: str, size: int) -> str:
    """Whether a file goes into the commit itself, or is uploaded before it."""
    return "lfs" if path.endswith(LFS_ENDINGS) or size > LFS_SIZE else "regular"
