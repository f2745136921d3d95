"""Hash chains of the items and the log: each row is hashed with the previous hash, so no change goes unnoticed.

There is one chain for items and one for decisions. The states and counts in the other tables are derived from the two.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple
from itertools import zip_longest
from pathlib import Path
from typing import Any

from hfcomp.data.annotations.entries import Action, Edit, Entry, Item, Standing, decode, decode_mapping, standing

# Key column and hashed columns of each table that has a chain.
_TABLES = {
    "items": ("position", "position, id, concept, content"),
    "log": ("number", "number, time, person, item, action, content, taken, undoes"),
}
_DERIVED = ("states", "tallies", "work")


def extend_chain(connection: sqlite3.Connection, table: str, number: int) -> None:
    # Read the row back, so the hash covers what the file contains after SQLite's own type conversions.
    key, columns = _TABLES[table]
    last = connection.execute("SELECT hash FROM chains WHERE source = ? ORDER BY number DESC LIMIT 1", (table,))
    row = connection.execute(f"SELECT {columns} FROM {table} WHERE {key} = ?", (number,)).fetchone()
    (previous,) = last.fetchone() or ("",)
    connection.execute("INSERT INTO chains VALUES (?, ?, ?)", (table, number, _hash(previous, row)))


def begin_chain(connection: sqlite3.Connection, path: Path) -> None:
    """Hashes all rows of a file that was written before chains existed."""
    # Validate the content first: a chain over damaged rows would vouch for them from now on.
    for table in _TABLES:
        for row in _rows(connection, table):
            content, where = row[3 if table == "items" else 5], _place(path, table, row[0])
            if not isinstance(content, str):
                raise ValueError(f"{where}: not JSON. Restore the file from a backup.")
            _ = decode(Item, content, where) if table == "items" else decode_mapping(content, where)
            extend_chain(connection, table, row[0])


def check_chain(connection: sqlite3.Connection, path: Path) -> None:
    """Checks every item and decision against its hash."""
    for table in _TABLES:
        stored = connection.execute("SELECT number, hash FROM chains WHERE source = ? ORDER BY number", (table,))
        previous = ""
        # Compare to the end of the longer one: a row without a hash or a hash without a row is damage too.
        for row, link in zip_longest(_rows(connection, table), stored):
            previous = _hash(previous, row) if row else ""
            if not row or link != (row[0], previous):
                raise ValueError(
                    f"{_place(path, table, (row or link)[0])}: its hash does not match, so the file was damaged or "
                    "changed by another program. The rows before it are intact. Restore the file from a backup."
                )


def differing_states(connection: sqlite3.Connection) -> int | None:
    """Counts the items whose state does not follow from the log; None if all states and counts are right."""
    derived, stored = _derive_tables(connection), {name: _read_table(connection, name) for name in _DERIVED}
    if derived == stored:
        return None
    return len({row[0] for row in derived["states"] ^ stored["states"]})


def derive_states(connection: sqlite3.Connection) -> int:
    """Writes the states and counts that follow from the log; returns how many items had a different state."""
    different = differing_states(connection)
    if different is None:
        return 0
    derived = _derive_tables(connection)
    for name in _DERIVED:
        connection.execute(f"DELETE FROM {name}")
    connection.executemany("INSERT INTO states VALUES (?, ?, ?, ?, ?, ?, ?, ?)", sorted(derived["states"]))
    connection.executemany("INSERT INTO work VALUES (?, ?, ?)", sorted(derived["work"]))
    return different  # a trigger has updated the tallies


def _derive_tables(connection: sqlite3.Connection) -> dict[str, set[tuple[Any, ...]]]:
    # An undo counts against the person and action of the decision that it undoes.
    decisions: dict[str, list[tuple[Any, ...]]] = {}
    deciders: dict[int, tuple[str, str]] = {}
    work: Counter[tuple[str, str]] = Counter()
    for number, time, person, item, action, _, _, undoes in _rows(connection, "log"):
        decisions.setdefault(item, []).append((number, time, person, action, undoes))
        deciders[number] = (person, action)
        work[deciders.get(number if undoes is None else undoes, ("", ""))] += 1 if undoes is None else -1
    states = {
        (position, concept, *astuple(standing(decisions.get(name, ()))))
        for position, name, concept, _ in _rows(connection, "items")
    }
    tallies = Counter((concept, state) for _, concept, state, *_ in states)
    return {
        "states": states,
        "tallies": {(*key, number) for key, number in tallies.items()},
        "work": {(*key, number) for key, number in work.items() if number},
    }


def _read_table(connection: sqlite3.Connection, name: str) -> set[tuple[Any, ...]]:
    # A count of 0, which a trigger leaves after an undo, is the same as no row.
    nonzero = "" if name == "states" else " WHERE number <> 0"
    return set(connection.execute(f"SELECT * FROM {name}{nonzero}"))


def _rows(connection: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    key, columns = _TABLES[table]
    return connection.execute(f"SELECT {columns} FROM {table} ORDER BY {key}")


def _hash(previous: str, row: tuple[Any, ...]) -> str:
    # `default=repr`: a damaged row may contain bytes.
    text = json.dumps([previous, *row], separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def _place(path: Path, table: str, number: int) -> str:
    return f"{path}, {'item' if table == 'items' else 'row'} {number}{' of the log' * (table == 'log')}"


ENTRY = "number, time, person, item, action, content, taken, undoes"
"""Columns of the log."""
_STANDING = "state, annotator, submission, acceptance, returned_to, returned_time"


class Rows:
    """Reads and writes the rows of a database. The caller opens a transaction before writing."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def position(self, name: str) -> int:
        row = self._connection.execute("SELECT position FROM items WHERE id = ?", (name,)).fetchone()
        if row is None:
            raise ValueError(f"{self._path} has no item {name!r}.")
        return row[0]

    def item(self, position: int) -> Item:
        row = self._connection.execute("SELECT content FROM items WHERE position = ?", (position,)).fetchone()
        return decode(Item, row[0], f"{self._path}, item {position}")

    def edit(self, number: int) -> Edit:
        row = self._connection.execute("SELECT content FROM log WHERE number = ?", (number,)).fetchone()
        return decode(Edit, row[0], f"{self._path}, row {number} of the log")

    def standing(self, position: int) -> Standing:
        row = self._connection.execute(f"SELECT {_STANDING} FROM states WHERE position = ?", (position,))
        return Standing(*row.fetchone())

    def last(self, name: str) -> Entry | None:
        """Returns the last decision about an item that was not undone."""
        return self._last("item", name)

    def last_by(self, person: str) -> Entry | None:
        """Returns a person's last decision that was not undone."""
        return self._last("person", person)

    def spelling(self, person: str) -> str:
        """Returns the first stored spelling of a person's name, such as Anna for anna; a new name stays as it is."""
        row = self._connection.execute(
            "SELECT person FROM (SELECT DISTINCT person, 0 AS place FROM work UNION SELECT person, 1 FROM leases "
            "UNION SELECT DISTINCT person, 2 FROM drafts) WHERE is_same_person(person, ?) "
            "ORDER BY place, person LIMIT 1",
            (person,),
        ).fetchone()
        return person if row is None else row[0]

    def add(self, name: str, concept: str, content: str) -> bool:
        """Adds an item; returns whether it is new."""
        # Repeating the command that adds candidates must change nothing. Different content under the same id would
        # turn decisions about one image into decisions about another.
        before = self._connection.execute("SELECT content FROM items WHERE id = ?", (name,)).fetchone()
        if before is not None:
            if before[0] != content:
                raise ValueError(
                    f"{self._path}: item {name} already exists with a different {_difference(before[0], content)}. "
                    "Use another folder for a different selection of candidates."
                )
            return False
        row = (name, concept, content)
        added = self._connection.execute("INSERT INTO items (id, concept, content) VALUES (?, ?, ?)", row)
        extend_chain(self._connection, "items", added.lastrowid)
        self._connection.execute(
            "INSERT INTO states (position, concept, state) VALUES (?, ?, 'open')", (added.lastrowid, concept)
        )
        return True

    def append(
        self,
        time: float,
        person: str,
        item: str,
        action: Action,
        content: str = "{}",
        *,
        taken: float | None = None,
        undoes: int | None = None,
    ) -> Standing:
        """Writes a decision, deletes the item's lease and the person's draft, and returns the item's new state."""
        row = (time, person, item, action, content, taken, undoes)
        added = self._connection.execute(
            "INSERT INTO log (time, person, item, action, content, taken, undoes) VALUES (?, ?, ?, ?, ?, ?, ?)", row
        )
        extend_chain(self._connection, "log", added.lastrowid)
        position = self.position(item)
        self._connection.execute("DELETE FROM leases WHERE position = ?", (position,))
        self._connection.execute("DELETE FROM drafts WHERE person = ? AND position = ?", (person, position))
        return self.derive(position, item)

    def derive(self, position: int, name: str) -> Standing:
        """Derives the state of an item from the log, stores it and returns it."""
        state = standing(
            self._connection.execute(
                "SELECT number, time, person, action, undoes FROM log WHERE item = ? ORDER BY number", (name,)
            )
        )
        self._connection.execute(
            f"UPDATE states SET ({_STANDING}) = (?, ?, ?, ?, ?, ?) WHERE position = ?", (*astuple(state), position)
        )
        return state

    def _last(self, column: str, value: str) -> Entry | None:
        row = self._connection.execute(
            f"SELECT {ENTRY} FROM log WHERE {column} = ? AND action <> 'undo' AND NOT EXISTS "
            "(SELECT 1 FROM log AS later WHERE later.undoes = log.number) ORDER BY number DESC LIMIT 1",
            (value,),
        ).fetchone()
        return None if row is None else entry(row, self._path)


def entry(row: tuple[Any, ...], path: Path) -> Entry:
    """Converts a row with the columns of `ENTRY`."""
    number, time, person, item, action, content, taken, undoes = row
    fields = decode_mapping(content, f"{path}, row {number} of the log") if undoes is None else {"undoes": undoes}
    return Entry(number, time, person, item, action, fields, taken)


def _difference(before: str, content: str) -> str:
    first, second = decode_mapping(before, "stored item"), decode_mapping(content, "item")
    return ", ".join(name for name in second if first.get(name) != second[name]) or "field"
