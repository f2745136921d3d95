"""The served page under attack: requests that no page of ours sends, against a server that was really started."""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from PIL import Image

from hfcomp.annotate.app import guard, sign_in, uploads
from hfcomp.annotate.app.guard import Names
from hfcomp.annotate.app.server import PREFIX, VARIABLE, own_cache, serving
from hfcomp.annotate.people_file import PeopleFile, SharedPassword, add_person
from tests.annotate.app import stand_ins
from tests.annotate.app.client import Client, png

ROOT = Path(__file__).parents[3]
EVIL = "http://evil.example"


class Site:
    def __init__(self, address, project, log):
        self.address, self.project, self.log = address, project, log
        self.port = int(re.search(r":(\d+)/", address)[1])


@contextmanager
def site_of(folder, **settings):
    project, log = stand_ins.project(folder / "boxes", 4), []
    service = stand_ins.service(project)
    with closing(service), serving(service, title="Boxes", log=log.append, **settings) as address:
        yield Site(address, project, log)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with site_of(tmp_path_factory.mktemp("open")) as running_site:
        yield running_site


@pytest.fixture(scope="module")
def guarded_site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("closed")
    for name in ("Anna", "Ben"):
        add_person(folder / "people.json", name, f"correct {name}")
    names = ("annotate.example.org",)
    with site_of(folder, passwords=PeopleFile(folder / "people.json"), public_names=names) as running_site:
        yield running_site


@pytest.fixture
def client(site):
    return Client(site.address)


def photograph(site):
    return f"/gradio_api/file={site.project.path(site.project.decisions.item('0/color').image)}"


# who asks


def test_a_page_at_another_name_reads_and_writes_nothing(site, client):
    rebound = Client(site.address, Host=f"evil.example:{site.port}")
    paths = ("/", "/config", photograph(site), "/gradio_api/queue/data?session_hash=a")
    assert [rebound.http.get(path).status_code for path in paths] == [421] * 4
    assert rebound.http.post("/gradio_api/queue/join", json={}).status_code == 421
    assert rebound.upload(png(2, 2)).status_code == 421
    assert "--public_names" in rebound.http.get("/").text
    assert client.http.get(photograph(site)).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"])
def test_this_machine_is_answered_by_its_names(site, host):
    assert Client(site.address, Host=f"{host}:{site.port}").http.get("/config").status_code == 200


@pytest.mark.parametrize(
    ("bound", "host", "expected"),
    [
        ("127.0.0.1", "192.0.2.7:7860", False),
        ("0.0.0.0", "192.0.2.7:7860", True),
        ("0.0.0.0", "[2001:db8::1]:7860", True),
        ("0.0.0.0", "evil.example", False),
        ("box.example", "box.example:7860", True),
        ("127.0.0.1", "annotate.example.org", True),
        ("127.0.0.1", "annotate.example.org.evil.example", False),
        ("127.0.0.1", "localhost@evil.example", False),
        ("127.0.0.1", "localhost/evil", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "a:b:c", False),
    ],
)
def test_names_that_are_answered(bound, host, expected):
    assert Names(bound, ["annotate.example.org"]).has_host(host) is expected


@pytest.mark.parametrize(
    "origin", [EVIL, "null", "http://localhost:3000", "https://127.0.0.1.evil.example", "file://"]
)
def test_another_origin_is_refused_and_never_reflected(site, client, origin):
    headers = {"Origin": origin}
    answers = [
        client.http.get("/config", headers=headers),
        client.http.get(photograph(site), headers=headers),
        client.http.post("/gradio_api/queue/join", json={}, headers=headers),
        client.upload(png(2, 2), **headers),
        client.http.options("/config", headers={**headers, "Access-Control-Request-Method": "POST"}),
    ]
    assert [answer.status_code for answer in answers] == [403] * 5
    assert not [name for answer in answers for name in answer.headers if name.startswith("access-control-")]


def test_the_page_itself_may_ask(site, client):
    own = site.address.rstrip("/")
    answer = client.http.get("/config", headers={"Origin": own, "Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 200 and not [
        header for header in answer.headers if header.startswith("access-control-")
    ]
    assert client.upload(png(2, 2), Origin=own).status_code == 200


def test_another_site_that_sends_no_origin_is_refused_but_for_a_link(site, client):
    for other in ("cross-site", "same-site"):
        fetched = {"Sec-Fetch-Site": other, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
        assert client.http.get(photograph(site), headers=fetched).status_code == 403
        link = {"Sec-Fetch-Site": other, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert client.http.get("/", headers=link).status_code == 200
        assert client.http.get(photograph(site), headers=link).status_code == 403
        assert client.http.get("/", headers=link | {"Sec-Fetch-Dest": "iframe"}).status_code == 403


# what is asked


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "component_server"),
        ("POST", "run/predict"),
        ("POST", "call/next"),
        ("POST", "process_recording"),
        ("POST", "vibe-edit"),
        ("POST", "stream/a"),
        ("GET", "proxy=http://127.0.0.1:1/"),
        ("GET", "file=http://127.0.0.1:1/"),
        ("GET", "file=https://evil.example/x.png"),
        ("GET", "info"),
        ("GET", "openapi.json"),
        ("GET", "upload_progress?upload_id=a"),
        ("GET", "custom_component/a/client/component/style.css"),
        ("PUT", "upload"),
        ("DELETE", "queue/join"),
    ],
)
def test_routes_that_the_page_does_not_use_are_not_served(client, method, path):
    assert client.http.request(method, f"/gradio_api/{path}").status_code == 404


def test_files_beyond_the_page_are_not_served_and_not_read(site, client):
    assert client.http.get("/gradio_api/file=/etc/passwd").status_code == 403
    config = client.config()
    client.call("begin", "click", config, name="Ann")
    layer = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}
    answer = client.call("add", "click", config, item="0/color", editor={"layers": [layer]})
    assert not answer["success"]


def test_answers_say_what_a_browser_may_do(client):
    for path in ("/", "/config", "/nowhere"):
        headers = client.http.get(path).headers
        assert "img-src 'self' data: blob:;" in headers["content-security-policy"]
        # with no-referrer a browser sends forms, such as the one to sign in, with the origin null
        assert headers["referrer-policy"] == "same-origin"
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")


# how much


def raw(site, text, body=b""):
    """The status of an answer to a request that is sent as it stands, and seconds until it came."""
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as connection:
        connection.sendall(f"{text}\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode() + body)
        answer = connection.makefile("rb").readline()
    return int(answer.split()[1]), time.monotonic() - begin


def test_a_size_is_refused_before_anything_is_read(site):
    for path, size in (("upload", uploads.MOST_BYTES), ("queue/join", guard.MOST_BYTES_OF_A_CALL)):
        text = f"POST /gradio_api/{path} HTTP/1.1\r\nContent-Length: {size + 1}"
        assert raw(site, text)[0] == 413  # of the body not a byte was sent


def test_a_size_that_is_not_announced_is_counted(client, monkeypatch):
    monkeypatch.setattr(guard, "MOST_BYTES", 2**20)
    sent = []

    def body():
        for _ in range(1000):
            sent.append(2**16)
            yield bytes(2**16)

    with suppress(httpx.WriteError):  # where the server has hung up by then
        assert client.http.post("/gradio_api/upload", content=body()).status_code == 413
    assert sum(sent) < 2**25


def test_a_body_that_drips_is_not_waited_for(site, monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)
    status, seconds = raw(site, "POST /gradio_api/queue/join HTTP/1.1\r\nContent-Length: 100", b"{")
    assert status == 408 and seconds < 10


def test_uploads_have_a_limit_for_a_session_and_in_all(tmp_path, client, monkeypatch):
    monkeypatch.setattr(uploads, "MOST_OF_A_SESSION", 4000)
    contents = [png(4, 4) + bytes([number]) * 1000 for number in range(6)]
    statuses = [client.upload(content).status_code for content in contents]
    assert statuses[0] == 200 and statuses[-1] == 429 and statuses == sorted(statuses)
    now = [0.0]
    kept = uploads.Uploads(tmp_path / "kept", lambda: now[0])
    monkeypatch.setattr(uploads, "MOST_IN_ALL", 6000)
    for name in "ab":
        with kept.receiving(name, 2500) as upload:
            assert not upload.refusal
            kept.keep(name, name.encode() * 2500)
    with kept.receiving("c", 2500) as upload:
        assert "All uploads together" in upload.refusal
    now[0] = uploads.KEPT_SECONDS + 1
    with kept.receiving("c", 2500) as upload:
        assert not upload.refusal and not any(kept.folder.iterdir())


def test_an_upload_is_kept_once_and_announced_sizes_count(tmp_path, monkeypatch):
    kept = uploads.Uploads(tmp_path / "kept")
    assert kept.keep("a", b"same") == kept.keep("a", b"same") != kept.keep("b", b"same")
    monkeypatch.setattr(uploads, "MOST_OF_A_SESSION", 10_000)
    with kept.receiving("a", 6000) as first, kept.receiving("a", 6000) as second:
        assert not first.refusal and "Your uploads" in second.refusal
    with kept.receiving("a", 6000) as third:
        assert not third.refusal


def gif():
    stream = io.BytesIO()
    Image.new("P", (2, 2)).save(stream, "GIF")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (png(13_000, 13_000, is_whole=False), "13,000 x 13,000 pixels. Use one with at most 50,000,000"),
        (png(100_000, 100_000, is_whole=False), "too large"),
        (b"<svg onload=alert(1)>", "not an image"),
        (gif(), "GIF format. Use PNG or JPEG"),
    ],
    ids=["13000", "100000", "svg", "gif"],
)
def test_an_upload_is_an_image_of_some_size_by_its_header(client, content, message):
    answer = client.upload(content)
    assert answer.status_code == 400 and message in answer.text


def test_no_upload_is_decoded_before_its_size_is_checked(site, client):
    broken = png(200, 200, is_whole=False)  # whoever decodes it fails
    (path,) = client.upload(broken).json()
    config = client.config()
    client.call("begin", "click", config, name="Ann")
    layer = {"path": path, "meta": {"_type": "gradio.FileData"}}
    editor = {"background": layer, "composite": layer, "layers": [layer]}
    item = site.project.decisions.next_item("Ann").id
    answer = client.call("add", "click", config, item=item, editor=editor)
    assert answer["success"] and "200 x 200 pixels in mode RGBA, expected 320 x 240" in str(answer)
    assert not Path(path).exists()


def test_requests_of_a_session_have_a_limit(site, client, monkeypatch):
    monkeypatch.setattr(guard, "MOST_OF_A_SESSION", 2)
    with (
        client.http.stream("GET", "/gradio_api/heartbeat/a") as first,
        client.http.stream("GET", "/gradio_api/heartbeat/b") as second,
    ):
        assert (first.status_code, second.status_code) == (200, 200)
        assert client.http.get("/config").status_code == 503


# signing in


def test_nothing_but_the_sign_in_page_is_served_without_a_session(guarded_site):
    stranger = Client(guarded_site.address)
    assert stranger.http.get("/").headers["location"] == "/sign-in"
    paths = ("/config", photograph(guarded_site), "/assets/a.js", "/gradio_api/heartbeat/a", "/theme.css")
    assert [stranger.http.get(path).status_code for path in paths] == [401] * 5
    assert stranger.http.post("/gradio_api/cancel", json={}).status_code == 401
    assert stranger.upload(png(2, 2)).status_code == 401
    stranger.http.cookies.set(f"hfcomp-annotate-{guarded_site.port}", "guessed")
    assert stranger.http.get("/config").status_code == 401


def sign(site, name, password, **headers):
    client = Client(site.address, **headers)
    return client, client.http.post("/sign-in", data={"name": name, "password": password})


def test_a_person_signs_in_with_their_own_password(guarded_site):
    ben, answer = sign(guarded_site, "BEN", "correct Ben")
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 303 and "httponly" in cookie.lower() and "samesite=lax" in cookie.lower()
    assert "secure" not in cookie.lower() and ben.http.get("/config").status_code == 200
    assert guarded_site.log[-1] == "sign-in: 'Ben' from 127.0.0.1"
    config = ben.config()
    # a name that the page sends has no say
    assert "by Anna, but Ben" in str(ben.call("begin", "click", config, name="Anna"))
    assert sign(guarded_site, "Anna", "correct Ben")[1].status_code == 401
    assert sign(guarded_site, "Nobody", "correct Ben")[1].status_code == 401
    assert guarded_site.log[-1] == "sign-in refused: 'Nobody' from 127.0.0.1, failure 2"
    assert sign(guarded_site, "Anna", "correct Anna")[1].status_code == 303


@pytest.mark.follows("hfcomp/annotate/app/guard.py", "start hfcomp annotate with --public_names")
def test_behind_a_proxy_with_tls_the_cookie_is_secure(guarded_site):
    headers = {"Host": "annotate.example.org", "Origin": "https://annotate.example.org"}
    assert "secure" in sign(guarded_site, "Ben", "correct Ben", **headers)[1].headers["set-cookie"].lower()
    assert sign(guarded_site, "Ben", "correct Ben", Host="annotate.example.org", Origin=EVIL)[1].status_code == 403


def test_guesses_are_slowed_down_and_logged(tmp_path):
    with site_of(tmp_path, passwords=SharedPassword("correct horse")) as site:
        statuses = [sign(site, "Ann", f"guess {number}")[1].status_code for number in range(30)]
        assert statuses[: sign_in.FREE_FAILURES] == [401] * sign_in.FREE_FAILURES
        assert statuses.count(401) < 12 and statuses.count(429) > 18
        answer = sign(site, "Ann", "correct horse")[1]
        assert answer.status_code == 429 and 1 <= int(answer.headers["retry-after"]) <= sign_in.LONGEST_WAIT + 1
        assert sum(line.startswith("sign-in refused: 'Ann' from") for line in site.log) == statuses.count(401)
        assert len(site.log) <= 2 * statuses.count(401) and "correct horse" not in "".join(site.log)


# the folder of files


def test_the_folder_of_files_is_removed_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with own_cache() as folder:
        (folder / "a.png").write_bytes(b"a")
        assert os.environ[VARIABLE] == str(folder) and folder.stat().st_mode & 0o077 == 0
        with own_cache() as other:  # another server leaves it alone
            assert (folder / "a.png").exists() and other != folder
    assert not any(tmp_path.iterdir()) and os.environ[VARIABLE] == str(tmp_path)


def test_what_a_killed_server_left_is_removed_at_the_next_start(tmp_path, monkeypatch):
    code = (
        "import os, signal\nfrom hfcomp.annotate.app.server import own_cache\nwith own_cache() as folder:\n"
        "    (folder / 'a.png').write_bytes(b'a')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = os.environ | {VARIABLE: str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, check=False)
    assert len([path for path in tmp_path.glob(f"{PREFIX}*") if path.is_dir()]) == 1
    (tmp_path / f"{PREFIX}kept").mkdir()  # of a program without a lock
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with own_cache():
        pass
    assert [path.name for path in tmp_path.iterdir()] == [f"{PREFIX}kept"]


def test_open_pages_do_not_keep_the_server_from_ending(tmp_path, caplog):
    with site_of(tmp_path) as site:
        client = Client(site.address)
        stream = client.http.stream("GET", "/gradio_api/heartbeat/a")
        assert stream.__enter__().status_code == 200
        begin = time.monotonic()
    assert time.monotonic() - begin < 2.5 and not caplog.records  # SECONDS_TO_END, after which it is cancelled
