"""Training rows from a stream: whole batches, another order in each pass, no row lost but the ones over."""

from __future__ import annotations

from itertools import islice
from traceback import clear_frames

import pytest
from torch.utils.data import DataLoader

from hfcomp.data.sampling.streaming import SKIPPED, SkippingCollator, StreamedRows, check_names
from tests import tiny

COLUMNS = ["image", "caption", "image_id"]


def make_stream(number: int = 10, *, batch_size: int = 4, buffer: int = 5, seed: int = 1, shards: int = 1):
    dataset = tiny.pairs(number).to_iterable_dataset(num_shards=shards)
    return StreamedRows(dataset, COLUMNS, batch_size=batch_size, seed=seed, buffer=buffer)


def names(rows, number: int) -> list[str]:
    return [row["image_id"] for row in islice(rows, number)]


def test_a_pass_gives_whole_batches_and_the_next_one_begins_anew():
    sequence = names(make_stream(), 24)
    passes = [sequence[start : start + 8] for start in (0, 8, 16)]
    assert all(len(set(part)) == 8 for part in passes)
    assert len({tuple(part) for part in passes}) == 3 and len(set(sequence)) > 8
    assert sequence == names(make_stream(), 24) != names(make_stream(seed=2), 24)


def test_a_buffer_of_one_keeps_the_order():
    assert names(make_stream(buffer=1), 12) == [f"tiny-{index}" for index in (*range(8), *range(4))]


def test_rows_are_numbered_and_images_stay_files():
    rows = list(islice(make_stream(buffer=1), 9))
    assert [row["row"] for row in rows] == [*range(8), 10]
    assert set(rows[0]) == {"row", *COLUMNS} and set(rows[0]["image"]) == {"bytes", "path"}


def test_workers_share_the_shards_and_a_worker_too_many_rests():
    loader = DataLoader(make_stream(16, shards=2), batch_size=4, num_workers=3, collate_fn=list)
    batches = list(islice(loader, 4))
    assert sorted(row["image_id"] for batch in batches for row in batch) == sorted(f"tiny-{i}" for i in range(16))
    assert len({row["row"] for batch in batches for row in batch}) == 16


def test_a_pass_counts_for_the_worker_that_reads_it_alone():
    """`datasets` shares the number of the pass between workers, and adds to it in two steps."""
    rows = make_stream()
    assert len(names(rows, 24)) == 24 and rows.dataset.epoch == 0


def test_fewer_rows_than_a_batch_are_refused():
    with pytest.raises(ValueError, match="has 3 rows.* 4 .*batch_size"):
        next(iter(make_stream(3)))
    with pytest.raises(ValueError, match="worker 0 of 2 .*3 rows.*dataloader_num_workers") as raised:
        list(islice(DataLoader(make_stream(6, shards=2), batch_size=4, num_workers=2, collate_fn=list), 1))
    clear_frames(raised.tb)  # they hold the workers, which one by one take five seconds to end as garbage


def test_a_stream_that_does_not_name_its_columns_is_refused():
    with pytest.raises(ValueError, match="declare.*features="):
        check_names(tiny.pairs(4).to_iterable_dataset().map(lambda row: row))
    check_names(tiny.pairs(4))


def test_a_column_of_all_rows_is_refused():
    with pytest.raises(TypeError, match="'group' .* streaming"):
        make_stream().column("group")


def test_batches_that_are_skipped_come_without_their_images_and_the_others_unchanged():
    whole = list(islice(make_stream(), 24))
    skipping = make_stream()
    skipping.skip_batches = 3
    rows = list(islice(skipping, 24))
    assert rows[:12] == [{"row": row["row"], SKIPPED: True} for row in whole[:12]]
    assert rows[12:] == whole[12:]
    loader = DataLoader(skipping, batch_size=4, collate_fn=SkippingCollator(lambda rows: "decoded"))
    batches = list(islice(loader, 4))
    assert [batch if batch == "decoded" else batch["row"].tolist() for batch in batches] == [
        *([row["row"] for row in whole[start : start + 4]] for start in (0, 4, 8)),
        "decoded",
    ]


def test_workers_skip_their_turns():
    def batches(skip: int, workers: int) -> list[bool]:
        rows = make_stream(16, shards=2)
        rows.skip_batches = skip
        loader = DataLoader(rows, batch_size=4, num_workers=workers, collate_fn=list)
        return [SKIPPED in batch[0] for batch in islice(loader, 6)]

    assert batches(3, 2) == [True] * 3 + [False] * 3
    # which worker comes next is not known with one too many: nothing is skipped
    assert batches(3, 3) == [False] * 6
