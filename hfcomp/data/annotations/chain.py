"""The hash chain of a log: every row is hashed together with the hash before it, so no row changes unseen.

Items have a chain, and decisions have one. The states and counts that the other tables hold follow from the two.
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

from hfcomp.data.annotations.entries import decode, decode_mapping, standing
from hfcomp.data.annotations.records import Item

# Of each table with a chain: what names a row, and all columns.
_TABLES = {
    "items": ("position", "position, id, concept, content"),
    "log": ("number", "number, time, person, item, action, content, taken, undoes"),
}
_DERIVED = ("states", "tallies", "work")


def extend_chain(connection: sqlite3.Connection, table: str, number: int) -> None:
    """Hashes the row that was written last to `items` or `log`, as it is stored."""
    key, columns = _TABLES[table]
    last = connection.execute("SELECT hash FROM chains WHERE source = ? ORDER BY number DESC LIMIT 1", (table,))
    row = connection.execute(f"SELECT {columns} FROM {table} WHERE {key} = ?", (number,)).fetchone()
    (previous,) = last.fetchone() or ("",)
    connection.execute("INSERT INTO chains VALUES (?, ?, ?)", (table, number, _hash(previous, row)))


def begin_chain(connection: sqlite3.Connection, path: Path) -> None:
    """Hashes all rows of a log from before there were chains.

    Raises:
        ValueError: for a row that cannot be read.
    """
    for table in _TABLES:
        for row in _rows(connection, table):
            content, where = row[3 if table == "items" else 5], _place(path, table, row[0])
            if not isinstance(content, str):
                raise ValueError(f"{where}: not JSON. Put back a copy of the file.")
            _ = decode(Item, content, where) if table == "items" else decode_mapping(content, where)
            extend_chain(connection, table, row[0])


def check_chain(connection: sqlite3.Connection, path: Path) -> None:
    """Checks every item and decision against its hash.

    Args:
        connection: inside a transaction, so that all is of one moment.
        path: of the file, for errors.

    Raises:
        ValueError: naming the first row that is not as it was written.
    """
    for table in _TABLES:
        stored = connection.execute("SELECT number, hash FROM chains WHERE source = ? ORDER BY number", (table,))
        previous = ""
        for row, link in zip_longest(_rows(connection, table), stored):
            previous = _hash(previous, row) if row else ""
            if not row or link != (row[0], previous):
                raise ValueError(
                    f"{_place(path, table, (row or link)[0])}: not as it was written, so the file was damaged or "
                    "changed by another program. The rows before it are intact. Put back a copy of the file."
                )


def differing_states(connection: sqlite3.Connection) -> int | None:
    """How many items have another state than follows from the log; None where counts and states are right."""
    derived, stored = _derived(connection), {name: _stored(connection, name) for name in _DERIVED}
    if derived == stored:
        return None
    return len({row[0] for row in derived["states"] ^ stored["states"]})


def derive_states(connection: sqlite3.Connection) -> int:
    """Writes the states and counts that follow from the log; returns how many items had another state."""
    different = differing_states(connection)
    if different is None:
        return 0
    derived = _derived(connection)
    for name in _DERIVED:
        connection.execute(f"DELETE FROM {name}")
    connection.executemany("INSERT INTO states VALUES (?, ?, ?, ?, ?, ?, ?, ?)", sorted(derived["states"]))
    connection.executemany("INSERT INTO work VALUES (?, ?, ?)", sorted(derived["work"]))
    return different  # a trigger has counted the states


def _derived(connection: sqlite3.Connection) -> dict[str, set[tuple[Any, ...]]]:
    """The rows of the tables that follow from items and log."""
    decisions: dict[str, list[tuple[Any, ...]]] = {}
    made: dict[int, tuple[str, str]] = {}
    work: Counter[tuple[str, str]] = Counter()
    for number, time, person, item, action, _, _, undoes in _rows(connection, "log"):
        decisions.setdefault(item, []).append((number, time, person, action, undoes))
        made[number] = (person, action)
        work[made.get(number if undoes is None else undoes, ("", ""))] += 1 if undoes is None else -1
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


def _stored(connection: sqlite3.Connection, name: str) -> set[tuple[Any, ...]]:
    """The rows of a table that follows from others; a count of 0 is as good as none."""
    counted = "" if name == "states" else " WHERE number <> 0"
    return set(connection.execute(f"SELECT * FROM {name}{counted}"))


def _rows(connection: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    key, columns = _TABLES[table]
    return connection.execute(f"SELECT {columns} FROM {table} ORDER BY {key}")


def _hash(previous: str, row: tuple[Any, ...]) -> str:
    """Of the hash before and a row in canonical JSON; a damaged row may hold bytes."""
    text = json.dumps([previous, *row], separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def _place(path: Path, table: str, number: int) -> str:
    return f"{path}, {'item' if table == 'items' else 'row'} {number}{' of the log' * (table == 'log')}"
