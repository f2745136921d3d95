"""Six captions of three photographs in a table without `image_id`: three images for every reader and build."""

from __future__ import annotations

import csv
import logging
from pathlib import Path

import pytest
import torch
from datasets import Dataset, load_dataset

from hfcomp.analysis.audit.audit import audit
from hfcomp.analysis.audit.options import AuditOptions
from hfcomp.analysis.audit.reading import read_audit_set
from hfcomp.analysis.gallery.options import GalleryOptions
from hfcomp.analysis.gallery.rows import choose_rows, read_set
from hfcomp.analysis.pairs.items import read_pairs
from hfcomp.analysis.pairs.options import DataOptions
from hfcomp.data import load_training_set
from hfcomp.data.image_ids import photographs_or_rows, with_image_ids
from hfcomp.data.overlap import ScoredImages, without_overlap
from hfcomp.data.pair_table import every_caption
from hfcomp.evaluation.benchmarks.own import own_benchmark
from hfcomp.evaluation.blind.captions import read_caption_source
from hfcomp.evaluation.encoding.neighbors import with_neighbors
from hfcomp.evaluation.loaded import load_benchmark
from hfcomp.evaluation.spec import Folders
from hfcomp.experiments.arm import Arm
from hfcomp.experiments.controls import shuffled_negatives
from hfcomp.experiments.studies.embedding_distances import select_rows
from hfcomp.factory.build import build_set
from hfcomp.factory.magic.image_rows import image_rows
from hfcomp.factory.options import NegativeOptions
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tiny
from tests.trainers.runs import build, history, loss_and_gradients

PHOTOGRAPHS = ["0.png", "0.png", "1.png", "1.png", "2.png", "2.png"]
REPORT = "hfcomp.trainers._support.row_report"


def caption(row):
    return f"a {tiny.COLORS[row]} {tiny.SHAPES[row]} on a {tiny.COLORS[(row + 1) % 6]} {tiny.SHAPES[(row + 3) % 6]}"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    (folder / "photos").mkdir()
    for number in range(3):
        tiny.image(number).save(folder / "photos" / f"{number}.png")
    with (folder / "pairs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("image", "caption", "negative_captions"))
        writer.writerows((f"photos/{row // 2}.png", caption(row), f'["not {caption(row)}"]') for row in range(6))
    return folder / "pairs.csv"


@pytest.fixture(scope="module")
def embedded(table):
    """The same rows with the bytes of their images, without names of files."""
    rows = load_training_set(str(table))
    cells = [{"bytes": Path(cell["path"]).read_bytes(), "path": None} for cell in rows["image"]]
    return Dataset.from_dict({**rows.to_dict(), "image": cells}, features=rows.features)


@pytest.fixture(params=["files", "bytes"])
def rows(request, table, embedded):
    return load_training_set(str(table)) if request.param == "files" else embedded


def shares(ids):
    """Compares the ids of all pairs of rows."""
    return [[image_id == other for other in ids] for image_id in ids]


def test_a_training_masks_the_captions_of_one_photograph(clip, rows, tmp_path, caplog):
    named = rows.add_column("image_id", PHOTOGRAPHS)
    losses = [
        loss_and_gradients(build(InfoNCETrainer, clip, dataset, tmp_path), range(6))[0] for dataset in (named, rows)
    ]
    assert torch.equal(*losses)
    apart = rows.map(lambda row, number: {"image_id": str(number)}, with_indices=True)
    assert loss_and_gradients(build(InfoNCETrainer, clip, apart, tmp_path), range(6))[0] > losses[0] + 1e-3
    trainer = build(InfoNCETrainer, clip, rows, tmp_path, per_device_train_batch_size=6, max_steps=1)
    with caplog.at_level(logging.WARNING, logger=REPORT):
        trainer.train()
    assert history(trainer, "same_image_pairs") == [6]
    assert any(record.message.startswith("6 of 6 rows share their image") for record in caplog.records)


def test_so_does_an_evaluation_and_a_stream(clip, rows, tmp_path):
    named = rows.add_column("image_id", PHOTOGRAPHS)
    trainer = build(InfoNCETrainer, clip, named, tmp_path)
    assert trainer.evaluate(rows)["eval_loss"] == trainer.evaluate(named)["eval_loss"]
    settings = {"per_device_train_batch_size": 6, "max_steps": 1}
    streamed = build(InfoNCETrainer, clip, rows.to_iterable_dataset(), tmp_path, **settings)
    streamed.train()
    assert history(streamed, "same_image_pairs") == [6]


def test_rows_that_were_selected_are_not_copied(rows):
    chosen = rows.select([5, 0, 4, 4])
    dataset = with_image_ids(chosen)
    assert shares(dataset["image_id"][:]) == shares([2, 0, 2, 2])
    assert dataset["caption"][:] == chosen["caption"][:] and dataset._indices is not None
    assert dataset.data.column("image").chunk(0).buffers()[1:] == chosen.data.column("image").chunk(0).buffers()[1:]


def test_all_readers_of_the_table_find_three(table, clip):
    place = str(table)
    rows = load_training_set(place)
    assert read_pairs("own", place, DataOptions(), None).items["image_id"].tolist() == [
        f"own: {name}" for name in PHOTOGRAPHS
    ]
    data = read_audit_set(place, AuditOptions())
    assert data.image_ids == PHOTOGRAPHS and len(data.first_rows) == 3
    shown = choose_rows(read_set(place, GalleryOptions()), place, GalleryOptions())
    assert shown.dataset["image_id"][:] == PHOTOGRAPHS
    scored = load_benchmark(own_benchmark(place))
    assert scored.data.rows["image_id"][:] == PHOTOGRAPHS
    assert read_caption_source(place, Folders(None), []).images == PHOTOGRAPHS
    assert select_rows(rows, 6, "own").names == PHOTOGRAPHS
    assert image_rows(rows).images["image_id"][:] == ["0.png", "1.png", "2.png"]
    near = with_neighbors(rows, place=clip, number=5, log=lambda line: None)
    assert near["image_id"][:] == PHOTOGRAPHS and set(near["neighbor_ids"][0]) == {"1.png", "2.png"}


def test_lists_of_captions_of_one_photograph_are_known_as_such(table):
    rows = load_training_set(str(table)).map(lambda row: {"caption": [row["caption"], "another"]})
    assert every_caption(rows, lambda line: None)["image_id"][:] == PHOTOGRAPHS * 2


def test_a_built_set_has_the_photograph_of_each_row(table, tmp_path):
    options = NegativeOptions(source=str(table), output=tmp_path / "set", kinds=("keyword",))
    build_set(options, log=lambda line: None)
    assert load_training_set(str(tmp_path / "set"))["image_id"][:] == PHOTOGRAPHS
    (file,) = (tmp_path / "set").rglob("*.parquet")
    assert load_dataset("parquet", data_files=str(file), split="train")["image_id"][:] == PHOTOGRAPHS


def test_a_set_built_without_the_column_is_read_as_before(table, embedded, tmp_path):
    embedded.to_parquet(tmp_path / "old.parquet")
    place = str(tmp_path / "old.parquet")
    data, pairs = read_audit_set(place, AuditOptions()), read_pairs("old", place, DataOptions(), None)
    scored = load_benchmark(own_benchmark(place))
    for ids in (data.image_ids, pairs.items["image_id"].tolist(), scored.data.rows["image_id"][:]):
        assert shares(ids) == shares(PHOTOGRAPHS)


def test_a_photograph_on_both_sides_of_a_split_is_not_trained_on(rows):
    training, held_out = rows.select(range(3)), rows.select(range(3, 6))
    kept, overlap = without_overlap(training, [ScoredImages("held out", held_out["image"])], progress=False)
    assert kept["caption"][:] == [caption(0), caption(1)] and overlap.shown == 1


def test_shuffled_negatives_are_those_of_another_photograph(rows):
    for seed in range(5):
        arm = Arm("cement", CementTrainer, {"seed": seed}, rows, "model", 6)
        partners = shuffled_negatives(arm).rows.partners.tolist()
        assert sorted(partners) == list(range(6))
        assert all(row // 2 != partner // 2 for row, partner in enumerate(partners))


def test_known_true_reads_all_captions_of_the_photograph(table, tmp_path):
    """The second caption of photograph 0 is the negative of its first, and only the file of captions has it."""
    with (tmp_path / "set.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("image", "caption", "negative_captions"))
        for row in (0, 2, 4):
            wrong = caption(1) if row in (0, 2) else "a horse"
            writer.writerow((table.parent / f"photos/{row // 2}.png", caption(row), f'["{wrong}"]'))
    place = str(tmp_path / "set.csv")
    facts = [
        audit(place, AuditOptions(captions=captions), hashes=tmp_path / "hashes").checks["known_true"].facts
        for captions in (None, str(table))
    ]
    assert facts == [{"pairs": 0, "rows": []}, {"pairs": 1, "rows": [0]}]


def test_two_files_of_one_name_are_two_photographs(table, tmp_path):
    for number, folder in enumerate("ab"):
        (tmp_path / folder).mkdir()
        tiny.image(number).save(tmp_path / folder / "1.png")
    (tmp_path / "pairs.csv").write_text("image,caption\na/1.png,one\nb/1.png,two\na/1.png,three\n")
    rows = load_training_set(str(tmp_path / "pairs.csv"))
    assert photographs_or_rows(rows) == ["a/1.png", "b/1.png", "a/1.png"]
