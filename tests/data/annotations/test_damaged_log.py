"""Damage anywhere in the file of a log: the same decisions as before, or one line that names the file."""

from __future__ import annotations

import random
import re
import sqlite3
from contextlib import closing

import pytest

from hfcomp.cli import main
from hfcomp.data.annotations.decisions import Decisions
from tests.data.annotations.making import edit, items

POSITIONS = 300


def fill(path):
    """A log with every action, and work under way."""
    store = Decisions(path)
    store.add_items(items(8))
    for number, person in enumerate(("Ann", "Ann", "Bob", "Bob", "Ann")):
        store.submit(person, f"{number}/color", edit(number))
    store.accept("Bob", "0/color", "okay")
    store.accept("Ann", "2/color", "very good")
    store.send_back("Bob", "1/color", "the border of the mask is visible")
    store.accept("Bob", "4/color", "okay")
    store.undo("Bob")
    store.skip("Ann", "5/color", "a face")
    store.next_item("Cem")
    store.save_draft("Cem", "6/color", {"caption": "a blue bus"})
    store.close()


def facts(path):
    """The facts that a user reads from a log."""
    with closing(Decisions(path)) as store:
        values = [
            store.counts(),
            store.by_person(),
            store.concepts(),
            [store.state(item.id) for item in store.items()],
            *map(list, (store.items(), store.log(), store.accepted(), store.items(state="open"))),
        ]
        return [*values, store.edit("3/color"), store.rebuild()]


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("log") / "a.sqlite"
    fill(path)
    return path.read_bytes()


def without_chain(path):
    """What hfcomp wrote before logs had a chain."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE chains")
        connection.execute("UPDATE meta SET value = '1' WHERE key = 'version'")
        connection.commit()
        connection.execute("VACUUM")


@pytest.mark.parametrize("length", [1, 40])
def test_no_damage_changes_a_decision_silently(tmp_path, content, length, caplog):
    path, draws, named = tmp_path / "a.sqlite", random.Random(length), 0
    path.write_bytes(content)
    expected = facts(path)
    written = [position for position, byte in enumerate(content) if byte]
    for position in draws.sample(written, POSITIONS):
        damaged = bytearray(content)
        damaged[position : position + length] = draws.randbytes(len(damaged[position : position + length]))
        path.write_bytes(damaged)
        try:
            assert facts(path) == expected, position
        except (ValueError, OSError) as error:
            assert str(path) in str(error), (position, error)
            assert "\n" not in str(error), (position, error)
            named += 1
        for rest in path.parent.glob("a.sqlite-*"):
            rest.unlink()
    assert named > POSITIONS / 2


def test_the_first_broken_row_is_named_on_the_command_line(tmp_path):
    path = tmp_path / "annotations.sqlite"
    fill(path)
    path.write_bytes(path.read_bytes().replace(b"the border of the mask", b"the border of the bask"))
    with pytest.raises(SystemExit, match=rf"^error: {re.escape(str(path))}, row 8 [^\n]*backup"):
        main(["annotate", "progress", str(tmp_path)])
    fill(tmp_path / "b.sqlite")
    path.write_bytes((tmp_path / "b.sqlite").read_bytes())  # the copy
    main(["annotate", "progress", str(tmp_path)])


def test_a_lost_row_is_named(tmp_path):
    path = tmp_path / "a.sqlite"
    fill(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER log_keeps_delete")
        connection.execute("DELETE FROM log WHERE number = 11")
        connection.execute(
            "CREATE TRIGGER log_keeps_delete BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'log is append-only'); END"
        )
    with pytest.raises(ValueError, match=r"a\.sqlite, row 11"):
        Decisions(path)


def test_states_that_do_not_follow_from_the_log_are_derived_again_and_said(tmp_path, caplog):
    path = tmp_path / "a.sqlite"
    fill(path)
    expected = facts(path)
    for statement in (
        "UPDATE states SET state = 'open' WHERE position = 1",
        "DELETE FROM states WHERE position = 3",
        "UPDATE tallies SET number = 7",
        "DELETE FROM work",
    ):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)
        assert facts(path) == expected
        assert "a.sqlite: some states or counts" in caplog.messages[-1]
    assert len(caplog.messages) == 4
    facts(path)
    assert len(caplog.messages) == 4


def test_a_log_without_a_chain_gets_one_when_it_is_opened(tmp_path):
    path = tmp_path / "a.sqlite"
    fill(path)
    expected = facts(path)
    without_chain(path)
    assert facts(path) == expected
    path.write_bytes(path.read_bytes().replace(b"the border of the mask", b"the border of the bask"))
    with pytest.raises(ValueError, match=r"a\.sqlite, row 8"):
        Decisions(path)


def test_damage_of_a_log_without_a_chain_is_no_raw_error(tmp_path):
    path, draws = tmp_path / "a.sqlite", random.Random(0)
    fill(path)
    without_chain(path)
    content = path.read_bytes()
    written = [position for position, byte in enumerate(content) if byte]
    for position in draws.sample(written, 60):
        damaged = bytearray(content)
        damaged[position] ^= 1 << draws.randrange(8)
        path.write_bytes(damaged)
        try:
            facts(path)
        except (ValueError, OSError) as error:
            assert path.name in str(error) or "no item" in str(error), (position, error)
        for rest in path.parent.glob("a.sqlite-*"):
            rest.unlink()


def test_a_file_whose_tables_are_gone_is_not_begun_again(tmp_path, content):
    path = tmp_path / "a.sqlite"
    damaged = bytearray(content)
    damaged[103:105] = bytes(2)  # the number of tables
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"a\.sqlite .*damaged"):
        Decisions(path)
    assert path.read_bytes() == damaged
