"""The plans of the papers' tables: their numbers, a dry run at the papers' scale, and a run on stand-in data."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NamedTuple

import datasets
import pytest

from hfcomp.evaluation import hub
from hfcomp.evaluation.spec import Unavailable
from hfcomp.experiments import command
from hfcomp.experiments.data import load_rows
from hfcomp.experiments.dry_run import DryRun
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.studies import sweep as sweep_module
from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.experiments.studies.plans import Contrast
from hfcomp.experiments.studies.sweep_report import relative_change
from tests import tiny
from tests.evaluation import small_sugarcrepe
from tests.evaluation.benchmarks.papers import test_hierarcaps
from tests.evaluation.benchmarks.retrieval.test_retrieval import write_coco_2017
from tests.evaluation.benchmarks.test_means import COMPOSITIONAL, write_sugarcrepe_pp
from tests.experiments.arms import repeat_rows
from tests.factory.magic.sets import build_magic, source

pytestmark = pytest.mark.usefixtures("without_figures")

COMPOSITION = "sugarcrepe sugarcrepe_pp winoground coco2017_retrieval"
LEVELS = "magic magic_captions hierarcaps_levels coco_caption_choice coco2017_retrieval"
COCO, MAGIC, CC3M = 113_287, 27_828, 2_900_000  # rows that the papers train on: Karpathy's COCO, 80% of MAGIC, CC3M


class Plan(NamedTuple):
    """A plan with its recipe, stand-in data, size in the paper, and runs with the steps of the first and the last."""

    recipe: str
    name: str
    data: str
    benchmarks: str
    rows: int
    runs: int
    steps: tuple[int, int]
    further: str = ""


PLANS = [
    Plan("slipform/vit_b32_coco", "table2", "concretebatch", COMPOSITION, COCO, 36, (550, 550)),
    Plan("slipform/vit_b32_coco", "batch_study", "concretebatch", COMPOSITION, COCO, 12, (550, 550)),
    Plan("clear_glass/vit_b32_magic", "ablation", "magic", LEVELS, MAGIC, 24, (13_915, 6_955)),
    Plan("clear_glass/vit_b32_magic", "table3", "magic", LEVELS, MAGIC, 42, (13_915, 13_915)),
    Plan("c2lip/siglip_cc3m", "ablation", "pairs", COMPOSITION, CC3M, 12, (18_880, 18_880)),
    Plan("c2lip/siglip_cc3m", "lambdas", "pairs", COMPOSITION, CC3M, 15, (18_880, 18_880)),
    Plan("ahnpl/vit_b32_coco", "ablation", "pairs", COMPOSITION, COCO, 15, (8_850, 8_850), "held_out"),
]
EACH = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.recipe.split('/')[0]}-{plan.name}")

# CLEAR GLASS, Table 3: MAGIC's captions and l1 to l4, HierarCaps' l1 to l4, COCO's captions
TABLE_3 = """
clip         69.7 67.7 59.7 56.5 57.2 91.1 93.0 91.4 90.5 96.6
fine_tuned   74.2 68.7 59.5 55.9 57.4 90.4 92.9 91.1 90.3 94.1
released     71.0 68.0 59.2 56.0 56.6 91.5 92.7 89.7 84.4 96.0
hierarcaps   70.0 64.4 55.1 52.2 53.0 91.4 91.9 87.8 78.6 94.0
centroid     74.1 70.2 61.3 57.3 58.9 92.4 93.6 92.6 91.4 96.8
centroid_pt  77.4 73.6 61.2 58.2 57.6 91.5 92.9 87.0 83.4 88.1
pairwise     74.8 71.1 61.7 57.3 59.1 92.8 93.9 93.7 93.6 96.2
pairwise_pt  77.2 73.8 61.0 58.6 57.5 91.4 92.9 87.4 84.6 88.0
"""
GAINS = """
magic          6.0 3.6 0.8 0.5 0.6  0.3  0.1 -0.6 -0.5 -3.5
loss_function  6.5 7.4 5.0 4.8 3.9  1.0  0.7 -2.5  2.6 -3.0
pretraining    6.9 7.8 2.8 4.5 0.9 -0.1 -0.1 -4.2 -3.4 -7.9
"""
MISPRINTED = {("loss_function", 7): 0.1, ("pretraining", 8): -4.6}
"""What the table's own rows give in the two cells that differ."""


def numbers(table: str) -> dict[str, list[float]]:
    return {name: [*map(float, row)] for name, *row in map(str.split, table.strip().splitlines())}


def test_the_gains_of_table_3_are_the_plan_s_contrasts_as_relative_and_truncated_changes():
    """The paper has two models that were not trained on MAGIC: CLIP and HierarCaps as released."""
    contrasts = read_plan("clear_glass", ["--config", PLANS[3].recipe, "--report", "table3"]).plan.contrasts
    rows, untrained = numbers(TABLE_3), {"base": ["clip", "released"]}
    assert contrasts.keys() == numbers(GAINS).keys()
    for name, printed in numbers(GAINS).items():
        sides = {
            side: [model for one in names for model in untrained.get(one, [one])]
            for side, names in (("with", contrasts[name].of), ("without", contrasts[name].without))
        }
        for column, value in enumerate(printed):
            line = {"models": {model: {"value": row[column]} for model, row in rows.items()}}
            expected = MISPRINTED.get((name, column), value)
            assert math.trunc(1000 * relative_change(line, Contrast(**sides))) / 10 == expected, (name, column)


@pytest.mark.parametrize(
    ("variant", "recipe"), [("alignment", "clear_glass/vit_b32_text_alignment"), ("hierarcaps", "hierarcaps/vit_b32")]
)
def test_a_stage_of_table_3_is_trained_as_its_own_recipe_says(variant, recipe):
    sweep = read_plan("clear_glass", ["--config", PLANS[3].recipe, "--report", "table3", "--seeds", "7"])
    part, own = sweep.first(variant), read_recipe(recipe)
    assert part.experiment.batch_size == own.experiment.batch_size and part.seed == 7
    assert part.experiment.dataset_config == own.experiment.dataset_config == "levels"
    for name in ("num_train_epochs", "learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay"):
        assert part.trainer_arguments[name] == own.trainer_arguments[name], name
    for name in ("adam_beta2", "adam_epsilon", "max_grad_norm"):
        assert part.trainer_arguments[name] == own.trainer_arguments[name], name


def test_every_batch_size_sees_each_pair_equally_often():
    words = ["--config", PLANS[1].recipe, "--report", "batch_study"]
    parts = read_plan("slipform", words).parts
    sizes = {variant: part.experiment.batch_size for (_, _, variant), part in parts.items()}
    assert sizes == {"infonce_1024": 1024, "infonce_512": 512, "infonce_256": 256, "cement_1024": 1024}
    arguments = [part.trainer_arguments for part in parts.values()]
    lengths = {(given["num_train_epochs"], given["max_steps"]) for given in arguments}
    assert lengths == {(5, -1)}
    with pytest.raises(ValueError, match=r"--max_steps is set by .*batch_study.yaml: settings: equal_samples"):
        read_plan("slipform", [*words, "--max_steps", "7"])


def write_concretebatch(folder: Path) -> None:
    """The three configurations in the Hub's layout."""
    folder.mkdir()
    header = ["---", "configs:"]
    for config in ("high_concreteness", "low_concreteness", "random"):
        tiny.pairs(64).to_parquet(folder / config / "train-00000-of-00001.parquet")
        header += [f"- config_name: {config}", "  data_files:"]
        header += ["  - split: train", f"    path: {config}/train-*"]
        header += ["  default: true"] * (config == "high_concreteness")
    (folder / "README.md").write_text("\n".join([*header, "---", ""]))


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory) -> Path:
    """A folder with each dataset and benchmark in the layout that the papers' recipes read."""
    root = small_sugarcrepe.write(tmp_path_factory.mktemp("papers"))
    write_sugarcrepe_pp(root)
    write_concretebatch(root / "concretebatch")
    rows = tiny.pairs(64, concepts=True)
    datasets.DatasetDict({"train": rows, "held_out": rows.select(range(12))}).save_to_disk(root / "pairs")
    source(root / "source", per_concept=60)
    build_magic(root)
    test_hierarcaps.write(root / "hierarcaps")
    test_hierarcaps.images(root / "hierarcaps" / "test_imgs", "COCO_val2014_")
    write_coco_2017(root / "coco2017_retrieval")
    return root


@pytest.fixture
def gated(monkeypatch) -> None:
    """Everything that is asked of the Hub is gated."""

    def refuse(name: str, **options):
        if Path(name).is_dir():
            return datasets.load_dataset(name, **options)
        raise datasets.exceptions.DatasetNotFoundError(f"{name} is a gated dataset on the Hub")

    monkeypatch.setattr(hub, "load_dataset", refuse)
    monkeypatch.setattr(hub, "download_files", lambda web, names: (_ for _ in ()).throw(Unavailable("gated", "")))


def words(plan: Plan, root: Path, output: Path, model: Path) -> list[str]:
    own = {"hierarcaps_levels": "hierarcaps", "sugarcrepe": "val2017"}  # val2017 has the images of both SugarCrepes
    names = [place for name in plan.benchmarks.split() for place in (name, own.get(name, name))]
    data = [f"{name}={root / name}" for name in dict.fromkeys(names) if (root / name).is_dir()]
    given = ["--config", plan.recipe, "--report", plan.name, "--model", str(model), "--dataset", str(root / plan.data)]
    given += ["--evaluation_benchmarks", *plan.benchmarks.split(), "--evaluation_data", *data]
    given += ["--primary", read_recipe(plan.recipe).experiment.primary, "--output_dir", str(output)]
    given += ["--evaluation_split", plan.further] if plan.further else []
    return given + ["--overlap", "allow", "--dataloader_num_workers", "0", "--disable_tqdm", "true"]


def at_scale(monkeypatch, number: int) -> None:
    monkeypatch.setattr(sweep_module, "load_rows", lambda *args, **how: repeat_rows(load_rows(*args, **how), number))


@pytest.mark.slow
@EACH
def test_a_dry_run_at_the_paper_s_scale(plan, stand_ins, tmp_path, monkeypatch, gated, request):
    model = request.getfixturevalue("siglip" if plan.recipe.startswith("c2lip") else "clip")
    studies: list[DryRun] = []
    monkeypatch.setattr(DryRun, "_print", lambda study, show=DryRun._print: (studies.append(study), show(study)))
    at_scale(monkeypatch, plan.rows)
    command.main(plan.recipe.split("/")[0], [*words(plan, stand_ins, tmp_path / "run", model), "--dry_run"])
    (study,) = studies
    steps = [cost.steps for cost in study.costs.values()]
    assert (len(steps), steps[0], steps[-1]) == (plan.runs, *plan.steps)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@EACH
def test_a_plan_on_stand_in_data(plan, stand_ins, tmp_path, monkeypatch, gated, request):
    """With one seed, and without Winoground, whose terms are not accepted here."""
    model = request.getfixturevalue("siglip" if plan.recipe.startswith("c2lip") else "clip")
    given = words(plan, stand_ins, tmp_path / "run", model)
    if plan.name == "batch_study":
        at_scale(monkeypatch, 1024)
        given += ["--num_train_epochs", "1"]
    else:
        given += ["--max_steps", "2", "--mini_batch_size", "8"] + ["--batch_size", "8"] * (plan.data != "magic")
    command.main(plan.recipe.split("/")[0], [*given, "--bf16", "false", "--seeds", "42", "--save_strategy", "no"])
    report = json.loads((tmp_path / "run" / "sweep.json").read_text())
    results, text = report["results"], (tmp_path / "run" / "report.md").read_text()
    assert 3 * len(report["stages"]) == plan.runs and "One seed" in text
    if plan.recipe.startswith("slipform"):
        assert results["primary"] == f"{COMPOSITIONAL}: compositional mean without Winoground"
        assert any("facebook/winoground is gated: accept its terms" in note for note in report["notes"])
    if plan.name == "batch_study":
        stages = {stage["name"].rpartition("/")[2]: stage for stage in report["stages"]}
        assert {name: stage["steps"] for name, stage in stages.items()} == {
            "infonce_1024": 1,
            "infonce_512": 2,
            "infonce_256": 4,
            "cement_1024": 1,
        }
        assert len({stage["images"] for stage in stages.values()}) == 1
        shares = results["settings"]["equal_samples"]["infonce_256"]["logged"]
        assert 0 < shares["gradient_hard_negative"] < shares["gradient_easy_negatives"] < 1
    if plan.data == "magic":
        metric = "image choice of 2"
        lines = {
            f"{part} levels: level {level} {metric}" for part in ("MAGIC", "HierarCaps") for level in (1, 2, 3, 4)
        }
        lines |= {f"{part}: caption {metric}" for part in ("MAGIC captions", "COCO caption choice")}
        assert lines <= {*results["measures"]} and f"| HierarCaps levels: level 1 {metric} | +" in text
        for setting, contrasts in results["contrasts"].items():
            assert len(contrasts) == 3 and f"### {setting}: relative change, in percent of the mean" in text
            for changes in contrasts.values():
                assert lines <= changes.keys() and all("relative" in change for change in changes.values())


@pytest.mark.slow
def test_a_row_pt_of_table_3_starts_from_the_model_of_the_text_alignment(stand_ins, tmp_path, clip):
    """Two commands, as an alternative to the plan: the stage, then `--model` with its model."""
    magic = f"{stand_ins / 'magic'}"
    shared = ["--dataset", magic, "--evaluation_benchmarks", "magic", "--evaluation_data", f"magic={magic}"]
    shared += ["--max_steps", "1", "--bf16", "false", "--dataloader_num_workers", "0", "--disable_tqdm", "true"]
    shared += ["--controls", "none"]
    shared += ["--overlap", "allow", "--primary", "MAGIC levels: level * image choice of 2", "--page", "false"]
    stages = {"text_alignment": clip, "magic": tmp_path / "text_alignment" / "method"}
    for name, model in stages.items():
        words = ["--config", f"clear_glass/vit_b32_{name}", "--output_dir", str(tmp_path / name)]
        command.main("clear_glass", [*words, "--model", str(model), *shared])
    report = json.loads((tmp_path / "magic" / "results.json").read_text())
    assert report["models"]["base"]["path"] == str(stages["magic"]) and "CLEAR GLASS" in report["models"]
