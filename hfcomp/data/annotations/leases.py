"""Item assignment: picks a person's next item and manages item leases."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from hfcomp.data.annotations.entries import AUTOMATIC

RESERVED_SECONDS = 24 * 3600.0
"""Seconds for which an item that was sent back is reserved for the person who annotated it."""
# An item is free again once its lease was released or has expired.
_FREE = (
    "NOT EXISTS (SELECT 1 FROM leases WHERE leases.position = states.position "
    "AND (leases.expires > :now OR leases.person = :person))"
)
_NEW = "state = 'open' AND returned_to IS NULL"
_OWN = "state = 'open' AND returned_to = :person"
_LEFT = (
    "state = 'open' AND returned_to IS NOT NULL AND (returned_to = :automatic OR returned_time <= :now - :reserved)"
)
_TO_REVIEW = "state = 'annotated' AND NOT is_same_person(annotator, :person)"


@dataclass(frozen=True)
class Lease:
    """A lease of an item.

    Attributes:
        person: Name of the person who holds it.
        taken: Start of the lease, in seconds since 1970.
        expires: Time from which the item may be assigned to others, in seconds since 1970.
    """

    person: str
    taken: float
    expires: float


class Leases:
    """Queries about leases, inside the caller's transaction."""

    def __init__(self, connection: sqlite3.Connection, person: str, now: float) -> None:
        self._connection = connection
        self.person = person
        self.now = now

    def held_items(self, *, is_review: bool) -> list[int]:
        """Returns the positions of the items that the person holds, the last one first."""
        # An expired lease counts until somebody else gets the item: people continue where they left off after lunch.
        rows = self._connection.execute(
            "SELECT position FROM leases WHERE person = ? AND is_review = ? ORDER BY taken DESC, position",
            (self.person, is_review),
        )
        return [position for (position,) in rows]

    def free_item(self, concept: str | None) -> int | None:
        """Returns the position of the next open item that nobody holds.

        Items that were sent back to the person come first, then items that were never sent back, in order. Last come
        items that have been reserved for somebody else for longer than `RESERVED_SECONDS`, and automatically annotated
        items.
        """
        # The automatic mode never gets an item that was sent back, because it would repeat its edit.
        kinds = (_NEW,) if self.person == AUTOMATIC else (_OWN, _NEW, _LEFT)
        for kind in kinds:
            position = self._first(kind, "position", concept)
            if position is not None:
                return position
        return None

    def free_review(self, concept: str | None) -> int | None:
        """Returns the position of somebody else's annotated item that has waited longest and that nobody reviews."""
        return self._first(_TO_REVIEW, "submission", concept)

    def take(self, position: int, *, is_review: bool, seconds: float) -> None:
        # REPLACE, because somebody else's expired lease may exist.
        self._connection.execute(
            "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?)",
            (position, self.person, is_review, self.now, self.now + seconds),
        )

    def renew(self, seconds: float) -> None:
        self._connection.execute("UPDATE leases SET expires = ? WHERE person = ?", (self.now + seconds, self.person))

    def lease(self, position: int) -> Lease | None:
        """Returns the lease of an item, even if it has expired."""
        cursor = self._connection.execute("SELECT person, taken, expires FROM leases WHERE position = ?", (position,))
        row = cursor.fetchone()
        return None if row is None else Lease(*row)

    def other(self, position: int) -> str | None:
        """Returns the name of another person who works on an item now."""
        lease = self.lease(position)
        return lease.person if lease and lease.person != self.person and lease.expires > self.now else None

    def _first(self, kind: str, order: str, concept: str | None) -> int | None:
        condition = "" if concept is None else " AND concept = :concept"
        parameters = {
            "now": self.now,
            "person": self.person,
            "concept": concept,
            "automatic": AUTOMATIC,
            "reserved": RESERVED_SECONDS,
        }
        row = self._connection.execute(
            f"SELECT position FROM states WHERE {kind}{condition} AND {_FREE} ORDER BY {order} LIMIT 1", parameters
        ).fetchone()
        return None if row is None else row[0]
