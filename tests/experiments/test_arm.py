"""A default batch fits the rows; one that does not is named before an image is encoded."""

import pytest
from datasets import Dataset

from hfcomp.experiments import data
from hfcomp.experiments.arm import fit_batch, method_arm
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.session import Session


def rows(images: int, captions: int = 1) -> Dataset:
    ids = [f"{image}.jpg" for image in range(images) for _ in range(captions)]
    return Dataset.from_dict({"caption": [f"caption {row}" for row in range(len(ids))], "image_id": ids})


class _State:
    is_main_process = True
    num_processes = 1

    def print(self, *_: str) -> None:
        """Nothing is shown."""


def own(*words: str):
    return read_recipe("negclip/own", ["--dataset", "somebody/negatives", *words])


def batch(rows: Dataset, *words: str) -> int:
    return method_arm(own(*words), rows).batch_size


def test_a_batch_shows_at_most_its_fraction_of_the_images():
    lines = []
    assert fit_batch(own().batch, rows(180), lines.append) == 22  # 44 of 180 images with their neighbors
    assert lines == [
        "batch_size is lowered from 128 to 22: the 180 training images would only make 0.7 batches per epoch. "
        "A --batch_size on the command line is kept."
    ]
    assert batch(rows(180)) == 22
    assert batch(rows(180), "--num_neighbors", "0", "--hard_images", "0") == 45
    assert batch(rows(36, captions=5)) == 4, "captions are not images"
    assert batch(rows(180), "--max_batch_fraction", "0.5") == 45


def test_it_is_a_multiple_of_the_processes(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert batch(rows(180)) == 20


def test_a_batch_of_the_command_line_is_kept():
    assert batch(rows(180), "--batch_size", "64") == 64


def test_large_sets_and_streams_keep_the_recipe_s():
    assert batch(rows(2000)) == batch(rows(20).to_iterable_dataset()) == 128


@pytest.mark.follows("hfcomp/data/sampling/neighbors.py", "Lower {setting} to")
def test_too_few_images_are_named_before_neighbors_are_searched(monkeypatch):
    monkeypatch.setattr(data, "with_neighbors", lambda *_, **__: pytest.fail("encoded images"))
    monkeypatch.setattr(data, "training_rows", lambda *_, **__: rows(180))
    recipe = own("--overlap", "allow", "--batch_size", "128")
    with pytest.raises(ValueError, match="180 images.* 256 .*--batch_size .* 90 "):
        data.load_rows(recipe, Session(state=_State()), [])
    few = ["--overlap", "allow", "--batch_size", "90", "--hard_images", "0"]
    assert len(data.load_rows(own(*few), Session(state=_State()), []).rows) == 180


def test_a_missing_column_is_named_before_neighbors_are_searched(monkeypatch):
    monkeypatch.setattr(data, "with_neighbors", lambda *_, **__: pytest.fail("encoded images"))
    monkeypatch.setattr(data, "training_rows", lambda *_, **__: rows(180))
    with pytest.raises(ValueError, match="InfoNCETrainer .*columns 'image', 'negative_captions'"):
        data.load_rows(own("--overlap", "allow"), Session(state=_State()), [])
