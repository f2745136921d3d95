"""Builds that may be published: rows whose licence allows no adaptation are set aside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from datasets import Dataset

from hfcomp.data.columns import require_columns
from hfcomp.data.publishing import LICENSE, allows_adaptation
from hfcomp.generation.options import RENAME
from hfcomp.generation.shards import SET_ASIDE, Batch, Stage

FORBIDDEN, UNSTATED = "licence forbids adaptation", "licence unknown"


def license_stages(dataset: Dataset, stated: str | None, *, needed_by: str) -> Sequence[Stage]:
    """The stage that keeps rows whose licence allows adaptation; none where the source allows it for all of them.

    Args:
        dataset: the source's rows.
        stated: the licence on the source's card, for a source without a column `license`.
        needed_by: the option, for the error.

    Raises:
        ValueError: for a source that states no licence, row by row or on its card.
    """
    if LICENSE not in dataset.column_names:
        if allows_adaptation(stated):
            return ()
        require_columns(dataset, [LICENSE], needed_by=needed_by, rename=RENAME)
    return (Stage("licences", make_license_check),)


def make_license_check() -> Callable[[Batch], Batch]:
    """The stage: a row without a licence, or with an unknown one, is set aside too."""

    def check(batch: Batch) -> Batch:
        licenses = batch[LICENSE]
        rest = {name: values for name, values in batch.items() if name != LICENSE}
        return rest | {SET_ASIDE: [_objection(license) for license in licenses]}

    return check


def _objection(license: str | None) -> str | None:
    allowed = allows_adaptation(license)
    if allowed is None:
        return f"{UNSTATED}: {license}" if license else UNSTATED
    return None if allowed else f"{FORBIDDEN}: {license}"
