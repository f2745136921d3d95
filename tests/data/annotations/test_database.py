"""The file: that it is append-only, and what is said of files that are foreign, damaged, locked or full."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import closing

import pytest

from hfcomp.data.annotations.decisions import Decisions
from tests.data.annotations.making import edit, item, items


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.sqlite"


@pytest.fixture
def store(path):
    decisions = Decisions(path, wait_seconds=0.2)
    decisions.add_items(items(3))
    decisions.submit("Ann", "0/color", edit())
    yield decisions
    decisions.close()


def run(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize("table", ["log", "items"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {0} SET content = '{{}}'",
        "DELETE FROM {0}",
        "INSERT OR REPLACE INTO {0} SELECT * FROM {0}",
        "REPLACE INTO {0} SELECT * FROM {0}",
    ],
)
def test_nothing_is_changed_or_removed_with_any_program(store, path, table, statement):
    with pytest.raises(sqlite3.IntegrityError, match=f"{table} is append-only"):
        run(path, "DELETE FROM states", statement.format(table))
    assert store.item("0/color") == item(0)
    assert [entry.action for entry in store.log()] == ["submit"]


def test_a_decision_is_undone_once(store, path):
    row = "INSERT INTO log (time, person, item, action, content, undoes) VALUES (1, 'Ann', '0/color', 'undo', '{}', 1)"
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        run(path, row, row)


def test_the_file_is_in_wal_mode_and_decisions_are_forced_to_disk(store, path):
    with store._database.writing() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_a_file_that_was_begun_and_not_filled_is_a_new_one(path):
    path.touch()
    store = Decisions(path)
    assert store.add_items(items(1)) == 1
    store.close()


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE people (name TEXT)"],
        ["CREATE TABLE meta (other TEXT)"],
        ["CREATE TABLE meta (key TEXT, value TEXT)", "INSERT INTO meta VALUES ('format', 'other')"],
    ],
)
def test_a_foreign_database_is_refused_and_not_changed(path, statements):
    run(path, *statements)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"a\.sqlite .*not an annotation"):
        Decisions(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_newer_file_is_refused(store, path):
    store.close()
    run(path, "UPDATE meta SET value = '3' WHERE key = 'version'")
    with pytest.raises(ValueError, match=r"a\.sqlite: found .*version 3, expected 2.*upgrade hfcomp"):
        Decisions(path)


def test_a_file_that_is_not_a_database_is_refused(path):
    path.write_bytes(b"id,caption\n" * 500)
    with pytest.raises(ValueError, match=r"a\.sqlite .*damaged .*\.recover"):
        Decisions(path)
    assert path.read_bytes() == b"id,caption\n" * 500


def test_a_damaged_file_is_named_with_what_to_do(store, path):
    store.add_items(items(2000))
    store.close()
    content = bytearray(path.read_bytes())
    content[8192:-8192] = b"\x5a" * (len(content) - 16384)  # but for the first and last pages
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.sqlite .*damaged.*sqlite3 a\.sqlite \.recover"):  # noqa: PT012
        again = Decisions(path)
        list(again.items())
        again.rebuild()


def test_a_row_that_was_written_by_hand_is_named(store, path):
    row = "(1, 'Bob', '1/color', 'submit', '{\"seed\": 1}')"
    run(path, f"INSERT INTO log (time, person, item, action, content) VALUES {row}")
    assert store.rebuild() == 1
    with pytest.raises(ValueError, match=r"a\.sqlite, row 2 .*: image "):
        store.edit("1/color")


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        Decisions(tmp_path / "missing" / "a.sqlite")


def test_a_folder_in_place_of_the_file_is_named(path):
    path.mkdir()
    with pytest.raises(OSError, match=r"a\.sqlite"):
        Decisions(path)


def test_while_another_program_locks_the_file_nothing_is_lost(store, path):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for decide in (lambda: store.submit("Bob", "1/color", edit()), lambda: store.next_item("Bob")):
            with pytest.raises(BlockingIOError, match=r"a\.sqlite .*locked .*0\.2 s"):
                decide()
        assert store.counts()["annotated"] == 1  # reading goes on
        other.execute("ROLLBACK")
    store.submit("Bob", "1/color", edit())
    assert store.counts()["annotated"] == 2
    assert store.rebuild() == 0


def test_a_full_disk_leaves_no_half_decision(store):
    store.save_draft("Ann", "1/color", {"caption": "a blue bus"})
    with store._database.reading() as connection:  # the connection that all calls of this thread use
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
    saved, long = 1, edit(caption="a blue bus " * 300)
    with pytest.raises(OSError, match="No space .*a.sqlite") as caught:  # noqa: PT012
        for name in ("1/color", "2/color"):
            store.submit("Ann", name, long)
            saved += 1
    assert caught.value.errno == errno.ENOSPC
    assert len(list(store.log())) == store.counts()["annotated"] == saved
    assert store.rebuild() == 0
    if saved == 1:
        assert store.draft("Ann", "1/color") == {"caption": "a blue bus"}
    for name in ("1/color", "2/color"):  # space was freed: a new connection has no limit
        store.submit("Ann", name, long)
    assert store.counts()["annotated"] == 3


def test_connections_are_kept_and_closed(path, monkeypatch):
    opened = []

    class Counted(sqlite3.Connection):
        def __init__(self, *args, **fields):
            super().__init__(*args, **fields)
            opened.append(self)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **fields: connect(*args, factory=Counted, **fields))
    store = Decisions(path)
    store.add_items(items(20))
    for _ in range(20):
        store.submit("Ann", store.next_item("Ann").id, edit())
    assert len(opened) == 1
    store.close()
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")
    assert not path.with_name("a.sqlite-wal").exists()
    with pytest.raises(ValueError, match=r"a\.sqlite was closed"):
        store.counts()
