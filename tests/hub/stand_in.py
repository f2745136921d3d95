"""A stand-in for the Hugging Face Hub on loopback, for tests: standard library only, repositories in memory.

It answers what `huggingface_hub`, `datasets`, `transformers` and `evaluate` ask when they create repositories, upload,
download and stream, with Git LFS and without Xet (`HF_HUB_DISABLE_XET`). Tokens, private and gated repositories are
refused as the Hub refuses them. See `tests/hub/running.py` for the fixture `hub` and for `run_in_hub`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.hub.card_rules import card_errors
from tests.hub.repositories import MAIN, USERS, Refused, Repository, User, upload_mode

KINDS = {"model": "models", "dataset": "datasets", "space": "spaces"}
_API = r"/api/(?P<kind>models|datasets|spaces)/(?P<name>[\w.-]+/[\w.-]+)"
_FILES = r"/(?:(?P<kind>datasets|spaces)/)?(?P<name>[\w.-]+/[\w.-]+)"
_REVISION = r"(?P<revision>[^/]+)"


class StandInHub(ThreadingHTTPServer):
    """The server and what it holds.

    Attributes:
        repositories: by kind and name, such as `datasets/me/set`.
        blobs: large files by their sha256, whether a commit names them or not.
        requests: method and path of every request so far.
    """

    request_queue_size = 128
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        # another host, as large files of the Hub are with another: clients do not look for facts of the file there
        self.storage = self.address.replace("127.0.0.1", "localhost")
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Empties it and fixes uploads, for the next test; the address stays."""
        self.repositories: dict[str, Repository] = {}
        self.blobs: dict[str, bytes] = {}
        self.requests: list[str] = []
        self._uploads_left: int | None = None
        self._break_status = 0

    def __enter__(self) -> StandInHub:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def break_uploads(self, *, after: int, status: int = 403) -> None:
        """Lets that many large files through and breaks all later ones in the middle, until `fix_uploads`.

        Args:
            after: files.
            status: of the answer; 0 closes the connection, after which clients try again for half a minute.
        """
        self._uploads_left, self._break_status = after, status

    def fix_uploads(self) -> None:
        self._uploads_left = None

    def breaks_now(self) -> int | None:
        """The status with which the upload that begins now breaks, or None."""
        with self._lock:
            if self._uploads_left is None:
                return None
            self._uploads_left -= 1
            return self._break_status if self._uploads_left < 0 else None

    def count(self, start: str) -> int:
        """Number of requests that begin with a text such as `PUT /lfs/`."""
        return sum(request.startswith(start) for request in self.requests)

    def repository(self, kind: str | None, name: str) -> Repository:
        repository = self.repositories.get(f"{kind or 'models'}/{name}")
        if repository is None:
            raise Refused(404, "Repository not found", "RepoNotFound")
        return repository

    def create(self, kind: str, name: str, **settings: bool) -> Repository:
        return self.repositories.setdefault(f"{kind}/{name}", Repository(kind, name, **settings))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StandInHub

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def handle_one_method(self) -> None:
        url = urlsplit(self.path)
        path, self.query = unquote(url.path), parse_qs(url.query)
        self.server.requests.append(f"{self.command} {path}")
        self._body: bytes | None = None
        try:
            for methods, pattern, answer in ROUTES:
                match = re.fullmatch(pattern, path)
                if match and self.command in methods:
                    answer(self, **match.groupdict())
                    return
            raise Refused(404, f"no such endpoint: {self.command} {path}")
        except Refused as refused:
            self.body()
            headers = {"X-Error-Message": str(refused)} | ({"X-Error-Code": refused.code} if refused.code else {})
            self.send_json({"error": str(refused)}, refused.status, headers)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_one_method

    def body(self) -> bytes:
        if self._body is None:
            self._body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return self._body

    def user(self) -> User | None:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and token not in USERS:
            raise Refused(401, "Invalid credentials in Authorization header")
        return USERS.get(token)

    def send_bytes(self, content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_json(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        headers = {"Content-Type": "application/json"} | (headers or {})
        self.send_bytes(json.dumps(content).encode(), status, headers)

    def send_part(self, content: bytes, headers: dict[str, str]) -> None:
        """All of a file, or the bytes that `Range` asks for."""
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        headers = headers | {"Accept-Ranges": "bytes"}
        if wanted is None:
            return self.send_bytes(content, 200, headers)
        first, last = wanted.groups()
        start = int(first) if first else max(0, len(content) - int(last))
        end = min(int(last) + 1 if first and last else len(content), len(content))
        if start >= max(end, 1):
            return self.send_bytes(b"", 416, headers | {"Content-Range": f"bytes */{len(content)}"})
        headers |= {"Content-Range": f"bytes {start}-{end - 1}/{len(content)}"}
        return self.send_bytes(content[start:end], 206, headers)

    # accounts and repositories

    def whoami(self) -> None:
        user = self.user()
        if user is None:
            raise Refused(401, "Invalid username or password.")
        role = "write" if user.may_write else "read"
        token = {"type": "access_token", "accessToken": {"displayName": "test", "role": role}}
        self.send_json({"type": "user", "name": user.name, "fullname": user.name, "orgs": [], "auth": token})

    def create(self) -> None:
        user, asked = self.user(), json.loads(self.body())
        if user is None:
            raise Refused(401, "Invalid username or password.")
        kind, owner = KINDS[asked.get("type") or "model"], asked.get("organization") or user.name
        name = f"{owner}/{asked['name']}"
        if owner != user.name or not user.may_write:
            raise Refused(403, f'You don\'t have the rights to create a {kind[:-1]} under the namespace "{owner}"')
        url = f"{self.server.address}/{'' if kind == 'models' else kind + '/'}{name}"
        there = f"{kind}/{name}" in self.server.repositories
        self.server.create(kind, name, private=asked.get("visibility") == "private" or asked.get("private", False))
        self.send_json({"url": url, "name": name, "id": "0" * 24}, 409 if there else 200)

    def delete(self) -> None:
        asked = json.loads(self.body())
        kind, owner = KINDS[asked.get("type") or "model"], asked.get("organization") or self.user().name
        repository = self.server.repository(kind, f"{owner}/{asked['name']}")
        repository.check_write(self.user())
        del self.server.repositories[f"{kind}/{repository.name}"]
        self.send_json({})

    def validate_yaml(self) -> None:
        errors = card_errors(json.loads(self.body())["content"])
        self.send_json({"errors": errors, "warnings": []}, 400 if errors else 200)

    def readable(self, kind: str | None, name: str, *, content: bool = False) -> Repository:
        user = self.user()
        repository = self.server.repository(kind, name)
        repository.check_read(user, content=content)
        return repository

    def writable(self, kind: str | None, name: str) -> Repository:
        user = self.user()
        repository = self.server.repository(kind, name)
        repository.check_write(user)
        return repository

    def facts(self, kind: str, name: str, revision: str | None = None) -> None:
        self.send_json(self.readable(kind, name).facts(revision or "main"))

    def refs(self, kind: str, name: str) -> None:
        branches = [
            {"name": branch, "ref": f"refs/heads/{branch}", "targetCommit": commits[-1].oid}
            for branch, commits in self.readable(kind, name).branches.items()
        ]
        self.send_json({"branches": branches, "tags": [], "converts": []})

    def add_branch(self, kind: str, name: str, branch: str) -> None:
        asked = json.loads(self.body() or b"{}")
        self.writable(kind, name).add_branch(branch, asked.get("startingPoint") or MAIN)
        self.send_json({})

    def commits(self, kind: str, name: str, revision: str) -> None:
        repository = self.readable(kind, name)
        repository.at(revision)
        commits = repository.branches.get(revision) or repository.commits
        facts = {"authors": [{"user": repository.owner}], "date": "2026-01-01T00:00:00.000Z", "message": ""}
        self.send_json([{"id": commit.oid, "title": commit.message, **facts} for commit in reversed(commits)])

    def auth_check(self, kind: str, name: str, write: str | None = None) -> None:
        repository = self.writable(kind, name) if write else self.readable(kind, name, content=True)
        self.send_json({"id": repository.name})

    def tree(self, kind: str, name: str, revision: str, folder: str | None = None) -> None:
        recursive = self.query.get("recursive", ["false"])[0].lower() in ("true", "1")
        self.send_json(self.readable(kind, name).tree(revision, folder or "", recursive=recursive))

    def paths_info(self, kind: str, name: str, revision: str) -> None:
        text, form = self.body().decode(), self.headers.get("Content-Type", "")
        paths = json.loads(text)["paths"] if "json" in form else parse_qs(text).get("paths", [])
        repository = self.readable(kind, name)
        self.send_json(repository.paths_info(revision, [paths] if isinstance(paths, str) else paths))

    # uploads

    def preupload(self, kind: str, name: str, revision: str) -> None:
        files = self.writable(kind, name).at(revision).files
        answers = [
            {
                "path": entry["path"],
                "uploadMode": upload_mode(entry["path"], entry["size"]),
                "shouldIgnore": False,
                "oid": files[entry["path"]].etag if entry["path"] in files else None,
            }
            for entry in json.loads(self.body())["files"]
        ]
        self.send_json({"files": answers})

    def commit(self, kind: str, name: str, revision: str) -> None:
        repository = self.writable(kind, name)
        lines = [json.loads(line) for line in self.body().splitlines()]
        oid = repository.apply(lines, self.server.blobs, revision).oid
        self.send_json({"success": True, "commitOid": oid, "commitUrl": f"{self.server.address}/{name}/commit/{oid}"})

    def lfs_batch(self, kind: str | None, name: str) -> None:
        self.writable(kind, name)
        objects = []
        for entry in json.loads(self.body())["objects"]:
            href = f"{self.server.address}/lfs/{entry['oid']}"
            actions = {"upload": {"href": href}, "verify": {"href": f"{href}/verify"}}
            objects.append(entry if entry["oid"] in self.server.blobs else entry | {"actions": actions})
        self.send_json({"transfer": "basic", "objects": objects})

    def lfs_put(self, oid: str) -> None:
        status = self.server.breaks_now()
        if status is None:
            self.server.blobs[oid] = self.body()
            self.send_bytes(b"")
            return
        self.rfile.read(int(self.headers["Content-Length"]) // 2)
        self._body, self.close_connection = b"", True
        if status:
            raise Refused(status, "the upload was broken in the middle")

    def lfs_verify(self, oid: str) -> None:
        asked = json.loads(self.body())
        if len(self.server.blobs.get(oid, b"")) != asked["size"]:
            raise Refused(422, f"{oid} is not whole")
        self.send_json({})

    # downloads

    def resolve(self, name: str, revision: str, path: str, kind: str | None = None) -> None:
        repository = self.readable(kind, name, content=True)
        file = repository.file(revision, path)
        headers = {"X-Repo-Commit": repository.at(revision).oid, "ETag": f'"{file.etag}"'}
        if not file.lfs:
            return self.send_part(file.content, headers)
        headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(len(file.content))}
        return self.send_bytes(b"", 302, headers | {"Location": f"{self.server.storage}/lfs/{file.sha256}"})

    def lfs_get(self, oid: str) -> None:
        if oid not in self.server.blobs:
            raise Refused(404, f"no file {oid}")
        self.send_part(self.server.blobs[oid], {"ETag": f'"{oid}"'})


READ = ("GET", "HEAD")
ROUTES: list[tuple[tuple[str, ...], str, Callable[..., None]]] = [
    (READ, r"/api/whoami-v2", _Handler.whoami),
    (("POST",), r"/api/repos/create", _Handler.create),
    (("DELETE",), r"/api/repos/delete", _Handler.delete),
    (("POST",), r"/api/validate-yaml", _Handler.validate_yaml),
    (READ, rf"{_API}(?:/revision/{_REVISION})?", _Handler.facts),
    (READ, rf"{_API}/refs", _Handler.refs),
    (("POST",), rf"{_API}/branch/(?P<branch>[^/]+)", _Handler.add_branch),
    (READ, rf"{_API}/commits/{_REVISION}", _Handler.commits),
    (READ, rf"{_API}/auth-check(?:/(?P<write>write))?", _Handler.auth_check),
    (READ, rf"{_API}/tree/{_REVISION}(?:/(?P<folder>.+))?", _Handler.tree),
    (("POST",), rf"{_API}/paths-info/{_REVISION}", _Handler.paths_info),
    (("POST",), rf"{_API}/preupload/{_REVISION}", _Handler.preupload),
    (("POST",), rf"{_API}/commit/{_REVISION}", _Handler.commit),
    (("POST",), rf"{_FILES}\.git/info/lfs/objects/batch", _Handler.lfs_batch),
    (("PUT",), r"/lfs/(?P<oid>\w{64})", _Handler.lfs_put),
    (("POST",), r"/lfs/(?P<oid>\w{64})/verify", _Handler.lfs_verify),
    (READ, r"/lfs/(?P<oid>\w{64})", _Handler.lfs_get),
    (READ, rf"{_FILES}/resolve/{_REVISION}/(?P<path>.+)", _Handler.resolve),
]
