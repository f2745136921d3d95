"""Batches made of groups (CLEAR GLASS).

The pairs of a group share a concept, and a batch holds a group together with groups that are easily confused with it.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hfcomp.data.sampling.draws import EpochSampler
from hfcomp.data.sampling.replay import replay_places

SHOWN_NAMES = 5
"""Maximum number of names that a message lists."""


@dataclass(frozen=True)
class GroupReport:
    """Composition of an epoch of [`GroupOrder`].

    Attributes:
        rows_without_group: Number of rows without a group, which are left out.
        too_small: Number of rows by name, for groups that are left out as anchors and as hard negatives.
        unknown: Names in `hard_negative_groups` that are not the `group` of any row.
        without_negatives: Names of groups that have no hard-negative group left.
        with_too_few_negatives: Names of groups that have some hard-negative groups, but fewer than a batch needs.
        random_places: Number of places for hard-negative groups in an epoch that groups drawn at random fill.
        repeated: Names of groups that have fewer rows than `pairs_per_group`, so their rows are repeated.
    """

    groups: int
    rows: int
    batches: int
    groups_per_batch: int
    pairs_per_group: int
    minimum_size: int
    rows_without_group: int
    too_small: Mapping[str, int]
    unknown: Sequence[str]
    without_negatives: Sequence[str]
    with_too_few_negatives: Sequence[str]
    random_places: int
    repeated: Sequence[str]

    @property
    def random_share(self) -> float:
        return self.random_places / (self.batches * (self.groups_per_batch - 1))

    def summary(self) -> str:
        return (
            f"{self.groups:,} groups with {self.rows:,} rows. An epoch has {self.batches:,} batches of "
            f"{self.groups_per_batch} groups with {self.pairs_per_group} pairs each."
        )

    def warnings(self) -> list[str]:
        wanted = self.groups_per_batch - 1
        lines = [
            (
                self.rows_without_group,
                f"{self.rows_without_group:,} rows have no group and are left out.",
            ),
            (
                self.too_small,
                f"{len(self.too_small):,} groups with a total of {sum(self.too_small.values()):,} rows are left out, "
                f"also as hard negatives: each has fewer than {self.minimum_size} rows "
                f"({_list_names(self.too_small)}).",
            ),
            (
                self.unknown,
                f"{len(self.unknown):,} names in hard_negative_groups ({_list_names(self.unknown)}) are not groups "
                "of the training set and are left out.",
            ),
            (
                self.without_negatives,
                f"{len(self.without_negatives):,} groups have no hard-negative group "
                f"({_list_names(self.without_negatives)}).",
            ),
            (
                self.with_too_few_negatives,
                f"{len(self.with_too_few_negatives):,} groups have fewer hard-negative groups than the {wanted} "
                f"that a batch needs ({_list_names(self.with_too_few_negatives)}).",
            ),
            (
                self.random_places,
                f"Groups drawn at random fill {self.random_places:,} of the {self.batches * wanted:,} places for "
                f"hard-negative groups in an epoch ({self.random_share:.1%}).",
            ),
            (
                self.repeated,
                f"{len(self.repeated):,} groups have fewer than {self.pairs_per_group} rows, the pairs per group "
                f"({_list_names(self.repeated)}); their rows are repeated, and the repeats are masked.",
            ),
        ]
        return [line for is_needed, line in lines if is_needed]

    def __str__(self) -> str:
        return "\n".join([self.summary(), *self.warnings()])


def _list_names(names: Mapping[str, int] | Sequence[str]) -> str:
    shown = [repr(name) for name in list(names)[:SHOWN_NAMES]]
    return ", ".join([*shown, "..."] if len(names) > SHOWN_NAMES else shown)


GROUP_COLUMNS = ("group", "hard_negative_groups")


@dataclass(frozen=True)
class Groups:
    """Rows and hard-negative groups of each group: the columns of `GROUP_COLUMNS` as numbers.

    Attributes:
        names: Names of the groups, in the order of their first rows.
        hard_negatives: Hard-negative groups of each group, as indices into `names`, in the order in which the
            column mentions them.
        rows_without_group: Number of rows without a group, which are left out.
        too_small: Number of rows by name, for groups with fewer than `minimum_size` rows; they are left out, as groups
            and as hard negatives.
        unknown: Names in `hard_negative_groups` that are not the `group` of any row.
    """

    names: list[str]
    rows: list[list[int]]
    hard_negatives: list[list[int]]
    minimum_size: int
    rows_without_group: int
    too_small: dict[str, int]
    unknown: list[str]

    @classmethod
    def from_columns(
        cls, group: Sequence[str | None], hard_negative_groups: Sequence[list[str] | None], *, minimum_size: int = 2
    ) -> Groups:
        """Builds groups from the columns of a training set.

        If rows of one group name different hard negatives, the group gets all of them, except its own name.

        Args:
            group: Name of each row's group; missing or empty means no group.
            hard_negative_groups: Names of other groups for each row; entries without a name are skipped.
            minimum_size: Number of rows that a group needs, at least 1. The paper has no such bound, but a single pair
                does not show what a group has in common.

        Raises:
            ValueError: If an entry has another type, no group has `minimum_size` rows, or no group has a hard-negative
                group in the dataset.
        """
        if minimum_size < 1:
            raise ValueError(f"minimum_size: found {minimum_size}, expected at least 1 row per group.")
        members, named = _read_groups(group, hard_negative_groups)
        rows_without_group = len(group) - sum(map(len, members.values()))
        too_small = {name: len(rows) for name, rows in members.items() if len(rows) < minimum_size}
        names = [name for name in members if name not in too_small]
        if not names:
            raise ValueError(
                f"column 'group': none of its {len(members)} groups has at least {minimum_size} rows, and "
                f"{rows_without_group} of {len(group)} rows have none. Expected the same name in all rows of a group."
            )
        number = {name: index for index, name in enumerate(names)}
        hard_negatives = [
            [
                number[hard_negative]
                for hard_negative in named[name]
                if hard_negative in number and hard_negative != name
            ]
            for name in names
        ]
        mentioned = dict.fromkeys(itertools.chain.from_iterable(named.values()))
        if not any(hard_negatives):
            raise ValueError(
                "column 'hard_negative_groups': no group has a hard-negative group in the training set. Expected "
                f"lists of other values of the column 'group' that occur in at least {minimum_size} rows, such as "
                f"{names[0]!r}, but found {next(iter(mentioned), None)!r}. `hfcomp build magic` finds some with "
                "`--negative_quantile 0.99`."
            )
        unknown = [name for name in mentioned if name not in members]
        rows = [members[name] for name in names]
        return cls(names, rows, hard_negatives, minimum_size, rows_without_group, too_small, unknown)


def _read_groups(
    group: Sequence[Any], hard_negative_groups: Sequence[Any]
) -> tuple[dict[str, list[int]], dict[str, Any]]:
    # Dictionaries serve as ordered sets: a set of names has a different order in each process (PYTHONHASHSEED), so the
    # processes would draw different batches.
    members: dict[str, list[int]] = {}
    named: dict[str, dict[str, None]] = {}
    last: dict[str, Any] = {}
    for row, (value, others) in enumerate(zip(group, hard_negative_groups, strict=True)):
        name = _read_name(value, "group", row)
        if not name:
            continue
        members.setdefault(name, []).append(row)
        hard_negatives = named.setdefault(name, {})
        # The rows of a group usually have the same list, which need not be read again for each row.
        if others != last.get(name):
            hard_negatives.update(dict.fromkeys(_read_names(others, row)))
            last[name] = others
    return members, named


def _read_names(values: Any, row: int) -> list[str]:
    if values is not None and not isinstance(values, list | tuple):
        raise ValueError(
            f"column 'hard_negative_groups', row {row}: found {values!r}, expected a list of values of 'group'."
        )
    names = [_read_name(value, "hard_negative_groups", row) for value in values or ()]
    return [name for name in names if name]


def _read_name(value: Any, column: str, row: int) -> str:
    """Reads a group's name; empty if there is none."""
    if isinstance(value, str):
        return "" if value.isspace() else value
    if value is None:
        return ""
    if not isinstance(value, int):
        raise ValueError(
            f"column '{column}', row {row}: found {value!r}, expected the name of a group: a string or a whole number."
        )
    return str(value)


class GroupOrder(EpochSampler):
    """An order of rows in which each global batch consists of a group followed by its hard-negative groups.

    Position `p` of a batch belongs to group `p // pairs_per_group`. The first group is the anchor. The others are
    drawn without replacement from its hard-negative groups and, if it has too few, from all other groups. No group
    occurs twice in a batch.

    In an epoch, every group is the anchor as often as its rows require, `ceil(rows / pairs_per_group)` times, in
    random order. Each row occurs once in an anchor group; if the last turn of a group has positions left, rows of its
    earlier turns fill them. A hard-negative group shows a random sample of its rows. A group with fewer rows than
    positions repeats them; [`group_mask`] detects the repeats.

    The order depends only on `seed` and the epoch. With a per-process batch size of [`rows_per_process`], no
    group is split between processes. The released code differs: it draws hard-negative groups with replacement and
    always shows the same first pairs of them.

    Args:
        groups: Groups of the training set.
        groups_per_batch: Number of groups in a global batch, at least 2 (the paper's `M`).
        pairs_per_group: Number of positions per group, at least 1 (the paper's `N`).
        seed: Random seed of the draws.

    Attributes:
        report: Composition of an epoch, and problems with the groups.

    Raises:
        ValueError: If a number is out of range, or there are fewer groups than in a batch.
    """

    def __init__(self, groups: Groups, *, groups_per_batch: int, pairs_per_group: int, seed: int) -> None:
        if groups_per_batch < 2 or pairs_per_group < 1:
            raise ValueError(
                f"groups_per_batch={groups_per_batch}, pairs_per_group={pairs_per_group}: expected at least 2 groups, "
                "because one alone has no contrast, of at least 1 pair."
            )
        if len(groups.names) < groups_per_batch:
            raise ValueError(
                f"the training set has {len(groups.names)} groups with at least {groups.minimum_size} rows, fewer "
                f"than the {groups_per_batch} groups of a batch. Lower groups_per_batch."
            )
        self.groups, self.groups_per_batch, self.pairs_per_group = groups, groups_per_batch, pairs_per_group
        self.seed = seed
        self.turns = [math.ceil(len(rows) / pairs_per_group) for rows in groups.rows]
        self.report = self._report()

    def __len__(self) -> int:
        return sum(self.turns) * self.groups_per_batch * self.pairs_per_group

    def __iter__(self) -> Iterator[int]:
        # Each row of an anchor is shown once, in shuffled order; rows of hard negatives are drawn again each time.
        draw = random.Random(f"groups {self.seed} {self.epoch}")
        shuffled = [draw.sample(rows, len(rows)) for rows in self.groups.rows]
        batches = [(anchor, turn) for anchor, turns in enumerate(self.turns) for turn in range(turns)]
        draw.shuffle(batches)
        for anchor, turn in batches:
            yield from self._rows_of_turn(shuffled[anchor], turn * self.pairs_per_group)
            for other in self._draw_other_groups(anchor, draw):
                rows = self.groups.rows[other]
                yield from self._rows_of_turn(draw.sample(rows, min(len(rows), self.pairs_per_group)))

    def _rows_of_turn(self, rows: list[int], start: int = 0) -> Iterator[int]:
        return (rows[(start + position) % len(rows)] for position in range(self.pairs_per_group))

    def _draw_other_groups(self, anchor: int, draw: random.Random) -> list[int]:
        hard_negatives, wanted = self.groups.hard_negatives[anchor], self.groups_per_batch - 1
        others = draw.sample(hard_negatives, min(len(hard_negatives), wanted))
        # Redraw if a group is taken. This is rare if there are many more groups than a batch needs.
        while len(others) < wanted:
            other = draw.randrange(len(self.groups.names))
            if other != anchor and other not in others:
                others.append(other)
        return others

    def _report(self) -> GroupReport:
        groups, wanted = self.groups, self.groups_per_batch - 1
        hard_negatives = list(zip(groups.names, map(len, groups.hard_negatives), self.turns, strict=True))
        return GroupReport(
            groups=len(groups.names),
            rows=sum(map(len, groups.rows)),
            batches=sum(self.turns),
            groups_per_batch=self.groups_per_batch,
            pairs_per_group=self.pairs_per_group,
            minimum_size=groups.minimum_size,
            rows_without_group=groups.rows_without_group,
            too_small=groups.too_small,
            unknown=groups.unknown,
            without_negatives=[name for name, number, _ in hard_negatives if not number],
            with_too_few_negatives=[name for name, number, _ in hard_negatives if 0 < number < wanted],
            random_places=sum(turns * max(0, wanted - number) for _, number, turns in hard_negatives),
            repeated=[
                name for name, rows in zip(groups.names, groups.rows, strict=True) if len(rows) < self.pairs_per_group
            ],
        )


def rows_per_process(groups_per_batch: int, pairs_per_group: int, processes: int) -> int:
    """Returns the per-process batch size at which every process has whole groups of the global batch."""
    if groups_per_batch % processes:
        multiple = math.ceil(groups_per_batch / processes) * processes
        raise ValueError(
            f"groups_per_batch={groups_per_batch} cannot be divided among {processes} processes, because each needs "
            f"whole groups. Set it to a multiple of {processes}, such as {multiple}, or start fewer processes."
        )
    return groups_per_batch // processes * pairs_per_group


def group_mask(row: torch.Tensor, *, pairs_per_group: int) -> torch.Tensor:
    """Mask of the pairs in a batch of [`GroupOrder`]; False for repeats that fill a group with too few rows.

    Args:
        row: Dataset index of each position, `[B]` long: the batch's `row` values. B is a multiple of
            `pairs_per_group`.
        pairs_per_group: Number of positions per group.

    Returns:
        Mask `[B / pairs_per_group, pairs_per_group]`, False if the same row occurs earlier in its group.
    """
    if len(row) % pairs_per_group:
        raise ValueError(
            f"a batch of {len(row)} rows cannot be divided into groups of {pairs_per_group} pairs. Set the batch size "
            f"to a multiple of {pairs_per_group}."
        )
    groups = row.reshape(-1, pairs_per_group)
    # Each group is compared only with itself, so a process computes the mask of its own groups without communication.
    same = groups.unsqueeze(2) == groups.unsqueeze(1)
    return ~same.tril(-1).any(-1)


class BatchGroups:
    """Positions of the groups in a global batch. Each replay row forms a group of one pair."""

    def __init__(self, groups: int, size: int, replayed: int = 0) -> None:
        self.replayed, self.is_replay = replayed, torch.tensor(replay_places(groups, replayed))
        lengths = torch.where(self.is_replay, 1, size)
        self.number, self.rows, self.size = len(lengths), int(lengths.sum()), size
        start = lengths.cumsum(0) - lengths
        inside = torch.arange(size) < lengths.unsqueeze(1)
        # Missing positions of one-pair groups are masked, so their values do not matter.
        self.places = start.unsqueeze(1) + torch.where(inside, torch.arange(size), 0)
        self._inside = inside

    def group_values(self, values: torch.Tensor) -> torch.Tensor:
        """Arranges values `[N, ...]` of the batch by group, `[G, size, ...]`."""
        if not self.replayed:
            return values.unflatten(0, (-1, self.size))
        return values[self.places.to(values.device)]

    def mask(self, row: torch.Tensor, rank: int, processes: int) -> torch.Tensor:
        """Mask of the pairs in one process's groups, like `group_mask`: `[G / processes, size]` bool.

        `row` is the process's key `[N / processes]`; each process has the same number of groups of either kind.
        """
        if not self.replayed:
            return group_mask(row, pairs_per_group=self.size)
        share = self.number // processes
        own = slice(rank * share, (rank + 1) * share)
        # `places` are positions in the global batch, of which each process has an equal, contiguous part.
        places, inside = self.places[own] - rank * len(row), self._inside[own].to(row.device)
        result = inside.clone()
        whole = ~self.is_replay[own]
        rows = row[places[whole].flatten().to(row.device)]
        result[whole.to(row.device)] = group_mask(rows, pairs_per_group=self.size)
        return result

    def row_mask(self, mask: torch.Tensor) -> torch.Tensor:
        """Converts a mask over groups, `[G, size]`, to a mask over the rows of the batch, `[N]` bool."""
        if not self.replayed:
            return mask.flatten()
        result = torch.zeros(self.rows, dtype=torch.bool, device=mask.device)
        result[self.places.to(mask.device)[mask]] = True
        return result
