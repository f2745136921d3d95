"""URLs inside data: refused unless asked for, and then within limits of time and size."""

from __future__ import annotations

import io
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from PIL import Image

from hfcomp.data import urls
from hfcomp.data.images import decode_image
from hfcomp.data.urls import UrlAccess, is_url, set_url_access

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
        elif self.path == "/large":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(bytes(5000))
        elif self.path == "/to_a_file":
            self.send_response(302)
            self.send_header("Location", "file:///etc/passwd")
            self.end_headers()
        elif self.path == "/gone":
            self.send_error(404)
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(png())

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.daemon_threads = True
    found.asked, found.stop = [], threading.Event()
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    found.place = f"http://127.0.0.1:{found.server_address[1]}"
    yield found
    found.stop.set()
    found.shutdown()
    found.server_close()


@pytest.mark.parametrize("form", [str, lambda url: {"path": url, "bytes": None}])
def test_a_url_is_not_fetched_unless_asked(server, form):
    with pytest.raises(ValueError, match="column 'image', row 3 names the URL .*not fetched unless.*--allow_urls"):
        decode_image(form(f"{server.place}/a.png"), where=WHERE)
    assert server.asked == []


def test_an_allowed_url_is_fetched(server):
    assert decode_image(f"{server.place}/a.png", where=WHERE, urls=UrlAccess()).size == (4, 3)


def test_a_command_allows_urls_for_its_process(server, monkeypatch):
    monkeypatch.setattr(urls, "_current", None)
    set_url_access(UrlAccess.asked(True, 5.0))
    assert decode_image(f"{server.place}/a.png", where=WHERE).size == (4, 3)
    set_url_access(UrlAccess.asked(False, 5.0))
    with pytest.raises(ValueError, match="not fetched"):
        decode_image(f"{server.place}/a.png", where=WHERE)


@pytest.mark.parametrize("path", ["hangs", "drips"])
def test_a_server_that_does_not_come_to_an_end_is_given_up(server, path):
    start = time.monotonic()
    with pytest.raises((OSError, ValueError), match="row 3"):
        decode_image(f"{server.place}/{path}", where=WHERE, urls=UrlAccess(timeout=0.5))
    assert time.monotonic() - start < 5


def test_a_file_that_is_too_large_is_refused(server):
    with pytest.raises(ValueError, match="row 3: .* has more than 4,000 bytes"):
        decode_image(f"{server.place}/large", where=WHERE, urls=UrlAccess(max_bytes=4000))


@pytest.mark.parametrize("path", ["to_a_file", "gone"])
def test_a_failed_request_names_the_row(server, path):
    with pytest.raises(OSError, match="column 'image', row 3: .* could not be fetched"):
        decode_image(f"{server.place}/{path}", where=WHERE, urls=UrlAccess())


@pytest.mark.parametrize("url", ["file:///etc/passwd", "s3://bucket/a.png", "zip://a.png::http://host/set.zip"])
def test_other_schemes_are_never_fetched(url):
    with pytest.raises(ValueError, match="row 3 names the URL .*only http, https, hf are fetched"):
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
    with pytest.raises(ValueError, match="row 3 names the file .*NUL"):
        decode_image("a\0.png", where=WHERE)
