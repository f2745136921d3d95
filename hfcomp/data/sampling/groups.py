"""Batches of groups of pairs that share a concept, with easily confused groups beside them (CLEAR GLASS)."""

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

NAMED = 5
"""Names of each kind that a line holds."""


@dataclass(frozen=True)
class GroupReport:
    """What an epoch of [`GroupOrder`] is made of.

    Attributes:
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
        return self.random_places / (self.batches * (self.groups_per_batch - 1))

    def summary(self) -> str:
        return (
            f"{self.groups:,} groups with {self.rows:,} rows: an epoch has {self.batches:,} batches of "
            f"{self.groups_per_batch} groups with {self.pairs_per_group} pairs each."
        )

    def missing(self) -> list[str]:
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


GROUP_COLUMNS = ("group", "hard_negative_groups")


@dataclass(frozen=True)
class Groups:
    """Which rows make up a group, and which groups are its hard negatives: the columns of `GROUP_COLUMNS` as numbers.

    Attributes:
        names: of the groups, in the order of their first rows.
        hard_negatives: of each group, its hard-negative groups as indices of `names`, in the order of their mention.
        too_small: number of rows by name of the groups that have fewer than `minimum_size`; they are left out, as
            groups and as hard_negatives.
        unknown: names in `hard_negative_groups` that no row's `group` is.
    """

    names: list[str]
    rows: list[list[int]]
    hard_negatives: list[list[int]]
    minimum_size: int
    without_group: int
    too_small: dict[str, int]
    unknown: list[str]

    @classmethod
    def from_columns(
        cls, group: Sequence[str | None], hard_negative_groups: Sequence[list[str] | None], *, minimum_size: int = 2
    ) -> Groups:
        """From the columns of a training set.

        Rows of one group may name different hard negatives: the group has all of them. Its own name is left out.

        Args:
            group: the name of each row's group; missing or empty means no group.
            hard_negative_groups: of each row, names of other groups; entries without a name are passed over.
            minimum_size: rows that a group needs, at least 1. The paper has no such bound: one pair shows nothing of
                what a group has in common.

        Raises:
            ValueError: for an entry of another type, when no group has `minimum_size` rows, or none has a
                hard-negative group in the set.
        """
        if minimum_size < 1:
            raise ValueError(f"minimum_size={minimum_size}: expected at least 1 row for each group.")
        members, named = _read(group, hard_negative_groups)
        without_group = len(group) - sum(map(len, members.values()))
        too_small = {name: len(rows) for name, rows in members.items() if len(rows) < minimum_size}
        names = [name for name in members if name not in too_small]
        if not names:
            raise ValueError(
                f"column 'group': none of its {len(members)} groups has {minimum_size} rows or more, and "
                f"{without_group} of {len(group)} rows have no group. Expected the same name in the rows of one group."
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
                f"lists of other values of the column 'group' that {minimum_size} rows or more have, such as "
                f"{names[0]!r}; found {next(iter(mentioned), None)!r}."
            )
        unknown = [name for name in mentioned if name not in members]
        rows = [members[name] for name in names]
        return cls(names, rows, hard_negatives, minimum_size, without_group, too_small, unknown)


def _read(group: Sequence[Any], hard_negative_groups: Sequence[Any]) -> tuple[dict[str, list[int]], dict[str, Any]]:
    # Dictionaries stand for ordered sets: a set of names has another order in each process (PYTHONHASHSEED), and with
    # it the processes would draw different batches.
    members: dict[str, list[int]] = {}
    named: dict[str, dict[str, None]] = {}
    last: dict[str, Any] = {}
    for row, (own, others) in enumerate(zip(group, hard_negative_groups, strict=True)):
        name = _name(own, "group", row)
        if not name:
            continue
        members.setdefault(name, []).append(row)
        known = named.setdefault(name, {})
        # The rows of a group mostly hold one and the same list, which need not be read again for each row.
        if others != last.get(name):
            known.update(dict.fromkeys(_names(others, row)))
            last[name] = others
    return members, named


def _names(values: Any, row: int) -> list[str]:
    if values is not None and not isinstance(values, list | tuple):
        raise ValueError(
            f"column 'hard_negative_groups', row {row}: found {values!r}, expected a list of values of 'group'."
        )
    names = [_name(value, "hard_negative_groups", row) for value in values or ()]
    return [name for name in names if name]


def _name(value: Any, column: str, row: int) -> str:
    """A group's name; empty for none."""
    if isinstance(value, str):
        return "" if value.isspace() else value
    if value is None:
        return ""
    if not isinstance(value, int):
        raise ValueError(
            f"column '{column}', row {row}: found {value!r}, expected the name of one group, a text or a whole number."
        )
    return str(value)


class GroupOrder(EpochSampler):
    """An order of rows in which global batches consist of groups: a group, then its hard-negative groups.

    Position `p` of a batch belongs to its group `p // pairs_per_group`. The first is the anchor group, the others are
    drawn from its hard-negative groups without replacement; where it has too few, from all other groups. No group is
    twice in a batch.

    An epoch takes every group as the anchor as often as its rows need, `ceil(rows / pairs_per_group)` times, in random
    order. Each row is once among the anchor's; where the last of a group's turns has positions left, rows of its
    earlier turns take them. A hard-negative group shows a random choice of its rows. A group of fewer rows than
    positions repeats them, which [`group_mask`] finds again.

    The order depends on `seed` and the epoch only. [`rows_per_process`] is the batch size of a process with which a
    loader cuts batches between groups. The released code differs: it draws hard-negative groups with replacement and
    always shows the same first pairs of them.

    Args:
        groups: of the training set.
        groups_per_batch: groups of a global batch, at least 2 (the paper's `M`).
        pairs_per_group: positions of each group, at least 1 (the paper's `N`).
        seed: of the draws.

    Attributes:
        report: what an epoch is made of, and what is missing for it.

    Raises:
        ValueError: for a number out of range, or fewer groups than a batch holds.
    """

    def __init__(self, groups: Groups, *, groups_per_batch: int, pairs_per_group: int, seed: int) -> None:
        if groups_per_batch < 2 or pairs_per_group < 1:
            raise ValueError(
                f"groups_per_batch={groups_per_batch}, pairs_per_group={pairs_per_group}: expected at least 2 groups "
                "(one alone has no contrast) of at least 1 pair."
            )
        if len(groups.names) < groups_per_batch:
            raise ValueError(
                f"the training set has {len(groups.names)} groups of {groups.minimum_size} rows or more, fewer than "
                f"the {groups_per_batch} of a batch. Lower groups_per_batch."
            )
        self.groups, self.groups_per_batch, self.pairs_per_group = groups, groups_per_batch, pairs_per_group
        self.seed = seed
        self.turns = [math.ceil(len(rows) / pairs_per_group) for rows in groups.rows]
        self.report = self._report()

    def __len__(self) -> int:
        return sum(self.turns) * self.groups_per_batch * self.pairs_per_group

    def __iter__(self) -> Iterator[int]:
        # The anchor's rows are cut from one shuffle, so its turns show each row once. The rows of a hard negative are
        # drawn again each time.
        draw = random.Random(f"groups {self.seed} {self.epoch}")
        shuffled = [draw.sample(rows, len(rows)) for rows in self.groups.rows]
        batches = [(anchor, turn) for anchor, turns in enumerate(self.turns) for turn in range(turns)]
        draw.shuffle(batches)
        for anchor, turn in batches:
            yield from self._fill(shuffled[anchor], turn * self.pairs_per_group)
            for other in self._others(anchor, draw):
                rows = self.groups.rows[other]
                yield from self._fill(draw.sample(rows, min(len(rows), self.pairs_per_group)))

    def _fill(self, rows: list[int], start: int = 0) -> Iterator[int]:
        return (rows[(start + position) % len(rows)] for position in range(self.pairs_per_group))

    def _others(self, anchor: int, draw: random.Random) -> list[int]:
        hard_negatives, wanted = self.groups.hard_negatives[anchor], self.groups_per_batch - 1
        others = draw.sample(hard_negatives, min(len(hard_negatives), wanted))
        # Drawn again if taken: a batch holds few of many groups, so draws are rarely repeated.
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
            without_group=groups.without_group,
            too_small=groups.too_small,
            unknown=groups.unknown,
            without_negatives=[name for name, number, _ in hard_negatives if not number],
            short_of_negatives=[name for name, number, _ in hard_negatives if 0 < number < wanted],
            random_places=sum(turns * max(0, wanted - number) for _, number, turns in hard_negatives),
            repeated=[
                name for name, rows in zip(groups.names, groups.rows, strict=True) if len(rows) < self.pairs_per_group
            ],
        )


def rows_per_process(groups_per_batch: int, pairs_per_group: int, processes: int) -> int:
    """The per-process batch size at which every process holds whole groups of the global batch."""
    if groups_per_batch % processes:
        multiple = math.ceil(groups_per_batch / processes) * processes
        raise ValueError(
            f"groups_per_batch={groups_per_batch} cannot be divided over {processes} processes, as each holds whole "
            f"groups. Set it to a multiple of {processes}, such as {multiple}, or start fewer processes."
        )
    return groups_per_batch // processes * pairs_per_group


def group_mask(row: torch.Tensor, *, pairs_per_group: int) -> torch.Tensor:
    """Where a batch of [`GroupOrder`] holds pairs, and not repeats that fill up a small group.

    Args:
        row: `[B]` long, each position's index in the dataset: the batch's own key `row`, of whole groups.
        pairs_per_group: positions of each group.

    Returns:
        `[B / pairs_per_group, pairs_per_group]` bool, false where the same row stands earlier in its group.
    """
    if len(row) % pairs_per_group:
        raise ValueError(f"a batch of {len(row)} rows does not consist of groups of {pairs_per_group} pairs.")
    groups = row.reshape(-1, pairs_per_group)
    # Each group is compared only with itself, so a process finds the mask of its own groups without communication.
    same = groups.unsqueeze(2) == groups.unsqueeze(1)
    return ~same.tril(-1).any(-1)


class BatchGroups:
    """Where a global batch has its groups, with replay rows among them as groups of one pair."""

    def __init__(self, groups: int, size: int, replayed: int = 0) -> None:
        self.replayed, self.is_replay = replayed, torch.tensor(replay_places(groups, replayed))
        lengths = torch.where(self.is_replay, 1, size)
        self.number, self.rows, self.size = len(lengths), int(lengths.sum()), size
        start = lengths.cumsum(0) - lengths
        inside = torch.arange(size) < lengths.unsqueeze(1)
        # Positions that a group of one pair lacks are masked, so their values do not matter.
        self.places = start.unsqueeze(1) + torch.where(inside, torch.arange(size), 0)
        self._inside = inside

    def of_rows(self, values: torch.Tensor) -> torch.Tensor:
        """Values `[N, ...]` of the batch group by group, `[G, size, ...]`."""
        if not self.replayed:
            return values.unflatten(0, (-1, self.size))
        return values[self.places.to(values.device)]

    def mask(self, row: torch.Tensor, rank: int, processes: int) -> torch.Tensor:
        """Where the groups of one process hold pairs, as `group_mask`: `[G / processes, size]` bool.

        `row` is the process's key `[N / processes]`; each process holds equally many groups of either kind.
        """
        if not self.replayed:
            return group_mask(row, pairs_per_group=self.size)
        share = self.number // processes
        own = slice(rank * share, (rank + 1) * share)
        # `places` count in the global batch, of which each process has an equal and contiguous part.
        places, inside = self.places[own] - rank * len(row), self._inside[own].to(row.device)
        found = inside.clone()
        whole = ~self.is_replay[own]
        rows = row[places[whole].flatten().to(row.device)]
        found[whole.to(row.device)] = group_mask(rows, pairs_per_group=self.size)
        return found

    def pairs(self, mask: torch.Tensor) -> torch.Tensor:
        """A mask `[G, size]` over the groups as one over the rows of the batch, `[N]` bool."""
        if not self.replayed:
            return mask.flatten()
        found = torch.zeros(self.rows, dtype=torch.bool, device=mask.device)
        found[self.places.to(mask.device)[mask]] = True
        return found
