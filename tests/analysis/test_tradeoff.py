"""The study of concepts: what its file may say, its numbers and verdicts, and a whole one that is interrupted."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from datasets import Dataset, DatasetDict, Image

from hfcomp.analysis import tradeoff
from hfcomp.analysis.keyword_findings import OPEN, OPPOSITE, SHOWN, StudyResults, summarize_study
from hfcomp.analysis.tradeoff import TRADEOFF, LineName, TradeoffPlan, run_tradeoff, whole_parts, without_unscored
from hfcomp.evaluation import hub
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.evaluation.spec import Unavailable
from hfcomp.experiments import command
from hfcomp.experiments import study as study_module
from hfcomp.experiments.arm import Arm
from hfcomp.experiments.data import load_rows
from hfcomp.experiments.dry_run import DryRun
from hfcomp.experiments.recipe_files import studies
from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.reporting import saving
from hfcomp.trainers.replaced_negatives import ReplacedNegativesTrainer
from tests.evaluation.benchmarks.oracle import parquet, photo
from tests.evaluation.benchmarks.papers.test_inpaintcoco import on_hub as inpaintcoco_on_hub
from tests.evaluation.benchmarks.retrieval.test_retrieval import write_coco_2017
from tests.experiments.arms import repeat_rows

VALUES = {
    "concepts": {"location": [1]},
    "checkpoints_per_epoch": 2,
    "accuracy": {"benchmark": "sandbox keywords", "metric": "top-1"},
    "retrieval": {"benchmark": "sandbox retrieval", "metric": "text-to-image recall@5"},
    "visual": {"benchmark": "sandbox edited", "metric": "image"},
    "further": ["sandbox lone objects"],
}
PLAN = TradeoffPlan(
    concepts={"color": [1, 3]},
    per_epoch=2,
    accuracy=LineName("keywords", "top-1"),
    retrieval=LineName("retrieval", "recall@5"),
    visual=None,
    further=[],
)


def summarize(outcomes: dict, plan: TradeoffPlan) -> StudyResults:
    how = {"numbers": plan.concepts, "checkpoints": plan.per_epoch, "further": plan.further}
    return summarize_study(outcomes, plan.lines(), **how)


def write_plan(folder: Path, **changes: object) -> list[str]:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**VALUES, **changes}, sort_keys=False))
    return ["--report", str(path)]


def make_items(shares: dict[tuple[str, int], tuple[float, float]], number: int = 300) -> pd.DataFrame:
    """Items of which the first are right: shares of accuracy and retrieval by run and step."""
    names = [f"item {index}" for index in range(number)]
    tables = []
    for (run, step), pair in shares.items():
        for (benchmark, metric), share in zip((("keywords", "top-1"), ("retrieval", "recall@5")), pair, strict=True):
            right = (np.arange(number) < round(share * number)).astype(float)
            table = pd.DataFrame({"item": names, "image_id": names, "value": right, "tie": False})
            subset = "color" if benchmark == "keywords" else "all"
            place = {"benchmark": benchmark, "metric": metric, "subset": subset, "chance": 0.1}
            tables.append(table.assign(**place, aspect="any", arm=run, step=step))
    return pd.concat(tables, ignore_index=True)


def paper_like(**changes: tuple[float, float]) -> dict[tuple[str, int], tuple[float, float]]:
    """Two epochs of 6 steps with a checkpoint every 3; near to the paper's Table 3 for color."""
    ends = {"plain": (0.69, 0.64), "HN1": (0.82, 0.63), "HN3": (0.83, 0.60)} | changes
    shares = {("base", 0): (0.48, 0.53)}
    for run, end in ends.items():
        shares |= {(run, step): end for step in (3, 6, 12)}
    return shares


def verdicts(shares: dict[tuple[str, int], tuple[float, float]]) -> dict[str, str]:
    findings = summarize({"color": make_items(shares)}, PLAN).findings
    return {finding.statement: finding.verdict for finding in findings}


def test_the_study_of_the_recipe_is_twelve_runs_and_a_base():
    study = read_plan("hard_negatives", ["--report", "tradeoff", "--learning_rate", "1e-4"])
    assert set(study.parts) == {*(("object", n) for n in (1, 2, 3)), *(("color", n) for n in (1, 2, 3))} | {
        ("location", 1),
        ("size", 1),
    }
    part = study.parts["object", 3]
    assert part.experiment.keyword_negatives == ["object"]
    assert {key: part.trainer_arguments[key] for key in ("num_negatives", "learning_rate")} == {
        "num_negatives": 3,
        "learning_rate": 1e-4,
    }
    assert study.recipe.trainer_arguments["output_dir"].endswith("-tradeoff")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"concept": {"size": [1]}}, "unknown key 'concept'. Did you mean 'concepts'?"),
        ({"concepts": {"size": [0]}}, "concepts: size: entry 1: found 0, expected more than 0"),
        ({"concepts": ["size"]}, "concepts: found ['size'], expected names with numbers"),
        ({"accuracy": "top-1"}, "accuracy: found 'top-1', expected {benchmark: ..., metric: ...}"),
        ({"checkpoints_per_epoch": 0}, "checkpoints_per_epoch: found 0, expected more than 0"),
        ({"further": "sandbox lone objects"}, "further: found 'sandbox lone objects', expected a list of benchmarks"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError) as caught:
        read_plan("hard_negatives", write_plan(tmp_path, **changes))
    assert message in str(caught.value) and "mine.yaml" in str(caught.value)


def test_a_missing_key_is_named(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"concepts": {"size": [1]}, "accuracy": VALUES["accuracy"]}))
    with pytest.raises(ValueError, match="mine.yaml: retrieval"):
        read_plan("hard_negatives", ["--report", str(path)])


@pytest.mark.parametrize("words", [["--num_negatives", "2"], ["--keyword_negatives", "size"]])
def test_the_command_line_does_not_set_what_the_study_sets(tmp_path, words):
    with pytest.raises(ValueError, match=f"command line: {words[0]} .*mine.yaml"):
        read_plan("hard_negatives", [*words, *write_plan(tmp_path)])


def test_a_number_of_steps_is_refused(tmp_path):
    with pytest.raises(ValueError, match="num_train_epochs.*max_steps"):
        read_plan("hard_negatives", ["--max_steps", "7", *write_plan(tmp_path)])


@pytest.mark.parametrize("epochs", ["0.5", "1.5"])
def test_a_part_of_an_epoch_is_refused(tmp_path, epochs):
    with pytest.raises(ValueError, match=f"num_train_epochs: found {epochs},"):
        read_plan("hard_negatives", ["--num_train_epochs", epochs, *write_plan(tmp_path)])


def test_an_epoch_is_cut_into_equal_parts_and_the_rest_is_told():
    logged: list[str] = []
    rows = whole_parts(Dataset.from_dict({"caption": ["a"] * 107}), 5, 10, logged.append)
    assert len(rows) == 100 and len(logged) == 1 and "7 of 107 rows" in logged[0]
    with pytest.raises(ValueError, match="49 rows .*9 steps of 5 .*10 checkpoints"):
        whole_parts(Dataset.from_dict({"caption": ["a"] * 49}), 5, 10, logged.append)


def test_every_finding_of_the_paper_is_shown_by_numbers_like_the_papers():
    by_statement = verdicts(paper_like())
    assert len(by_statement) == 7
    assert set(by_statement.values()) == {SHOWN}


def test_what_the_paper_did_not_find_is_told():
    assert verdicts(paper_like(HN1=(0.60, 0.63)))["HN1 helps more than plain training"] == OPPOSITE
    assert verdicts(paper_like(HN1=(0.69, 0.63)))["HN1 helps more than plain training"] == OPEN
    costly = paper_like(HN1=(0.82, 0.50))
    assert verdicts(costly)["HN1 costs at most 4 points of plain training's retrieval"] == OPPOSITE
    assert verdicts(paper_like(HN3=(0.99, 0.60)))["HN3 adds at most 3 points to HN1"] == OPPOSITE
    late = paper_like() | {("HN1", 6): (0.70, 0.62)}
    assert verdicts(late)["one epoch of HN1 is enough (later ones add at most 2 points)"] == OPPOSITE
    early = paper_like() | {("HN1", 3): (0.40, 0.62)}
    assert verdicts(early)["HN1 already helps after 1/2 of an epoch"] == OPPOSITE


def test_shares_and_epochs_are_those_of_the_outcomes():
    results = summarize({"color": make_items(paper_like())}, PLAN).concepts["color"]
    assert list(results.epochs) == [6, 12]
    accuracy, retrieval = (results.lines[name]["models"] for name in ("accuracy", "retrieval"))
    assert accuracy["HN1", 12]["value"] == pytest.approx(0.82)
    assert retrieval["base", 0]["value"] == pytest.approx(0.53)
    bounds = accuracy["plain", 12]
    assert bounds["low"] < 0.69 < bounds["high"]


def test_a_line_that_nobody_scored_is_named():
    plan = PLAN.model_copy(update={"concepts": {"color": [1]}, "accuracy": LineName("keyword", "top-1")})
    with pytest.raises(ValueError, match=r"accuracy: .*'keyword', 'top-1'.*color.*: keywords, "):
        summarize({"color": make_items(paper_like())}, plan)


def test_a_line_that_a_concept_lacks_is_named_before_anything_is_trained(study, tmp_path, monkeypatch):
    monkeypatch.setattr(Arm, "train", lambda *_: pytest.fail("trained"))
    with pytest.raises(ValueError, match="visual: .*'sandbox edited', 'imag'.*location"):
        run_tradeoff(study(visual={"benchmark": "sandbox edited", "metric": "imag"}))


def test_rows_without_the_negative_images_that_are_needed_cost_no_training(study, monkeypatch):
    required = (*ReplacedNegativesTrainer.required_features, "negative_image_embeds")
    monkeypatch.setattr(ReplacedNegativesTrainer, "required_features", required)
    monkeypatch.setattr(ReplacedNegativesTrainer, "negative_images_advice", "Give rows some.", raising=False)
    monkeypatch.setattr(Arm, "train", lambda *_: pytest.fail("trained"))
    with pytest.raises(ValueError, match="ReplacedNegativesTrainer: .*negative_image"):
        run_tradeoff(study())


SMALL = [
    *("--dataset_rows", "120", "--batch_size", "8", "--num_train_epochs", "1", "--evaluation_items", "10"),
    *("--disable_tqdm", "true"),
]


@pytest.fixture
def study(tmp_path):
    words = [*SMALL, "--output_dir", str(tmp_path / "study")]
    return lambda **changes: read_plan("hard_negatives", [*words, *write_plan(tmp_path, **changes)])


@pytest.mark.slow
def test_a_study_that_was_killed_goes_on_and_finds_the_same(study, tmp_path, monkeypatch):
    folder = tmp_path / "study"
    run_tradeoff(study())
    whole = json.loads((folder / "tradeoff.json").read_text())
    assert (folder / "figure.png").stat().st_size > 10_000
    assert not list(folder.rglob("checkpoint-*"))
    report = (folder / "report.md").read_text()
    assert "accuracy against retrieval (synthetic)](figure.png)" in report and " | HN1 | plain | " in report
    lines = whole["concepts"]["location"]["lines"]
    assert {"accuracy", "retrieval", "visual"} <= set(lines)
    runs = [("base", 0.0), *((run, share) for run in ("plain", "HN1") for share in (0.5, 1.0))]
    assert [(line["run"], line["epochs"]) for line in lines["accuracy"]] == runs
    assert [(line["run"], line["epochs"]) for line in lines["visual"]] == [run for run in runs if run[1] != 0.5]

    shutil.rmtree(folder)
    steps = sorted({line["step"] for line in lines["accuracy"]})[1:]
    names = [("base", 0), *((run, step) for run in ("plain", "HN1") for step in steps)]
    store, kept, there = study_module.write_table, [], []
    deadly = [names[2], names[3]]  # the last checkpoint of plain, the first of HN1

    def record_path(path: Path, *rest: object) -> None:
        name = path.parent.name, int(path.stem)
        if name in deadly:
            deadly.remove(name)
            raise KeyboardInterrupt
        store(path, *rest)
        kept.append(name)

    def train(self: Arm, start: Path | str, where: Path, *rest: object) -> object:
        there.append((where / "stage.json").exists())
        return of_arm(self, start, where, *rest)

    of_arm = Arm.train
    monkeypatch.setattr(saving, "save_report", lambda *_, **__: None)
    monkeypatch.setattr(Arm, "train", train)
    monkeypatch.setattr(study_module, "write_table", record_path)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run_tradeoff(study())
    run_tradeoff(study())
    assert kept == names
    assert there == [False, True, False, True, True]
    again = json.loads((folder / "tradeoff.json").read_text())
    assert again["concepts"] == whole["concepts"] and again["findings"] == whole["findings"]


def test_datasets_of_table_5_that_are_not_evaluated_are_left_out_and_told():
    words = ["--config", "hard_negatives/vit_b32_coco", "--dataset", "coco", "--report", "tradeoff_coco"]
    study, logged = read_plan("hard_negatives", words), []
    assert len(study.plan.further) == 5
    misspelled = [*study.plan.further, "Keywords, Flickr"]
    study = replace(study, plan=study.plan.model_copy(update={"further": misspelled}))
    scored = SimpleNamespace(benchmark=SimpleNamespace(title="Keywords, NASA Earth"))
    plan = without_unscored(study, {"color": Evaluator(logged.append, [scored])}, logged.append).plan
    # a title that no benchmark has is a mistake, which the check of the base's outcomes names
    assert plan.further == ["Keywords, NASA Earth", "Keywords, Flickr"]
    assert len(logged) == 4 and "further: Keywords, SBU is left out, because it is not evaluated" in logged


COCO_WORDS = ("white", "brown", "black", "red", "gray"), ("cat", "dog", "bird", "horse"), ("under", "over")


@pytest.mark.slow
def test_the_study_of_the_paper_on_stand_in_data(tmp_path, clip, monkeypatch):
    """In the layouts of the paper's data: COCO with lists of captions, InpaintCOCO, and two sets of Table 5."""
    monkeypatch.setattr(hub, "_newest", lambda repo: (_ for _ in ()).throw(Unavailable("no network here", "")))
    colors, objects, places = COCO_WORDS
    texts = [
        f"a large {colors[row % 5]} {objects[row % 4]} {places[row % 2]} a small table, picture {row}"
        for row in range(60)
    ]
    images = [{"bytes": photo(row), "path": None} for row in range(60)]
    rows = Dataset.from_dict({"image": images, "caption": [[text, "Nothing to change."] for text in texts]})
    DatasetDict({"train": rows.cast_column("image", Image())}).save_to_disk(tmp_path / "coco")
    inpaintcoco_on_hub(tmp_path / "inpaintcoco")
    for name, caption in (("keywords_nasa", "text"), ("keywords_oldbook", "info_alt")):
        image = "image" if caption == "text" else "1600px"
        columns = {image: [photo(row) for row in range(100, 112)], caption: texts[:12]}
        parquet(tmp_path / name, "train-00000-of-00001", columns, image)
    coco = tmp_path / "coco2017_retrieval"
    write_coco_2017(coco, texts[:40])
    names = [f"keywords_{name}" for name in ("coco", "nasa", "oldbook", "fashion200k")]
    names += ["inpaintcoco", "coco2017_retrieval"]
    data = [f"{name}={tmp_path / name}" for name in names if (tmp_path / name).is_dir()]
    words = ["--config", "hard_negatives/vit_b32_coco", "--dataset", str(tmp_path / "coco"), "--model", str(clip)]
    words += ["--evaluation_benchmarks", *names, "--evaluation_data", *data, f"keywords_coco={coco}"]
    words += ["--output_dir", str(tmp_path / "run"), "--report", "tradeoff_coco", "--primary", "Keywords, COCO: top-1"]
    words += ["--disable_tqdm", "true", "--dataloader_num_workers", "0", "--overlap", "allow"]
    with monkeypatch.context() as patch:  # 92,006 captions have a color (Table 8): 3 epochs of 10 times 143 steps
        patch.setattr(tradeoff, "load_rows", lambda *args, **how: repeat_rows(load_rows(*args, **how), 92_006))
        patch.setattr(DryRun, "_print", lambda study: dry_runs.append(study))
        dry_runs: list[DryRun] = []
        command.main("hard_negatives", [*words, "--dry_run"])
    (dry_run,) = dry_runs
    assert {cost.steps for cost in dry_run.costs.values()} == {3 * 10 * 143} and len(dry_run.costs) == 12
    assert len(dry_run.scored) == 12 * 30
    command.main("hard_negatives", [*words, "--batch_size", "4", "--num_train_epochs", "1", "--fp16", "false"])
    results = json.loads((tmp_path / "run" / "tradeoff.json").read_text())
    lines = {concept: {*own["lines"]} for concept, own in results["concepts"].items()}
    assert {"accuracy", "retrieval", "Keywords, Old Book Illustrations"} <= lines["size"]
    assert "Keywords, NASA Earth" in lines["color"] and "Keywords, Fashion200K" not in lines["color"]
    assert any("Keywords, Fashion200K is left out" in note for note in results["notes"])


def test_the_command_tells_a_study_from_a_sweep(monkeypatch):
    called = []
    run = replace(TRADEOFF, run=lambda study, kind: called.append(study.plan.per_epoch))
    monkeypatch.setitem(studies(), TRADEOFF.key, run)
    command.main("hard_negatives", ["--report", "tradeoff"])
    assert called == [10]


def test_ties_of_a_checkpoint_between_ends_of_epochs_are_shown():
    results = summarize({"color": make_items(paper_like())}, PLAN)
    point = next(point for point in results.concepts["color"].lines["accuracy"]["models"] if point[0] == "HN1")
    results.concepts["color"].lines["accuracy"]["models"][point]["tie_rate"] = 0.25
    accuracy = next(line for line in results.tie_lines() if line["subset"].startswith("color"))
    assert accuracy["models"]["HN1"]["tie_rate"] == 0.25 and "most ties" in accuracy["subset"]
