"""Who works on what: the item that comes next for a person, and leases of items."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from hfcomp.data.annotations.entries import AUTOMATIC

RESERVED_SECONDS = 24 * 3600.0
"""For which an item that was sent back waits for the person who annotated it, before others are given it."""
# Items that were leased and given back, or whose lease ended, are free.
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
        person: who has it.
        taken: since when, in seconds since 1970.
        expires: when others may be given the item.
    """

    person: str
    taken: float
    expires: float


class Leases:
    """The queries about leases, inside a transaction of the caller."""

    def __init__(self, connection: sqlite3.Connection, person: str, now: float) -> None:
        self._connection = connection
        self.person = person
        self.now = now

    def held(self, *, is_review: bool) -> list[int]:
        """Positions of the items that the person has, the last one first."""
        # An expired lease counts until somebody else is given the item: whoever comes back from lunch goes on.
        found = self._connection.execute(
            "SELECT position FROM leases WHERE person = ? AND is_review = ? ORDER BY taken DESC, position",
            (self.person, is_review),
        )
        return [position for (position,) in found]

    def free_item(self, concept: str | None) -> int | None:
        """Position of the next open item that nobody has.

        First an item that was sent back to the person, then those that were never sent back, in their order, then
        those that wait for somebody else for longer than `RESERVED_SECONDS` or that were annotated automatically.
        """
        # The automatic mode gets no item that was sent back, because it would repeat its edit.
        kinds = (_NEW,) if self.person == AUTOMATIC else (_OWN, _NEW, _LEFT)
        for kind in kinds:
            found = self._first(kind, "position", concept)
            if found is not None:
                return found
        return None

    def free_review(self, concept: str | None) -> int | None:
        """Position of the annotated item of somebody else that waits longest and that nobody reviews."""
        return self._first(_TO_REVIEW, "submission", concept)

    def take(self, position: int, *, is_review: bool, seconds: float) -> None:
        # REPLACE: an expired lease of somebody else may be there.
        self._connection.execute(
            "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?)",
            (position, self.person, is_review, self.now, self.now + seconds),
        )

    def renew(self, seconds: float) -> None:
        self._connection.execute("UPDATE leases SET expires = ? WHERE person = ?", (self.now + seconds, self.person))

    def of(self, position: int) -> Lease | None:
        """The lease of an item, even an expired one."""
        found = self._connection.execute("SELECT person, taken, expires FROM leases WHERE position = ?", (position,))
        row = found.fetchone()
        return None if row is None else Lease(*row)

    def other(self, position: int) -> str | None:
        """Who else works on an item now."""
        lease = self.of(position)
        return lease.person if lease and lease.person != self.person and lease.expires > self.now else None

    def _first(self, kind: str, order: str, concept: str | None) -> int | None:
        wanted = "" if concept is None else " AND concept = :concept"
        values = {
            "now": self.now,
            "person": self.person,
            "concept": concept,
            "automatic": AUTOMATIC,
            "reserved": RESERVED_SECONDS,
        }
        found = self._connection.execute(
            f"SELECT position FROM states WHERE {kind}{wanted} AND {_FREE} ORDER BY {order} LIMIT 1", values
        ).fetchone()
        return None if found is None else found[0]
