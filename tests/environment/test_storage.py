"""What is said of folders: sizes, room, and whether they can be written."""

from __future__ import annotations

import shutil
import tempfile
from collections import namedtuple

import pytest

from hfcomp.environment import storage

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "cache" / "inner").mkdir(parents=True)
    (tmp_path / "cache" / "a").write_bytes(b"x" * 700)
    (tmp_path / "cache" / "inner" / "b").write_bytes(b"x" * 800)
    (tmp_path / "cache" / "link").symlink_to(tmp_path / "cache" / "a")
    return tmp_path / "cache"


def test_the_size_of_a_folder_counts_no_link(folder, monkeypatch):
    assert storage._folder("cache", folder).found.startswith(f"{folder}: 1.5 kB, ")
    assert "not there yet" in storage._folder("cache", folder / "later" / "on").found
    monkeypatch.setattr(storage, "PATIENCE", -1.0)
    assert "more than 0 B, " in storage._folder("cache", folder).found


def test_a_folder_that_cannot_be_written_is_broken_and_little_room_is_a_note(folder, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(10, 9, 10**9))
    found = storage._folder("cache", folder)
    assert found.state == "note" and "1.0 GB free" in found.found and "set HF_HOME" in found.fix
    monkeypatch.setattr(storage.os, "access", lambda place, mode: False)
    assert storage._folder("cache", folder).state == "broken"
    assert storage._folder("cache", folder / "a" / "below a file").state == "broken"


def test_temporary_files_are_tried(folder, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert storage._temporary().found.startswith(f"{folder}: ")
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "nowhere"))
    found = storage._temporary()
    assert found.state == "broken" and "TMPDIR" in found.fix
