"""The annotators' decisions, in an append-only log that several processes and threads can write to."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from hfcomp.data.annotations.chain import ENTRY, Rows, derive_states, entry
from hfcomp.data.annotations.database import Database
from hfcomp.data.annotations.entries import (
    ACTIONS,
    STATES,
    Accepted,
    Action,
    Edit,
    Entry,
    Item,
    Quality,
    State,
    check_quality,
    check_reason,
    decider,
    decode,
    decode_mapping,
    decode_quality,
    encode,
    first_spellings,
    is_same_person,
    person_name,
)
from hfcomp.data.annotations.leases import Leases

__all__ = ["Decisions", "Entry"]

_CHUNK = 1000
"""Number of items or rows written or read at a time."""
_DONE: dict[Action, str] = {
    "submit": "submitted",
    "skip": "skipped",
    "accept": "accepted",
    "send back": "sent back",
}


class Decisions:
    """The items of a project and the decisions about them.

    A decision is durable when its method returns: killing the process at any moment loses none. An item that
    somebody works on is leased to that person, and nobody else gets it. A lease ends with the decision, or after
    `lease_seconds` without `renew`. After a lease expires, its holder can still decide as long as nobody else got
    the item.

    The log is the only source of truth: the state of an item is derived from its rows (see `rebuild`). Repeating the
    call that made the last decision about an item, such as after an error or a double click, changes nothing.

    An item that was sent back is offered first to the person who annotated it. Others get it after a day
    (`leases.RESERVED_SECONDS`), or at once if it was annotated automatically.

    Names with the same `entries.person_key` belong to one person and count under the first spelling. `AUTOMATIC` may
    submit too; check what a person types with `person_name`.

    Raises:
        ValueError: If the file is of another kind, or the database has another version. Every method raises it if the
            file is damaged, or if the item does not exist.
        OSError: If the file cannot be opened. Every method raises it if the disk is full, and BlockingIOError if
            another program has locked the file; in both cases nothing was changed, and the call can be repeated.
    """

    def __init__(
        self,
        path: Path,
        *,
        lease_seconds: float = 900.0,
        clock: Callable[[], float] = time.time,
        wait_seconds: float = 10.0,
    ) -> None:
        if not lease_seconds > 0:
            raise ValueError(f"lease_seconds: found {lease_seconds:g}, expected more than 0, such as 900.")
        self.path = path
        self._seconds = lease_seconds
        self._clock = clock
        self._database = Database(path, wait_seconds=wait_seconds)

    def add_items(self, items: Iterable[Item]) -> int:
        """Adds the new items in order and returns how many were added.

        Items are written by the thousand. After an error, call it again with all items.
        """
        number, rest = 0, iter(items)
        while chunk := [(item.id, item.concept, encode(item, f"item {item.id}")) for item in islice(rest, _CHUNK)]:
            with self._database.writing() as connection:
                rows = Rows(connection, self.path)
                number += sum(rows.add(*row) for row in chunk)
        return number

    def item(self, name: str) -> Item:
        with self._database.reading() as connection:
            rows = Rows(connection, self.path)
            return rows.item(rows.position(name))

    def items(self, *, state: State | None = None, concept: str | None = None) -> Iterator[Item]:
        """Yields the items in the order in which they were added, leased ones too."""
        query = (
            "SELECT position, content FROM items JOIN states USING (position) WHERE position > :after "
            "AND (:state IS NULL OR state = :state) AND (:concept IS NULL OR states.concept = :concept) "
            "ORDER BY position LIMIT :limit"
        )
        for position, content in self._pages(query, {"state": state, "concept": concept}):
            yield decode(Item, content, f"{self.path}, item {position}")

    def concepts(self) -> list[str]:
        with self._database.reading() as connection:
            return [name for (name,) in connection.execute("SELECT DISTINCT concept FROM tallies ORDER BY concept")]

    def state(self, name: str) -> State:
        with self._database.reading() as connection:
            rows = Rows(connection, self.path)
            return rows.standing(rows.position(name)).state

    def next_item(self, person: str, *, concept: str | None = None) -> Item | None:
        """Returns the item that a person holds; otherwise leases them the first open item that nobody holds.

        The held item is returned whatever its concept: `release` it first to change the concept. After `undo` a person
        may hold several items, and the last one comes first.
        """
        return self._next(decider(person), concept, is_review=False)

    def take(self, person: str, item: str) -> bool:
        """Leases an open item to a person; returns False if it was decided or somebody else holds it."""
        with self._database.writing(is_durable=False) as connection:
            rows, leases = self._rows_and_leases(connection, decider(person))
            position = rows.position(item)
            if rows.standing(position).state != "open" or leases.other(position) is not None:
                return False
            leases.take(position, is_review=False, seconds=self._seconds)
            return True

    def peek_item(self, person: str, *, concept: str | None = None) -> Item | None:
        """Returns the item that `next_item` would return after the one that the person holds, without leasing it."""
        with self._database.reading() as connection:
            rows, leases = self._rows_and_leases(connection, decider(person))
            held = leases.held_items(is_review=False)
            position = held[1] if len(held) > 1 else leases.free_item(concept)
            return None if position is None else rows.item(position)

    def next_review(self, person: str, *, concept: str | None = None) -> tuple[Item, Edit] | None:
        """Leases the reviewer somebody else's annotated item: the one they hold, otherwise the longest waiting."""
        item = self._next(person_name(person), concept, is_review=True)
        return None if item is None else (item, self.edit(item.id))

    def edit(self, item: str) -> Edit:
        with self._database.reading() as connection:
            rows = Rows(connection, self.path)
            standing = rows.standing(rows.position(item))
            if standing.submission is None:
                raise ValueError(f"Item {item} is {standing.state}: it has no edit.")
            return rows.edit(standing.submission)

    def renew(self, person: str, item: str) -> bool:
        """Extends a person's leases; returns whether the person still holds the item."""
        with self._database.writing(is_durable=False) as connection:
            rows, leases = self._rows_and_leases(connection, decider(person))
            leases.renew(self._seconds)
            lease = leases.lease(rows.position(item))
            return lease is not None and lease.person == leases.person

    def release(self, person: str) -> None:
        """Ends a person's leases; drafts are kept."""
        with self._database.writing(is_durable=False) as connection:
            name = Rows(connection, self.path).spelling(decider(person))
            connection.execute("DELETE FROM leases WHERE person = ?", (name,))

    def save_draft(self, person: str, item: str, draft: Mapping[str, Any]) -> None:
        """Saves a person's unfinished work on an item, replacing an earlier draft. A decision deletes the draft."""
        # Not forced to disk, because this runs at every brush stroke. A power failure may lose the last drafts; a
        # killed process loses none.
        content = encode(draft, f"draft of {item}")
        with self._database.writing(is_durable=False) as connection:
            rows = Rows(connection, self.path)
            row = (rows.spelling(decider(person)), rows.position(item), content)
            connection.execute("INSERT OR REPLACE INTO drafts VALUES (?, ?, ?)", row)

    def draft(self, person: str, item: str) -> Mapping[str, Any] | None:
        with self._database.reading() as connection:
            rows = Rows(connection, self.path)
            key = (rows.spelling(decider(person)), rows.position(item))
            row = connection.execute("SELECT content FROM drafts WHERE person = ? AND position = ?", key).fetchone()
        return None if row is None else decode_mapping(row[0], f"{self.path}, draft of {item}")

    def submit(self, person: str, item: str, edit: Edit) -> None:
        """Open -> annotated. Like all decisions, raises ValueError if the item was decided or reassigned since."""
        self._decide(decider(person), item, "submit", encode(edit, f"edit of {item}"), "open")

    def skip(self, person: str, item: str, reason: str) -> None:
        """Open -> skipped."""
        content = encode({"reason": check_reason(reason, f"Skipping {item}")}, item)
        self._decide(decider(person), item, "skip", content, "open")

    def accept(self, person: str, item: str, quality: Quality) -> None:
        """Annotated -> accepted, by someone other than the person who submitted it."""
        content = encode({"quality": check_quality(quality, f"Accepting {item}")}, item)
        self._decide(person_name(person), item, "accept", content, "annotated")

    def send_back(self, person: str, item: str, reason: str) -> None:
        """Annotated -> open, offered first to the person who submitted it."""
        content = encode({"reason": check_reason(reason, f"Sending back {item}")}, item)
        self._decide(person_name(person), item, "send back", content, "annotated")

    def undo(self, person: str) -> Item | None:
        """Undoes a person's last decision that was not undone yet and leases them its item; None if there is none.

        Raises:
            ValueError: If somebody has made a later decision about the item, or works on it now.
        """
        with self._database.writing() as connection:
            rows, leases = self._rows_and_leases(connection, decider(person))
            last = rows.last_by(leases.person)
            if last is None:
                return None
            position = rows.position(last.item)
            above, other = rows.last(last.item), leases.other(position)
            if above is not None and above.number != last.number:
                raise ValueError(
                    f"{last.item} was {_DONE[above.action]} by {above.person} after your decision, so you can no "
                    f"longer undo it. Ask {above.person} to undo theirs first."
                )
            if other is not None:
                raise ValueError(
                    f"{other} has started to work on {last.item} since your decision, so you cannot undo it now. Try "
                    "again later."
                )
            standing = rows.append(leases.now, leases.person, last.item, "undo", undoes=last.number)
            leases.take(position, is_review=standing.state == "annotated", seconds=self._seconds)
            return rows.item(position)

    def counts(self, *, concept: str | None = None) -> dict[State, int]:
        condition = "" if concept is None else " WHERE concept = :concept"
        with self._database.reading() as connection:
            query = f"SELECT state, SUM(number) FROM tallies{condition} GROUP BY state"
            numbers = dict(connection.execute(query, {"concept": concept}))
        return {state: numbers.get(state, 0) for state in STATES}

    def by_person(self) -> dict[str, dict[Action, int]]:
        """Counts each person's decisions, under the first spelling of the name. Undone decisions do not count."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT person, action, number FROM work ORDER BY person").fetchall()
        spellings = first_spellings(person for person, _, _ in rows)
        people: dict[str, dict[Action, int]] = {}
        for person, action, number in rows:
            people.setdefault(spellings[person], {name: 0 for name in ACTIONS if name != "undo"})[action] += number
        return people

    def accepted(self) -> Iterator[Accepted]:
        """Yields the finished items, in the order in which they were added."""
        query = (
            "SELECT position, items.content, edits.content, annotator, reviews.person, reviews.content FROM states "
            "JOIN items USING (position) JOIN log AS edits ON edits.number = submission "
            "JOIN log AS reviews ON reviews.number = acceptance "
            "WHERE state = 'accepted' AND position > :after ORDER BY position LIMIT :limit"
        )
        for position, item, edit, annotator, reviewer, review in self._pages(query, {}):
            where = f"{self.path}, item {position}"
            quality = decode_quality(review, where)
            yield Accepted(decode(Item, item, where), decode(Edit, edit, where), annotator, reviewer, quality)

    def log(self, *, item: str | None = None) -> Iterator[Entry]:
        """Yields every decision ever made, in order; with `item`, only those about the item with that id."""
        condition = "" if item is None else " AND item = :item"
        query = f"SELECT {ENTRY} FROM log WHERE number > :after{condition} ORDER BY number LIMIT :limit"
        for row in self._pages(query, {"item": item}):
            yield entry(row, self.path)

    def newest(self, number: int) -> list[Entry]:
        """Returns the last decisions, the newest first."""
        with self._database.reading() as connection:
            query = f"SELECT {ENTRY} FROM log ORDER BY number DESC LIMIT ?"
            return [entry(row, self.path) for row in connection.execute(query, (number,))]

    def rebuild(self) -> int:
        """Derives the states of all items from the log again; returns how many were wrong, 0 in an intact file."""
        with self._database.writing() as connection:
            return derive_states(connection)

    def close(self) -> None:
        self._database.close()

    def _next(self, person: str, concept: str | None, *, is_review: bool) -> Item | None:
        with self._database.writing(is_durable=False) as connection:
            rows, leases = self._rows_and_leases(connection, person)
            held = leases.held_items(is_review=is_review)
            if held:
                leases.renew(self._seconds)
                return rows.item(held[0])
            position = leases.free_review(concept) if is_review else leases.free_item(concept)
            if position is None:
                return None
            leases.take(position, is_review=is_review, seconds=self._seconds)
            return rows.item(position)

    def _decide(self, person: str, item: str, action: Action, content: str, state: State) -> None:
        # The checks and the decision form one transaction: otherwise somebody else could decide between them.
        with self._database.writing() as connection:
            rows, leases = self._rows_and_leases(connection, person)
            person, position, last = leases.person, rows.position(item), rows.last(item)
            # Browsers repeat a request if the response was lost, and people click twice.
            if last and (last.person, last.action, encode(last.content, item)) == (person, action, content):
                return  # a repeated call
            standing = rows.standing(position)
            if standing.state != state:
                since = f"{_DONE[last.action]} by {last.person}" if last else standing.state
                raise ValueError(
                    f"{item} was {since} in the meantime, so this decision was not saved. Take the next item."
                )
            if state == "annotated" and is_same_person(standing.annotator, person):
                raise ValueError(f"{person} annotated {item}. Somebody else must review it.")
            other, lease = leases.other(position), leases.lease(position)
            if other is not None:
                raise ValueError(
                    f"{item} was given to {other} in the meantime, so this decision was not saved. Take the next item."
                )
            taken = lease.taken if lease and lease.person == person else None
            rows.append(leases.now, person, item, action, content, taken=taken)

    def _rows_and_leases(self, connection: sqlite3.Connection, person: str) -> tuple[Rows, Leases]:
        rows = Rows(connection, self.path)
        return rows, Leases(connection, rows.spelling(person), self._clock())

    def _pages(self, query: str, values: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        # Each query is limited, and the next one continues after the first column of its last row. No transaction
        # stays open while the caller works, because it would keep the write-ahead log growing.
        after = 0
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(query, {**values, "after": after, "limit": _CHUNK}).fetchall()
            yield from rows
            if len(rows) < _CHUNK:
                return
            after = rows[-1][0]
