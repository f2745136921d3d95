"""Items and edits for tests."""

from __future__ import annotations

from hfcomp.data.annotations.entries import Edit, Item


def item(number: int = 0, *, concept: str = "color") -> Item:
    return Item(
        id=f"{number}/{concept}",
        image=f"ab/{number}.jpg",
        concept=concept,
        captions=("a red bus in a street", "the red bus"),
        keywords=("red", "red"),
        facts={"image_id": number, "license": "CC BY 4.0"},
    )


def items(number: int, **fields: str) -> list[Item]:
    return [item(place, **fields) for place in range(number)]


def edit(seed: int = 0, *, quality: str = "very good", caption: str = "a blue bus in a street") -> Edit:
    return Edit(
        image="cd/edited.png",
        mask="ef/mask.png",
        caption=caption,
        original="a red bus in a street",
        mask_prompt="the bus",
        threshold=0.45,
        enlarge=(3, 5),
        is_corrected=True,
        inpaint_prompt="a blue bus",
        seed=seed,
        quality=quality,
    )


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now
