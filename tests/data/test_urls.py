"""URLs inside data: refused unless asked for, and then within limits of time and size."""

from __future__ import annotations

import io
import re
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import datasets
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from PIL import Image

from hfcomp.data import urls
from hfcomp.data.images import decode_image
from hfcomp.data.loading import load_training_set
from hfcomp.data.sampling.streaming import StreamedRows
from hfcomp.data.urls import UrlAccess, is_url, redact, set_url_access

WHERE = "column 'image', row 3"


def png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 3), "red").save(buffer, "PNG")
    return buffer.getvalue()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path == "/hangs":
            self.server.stop.wait(20)
        elif self.path == "/drips":  # each byte comes well within a timeout of the socket
            self.send_response(200)
            self.end_headers()
            while not self.server.stop.wait(0.05):
                try:
                    self.wfile.write(b"x")
                except OSError:
                    return
        elif self.path.startswith("/large"):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(bytes(5000))
        elif self.path == "/to_a_file":
            self.send_response(302)
            self.send_header("Location", "file:///etc/passwd")
            self.end_headers()
        elif self.path.startswith("/gone"):
            self.send_error(404)
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(png())

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    http_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http_server.daemon_threads = True
    http_server.asked, http_server.stop = [], threading.Event()
    thread = threading.Thread(target=http_server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    http_server.place = f"http://127.0.0.1:{http_server.server_address[1]}"
    yield http_server
    http_server.stop.set()
    http_server.shutdown()
    http_server.server_close()


@pytest.mark.parametrize("form", [str, lambda url: {"path": url, "bytes": None}])
def test_a_url_is_not_fetched_unless_asked(server, form):
    with pytest.raises(ValueError, match="'image', row 3 .*URL .*--allow_urls"):
        decode_image(form(f"{server.place}/a.png"), where=WHERE)
    assert server.asked == []


def test_an_allowed_url_is_fetched(server):
    assert decode_image(f"{server.place}/a.png", where=WHERE, urls=UrlAccess()).size == (4, 3)


def test_a_command_allows_urls_for_its_process(server, monkeypatch):
    monkeypatch.setattr(urls, "_current", None)
    set_url_access(UrlAccess.from_settings(True, 5.0))
    assert decode_image(f"{server.place}/a.png", where=WHERE).size == (4, 3)
    set_url_access(UrlAccess.from_settings(False, 5.0))
    with pytest.raises(ValueError, match="--allow_urls"):
        decode_image(f"{server.place}/a.png", where=WHERE)


@pytest.mark.parametrize("path", ["hangs", "drips"])
def test_a_server_that_does_not_come_to_an_end_is_given_up(server, path):
    start = time.monotonic()
    with pytest.raises((OSError, ValueError), match="row 3"):
        decode_image(f"{server.place}/{path}", where=WHERE, urls=UrlAccess(timeout=0.5))
    assert time.monotonic() - start < 5


def test_a_file_that_is_too_large_is_refused(server):
    with pytest.raises(ValueError, match="row 3: .* 4,000 bytes"):
        decode_image(f"{server.place}/large", where=WHERE, urls=UrlAccess(max_bytes=4000))


@pytest.mark.parametrize("path", ["to_a_file", "gone"])
def test_a_failed_request_names_the_row(server, path):
    with pytest.raises(OSError, match="'image', row 3: .*downloaded"):
        decode_image(f"{server.place}/{path}", where=WHERE, urls=UrlAccess())


@pytest.mark.parametrize("url", ["file:///etc/passwd", "s3://bucket/a.png", "zip://a.png::http://host/set.zip"])
def test_other_schemes_are_never_fetched(url):
    with pytest.raises(ValueError, match="row 3 .*http, https, hf "):
        decode_image(url, where=WHERE, urls=UrlAccess())


def test_files_and_archives_of_this_machine_are_no_urls():
    assert not is_url("/data/a.png")
    assert not is_url("zip://inner/a.png::/data/set.zip")
    assert is_url("zip://inner/a.png::https://host/set.zip")
    assert is_url("file:///etc/passwd")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_there_is_always_a_limit_of_time(timeout):
    with pytest.raises(ValueError, match="url_timeout="):
        UrlAccess(timeout)


def test_a_nul_in_a_name_is_refused_by_row():
    with pytest.raises(ValueError, match="row 3 .*NUL"):
        decode_image("a\0.png", where=WHERE)


class Hub(MemoryFileSystem):
    """What `hf://` names, and the tokens that files were opened with."""

    protocol = "hf"
    cachable = False
    store, pseudo_dirs, tokens = {}, [""], []

    def __init__(self, token=None, **options):
        super().__init__(**options)
        self.tokens.append(token)

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.removeprefix("hf://").lstrip("/")


@pytest.fixture
def hub(monkeypatch):
    """Two images and an archive on a Hub of this process; the set `her/set` is loaded from it."""
    before = fsspec.get_filesystem_class("hf")
    fsspec.register_implementation("hf", Hub, clobber=True)
    monkeypatch.setattr(urls, "_repositories", frozenset())
    monkeypatch.setattr(Hub, "tokens", [])
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("inside/b.png", png())
    hub = Hub()
    for name in ("her/set@1/a.png", "me/private/a.png", "her/set2/a.png"):
        hub.pipe_file(f"hf://datasets/{name}", png())
    hub.pipe_file("hf://datasets/her/set@1/images.zip", archive.getvalue())
    Hub.tokens.clear()
    yield Hub
    fsspec.register_implementation("hf", before, clobber=True)


OWN = ("hf://datasets/her/set@1/a.png", "zip://inside/b.png::hf://datasets/her/set@1/images.zip")
OTHERS = (
    "hf://datasets/me/private/a.png",
    "hf://datasets/her/set2/a.png",
    "hf://datasets/her/set/../../me/private/a.png",
    "hf://datasets/her/set@1/%2e%2e/%2E./me/private/a.png",
    "hf://her/set/a.png",
    "https://her/set@1/a.png",
    "zip://a.png::https://her/set@1/a.zip",
)


def load_her_set(monkeypatch):
    monkeypatch.setattr("hfcomp.data.sources.load_dataset", lambda *_, **__: datasets.Dataset.from_dict({"a": [1]}))
    load_training_set("her/set")


@pytest.mark.parametrize("url", OWN)
def test_the_files_of_a_set_on_the_hub_are_its_own(hub, monkeypatch, url):
    load_her_set(monkeypatch)
    assert decode_image({"path": url, "bytes": None}, where=WHERE).size == (4, 3)
    assert hub.tokens == [None]  # the user's


@pytest.mark.parametrize("url", OTHERS)
def test_files_of_others_still_have_to_be_allowed(hub, monkeypatch, url):
    load_her_set(monkeypatch)
    with pytest.raises(ValueError, match="not downloaded"):
        decode_image(url, where=WHERE)
    assert hub.tokens == []


@pytest.mark.parametrize("url", OTHERS[:2] + OWN)
def test_repositories_that_are_not_loaded_are_read_without_the_users_token(hub, url):
    assert decode_image(url, where=WHERE, urls=UrlAccess()).size == (4, 3)
    assert hub.tokens == [False]


def test_a_member_of_an_archive_on_the_hub_is_within_the_limits(hub):
    with pytest.raises(ValueError, match="row 3: .*b.png.* 10 bytes"):
        decode_image(OWN[1], where=WHERE, urls=UrlAccess(max_bytes=10))


def test_an_image_folder_that_is_streamed_is_read_where_it_lies(hub):
    features = datasets.Features({"image": datasets.Image()})
    rows = datasets.Dataset.from_dict({"image": list(OWN)}, features=features).to_iterable_dataset()
    rows._token_per_repo_id = {"her/set": None}  # as `load_dataset("her/set", streaming=True)` sets it
    read = iter(StreamedRows(rows, ["image"], batch_size=2, seed=0, buffer=1))
    assert [decode_image(next(read)["image"], where=WHERE).size for _ in OWN] == [(4, 3)] * 2
    assert hub.tokens == [None] * 2


SECRET_URL = "https://user:word@host/path/a.png?signature=s3cret#part"


def test_what_may_be_secret_in_a_url_is_not_shown():
    assert redact(SECRET_URL) == "https://host/path/a.png"
    assert redact(f"zip://a?.png::{SECRET_URL}") == "zip://a?.png::https://host/path/a.png"
    assert redact("/data/a?b#c@d.png") == "/data/a?b#c@d.png"


@pytest.mark.parametrize("how", ["refused", "not there", "no image", "bytes", "no url"])
def test_no_error_shows_a_signature(server, how):
    url = f"{server.place.replace('//', '//user:word@' if how == 'refused' else '//')}/{how}?signature=s3cret"
    url = {"not there": f"{server.place}/gone?s3cret", "no image": f"{server.place}/large?s3cret"}.get(how, url)
    cell = {"path": url, "bytes": b"no image" if how == "bytes" else None}
    with pytest.raises((ValueError, OSError), match=WHERE) as caught:
        decode_image(cell, where=WHERE, urls=None if how == "refused" else UrlAccess())
    assert not re.search("s3cret|word", str(caught.value))
