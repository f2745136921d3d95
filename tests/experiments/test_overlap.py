"""Images that a recipe trains on and scores: left out, refused or allowed, and counted wherever results are read."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import datasets
import pytest
import torch
import yaml

from hfcomp.data.overlap import find_overlap
from hfcomp.experiments import program
from hfcomp.experiments.data import load_rows
from hfcomp.experiments.prepare import prepare
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.session import Session
from tests import tiny
from tests.data.photographs import encode, resize, texture

pytestmark = pytest.mark.usefixtures("without_figures")

REAL = pytest.mark.skipif(
    "HFCOMP_REAL_DATA" not in os.environ, reason="HFCOMP_REAL_DATA names a folder of photographs"
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(folder))


def pairs(seeds: range, *, short_side: int = 128) -> datasets.Dataset:
    """Rows of `tiny.pairs` with textures in the place of its images, which look like nothing else."""
    rows = tiny.pairs(len(seeds), ragged=False)
    images = [{"bytes": encode(resize(texture(seed), short_side)), "path": None} for seed in seeds]
    rows = rows.remove_columns(["image", "image_id"])
    return rows.add_column("image", images).cast_column("image", datasets.Image(decode=False))


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> dict[str, str]:
    """16 rows of training, and 6 to score of which 4 are resized copies of them."""
    folders = {name: str(tmp_path_factory.mktemp("rows") / name) for name in ("train", "test")}
    pairs(range(16)).save_to_disk(folders["train"])
    pairs(range(12, 18), short_side=90).save_to_disk(folders["test"])
    return folders


def recipe(rows: dict[str, str], clip: Path, output: Path | str = "unused", **changes: object):
    fields = {
        "config": "slipform/vit_b32_coco",
        "model": clip,
        "dataset": rows["train"],
        "evaluation": "own",
        "evaluation_dataset": rows["test"],
        "batch_size": 4,
        "mini_batch_size": 4,
        "max_steps": 1,
        "bf16": "false",
        "dataloader_num_workers": 0,
        "save_strategy": "no",
        "use_cpu": "true",
        "disable_tqdm": "true",
        "output_dir": output,
        **changes,
    }
    return read_recipe("slipform", [word for name, value in fields.items() for word in (f"--{name}", str(value))])


class Quiet:
    """The processes of a run that says nothing."""

    is_main_process, num_processes = True, 1

    def print(self, text: str) -> None:
        pass

    def wait_for_everyone(self) -> None:
        pass


def scored_images(asked, session: Session) -> list:
    """The images that a recipe is scored on."""
    return prepare(asked.experiment, column_names=asked.column_names, log=session.log).images


def load(asked) -> tuple[datasets.Dataset, Session]:
    session = Session(Quiet())
    return load_rows(
        asked, session, prepare(asked.experiment, column_names=asked.column_names, log=session.log).images
    ).rows, session


def test_a_run_leaves_them_out_of_every_model_and_says_so_everywhere(rows, clip, tmp_path):
    torch.set_num_threads(1)
    folder = program.run(recipe(rows, clip, tmp_path / "run", controls="plain", max_steps=-1, num_train_epochs=1))
    results = json.loads((folder / "results.json").read_text())
    (overlap,) = results["overlap"]
    assert overlap["policy"] == "exclude"
    counts = ("training_rows", "overlapping_rows", "left_out_rows", "scored_images", "scored_images_in_training")
    assert [overlap[name] for name in counts] == [16, 4, 4, 6, 4]
    assert overlap["rows_by"] == {"name": 0, "file": 0, "pixels": 0, "look": 4}
    said = "overlap: 4 of 16 training rows show 4 of the 6 scored images (4 by look;"
    assert any(note.startswith(said) and note.endswith("they are left out") for note in results["notes"])
    assert results["data"]["training"]["rows"] == 12
    # one epoch of 12 rows, not 16, for the control and the method alike
    assert {stage["name"]: stage["steps"] for stage in results["stages"]} == {"plain": 3, "Slipform": 3}
    assert said in (folder / "report.md").read_text()
    for card in (folder / "README.md", folder / "method" / "README.md"):
        assert said.removeprefix("overlap: ") in card.read_text().partition("## Overlap")[2]


def test_a_photograph_with_captions_on_both_sides_of_a_split_is_held_out(clip, tmp_path):
    """Eight photographs with two captions each and no `image_id`; the fourth is on both sides."""
    place = str(tmp_path / "rows")
    pairs(range(8)).select([row // 2 for row in range(16)]).save_to_disk(place)
    parts = {"dataset_split": "train[:7]", "evaluation_split": "train[7:]"}
    training_rows, session = load(recipe({"train": place, "test": place}, clip, **parts))
    ids = training_rows["image_id"][:]
    assert len(ids) == 6 and ids[::2] == ids[1::2] and len({*ids}) == 3
    assert any("1 of 7 training rows show 1 of the 5 scored images" in note for note in session.notes)


def test_refuse_names_counts_rows_and_how_to_fix_it(rows, clip):
    with pytest.raises(ValueError) as caught:
        load(recipe(rows, clip, overlap="refuse"))
    error = str(caught.value)
    assert "overlap: 4 of 16 training rows show 4 of the 6 scored images" in error and "set to refuse" in error
    assert "column 'image', row 12 is own evaluation set, row 0 by its look" in error and "row 14" in error
    assert "--overlap exclude" in error and "--overlap allow" in error


def test_allow_trains_on_them_and_counts_them(rows, clip, tmp_path):
    """By name and file, for which nothing is decoded."""
    files = tmp_path / "files"
    pairs(range(12, 18)).save_to_disk(files)
    kept, session = load(recipe(rows, clip, evaluation_dataset=files, overlap="allow"))
    (facts,) = session.overlap.facts.values()
    assert len(kept) == 16 and (facts["overlapping_rows"], facts["left_out_rows"]) == (4, 0)
    assert session.notes[-1].endswith("overlap: allow trains on them")
    _, session = load(recipe(rows, clip, overlap="allow"))
    assert session.notes[-1].endswith("only by name and file")


def test_rows_that_look_alike_stay_with_a_warning_and_are_refused(rows, clip, monkeypatch):
    monkeypatch.setattr("hfcomp.data.overlap.guard.MOST_BY_LOOK", (3, 0.02))
    kept, session = load(recipe(rows, clip))
    (facts,) = session.overlap.facts.values()
    assert len(kept) == 16 and (facts["left_out_rows"], facts["unsure_rows"]) == (0, 4)
    assert "WARNING: 4 of 16 training rows" in session.notes[-1]
    assert "training INCLUDES them" in session.notes[-1] and "row 12 is own evaluation set, row 0" in session.notes[-1]
    with pytest.raises(ValueError, match="overlap: .*4 of 16 .*look"):
        load(recipe(rows, clip, overlap="refuse"))


def test_a_second_seed_of_the_same_rows_is_not_compared_again(rows, clip, monkeypatch):
    calls = []
    find = "hfcomp.data.overlap.policy.find_overlap"
    monkeypatch.setattr(find, lambda *given, **how: calls.append(how) or find_overlap(*given, **how))
    session = Session(Quiet())
    images = scored_images(recipe(rows, clip), session)
    training_sets = [load_rows(recipe(rows, clip, seed=seed), session, images) for seed in (1, 2)]
    assert (
        len(calls) == 1
        and [len(training_set.rows) for training_set in training_sets] == [12, 12]
        and len(session.overlap.facts) == 2
    )
    load_rows(recipe(rows, clip, dataset_split="train[:14]"), session, images)
    assert len(calls) == 2
    assert calls[0]["columns"] == ["image", "negative_image"]  # of Cement, which reads both
    load_rows(recipe(rows, clip, config="negclip/vit_b32_coco"), session, images)
    assert calls[-1]["columns"] == ["image"]


def test_without_overlap_that_is_said_too(rows, clip, tmp_path):
    pairs(range(30, 34)).save_to_disk(tmp_path / "other")
    kept, session = load(recipe(rows, clip, evaluation_dataset=tmp_path / "other"))
    assert len(kept) == 16
    assert session.notes[-1] == "overlap: none of 16 training rows shows one of the 4 scored images"


def test_nothing_left_to_train_on_is_an_error(rows, clip, tmp_path):
    pairs(range(16)).save_to_disk(tmp_path / "same")
    with pytest.raises(ValueError, match=r"16 of 16 .*none is left"):
        load(recipe(rows, clip, evaluation_dataset=tmp_path / "same"))


def test_another_policy_is_refused(rows, clip):
    with pytest.raises(ValueError, match="--overlap: found 'warn'.* exclude, refuse, allow"):
        recipe(rows, clip, overlap="warn")


def test_a_set_of_one_split_is_not_scored_under_the_name_of_another(rows, clip):
    """`save_to_disk` of one dataset knows no splits: it is read whole whatever is asked for."""
    same = recipe(rows, clip, evaluation_dataset=rows["train"], evaluation_split="test")
    with pytest.raises(ValueError, match="evaluation: own: .*one split") as caught:
        load(same)
    assert "another split" not in str(caught.value)
    sliced = {"dataset_split": "train[:75%]", "evaluation_split": "train[75%:]"}  # as the error says
    kept, session = load(recipe(rows, clip, evaluation_dataset=rows["train"], **sliced))
    assert len(kept) == 12 and "the 4 scored images" in session.notes[-1]


def test_a_run_that_goes_on_trains_on_the_rows_that_it_began_with(rows, clip, tmp_path):
    _, session = load(recipe(rows, clip))
    session.overlap.check_and_write(tmp_path)
    load(recipe(rows, clip))[1].overlap.check_and_write(tmp_path)
    pairs(range(10, 18)).save_to_disk(tmp_path / "more")
    _, other = load(recipe(rows, clip, evaluation_dataset=tmp_path / "more"))
    with pytest.raises(ValueError, match="changed .*: overlap: 4 of 16 .*: overlap: 6 of 16"):
        other.overlap.check_and_write(tmp_path)


def test_the_sandbox_keeps_all_its_rows_and_says_why(tmp_path):
    words = ["--dataset_rows", "200", "--use_cpu", "true", "--disable_tqdm", "true", "--evaluation_items", "2"]
    kept, session = load(read_recipe("slipform", words))
    assert len(kept) == 200
    assert session.notes[-1].startswith("overlap: the evaluation uses only sandbox")
    kept, session = load(read_recipe("clear_glass", words))
    assert len(kept) == 200
    assert session.notes[-1] == "overlap: none of 200 training rows shows one of the 500 scored images"


def test_a_stream_is_compared_as_it_is_read_and_says_what_is_not(rows, clip, tmp_path):
    (tmp_path / "stream").mkdir()
    datasets.load_from_disk(rows["train"]).to_parquet(tmp_path / "stream" / "train.parquet")
    pairs(range(14, 18)).save_to_disk(tmp_path / "test")  # the same files
    fields = {"dataset": tmp_path / "stream", "evaluation_dataset": tmp_path / "test", "streaming": "true"}
    kept, session = load(recipe(rows, clip, **fields))
    assert len(list(kept)) == 14
    assert "left_out_rows" in session.notes[-1]
    assert session.notes[-1].endswith("not detected in a stream")
    kept, session = load(recipe(rows, clip, **fields, overlap="allow"))
    assert len(list(kept)) == 16 and "the streamed rows are not compared" in session.notes[-1]


def real(clip: Path, *words: str):
    flags = ["--model", str(clip), "--max_steps", "1", "--use_cpu", "true", "--disable_tqdm", "true", *words]
    return read_recipe("slipform/real", flags)


@REAL
def test_the_photographs_of_sugarcrepe_are_left_out_of_training_on_all(clip):
    kept, session = load(real(clip, "--dataset_filter", ""))
    assert len(kept) == 296 and not any(kept["in_sugarcrepe"])
    (facts,) = session.overlap.facts.values()
    assert (facts["left_out_rows"], facts["scored_images"], facts["rows_by"]["file"]) == (153, 153, 153)
    kept, _ = load(real(clip))
    assert len(kept) == 296


@REAL
def test_training_and_scoring_on_the_same_153_photographs(clip, tmp_path):
    same = ["--dataset_filter", "in_sugarcrepe=true"]
    for policy in ("exclude", "refuse"):
        with pytest.raises(ValueError, match="153 of 153 training rows .*153 of the 153 scored"):
            load(real(clip, *same, "--overlap", policy))
    torch.set_num_threads(1)
    folder = program.run(real(clip, *same, "--overlap", "allow", "--output_dir", str(tmp_path / "run")))
    assert yaml.safe_load((folder / "config.yaml").read_text())["overlap"] == "allow"
    (overlap,) = json.loads((folder / "results.json").read_text())["overlap"]
    assert (overlap["policy"], overlap["overlapping_rows"], overlap["left_out_rows"]) == ("allow", 153, 0)
    said = "153 of 153 training rows show 153 of the 153 scored images, .* only by name and file .153 by file;"
    for name in ("report.md", "README.md", "method/README.md"):
        assert re.search(said, (folder / name).read_text()), name
