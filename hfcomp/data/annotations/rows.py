"""Rows of the database as records, and the one way in which a decision is written."""

from __future__ import annotations

import sqlite3
from dataclasses import astuple
from pathlib import Path
from typing import Any

from hfcomp.data.annotations.chain import extend_chain
from hfcomp.data.annotations.entries import Entry, Standing, decode, decode_mapping, standing
from hfcomp.data.annotations.records import Action, Edit, Item

ENTRY = "number, time, person, item, action, content, taken, undoes"
"""Columns of the log."""
_STANDING = "state, annotator, submission, acceptance, returned_to, returned_time"


class Rows:
    """The rows of a database, inside a transaction of the caller where something is written.

    Args:
        connection: to the database.
        path: of its file, for errors.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def position(self, name: str) -> int:
        """The position of an item.

        Raises:
            ValueError: for one that is not there.
        """
        found = self._connection.execute("SELECT position FROM items WHERE id = ?", (name,)).fetchone()
        if found is None:
            raise ValueError(f"{self._path} has no item {name!r}.")
        return found[0]

    def item(self, position: int) -> Item:
        """The item at a position."""
        found = self._connection.execute("SELECT content FROM items WHERE position = ?", (position,)).fetchone()
        return decode(Item, found[0], f"{self._path}, item {position}")

    def edit(self, number: int) -> Edit:
        """The edit of a row of the log."""
        found = self._connection.execute("SELECT content FROM log WHERE number = ?", (number,)).fetchone()
        return decode(Edit, found[0], f"{self._path}, row {number} of the log")

    def standing(self, position: int) -> Standing:
        """The state of the item at a position, as it is stored."""
        found = self._connection.execute(f"SELECT {_STANDING} FROM states WHERE position = ?", (position,))
        return Standing(*found.fetchone())

    def last(self, name: str) -> Entry | None:
        """The last decision about an item that was not undone."""
        return self._last("item", name)

    def last_of(self, person: str) -> Entry | None:
        """The last decision of a person that was not undone."""
        return self._last("person", person)

    def spelling(self, person: str) -> str:
        """A name as the same person was first written here, such as Anna for anna; itself for somebody new."""
        found = self._connection.execute(
            "SELECT person FROM (SELECT DISTINCT person, 0 AS place FROM work UNION SELECT person, 1 FROM leases "
            "UNION SELECT DISTINCT person, 2 FROM drafts) WHERE is_same_person(person, ?) "
            "ORDER BY place, person LIMIT 1",
            (person,),
        ).fetchone()
        return person if found is None else found[0]

    def add(self, name: str, concept: str, content: str) -> bool:
        """Adds an item; whether it is new.

        Raises:
            ValueError: for one that is there with other content.
        """
        before = self._connection.execute("SELECT content FROM items WHERE id = ?", (name,)).fetchone()
        if before is not None:
            if before[0] != content:
                raise ValueError(
                    f"{self._path}: item {name} is there with other {_difference(before[0], content)}. Use another "
                    "folder for another choice of candidates."
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
        """Writes a decision, ends the lease and the person's draft of the item, and returns its state from now on."""
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
        """Stores and returns the state of an item that follows from the log."""
        found = standing(
            self._connection.execute(
                "SELECT number, time, person, action, undoes FROM log WHERE item = ? ORDER BY number", (name,)
            )
        )
        self._connection.execute(
            f"UPDATE states SET ({_STANDING}) = (?, ?, ?, ?, ?, ?) WHERE position = ?", (*astuple(found), position)
        )
        return found

    def _last(self, column: str, value: str) -> Entry | None:
        found = self._connection.execute(
            f"SELECT {ENTRY} FROM log WHERE {column} = ? AND action <> 'undo' AND NOT EXISTS "
            "(SELECT 1 FROM log AS later WHERE later.undoes = log.number) ORDER BY number DESC LIMIT 1",
            (value,),
        ).fetchone()
        return None if found is None else entry(found, self._path)


def entry(row: tuple[Any, ...], path: Path) -> Entry:
    """A row of the log, by the columns of `ENTRY`.

    Raises:
        ValueError: for content that is not JSON, naming the file of the database and the row.
    """
    number, time, person, item, action, content, taken, undoes = row
    found = decode_mapping(content, f"{path}, row {number} of the log") if undoes is None else {"undoes": undoes}
    return Entry(number, time, person, item, action, found, taken)


def _difference(before: str, content: str) -> str:
    """The fields in which an item differs from the stored one."""
    first, second = decode_mapping(before, "stored item"), decode_mapping(content, "item")
    return ", ".join(name for name in second if first.get(name) != second[name]) or "fields"
