"""Processes that decide, for tests: `python -m tests.data.annotations.deciding DATABASE PERSON`.

Each decision is printed after it was made, as a person sees it in the page.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from hfcomp.data.annotations.decisions import Decisions
from tests.data.annotations.making import edit


def decide_all(store: Decisions, person: str) -> list[str]:
    """Submits or skips until no item is left; what was decided."""
    decisions = []
    while (item := store.next_item(person)) is not None:
        if len(decisions) % 5 == 4:
            store.skip(person, item.id, "a face")
        else:
            store.submit(person, item.id, edit(len(decisions)))
        decisions.append(item.id)
    return decisions


def main() -> None:
    store, person = Decisions(Path(sys.argv[1])), sys.argv[2]
    print("ready", flush=True)
    for turn in itertools.count():
        review = store.next_review(person) if turn % 4 == 3 else None
        item = review[0] if review else store.next_item(person)
        if item is None:
            return
        if review:
            store.accept(person, item.id, "okay")
        else:
            store.save_draft(person, item.id, {"turn": turn})
            store.submit(person, item.id, edit(turn))
        print(f"{'accept' if review else 'submit'} {item.id}", flush=True)
        if turn % 7 == 6 and (undone := store.undo(person)) is not None:
            print(f"undo {undone.id}", flush=True)


if __name__ == "__main__":
    main()
