"""Who reaches the page, who it acts for, and what it takes from a browser."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from hfcomp.annotate.app import markup
from hfcomp.annotate.app.server import bind, check_access, check_port
from hfcomp.annotate.app.tabs import Session, acting_person
from hfcomp.annotate.app.uploads import read_strokes
from hfcomp.annotate.people_file import SharedPassword
from hfcomp.data.annotations.entries import Item


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_needs_no_password(host):
    check_access(host, None)


@pytest.mark.parametrize(
    ("host", "names", "message"),
    [
        ("0.0.0.0", (), "host: 0.0.0.0 .*password"),
        ("example.org", (), "password"),
        ("127.0.0.1", ("a.example",), "public_names: a.example .*password"),
    ],
)
def test_other_hosts_and_public_names_need_a_password_of_some_length(host, names, message):
    with pytest.raises(ValueError, match=message):
        check_access(host, None, names)
    with pytest.raises(ValueError, match="5 characters.* 8 "):
        SharedPassword("short")
    check_access(host, SharedPassword("long enough"), names)


@pytest.mark.follows("hfcomp/annotate/app/server.py", "and a free --port, or omit both.")
def test_a_port_that_is_taken_is_named():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=rf"host 127.0.0.1, port {port}: .*free --port"):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


def test_two_servers_never_have_one_port():
    with bind("127.0.0.1", None) as first, bind("127.0.0.1", None) as second:
        assert first.getsockname()[1] != second.getsockname()[1]


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(OSError, match=r"host 192\.0\.2\.1"):
        check_port("192.0.2.1", None)


def test_a_name_signs_in_with_the_password_only():
    signs_in = SharedPassword("correct horse").person
    assert signs_in(" Ann", "correct horse") == "Ann"
    assert not signs_in("Ann", "wrong horse") and not signs_in("Ann", "")
    assert not signs_in("automatic", "correct horse") and not signs_in(" ", "correct horse")


def test_a_page_acts_for_the_person_who_signed_in():
    assert acting_person(Session("Ann"), SimpleNamespace(username=None)) == "Ann"
    assert acting_person(Session("Ann"), SimpleNamespace(username=" Ann")) == "Ann"
    assert acting_person(Session("Ann"), SimpleNamespace(username="ann")) == "ann"
    with pytest.raises(ValueError, match="Ann,.*Ben"):
        acting_person(Session("Ann"), SimpleNamespace(username="Ben"))
    with pytest.raises(ValueError, match="Enter your name"):
        acting_person(Session(), SimpleNamespace(username=None))


def test_captions_are_escaped_and_their_keyword_is_marked():
    item = Item("1/color", "a.png", "color", ("A red <b>cat</b>.",), ("red",))
    assert "A <mark>red</mark> &lt;b&gt;cat&lt;/b&gt;." in markup.captions(item, "")
    assert "&lt;script&gt;" in markup.message("<script>", "error")
    assert "<script>" not in markup.two_captions("<script>", "<script>x")


def test_strokes_are_the_opaque_pixels_of_all_layers(tmp_path):
    for number in range(2):
        layer = np.zeros((6, 8, 4), dtype=np.uint8)
        layer[number, :, 3] = 255
        Image.fromarray(layer).save(tmp_path / f"{number}.png")
    strokes = read_strokes({"layers": [str(tmp_path / "0.png"), str(tmp_path / "1.png")]}, (8, 6))
    assert strokes[:2].all() and not strokes[2:].any()


@pytest.mark.parametrize(
    ("image", "kind", "message"),
    [
        (Image.new("RGBA", (9, 6)), "PNG", "9 x 6 .*RGBA,.* 8 x 6"),
        (Image.new("RGB", (8, 6)), "PNG", "mode RGB"),
        (Image.new("RGB", (8, 6)), "JPEG", "JPEG image, expected PNG"),
        (None, "", "not a readable PNG"),
    ],
)
def test_other_uploads_are_refused(tmp_path, image, kind, message):
    path = tmp_path / "layer.png"
    path.write_bytes(b"<svg/>") if image is None else image.save(path, kind)
    with pytest.raises(ValueError, match=message):
        read_strokes({"layers": [str(path)]}, (8, 6))


@pytest.mark.parametrize("value", [None, {}, {"layers": []}])
def test_no_stroke_is_explained(value):
    with pytest.raises(ValueError, match="no strokes"):
        read_strokes(value, (8, 6))
