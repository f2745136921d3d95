"""The ratings on request: the licence first, from a server, into the cache, checked by hash."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hfcomp.negatives.concreteness import FILE, LICENSE, URL, ConcretenessRatings, download_ratings

TABLE = b"Word\tConc.M\tDom_Pos\r\ndog\t4.5\tNoun\r\n"
HASH = hashlib.sha256(TABLE).hexdigest()


@pytest.fixture
def server():
    """A server on loopback that counts requests; its answer can be set."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            serving.asked += 1
            status, content = serving.answer
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    serving.asked, serving.answer = 0, (200, TABLE)
    serving.url = f"http://127.0.0.1:{serving.server_port}/ratings.txt"
    thread = threading.Thread(target=serving.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield serving
    serving.shutdown()
    serving.server_close()
    thread.join()


def test_the_licence_and_the_place_are_shown_before_the_download(server, tmp_path):
    logged: list[tuple[str, int]] = []
    path = download_ratings(
        tmp_path / "new", log=lambda line: logged.append((line, server.asked)), url=server.url, sha256=HASH
    )
    assert logged == [(LICENSE, 0), (f"downloading {server.url} to {path}", 0)]
    assert URL.startswith("http://crr.ugent.be/")
    assert "CC BY-NC-ND 3.0" in LICENSE and path == tmp_path / "new" / FILE
    assert ConcretenessRatings.from_file(path).lookup("dog") == 4.5


def test_a_second_call_reads_the_cache_and_shows_the_licence_again(server, tmp_path):
    logged: list[str] = []
    for _ in range(2):
        download_ratings(tmp_path, log=logged.append, url=server.url, sha256=HASH)
    assert server.asked == 1 and logged.count(LICENSE) == 2


def test_a_damaged_file_is_downloaded_again(server, tmp_path):
    (tmp_path / FILE).write_bytes(TABLE[:-3])
    path = download_ratings(tmp_path, log=lambda line: None, url=server.url, sha256=HASH)
    assert path.read_bytes() == TABLE


def test_another_file_is_not_kept(server, tmp_path):
    server.answer = (200, b"<html>not the table</html>")
    with pytest.raises(ValueError, match=f"expected the table with sha256 {HASH}, found 26 bytes.*not kept"):
        download_ratings(tmp_path, log=lambda line: None, url=server.url, sha256=HASH)
    assert not list(tmp_path.iterdir())


def test_a_server_that_fails_is_named_with_the_other_way(server, tmp_path):
    server.answer = (404, b"")
    with pytest.raises(OSError, match=r"ratings.txt could not be downloaded: .*404.*doi:10\.3758/s13428-013-0403-5"):
        download_ratings(tmp_path, log=lambda line: None, url=server.url, sha256=HASH)


def test_no_server_at_all(tmp_path):
    with pytest.raises(OSError, match="could not be downloaded"):
        download_ratings(tmp_path, log=lambda line: None, url="http://127.0.0.1:9/x", sha256=HASH, timeout=2)


def test_other_addresses_are_refused(tmp_path):
    with pytest.raises(ValueError, match="begins with http"):
        download_ratings(tmp_path, log=lambda line: None, url=f"file://{tmp_path}/x", sha256=HASH)
