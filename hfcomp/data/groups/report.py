"""What batches of groups are made of, and what is missing for them, in numbers and as lines for the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NAMED = 5
"""Names of each kind that a line holds."""


@dataclass(frozen=True)
class GroupReport:
    """What an epoch of [`hfcomp.data.groups.order.GroupOrder`] is made of.

    Attributes:
        groups: number of groups that batches are made of.
        rows: number of their rows.
        batches: number of global batches in an epoch.
        groups_per_batch: groups of a global batch, the anchor's among them.
        pairs_per_group: positions of each.
        minimum_size: rows that a group needs.
        without_group: number of rows that name no group; they are left out.
        too_small: number of rows by name of the groups that are left out, as anchors and as hard negatives.
        unknown: names in `hard_negative_groups` that no row's `group` is.
        without_negatives: names of the groups without any hard-negative group left.
        short_of_negatives: names of those that have some, but fewer than a batch takes.
        random_places: places of hard-negative groups in an epoch that random other groups take.
        repeated: names of the groups that have fewer rows than positions.
    """

    groups: int
    rows: int
    batches: int
    groups_per_batch: int
    pairs_per_group: int
    minimum_size: int
    without_group: int
    too_small: Mapping[str, int]
    unknown: Sequence[str]
    without_negatives: Sequence[str]
    short_of_negatives: Sequence[str]
    random_places: int
    repeated: Sequence[str]

    @property
    def random_share(self) -> float:
        """Which part of the places of hard-negative groups random other groups take, 0 to 1."""
        return self.random_places / (self.batches * (self.groups_per_batch - 1))

    def summary(self) -> str:
        """What an epoch is, in one line."""
        return (
            f"{self.groups:,} groups with {self.rows:,} rows: an epoch has {self.batches:,} batches of "
            f"{self.groups_per_batch} groups with {self.pairs_per_group} pairs each."
        )

    def missing(self) -> list[str]:
        """What is left out, filled up or repeated, a line each; empty when nothing is."""
        wanted = self.groups_per_batch - 1
        lines = [
            (
                self.without_group,
                f"{self.without_group:,} rows have no group; they are left out.",
            ),
            (
                self.too_small,
                f"{len(self.too_small):,} groups with {sum(self.too_small.values()):,} rows in all are left out, also "
                f"as hard negatives: each has fewer than {self.minimum_size} rows ({_first(self.too_small)}).",
            ),
            (
                self.unknown,
                f"{len(self.unknown):,} names in hard_negative_groups are not a group of the training set "
                f"({_first(self.unknown)}); they are left out.",
            ),
            (
                self.without_negatives,
                f"{len(self.without_negatives):,} groups have no hard-negative group "
                f"({_first(self.without_negatives)}).",
            ),
            (
                self.short_of_negatives,
                f"{len(self.short_of_negatives):,} groups have fewer hard-negative groups than the {wanted} that a "
                f"batch takes ({_first(self.short_of_negatives)}).",
            ),
            (
                self.random_places,
                f"Random other groups take {self.random_places:,} of the {self.batches * wanted:,} places of "
                f"hard-negative groups in an epoch ({self.random_share:.1%}).",
            ),
            (
                self.repeated,
                f"{len(self.repeated):,} groups have fewer rows than the {self.pairs_per_group} pairs that each "
                f"shows ({_first(self.repeated)}); their rows are repeated, and the repeats masked.",
            ),
        ]
        return [line for found, line in lines if found]

    def __str__(self) -> str:
        return "\n".join([self.summary(), *self.missing()])


def _first(names: Mapping[str, int] | Sequence[str]) -> str:
    listed = [repr(name) for name in list(names)[:NAMED]]
    return ", ".join([*listed, "..."] if len(names) > NAMED else listed)
