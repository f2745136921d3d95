"""What annotators decided, in an append-only log that several processes and threads write to."""

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
"""Items or rows that are written or read at a time."""
_DONE: dict[Action, str] = {
    "submit": "submitted",
    "skip": "skipped",
    "accept": "accepted",
    "send back": "sent back",
}


class Decisions:
    """The items of a project and what was decided about them.

    A decision is durable when its method returns: a process that is killed at any moment loses none. An item that
    somebody works on is leased to them, so that nobody else is given it; a lease ends with the decision, or after
    `lease_seconds` without `renew`. Who was too slow can still decide as long as nobody else was given the item.

    The log is the whole truth: the state of an item follows from its rows, see `rebuild`. Repeating a call that was
    the last decision about an item, such as after an error or a double click, changes nothing.

    An item that was sent back comes first for the person who annotated it. Others are given it after a day
    (`leases.RESERVED_SECONDS`), or at once where it was annotated automatically.

    Names of one person by `entries.person_key` count as the one that was written first. `AUTOMATIC` may submit, too;
    ask `person_name` for what somebody types.

    Raises:
        ValueError: for another kind of file, or a database of another version. Every method raises it for a
            damaged file, and for an item that is not known.
        OSError: for a file that cannot be opened. Every method raises it for a full disk, and BlockingIOError for a
            file that another program has locked; nothing was changed then, and the call can be repeated.
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
        """Adds the items that are new, in their order; returns how many those are.

        They are written by the thousand: after an error, call it again with all of them.
        """
        number, rest = 0, iter(items)
        while chunk := [(one.id, one.concept, encode(one, f"item {one.id}")) for one in islice(rest, _CHUNK)]:
            with self._database.writing() as connection:
                rows = Rows(connection, self.path)
                number += sum(rows.add(*row) for row in chunk)
        return number

    def item(self, name: str) -> Item:
        with self._database.reading() as connection:
            rows = Rows(connection, self.path)
            return rows.item(rows.position(name))

    def items(self, *, state: State | None = None, concept: str | None = None) -> Iterator[Item]:
        """Items in the order in which they were added, also those that somebody holds."""
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
        """The item that a person holds, else the first open one that nobody holds, leased to the person.

        The item that is held is given whatever its concept: `release` it first to change the concept. After `undo` a
        person may hold several, of which the last comes first.
        """
        return self._next(decider(person), concept, is_review=False)

    def take(self, person: str, item: str) -> bool:
        """Leases an open item to a person; False for one that was decided or that somebody else has."""
        with self._database.writing(is_durable=False) as connection:
            rows, leases = self._rows_and_leases(connection, decider(person))
            position = rows.position(item)
            if rows.standing(position).state != "open" or leases.other(position) is not None:
                return False
            leases.take(position, is_review=False, seconds=self._seconds)
            return True

    def peek_item(self, person: str, *, concept: str | None = None) -> Item | None:
        """What `next_item` would give after the item that the person holds; leases nothing."""
        with self._database.reading() as connection:
            rows, leases = self._rows_and_leases(connection, decider(person))
            held = leases.held(is_review=False)
            position = held[1] if len(held) > 1 else leases.free_item(concept)
            return None if position is None else rows.item(position)

    def next_review(self, person: str, *, concept: str | None = None) -> tuple[Item, Edit] | None:
        """An annotated item of somebody else, leased to the reviewer: the one they hold, else the longest waiting."""
        found = self._next(person_name(person), concept, is_review=True)
        return None if found is None else (found, self.edit(found.id))

    def edit(self, item: str) -> Edit:
        with self._database.reading() as connection:
            rows = Rows(connection, self.path)
            found = rows.standing(rows.position(item))
            if found.submission is None:
                raise ValueError(f"Item {item} is {found.state}: it has no edit.")
            return rows.edit(found.submission)

    def renew(self, person: str, item: str) -> bool:
        """Prolongs the leases of a person; whether the person holds the item still."""
        with self._database.writing(is_durable=False) as connection:
            rows, leases = self._rows_and_leases(connection, decider(person))
            leases.renew(self._seconds)
            lease = leases.of(rows.position(item))
            return lease is not None and lease.person == leases.person

    def release(self, person: str) -> None:
        """Gives back what a person holds; drafts are kept."""
        with self._database.writing(is_durable=False) as connection:
            name = Rows(connection, self.path).spelling(decider(person))
            connection.execute("DELETE FROM leases WHERE person = ?", (name,))

    def save_draft(self, person: str, item: str, draft: Mapping[str, Any]) -> None:
        """Keeps what a person has made of an item so far, in place of an earlier draft; lost with a decision."""
        # Not forced to disk, because this runs at every stroke of the brush. A power failure may lose the last drafts,
        # a killed process loses none.
        content = encode(draft, f"draft of {item}")
        with self._database.writing(is_durable=False) as connection:
            rows = Rows(connection, self.path)
            row = (rows.spelling(decider(person)), rows.position(item), content)
            connection.execute("INSERT OR REPLACE INTO drafts VALUES (?, ?, ?)", row)

    def draft(self, person: str, item: str) -> Mapping[str, Any] | None:
        with self._database.reading() as connection:
            rows = Rows(connection, self.path)
            key = (rows.spelling(decider(person)), rows.position(item))
            found = connection.execute("SELECT content FROM drafts WHERE person = ? AND position = ?", key).fetchone()
        return None if found is None else decode_mapping(found[0], f"{self.path}, draft of {item}")

    def submit(self, person: str, item: str, edit: Edit) -> None:
        """Open -> annotated; as in all decisions, ValueError if it was decided or given to somebody else meanwhile."""
        self._decide(decider(person), item, "submit", encode(edit, f"edit of {item}"), "open")

    def skip(self, person: str, item: str, reason: str) -> None:
        """Open -> skipped."""
        content = encode({"reason": check_reason(reason, f"Skipping {item}")}, item)
        self._decide(decider(person), item, "skip", content, "open")

    def accept(self, person: str, item: str, quality: Quality) -> None:
        """Annotated -> accepted, by somebody else than who submitted it."""
        content = encode({"quality": check_quality(quality, f"Accepting {item}")}, item)
        self._decide(person_name(person), item, "accept", content, "annotated")

    def send_back(self, person: str, item: str, reason: str) -> None:
        """Annotated -> open, first for who submitted it."""
        content = encode({"reason": check_reason(reason, f"Sending back {item}")}, item)
        self._decide(person_name(person), item, "send back", content, "annotated")

    def undo(self, person: str) -> Item | None:
        """Takes back a person's last decision that still stands, and leases them its item; None without one.

        Raises:
            ValueError: where somebody has decided on top of it, or works on the item now.
        """
        with self._database.writing() as connection:
            rows, leases = self._rows_and_leases(connection, decider(person))
            last = rows.last_of(leases.person)
            if last is None:
                return None
            position = rows.position(last.item)
            above, other = rows.last(last.item), leases.other(position)
            if above is not None and above.number != last.number:
                raise ValueError(
                    f"{last.item} was {_DONE[above.action]} by {above.person} after you had {_DONE[last.action]} it, "
                    f"which can no longer be undone. Ask {above.person} to undo that first."
                )
            if other is not None:
                raise ValueError(
                    f"{other} works on {last.item} since you {_DONE[last.action]} it, which cannot be undone now. Try "
                    "again later."
                )
            found = rows.append(leases.now, leases.person, last.item, "undo", undoes=last.number)
            leases.take(position, is_review=found.state == "annotated", seconds=self._seconds)
            return rows.item(position)

    def counts(self, *, concept: str | None = None) -> dict[State, int]:
        wanted = "" if concept is None else " WHERE concept = :concept"
        with self._database.reading() as connection:
            query = f"SELECT state, SUM(number) FROM tallies{wanted} GROUP BY state"
            found = dict(connection.execute(query, {"concept": concept}))
        return {state: found.get(state, 0) for state in STATES}

    def by_person(self) -> dict[str, dict[Action, int]]:
        """Standing decisions of each person, by the first spelling: those that were undone do not count."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT person, action, number FROM work ORDER BY person").fetchall()
        spellings = first_spellings(person for person, _, _ in rows)
        found: dict[str, dict[Action, int]] = {}
        for person, action, number in rows:
            found.setdefault(spellings[person], {one: 0 for one in ACTIONS if one != "undo"})[action] += number
        return found

    def accepted(self) -> Iterator[Accepted]:
        """Finished items, in the order in which they were added."""
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
        """Every decision that was ever made, in order; those about one item by its id."""
        wanted = "" if item is None else " AND item = :item"
        query = f"SELECT {ENTRY} FROM log WHERE number > :after{wanted} ORDER BY number LIMIT :limit"
        for row in self._pages(query, {"item": item}):
            yield entry(row, self.path)

    def newest(self, number: int) -> list[Entry]:
        """The last decisions, the newest first."""
        with self._database.reading() as connection:
            query = f"SELECT {ENTRY} FROM log ORDER BY number DESC LIMIT ?"
            return [entry(row, self.path) for row in connection.execute(query, (number,))]

    def rebuild(self) -> int:
        """Derives the state of all items from the log anew; returns how many were different, 0 in a sound file."""
        with self._database.writing() as connection:
            return derive_states(connection)

    def close(self) -> None:
        self._database.close()

    def _next(self, person: str, concept: str | None, *, is_review: bool) -> Item | None:
        with self._database.writing(is_durable=False) as connection:
            rows, leases = self._rows_and_leases(connection, person)
            held = leases.held(is_review=is_review)
            if held:
                leases.renew(self._seconds)
                return rows.item(held[0])
            position = leases.free_review(concept) if is_review else leases.free_item(concept)
            if position is None:
                return None
            leases.take(position, is_review=is_review, seconds=self._seconds)
            return rows.item(position)

    def _decide(self, person: str, item: str, action: Action, content: str, state: State) -> None:
        # The checks and the decision are one transaction: between them somebody else could decide.
        with self._database.writing() as connection:
            rows, leases = self._rows_and_leases(connection, person)
            person, position, last = leases.person, rows.position(item), rows.last(item)
            # A browser repeats a request whose answer was lost, and people click twice.
            if last and (last.person, last.action, encode(last.content, item)) == (person, action, content):
                return  # the same call again
            found = rows.standing(position)
            if found.state != state:
                since = f"{_DONE[last.action]} by {last.person}" if last else found.state
                raise ValueError(f"{item} was {since} meanwhile, so this decision was not saved. Take the next item.")
            if state == "annotated" and is_same_person(found.annotator, person):
                raise ValueError(f"{person} annotated {item}. Somebody else has to review it.")
            other, lease = leases.other(position), leases.of(position)
            if other is not None:
                raise ValueError(
                    f"{item} was given to {other} meanwhile, so this decision was not saved. Take the next item."
                )
            taken = lease.taken if lease and lease.person == person else None
            rows.append(leases.now, person, item, action, content, taken=taken)

    def _rows_and_leases(self, connection: sqlite3.Connection, person: str) -> tuple[Rows, Leases]:
        rows = Rows(connection, self.path)
        return rows, Leases(connection, rows.spelling(person), self._clock())

    def _pages(self, query: str, values: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        # Each query is limited and goes on after the first column of its last row. No transaction is open while the
        # caller works: it would keep the write-ahead log growing.
        after = 0
        while True:
            with self._database.reading() as connection:
                found = connection.execute(query, {**values, "after": after, "limit": _CHUNK}).fetchall()
            yield from found
            if len(found) < _CHUNK:
                return
            after = found[-1][0]
