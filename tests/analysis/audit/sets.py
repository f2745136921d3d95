"""Small sets to audit, with known faults."""

from __future__ import annotations

from typing import Any

from datasets import Dataset

from hfcomp.analysis.audit.reading import AuditSet, audit_set
from tests import tiny
from tests.analysis.gallery.pages import encode

NOUNS = ("dog", "cat", "horse", "bird", "car", "boat")
PLACES = ("table", "grass", "street", "beach")


def rows(number: int = 24, ending: str = ".", **changes: dict[int, Any]) -> Dataset:
    """Rows of a caption and a negative, of which only the negative ends as given.

    Args:
        number: of rows, each of an image of its own.
        ending: of all negatives.
        changes: by column the values of some rows.
    """
    made: list[dict[str, Any]] = []
    for row in range(number):
        noun, other = NOUNS[row % 6], NOUNS[(row + 1 + row // 6) % 6]
        place = PLACES[row % 4]
        made.append(
            {
                "image": encode(tiny.image(row)),
                "caption": f"photo {row} of a {noun} and a {other} on the {place}",
                "negative_captions": [f"photo {row} of a {other} and a {noun} on the {place}{ending}"],
                "negative_kinds": [("swap_obj", "other")[row % 2]],
                "negative_image": encode(tiny.image(100 + row)),
                "image_id": f"tiny-{row}",
            }
        )
    for name, values in changes.items():
        for row, value in values.items():
            made[row][name] = value
    return Dataset.from_list(made)


def data(number: int = 24, **changes: Any) -> AuditSet:
    """The same, read."""
    own = rows(number, **changes)
    return audit_set("own", own, {name: own[name] for name in ("image", "negative_image")})
