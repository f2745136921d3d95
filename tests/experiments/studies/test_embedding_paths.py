"""Embeddings that a sweep follows: what its file may say, the distances, and one that is killed and goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
import yaml
from transformers import CLIPModel, CLIPProcessor

from hfcomp.evaluation.encoding.identity import identity
from hfcomp.experiments import study
from hfcomp.experiments.arm import Checkpoints
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.session import open_session
from hfcomp.experiments.studies.embedding_distances import PAIRS, HeldOutRows
from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.experiments.studies.plans import EmbeddingPlan
from hfcomp.experiments.studies.sweep import held_out_rows, run_sweep
from hfcomp.reporting import saving
from hfcomp.reporting.figures import Figure
from hfcomp.trainers.base import CompositionalTrainer
from tests import tiny, tolerances

INFO_NCE = "hfcomp.trainers.info_nce:InfoNCETrainer"
FOLLOWED = ("cement", "plain")
VALUES = {
    "seeds": [1],
    "settings": {"followed": {}, "alike": {}},
    "variants": {"cement": {}, "plain": {"objective": INFO_NCE, "num_negatives": 0}},
    "reference": "plain",
    "embeddings": {"variants": list(FOLLOWED), "rows": 6, "checkpoints": 3, "examples": 1},
}


def write_plan(folder: Path, **changes: object) -> str:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**VALUES, **changes}, sort_keys=False))
    return str(path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["none"], "embeddings: found ['none'], expected a mapping"),
        ({"rows": 9}, "embeddings: variants is missing. Expected a list of variants"),
        ({"variants": ["cement"], "row": 9}, "embeddings: unknown key 'row'. Did you mean 'rows'?"),
        ({"variants": "cement"}, "embeddings: variants: found 'cement', expected a list"),
        ({"variants": ["cemnt"]}, "found 'cemnt', expected one of cement, plain. Did you mean 'cement'?"),
        ({"variants": [1]}, "variants: entry 1: found 1, expected a string"),
        ({"variants": ["cement"], "checkpoints": 0}, "checkpoints: found 0, expected more than 0"),
        ({"variants": ["cement"], "rows": 2.5}, "rows: found 2.5, expected a whole number"),
    ],
)
def test_a_wrong_plan_is_refused(tmp_path, values, message):
    with pytest.raises(ValueError) as caught:
        read_plan("slipform", ["--report", write_plan(tmp_path, embeddings=values)])
    assert message in str(caught.value) and "mine.yaml" in str(caught.value)


def test_without_held_out_negatives_nothing_is_followed(tmp_path):
    words = ["--report", write_plan(tmp_path), "--config", "slipform/vit_b32_coco", "--dataset", "any"]
    words += ["--evaluation", "benchmarks", "--evaluation_benchmarks", "sugarcrepe"]
    with pytest.raises(ValueError, match="names no held-out rows.*--evaluation_split"):
        read_plan("slipform", words)
    read_plan("slipform", [*words, "--dataset_split", "train[200:]", "--evaluation_split", "train[:200]"])


def test_a_sweep_without_the_key_follows_nothing():
    assert read_plan("slipform", ["--report", "margins"]).plan.embeddings is None
    assert EmbeddingPlan(variants=["a"]) == EmbeddingPlan(variants=["a"], rows=200, checkpoints=10, examples=2)


@pytest.mark.parametrize(
    ("checkpoints", "steps", "expected"),
    [
        (10, 250, list(range(25, 251, 25))),
        (10, 70, list(range(7, 71, 7))),  # 70 * 0.1 is a little more than 7
        (10, 25, [3, 6, 9, 12, 15, 18, 21, 24, 25]),
        (10, 4, [1, 2, 3, 4]),
        (1, 4, [4]),
    ],
)
def test_checkpoints_are_even_and_end_with_the_run(checkpoints, steps, expected):
    plan = EmbeddingPlan(variants=["a"], checkpoints=checkpoints)
    assert Checkpoints(plan.save_steps, lambda step: None, "").steps(steps) == expected


def test_the_sandbox_draws_other_rows_of_the_same_kinds_without_noise(tmp_path):
    words = (
        "--dataset_rows 60 --num_negatives 3 --negative_kinds swap_att replace_obj --edit_noise 1 --caption_noise 1"
    )
    recipe = read_recipe("ceclip", [*words.split()])
    session = open_session({})
    rows = held_out_rows(recipe, 30, seed=43, num_negatives=3, session=session)
    again = held_out_rows(recipe, 30, seed=44, num_negatives=3, session=session)
    assert len(rows) == 30 and all(name.startswith("sandbox-training-43-") for name in rows.names)
    assert rows.digest != again.digest and rows.captions != again.captions
    assert {len(texts) for texts in rows.negatives} <= {1, 2, 3} and all(all(texts) for texts in rows.negatives)
    clean = held_out_rows(read_recipe("ceclip", words.split()[:7]), 30, seed=43, num_negatives=3, session=session)
    assert clean.digest == rows.digest  # noise of training is not in them
    assert session.notes[0] == (
        f"embeddings: 30 rows of the sandbox (seed 43), with {sum(map(len, rows.negatives))} negatives"
    )


def without_image(row: dict, index: int) -> dict:
    return {"image": None if index == 2 else row["image"]}


def test_rows_of_ones_own_have_a_negative_each(tmp_path):
    rows = tiny.pairs(8, negatives=1)
    datasets.DatasetDict({"train": rows, "test": rows, "bare": rows.remove_columns("negative_captions")}).save_to_disk(
        tmp_path / "rows"
    )
    words = f"--config slipform/vit_b32_coco --dataset {tmp_path / 'rows'} --evaluation own --evaluation_split"
    session = open_session({})

    def read_rows(split: str) -> HeldOutRows:
        recipe = read_recipe("slipform", [*words.split(), split])
        return held_out_rows(recipe, 5, seed=1, num_negatives=1, session=session)

    assert read_rows("test").names == [f"tiny-{row}" for row in (0, 1, 2, 4, 5)]  # row 3 has none
    with pytest.raises(ValueError, match="embeddings .*column 'negative_captions'"):
        read_rows("bare")
    shutil.rmtree(tmp_path / "rows")
    unnamed = rows.select([0, 0, 1, 2]).remove_columns("image_id").map(without_image, with_indices=True)
    datasets.DatasetDict({"train": rows, "test": unnamed}).save_to_disk(tmp_path / "rows")
    names = read_rows("test").names
    assert len(names) == 3 and names[0] == names[1] != names[2]  # by content; the row without an image is left out
    shutil.rmtree(tmp_path / "rows")
    empty = rows.select([3])
    datasets.DatasetDict({"train": rows, "test": empty}).save_to_disk(tmp_path / "rows")
    with pytest.raises(ValueError, match=r"none of the 1 rows .*\(test\)"):
        read_rows("test")


@pytest.fixture(scope="module")
def words(clip, tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("sweep")
    rows = tiny.pairs(16)
    datasets.DatasetDict({"train": rows, "test": rows.select(range(9))}).save_to_disk(folder / "rows")
    fields = f"--config slipform/vit_b32_coco --model {clip} --dataset {folder / 'rows'} --batch_size 8 --max_steps 3"
    machine = "--bf16 false --disable_tqdm true --dataloader_num_workers 0 --save_strategy no"
    machine += " --evaluation own --evaluation_split test"
    output = f"--mini_batch_size 8 --learning_rate 1e-2 --warmup_steps 0 --report {write_plan(folder)}"
    # the rows that are followed are rows of training
    return f"{fields} {machine} {output} --overlap allow --output_dir {folder / 'run'}".split()


@pytest.fixture(scope="module")
def swept(words, tmp_path_factory) -> tuple[Path, Path, list[str], list[str]]:
    """A sweep that is killed after its second checkpoint is scored, and before the third is stored, and goes on.

    Its folder, the checkpoint of cement at step 1 (kept here, before it is removed), and what was trained and stored.
    """
    kept, trained, stored = tmp_path_factory.mktemp("kept") / "checkpoint", [], []
    train, store, remove = CompositionalTrainer.train, study.write_table, study.remove_checkpoint

    def count_training(self, *arguments, **keywords):
        trained.append(f"{type(self).__name__} {'/'.join(Path(self.args.output_dir).parts[-3:])}")
        return train(self, *arguments, **keywords)

    def stored_once(path: Path, *rest: object) -> None:
        name = "/".join(path.with_suffix("").parts[path.parts.index("evaluation") + 1 :])
        if not name.startswith("embeddings/"):
            return store(path, *rest)
        name = name.removeprefix("embeddings/")
        if name == "cement/2" and "killed" not in stored:
            stored.append("killed")
            raise KeyboardInterrupt
        store(path, *rest)
        stored.append(name)

    def copy_checkpoint(checkpoint: Path) -> None:
        if checkpoint.match("cement/checkpoint-1") and not kept.exists():
            shutil.copytree(checkpoint, kept)
        remove(checkpoint)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CompositionalTrainer, "train", count_training)
        patched.setattr(study, "write_table", stored_once)
        patched.setattr(study, "remove_checkpoint", copy_checkpoint)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(read_plan("slipform", words))
        return run_sweep(read_plan("slipform", words)), kept, trained, stored


def test_a_killed_sweep_goes_on_and_repeats_no_training_and_no_score(swept):
    folder, _, trained, stored = swept
    classes = {"cement": "CementTrainer", "plain": "InfoNCETrainer"}
    assert trained == [f"{classes[v]} {s}/1/{v}" for s in VALUES["settings"] for v in VALUES["variants"]]
    assert stored == ["0", "cement/1", "killed", "cement/2", "cement/3", "plain/1", "plain/2", "plain/3"]
    assert not list(folder.rglob("checkpoint-*")) and not list(folder.rglob("scored"))
    assert (folder / "finished").exists()


def test_keeping_checkpoints_changes_no_weight(swept):
    """The second setting is the first, but for the checkpoints."""
    folder = swept[0]
    for variant in FOLLOWED:
        assert identity(folder / "followed/1" / variant) == identity(folder / "alike/1" / variant)


def distances_by_hand(place: Path, rows: datasets.Dataset) -> tuple[dict[str, float], float]:
    """Means of the distances over rows and their negatives, from the equations, in loops."""
    model, processor = CLIPModel.from_pretrained(place).eval().double(), CLIPProcessor.from_pretrained(place)

    def unit(vector: np.ndarray) -> np.ndarray:
        return vector / np.linalg.norm(vector)

    def embedded(row: dict, texts: list[str]) -> tuple[np.ndarray, list[np.ndarray]]:
        inputs = processor(text=texts, images=row["image"], return_tensors="pt", padding=True)
        with torch.no_grad():
            output = model(**{**inputs, "pixel_values": inputs["pixel_values"].double()})
        return unit(output.image_embeds[0].numpy()), [unit(vector) for vector in output.text_embeds.numpy()]

    means, nearest = [], []
    for row in rows:
        negatives = [text for text in row["negative_captions"] if text]
        image, (text, *others) = embedded(row, [row["caption"], *negatives])
        lines = []
        for other in others:
            shifted = unit(image + other - text)
            pairs = (image, text), (image, other), (image, shifted), (text, other), (shifted, text), (shifted, other)
            lines.append([1 - first @ second for first, second in pairs])
        means.append(np.mean(lines, axis=0))
        nearest.append(all(line[0] < line[1] for line in lines))
    return dict(zip(PAIRS, np.mean(means, axis=0), strict=True)), float(np.mean(nearest))


@pytest.mark.parametrize("step", [0, 1])
def test_distances_are_those_of_the_base_and_of_the_saved_checkpoint(swept, clip, step):
    folder, kept, *_ = swept
    points = json.loads((folder / "embeddings.json").read_text())["variants"]["cement"]["points"]
    values, nearest = distances_by_hand(clip if step == 0 else kept, tiny.pairs(6))
    assert [point["step"] for point in points] == [0, 1, 2, 3]
    assert {name: points[step][name]["value"] for name in PAIRS} == pytest.approx(values, abs=tolerances.cosine())
    assert points[step]["nearest"]["value"] == pytest.approx(nearest)
    assert points[0]["image, text"] != points[1]["image, text"]
    assert all(point[name]["low"] < point[name]["value"] < point[name]["high"] for point in points for name in PAIRS)


def test_the_base_and_the_examples_are_the_same_for_all_variants(swept):
    report = json.loads((swept[0] / "embeddings.json").read_text())
    cement, plain = (report["variants"][name] for name in FOLLOWED)
    assert cement["points"][0] == plain["points"][0] and cement["points"][3] != plain["points"][3]
    assert report["rows"] == 6 and report["setting"] == "followed" and report["seed"] == 1
    (example,) = cement["examples"]
    row = tiny.pairs(1)[0]
    assert (example["caption"], example["negative_caption"]) == (row["caption"], row["negative_captions"][0])
    assert [point["step"] for point in example["points"]] == [0, 1, 2, 3]


def test_the_report_shows_figure_tables_and_examples(swept):
    folder = swept[0]
    assert (folder / "embeddings.png").stat().st_size > 10_000
    assert (folder / "embeddings-example-1.png").read_bytes().startswith(b"\x89PNG")
    report = (folder / "report.md").read_text()
    assert "(embeddings.png)" in report and "(embeddings-example-1.png)" in report
    assert "### plain: distances" in report and "| pair | base | step 1 | step 3 (end) | end minus base |" in report
    assert "| pair | base | cement, step 1 | cement, step 3 (end) | plain, step 1 | plain, step 3 (end) |" in report
    assert f"- plain: trained with {INFO_NCE}" in report and "plain: margin, margin_m" in report


def test_a_finished_run_that_lacks_scores_is_trained_again(swept, words, tmp_path, monkeypatch):
    """Another evaluation set was asked for: its rows were not scored, and the checkpoints are gone."""
    folder = tmp_path / "run"
    shutil.copytree(swept[0], folder)
    (folder / "finished").unlink()
    shutil.rmtree(folder / "evaluation/embeddings/plain")
    before, trained, train = (folder / "embeddings.json").read_text(), [], CompositionalTrainer.train

    def count_training(self, *arguments, **keywords):
        trained.append("/".join(Path(self.args.output_dir).parts[-3:]))
        return train(self, *arguments, **keywords)

    monkeypatch.setattr(CompositionalTrainer, "train", count_training)
    figures: list[Figure] = []
    monkeypatch.setattr(saving, "draw", lambda figure: figures.append(figure) or b"")
    assert run_sweep(read_plan("slipform", [*words[:-1], str(folder)])) == folder
    assert trained == ["followed/1/plain"]
    assert (folder / "embeddings.json").read_text() == before
    (figure,) = figures
    assert (
        "Means over 6 rows of" in figure.caption
        and "One run per panel: followed, seed 1. One seed: " in figure.caption
    )
