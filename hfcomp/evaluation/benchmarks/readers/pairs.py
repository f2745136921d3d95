"""Pairs of images with a caption each, of which every caption is false of the other image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from hfcomp.evaluation.sources import HubData

if TYPE_CHECKING:
    from datasets import Dataset

PAIR = ("image", "caption", "negative_image", "negative_captions")
"""The columns of a pair: an image, its caption, the other image, the other caption."""


def hub_pairs(
    repo: str,
    pair: Sequence[str],
    *,
    columns: Mapping[str, str] | None = None,
    optional: Mapping[str, str] | None = None,
    reshape: Callable[[Dataset], Dataset] | None = None,
    revision: str | None = None,
) -> HubData:
    """Pairs on the Hub, a row each, whose captions are texts.

    Args:
        repo: id.
        pair: the data set's names of the four columns of [`PAIR`].
        columns: further ones, contract name first.
        optional: as `columns`, of those that it may lack.
        reshape: what remains to be done with the renamed rows.
        revision: a commit, where one could be confirmed.
    """
    named = {**dict(zip(PAIR, pair, strict=True)), **(columns or {})}
    return HubData(repo, named, reshape=partial(in_lists, reshape=reshape), optional=optional or {}, revision=revision)


def in_lists(rows: Dataset, *, reshape: Callable[[Dataset], Dataset] | None = None) -> Dataset:
    """Rows whose other caption is a list of one, as the column contract has it, after `reshape`."""
    rows = rows if reshape is None else reshape(rows)
    lists = [[text] for text in rows["negative_captions"][:]]
    return rows.remove_columns("negative_captions").add_column("negative_captions", lists)
