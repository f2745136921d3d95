"""What annotators decided, in an append-only log that several processes and threads write to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hfcomp.data.annotations.records import Accepted, Action, Edit, Item, Quality, State


@dataclass(frozen=True)
class Entry:
    """A row of the log.

    Attributes:
        number: of the row, from 1.
        time: seconds since 1970.
        person: who decided.
        item: id.
        action: what.
        content: of the action: an edit's fields, a reason, a quality; JSON values.
    """

    number: int
    time: float
    person: str
    item: str
    action: Action
    content: Mapping[str, Any]


class Decisions:
    """The items of a project and what was decided about them.

    A decision is durable when its method returns: a process that is killed at any moment loses none. An item that
    somebody works on is leased to them, so that nobody else is given it; a lease ends with the decision, or after
    `lease_seconds` without `renew`.

    Args:
        path: of the SQLite file, which is made where it is missing; in WAL mode.
        lease_seconds: of a lease, above 0.
        clock: seconds since 1970.

    Raises:
        ValueError: for a file that is no such database, or one of another version.
    """

    def __init__(
        self, path: Path, *, lease_seconds: float = 900.0, clock: Callable[[], float] = time.time
    ) -> None: ...
    def add_items(self, items: Iterable[Item]) -> int:
        """Adds the items that are new, in their order; returns how many those are."""

    def item(self, name: str) -> Item:
        """An item by its id."""

    def next_item(self, person: str, *, concept: str | None = None) -> Item | None:
        """The item that a person holds, else the first open one that nobody holds, leased to the person."""

    def peek_item(self, person: str, *, concept: str | None = None) -> Item | None:
        """What `next_item` would give after the item that the person holds; leases nothing."""

    def next_review(self, person: str, *, concept: str | None = None) -> tuple[Item, Edit] | None:
        """An annotated item of somebody else, leased to the reviewer."""

    def renew(self, person: str, item: str) -> bool:
        """Prolongs a lease; whether the person holds the item still."""

    def release(self, person: str) -> None:
        """Gives back what a person holds."""

    def save_draft(self, person: str, item: str, draft: Mapping[str, Any]) -> None:
        """Keeps what a person has made of an item so far, in place of an earlier draft; lost with a decision."""

    def draft(self, person: str, item: str) -> Mapping[str, Any] | None:
        """The draft of an item."""

    def submit(self, person: str, item: str, edit: Edit) -> None:
        """Open -> annotated."""

    def skip(self, person: str, item: str, reason: str) -> None:
        """Open -> skipped."""

    def accept(self, person: str, item: str, quality: Quality) -> None:
        """Annotated -> accepted, by somebody else than who submitted it."""

    def send_back(self, person: str, item: str, reason: str) -> None:
        """Annotated -> open, first for who submitted it."""

    def undo(self, person: str) -> Item | None:
        """Takes back a person's last decision that still stands, and leases them its item; None without one."""

    def counts(self, *, concept: str | None = None) -> dict[State, int]:
        """Items by state."""

    def by_person(self) -> dict[str, dict[Action, int]]:
        """Standing decisions of each person: those that were undone do not count."""

    def accepted(self) -> Iterator[Accepted]:
        """Finished items, in the order in which they were added."""

    def log(self) -> Iterator[Entry]:
        """Every decision that was ever made, in order."""

    def close(self) -> None:
        """Closes the file."""
