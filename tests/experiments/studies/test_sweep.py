"""Sweeps: what the file may say, the numbers over seeds, and a whole one that is interrupted and goes on."""

from __future__ import annotations

import json
import math
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

from hfcomp.experiments.arm import Arm, method_arm
from hfcomp.experiments.controls import mean_margin, rated_config
from hfcomp.experiments.recipe_files import find_plan, recipes_folder
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.experiments.studies.plans import SweepPlan
from hfcomp.experiments.studies.sweep import run_sweep
from hfcomp.experiments.studies.sweep_report import summarize_sweep, sweep_report
from hfcomp.reading import read_yaml
from hfcomp.reporting.terminal import render_terminal
from hfcomp.sandbox.negatives import DRAWABILITY
from hfcomp.statistics import sign_flip_test
from hfcomp.statistics.run import score
from hfcomp.statistics.summary import summarize
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.cost import StageSummary
from tests import tiny
from tests.experiments.arms import arms_of

VALUES = {
    "seeds": [1, 2, 3],
    "settings": {"slow": {"learning_rate": 1e-5}, "fast": {"learning_rate": 1e-2}},
    "variants": {"none": {"margin": "none"}, "high": {"margin": "static", "static_margin": 3.0}},
    "reference": "none",
    "logged": ["margin"],
}


def write_sweep(folder: Path, **changes: object) -> str:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**VALUES, **changes}, sort_keys=False))
    return str(path)


def plan_of(settings: list[str], seeds: list[int], variants: list[str], **more: object) -> SweepPlan:
    """A plan without a recipe, whose first variant is the reference."""
    names = {"settings": dict.fromkeys(settings, {}), "variants": dict.fromkeys(variants, {})}
    return SweepPlan(**names, seeds=seeds, reference=variants[0], **more)


def test_the_margins_of_slipform_are_forty_five_runs_of_one_recipe():
    sweep = read_plan("slipform", ["--report", "margins", "--max_steps", "7"])
    assert len(sweep.parts) == 3 * 3 * 5
    assert sweep.recipe.trainer_arguments["output_dir"] == "runs/slipform-margins"
    noisy = sweep.parts["edit_noise", 43, "inverse"]
    assert noisy.experiment.edit_noise == 0.6 and sweep.recipe.experiment.edit_noise == 0
    fields = {key: noisy.trainer_arguments[key] for key in ("margin", "seed", "max_steps")}
    assert fields == {"margin": "inverse", "seed": 43, "max_steps": 7}
    assert sweep.parts["clean", 42, "static_1"].trainer_arguments["static_margin"] == 1.0


def test_the_static_margin_of_equal_mean_is_that_of_the_rows_of_each_setting(tmp_path):
    """And human ratings are a setting of their own, which needs the file."""
    settings = {"bands": {}, "human": {"ratings": "human"}}
    variants = {"adaptive": {}, "equal": {"control": "static-margin"}}
    mine = write_sweep(tmp_path, settings=settings, variants=variants, seeds=[1], reference="adaptive")
    with pytest.raises(ValueError, match="settings: human, variants: adaptive: ratings: human"):
        read_plan("slipform", ["--report", mine])
    (tmp_path / "norms.txt").write_text(
        "Word\tConc.M\tDom_Pos\n" + "".join(f"{word}\t4.0\tNoun\n" for word in DRAWABILITY)
    )
    words = ["--dataset_rows", "64", "--concreteness_ratings", str(tmp_path / "norms.txt")]
    arms, notes = arms_of(read_plan("slipform", ["--report", mine, *words]), tmp_path)
    margins = {arm.name: arm.arguments.get("static_margin") for arm in arms}
    bands = method_arm(read_recipe("slipform", ["--dataset_rows", "64"]), arms[1].rows)
    expected = mean_margin(bands, rated_config(bands))
    assert margins == {
        "bands/1/adaptive": None,
        "bands/1/equal": pytest.approx(expected),
        "human/1/adaptive": None,
        "human/1/equal": 0,
    }
    assert abs(expected) > 0.01
    assert any(note.endswith("not used for these rows") for note in notes)


def test_the_folder_that_is_asked_for_is_taken(tmp_path):
    sweep = read_plan("slipform", ["--report", write_sweep(tmp_path), "--output_dir", "here"])
    assert sweep.recipe.trainer_arguments["output_dir"] == "here"


def test_an_unknown_sweep_names_those_that_exist():
    with pytest.raises(FileNotFoundError, match=r"margin: slipform .*'margins'.*: batch_study, margins"):
        find_plan("slipform", "margin", "report")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": [1]}, "unknown key 'seed'. Did you mean 'seeds'?"),
        ({"seeds": [1.5]}, "seeds: entry 1: found 1.5, expected a whole number"),
        (
            {"settings": {"a": {"edit_nois": 1}}},
            "mine.yaml: settings: a: unknown field 'edit_nois'. Did you mean 'edit_noise'?",
        ),
        (
            {"variants": {"none": {"margn": 1}}},
            "mine.yaml: variants: none: unknown field 'margn'. Did you mean 'margin'?",
        ),
        ({"variants": {"none": {"edit_noise": 1}}}, "variants: none: edit_noise changes the rows or batches"),
        ({"variants": {"none": {"batch_size": 8}}}, "variants: none: batch_size changes the rows or batches"),
        ({"settings": {"a": {"evaluation_items": 3}}}, "settings: a: evaluation_items must be the same for all runs"),
        ({"settings": {"a": {"seed": 3}}}, "settings: a: seed must be the same for all runs"),
        (
            {"settings": {"a": {"column_names": {"image": "x"}}}},
            "settings: a: column_names must be the same for all runs",
        ),
        ({"variants": ["none"]}, "variants: found ['none'], expected names, each with a mapping of fields"),
        ({"seeds": [1, 1]}, "seeds: 1 is listed twice"),
        ({"variants": {"a/b": {}}}, "variants: 'a/b' is not a plain name"),
        ({"variants": {False: {}}}, "variants: found False, expected a string. YAML reads yes, no, on and off"),
        ({"settings": {"base": {}}}, "settings: 'base' is reserved"),
        ({"logged": "margin"}, "logged: found 'margin', expected a list of names"),
        ({"reference": ["none"]}, "reference: found ['none'], expected the name of a variant"),
        ({"reference": "plain"}, "reference: found 'plain', expected one of none, high"),
    ],
)
def test_a_wrong_sweep_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError) as caught:
        read_plan("slipform", ["--report", write_sweep(tmp_path, **changes)])
    assert message in str(caught.value)


@pytest.mark.follows("hfcomp/experiments/experiment_config.py", "Remove one, or add a third.")
def test_two_seeds_are_refused_before_anything_is_loaded(tmp_path):
    with pytest.raises(ValueError) as caught:
        read_plan("slipform", ["--report", write_sweep(tmp_path, seeds=[42, 43])])
    assert "mine.yaml: seeds: found two seeds, 42 and 43" in str(caught.value)
    for seeds in ([42], [42, 43, 44]):
        sweep = read_plan("slipform", ["--report", write_sweep(tmp_path, seeds=seeds)])
        assert sweep.plan.seeds == seeds


def test_no_bundled_sweep_has_two_seeds():
    plans = [
        SweepPlan(**values) for path in recipes_folder().rglob("*.yaml") if "variants" in (values := read_yaml(path))
    ]
    assert len(plans) > 5 and all(len(plan.seeds) != 2 for plan in plans)


@pytest.mark.parametrize(
    ("field", "place"), [("margin", "variants: none"), ("seed", "seeds"), ("learning_rate", "settings: slow")]
)
def test_the_command_line_does_not_set_what_the_sweep_sets(tmp_path, field, place):
    with pytest.raises(ValueError, match=f"command line: --{field} .*mine.yaml: {place}"):
        read_plan("slipform", ["--report", write_sweep(tmp_path), f"--{field}", "1"])


def test_a_file_that_is_no_yaml_is_named(tmp_path):
    (tmp_path / "mine.yaml").write_text("seeds: [")
    with pytest.raises(ValueError, match="mine.yaml, line 1: not YAML: "):
        read_plan("slipform", ["--report", str(tmp_path / "mine.yaml")])


def test_a_wrong_value_names_its_run_and_costs_nothing(tmp_path):
    path = write_sweep(tmp_path, variants={"none": {}, "odd": {"margin": "odd"}}, reference="none")
    sweep = read_plan("slipform", ["--report", path, "--output_dir", str(tmp_path / "run")])
    with pytest.raises(ValueError, match="slow/1/odd: margin: found 'odd'"):
        run_sweep(sweep)
    assert not (tmp_path / "run").exists()


def test_the_rows_hold_as_many_negatives_as_any_variant_reads(tmp_path):
    variants = {"one": {"num_negatives": 1}, "three": {"num_negatives": 3}}
    path = write_sweep(tmp_path, settings={"all": {}}, seeds=[1], variants=variants, reference="one", logged=[])
    arms, _ = arms_of(read_plan("hard_negatives", ["--report", path, "--dataset_rows", "64"]), tmp_path)
    one, three = ([len(texts) for texts in arm.rows["negative_captions"]] for arm in arms)
    assert one == three and set(one) == {3}


def sweep_contents(*arguments) -> dict:
    return summarize_sweep(*arguments).contents


def outcomes(model: str, shares: dict[tuple[str, str, str], list[float]]) -> pd.DataFrame:
    tables = []
    for (aspect, subset, metric), values in shares.items():
        columns = {"item": [f"{index}" for index in range(len(values))], "value": values}
        table = pd.DataFrame(columns).assign(image_id=lambda table: "image " + table["item"])
        tables.append(table.assign(benchmark="drawn", subset=subset, metric=metric, aspect=aspect))
    return pd.concat(tables).assign(arm=model)


def test_means_ranges_and_differences_over_seeds(tmp_path):
    """Two kinds of unequal size: their mean weighs them alike; a caption choice beside groups is not in it."""
    swap, other = ("composition", "swap", "group"), ("composition", "other", "group")
    choice, recall = ("composition", "swap", "caption choice"), ("general", "all", "recall@1")
    plan = plan_of(["clean"], [1, 2, 3], ["none", "new"], logged=["margin"])

    def model(name: str, right: int, share: float) -> pd.DataFrame:
        first = [1.0] * right + [0.0] * (20 - right)
        return outcomes(name, {swap: first, other: [0.0] * 4, choice: [1.0] * 20, recall: [share] * 8})

    tables = [model("base", 0, 1.0)]
    for seed, (none, new) in {1: (2, 12), 2: (4, 20), 3: (3, 16)}.items():
        tables += [model(f"clean/{seed}/none", none, 1.0), model(f"clean/{seed}/new", new, 1.0)]
        for variant, margin in (("none", 0.0), ("new", float(seed))):
            (tmp_path / f"clean/{seed}/{variant}").mkdir(parents=True)
            history = [{"margin": margin, "loss": 1.0}, {"train_loss": 1.0}]
            (tmp_path / f"clean/{seed}/{variant}/history.json").write_text(json.dumps(history))
    results = sweep_contents(pd.concat(tables), plan, tmp_path)

    average = "drawn: average group"
    assert results["measures"] == [average, "drawn: swap group", "drawn: other group", "drawn: recall@1"]
    assert results["primary"] == average
    new = results["settings"]["clean"]["new"]
    swapped, mean = new["measures"]["drawn: swap group"], new["measures"][average]
    assert (swapped["value"], swapped["lowest"], swapped["highest"]) == pytest.approx((0.8, 0.6, 1.0))
    assert (mean["value"], mean["lowest"], mean["highest"]) == pytest.approx((0.4, 0.3, 0.5))
    assert swapped["minus"]["value"] == pytest.approx(0.65) and mean["minus"]["value"] == pytest.approx(0.325)
    assert swapped["minus"]["seeds"] == 3 and swapped["minus"]["low"] > 0 and swapped["minus"]["p"] < 0.05
    assert mean["minus"]["p_holm"] == mean["minus"]["p"] and "q" in swapped["minus"]
    assert new["measures"]["drawn: recall@1"]["minus"]["value"] == 0
    assert new["measures"]["drawn: recall@1"]["minus"]["p"] == 1
    assert "minus" not in results["settings"]["clean"]["none"]["measures"][average]
    assert new["logged"] == {"margin": 2.0}
    assert results["base"][average] == 0


def test_seeds_that_disagree_are_no_difference_however_many_items_there_are(tmp_path):
    """Variant `new` gains 12 points with one seed and loses as many with another; items say nothing of a third."""
    line, generator = ("composition", "all", "choice"), np.random.default_rng(0)
    plan = plan_of(["s"], [1, 2, 3], ["none", "new", "better"])
    tables = [outcomes("base", {line: [0.0] * 400})]
    for seed, gain in {1: 0.16, 2: -0.06, 3: 0.06}.items():
        draws = generator.random(400)
        for variant, share in {"none": 0.5, "new": 0.5 + gain, "better": 0.75}.items():
            tables.append(outcomes(f"s/{seed}/{variant}", {line: (draws < share).astype(float)}))
    variants = sweep_contents(pd.concat(tables), plan, tmp_path)["settings"]["s"]
    new, better = (variants[name]["measures"]["drawn: choice"]["minus"] for name in ("new", "better"))
    averaged = np.mean([table["value"] for table in tables[2::3]], axis=0)
    averaged = averaged - np.mean([table["value"] for table in tables[1::3]], axis=0)
    assert sign_flip_test(averaged, np.arange(400)) < 0.01  # as if the seeds were all there are
    assert new["p"] > 0.2 and new["low"] < 0 < new["high"]
    assert better["p"] < 0.01 and better["low"] > 0
    assert better["p_holm"] == pytest.approx(2 * better["p"]) and new["p_holm"] == pytest.approx(new["p"])


def test_seeds_that_disagree_are_no_difference_where_a_subset_has_a_single_image(tmp_path):
    """Such a subset leaves the average without an interval, not without the seeds."""
    many, single = ("composition", "many", "choice"), ("composition", "single", "choice")
    plan = plan_of(["s"], [1, 2, 3], ["none", "new"])
    tables = [outcomes("base", {many: [0.0] * 200, single: [0.0]})]
    for seed, gained in {1: 60, 2: -20, 3: 20}.items():
        for variant, right in {"none": 100, "new": 100 + gained}.items():
            values = [1.0] * right + [0.0] * (200 - right)
            tables.append(outcomes(f"s/{seed}/{variant}", {many: values, single: [0.0]}))
    measures = sweep_contents(pd.concat(tables), plan, tmp_path)["settings"]["s"]["new"]["measures"]
    average = measures["drawn: average choice"]["minus"]
    assert average["value"] == pytest.approx(0.05) and average["seeds"] == 3
    assert math.isnan(average["low"]) and math.isnan(average["high"])
    of_seeds = stats.ttest_1samp([0.15, -0.05, 0.05], 0).pvalue
    assert average["p"] == pytest.approx(of_seeds, abs=1e-6) and of_seeds > 0.4


def test_the_primary_endpoint_of_the_recipe_heads_a_sweep(tmp_path):
    choice, group = ("composition", "swap", "choice"), ("composition", "swap", "group")
    plan = plan_of(["s"], [1], ["a", "b"])
    tables = [outcomes(name, {choice: [0, 1, 1, 1], group: [0, 0, 1, 1]}) for name in ("base", "s/1/a", "s/1/b")]
    contents = summarize_sweep(pd.concat(tables), plan, tmp_path, primary="drawn: swap choice").contents
    assert (contents["primary"], contents["measures"]) == (
        "drawn: swap choice",
        ["drawn: swap choice", "drawn: swap group"],
    )
    with pytest.raises(ValueError, match=r"primary: 'drawn: swap choise'.*'drawn: swap c"):
        summarize_sweep(pd.concat(tables), plan, tmp_path, primary="drawn: swap choise")


def test_a_mean_per_class_is_one_in_sweeps_and_searches_too(tmp_path):
    """900 items of one class and 100 of another count alike, as in the lines of an evaluation."""
    line, whole = ("general", "all", "mean per class"), ("general", "all", "accuracy")
    classes = ["cat"] * 900 + ["dog"] * 100

    def model(name: str, cats: int, dogs: int) -> pd.DataFrame:
        right = [1.0] * cats + [0.0] * (900 - cats) + [1.0] * dogs + [0.0] * (100 - dogs)
        items = outcomes(name, {line: right, whole: right}).assign(chance=0.5, tie=False)
        return items.assign(stratum=np.where(items["metric"] == line[2], classes * 2, None))

    tables = [model("base", 810, 40), model("s/1/a", 810, 40), model("s/1/b", 855, 50)]
    plan = plan_of(["s"], [1], ["a", "b"])
    summary = sweep_contents(pd.concat(tables), plan, tmp_path)
    (expected,) = (
        entry
        for entry in summarize(pd.concat(tables), models=["s/1/a", "s/1/b"], references=["s/1/a"], subject=["s/1/b"])
        if entry["metric"] == line[2]
    )
    name = "drawn: mean per class"
    assert summary["base"] == pytest.approx({name: 0.65, "drawn: accuracy": 0.85})
    assert summary["settings"]["s"]["b"]["measures"][name]["value"] == pytest.approx(0.725)
    minus = summary["settings"]["s"]["b"]["measures"][name]["minus"]
    wanted = expected["differences"]["s/1/b"]["s/1/a"]
    assert [minus[key] for key in ("value", "low", "high")] == pytest.approx(
        [wanted[key] for key in ("value", "low", "high")]
    )
    judged, share = score(tables[2], name), expected["models"]["s/1/b"]
    assert (judged.value, judged.low, judged.high) == pytest.approx((0.725, share["low"], share["high"]))
    assert score(tables[2], "drawn: *").value == pytest.approx((0.725 + 0.905) / 2)


def test_a_contrast_is_the_difference_of_the_means_of_its_sides(tmp_path):
    line = ("composition", "all", "choice")
    tables = [
        outcomes("base", {line: [0, 0, 1, 1]}),
        outcomes("s/1/a", {line: [1, 0, 1, 1]}),
        outcomes("s/1/b", {line: [1, 1, 1, 1]}),
        outcomes("s/1/c", {line: [0, 0, 0, 1]}),
    ]
    contrasts = {"part": {"with": ["a", "b"], "without": ["base", "c"]}, "none": {"with": ["a"], "without": ["a"]}}
    plan = plan_of(["s"], [1], ["a", "b", "c"], contrasts=contrasts)
    differences = sweep_contents(pd.concat(tables), plan, tmp_path)["contrasts"]["s"]
    part, none = (differences[name]["drawn: choice"] for name in ("part", "none"))
    assert part["value"] == pytest.approx((3 / 4 + 1) / 2 - (2 / 4 + 1 / 4) / 2)
    assert part["low"] < part["value"] < part["high"] and 0 < part["p"] <= 1
    assert none["value"] == 0 and none["p"] == 1


def test_a_benchmark_that_was_not_evaluated_is_named():
    items = outcomes("base", {("general", "all", "recall@1"): [1.0] * 3})
    plan = plan_of(["clean"], [1], ["none"], benchmarks=["drawn", "sandbx"])
    with pytest.raises(ValueError, match="benchmarks: 'sandbx' .*, drawn"):
        summarize_sweep(items, plan, Path())


@pytest.fixture(scope="module")
def words(clip, tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("sweep")
    rows = tiny.pairs(16).map(lambda row, index: {"image_id": f"{index}"}, with_indices=True)
    datasets.DatasetDict({"train": rows, "test": rows.select(range(12))}).save_to_disk(folder / "rows")
    fields = f"--config slipform/vit_b32_coco --model {clip} --dataset {folder / 'rows'} --batch_size 8 --max_steps 2"
    machine = "--bf16 false --disable_tqdm true --dataloader_num_workers 0 --save_strategy no"
    machine += " --evaluation own --evaluation_split test"
    machine += " --overlap allow"  # the few rows of the test are those of training
    output = f"--mini_batch_size 8 --logging_steps 1 --report {write_sweep(folder)} --output_dir {folder / 'run'}"
    return f"{fields} {machine} {output}".split()


def test_a_benchmark_that_is_not_evaluated_costs_no_training(words, tmp_path, monkeypatch):
    monkeypatch.setattr(Arm, "train", lambda *_: pytest.fail("trained"))
    path = write_sweep(tmp_path, benchmarks=["sandbx"])
    with pytest.raises(ValueError, match="benchmarks: 'sandbx' .*, own"):
        run_sweep(read_plan("slipform", [*words, "--report", path, "--output_dir", str(tmp_path / "run")]))


@pytest.mark.parametrize(
    ("program", "config", "report"),
    [
        ("ahnpl", "ahnpl/vit_b32_coco", "ablation"),
        ("c2lip", "c2lip/siglip_cc3m", "ablation"),
        ("c2lip", "c2lip/siglip_cc3m", "lambdas"),
    ],
)
def test_a_plan_of_the_sandbox_suits_the_recipe_of_the_paper(program, config, report, request, tmp_path, monkeypatch):
    """The plan names benchmarks by role, so it finds those of any evaluation."""
    model = request.getfixturevalue("siglip" if program == "c2lip" else "clip")
    rows = tiny.pairs(16, concepts=True).map(lambda row, index: {"image_id": f"{index}"}, with_indices=True)
    datasets.DatasetDict({"train": rows, "test": rows.select(range(12))}).save_to_disk(tmp_path / "rows")
    monkeypatch.setattr(Arm, "train", lambda *_: (_ for _ in ()).throw(InterruptedError("training begins")))
    fields = f"--config {config} --report {report} --model {model} --dataset {tmp_path / 'rows'} --batch_size 4"
    fields += " --mini_batch_size 4 --max_steps 2 --bf16 false --evaluation own --evaluation_split test"
    fields += f" --overlap allow --dataloader_num_workers 0 --save_strategy no --output_dir {tmp_path / 'run'}"
    fields += " --primary own:_caption_choice"
    with pytest.raises(InterruptedError, match="training begins"):
        run_sweep(read_plan(program, [word.replace("_caption_choice", " caption choice") for word in fields.split()]))


def test_a_setting_without_the_negative_images_that_it_needs_costs_no_training(words, tmp_path, monkeypatch):
    monkeypatch.setattr(Arm, "train", lambda *_: pytest.fail("trained"))
    path = write_sweep(tmp_path, settings={"clean": {}, "words": {"keyword_negatives": ["color"]}})
    sweep = read_plan("slipform", [*words, "--report", path, "--output_dir", str(tmp_path / "run")])
    with pytest.raises(ValueError, match="^words/1/.*: CementTrainer: none of the 16 rows .*negative_image"):
        run_sweep(sweep)


@pytest.fixture(scope="module")
def swept(words) -> tuple[Path, dict[str, list[str]]]:
    """A sweep that is stopped in its fifth run and started again: its folder, and what was trained each time."""
    trained: dict[str, list[str]] = {"stopped": [], "end": []}
    train = CementTrainer.train

    def count_training(self, *arguments, **keywords):
        part = "end" if len(trained["stopped"]) == 5 else "stopped"
        trained[part].append("/".join(Path(self.args.output_dir).parts[-3:]))
        if part == "stopped" and len(trained[part]) == 5:
            raise KeyboardInterrupt
        return train(self, *arguments, **keywords)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CementTrainer, "train", count_training)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(read_plan("slipform", words))
        return run_sweep(read_plan("slipform", words)), trained


def test_an_interrupted_sweep_goes_on_and_repeats_nothing(swept):
    folder, trained = swept
    every = [f"{s}/{seed}/{v}" for s in VALUES["settings"] for seed in VALUES["seeds"] for v in VALUES["variants"]]
    assert trained == {"stopped": every[:5], "end": every[4:]}
    assert [path.name for path in folder.parent.glob("run*")] == ["run"] and (folder / "finished").exists()
    assert len(list((folder / "evaluation").rglob("*.parquet"))) == 1 + len(every)


def test_the_results_hold_every_setting_variant_and_measure(swept):
    folder, _ = swept
    report = json.loads((folder / "sweep.json").read_text())
    results = report["results"]
    assert results["measures"][0] == "own: caption choice" and len(results["measures"]) == 3
    assert {name: list(variants) for name, variants in results["settings"].items()} == {
        "slow": ["none", "high"],
        "fast": ["none", "high"],
    }
    assert len(report["stages"]) == 12 and len(report["models"]) == 13
    assert report["sweep_schema_version"] == 3
    assert report["plan"]["seeds"] == [1, 2, 3]
    assert results["settings"]["slow"]["none"]["logged"]["margin"] == 0
    assert results["settings"]["fast"]["high"]["logged"]["margin"] == pytest.approx(3.0)


def test_variants_have_the_same_rows_and_seeds_do_not(swept):
    """The first loss is the base's on the first batch: the same batch without margin and with it, in both settings."""
    folder, _ = swept
    histories = {name: json.loads((folder / name / "history.json").read_text())[0] for name in _parts()}
    keys = sorted(key for key in histories["slow/1/none"] if "accuracy" in key)
    assert keys
    for seed in (1, 2, 3):
        same = [[histories[name][key] for key in keys] for name in _parts() if f"/{seed}/" in name]
        assert all(values == same[0] for values in same)
    assert histories["slow/1/none"]["loss"] == histories["fast/1/none"]["loss"] != histories["slow/2/none"]["loss"]
    assert histories["slow/1/high"]["loss"] > histories["slow/1/none"]["loss"]


def _parts() -> list[str]:
    return [f"{s}/{seed}/{v}" for s in VALUES["settings"] for seed in VALUES["seeds"] for v in VALUES["variants"]]


def test_the_tables_fit_eighty_columns(capsys, monkeypatch, tmp_path):
    """Five variants, as the sweep that ships has."""
    monkeypatch.setenv("COLUMNS", "80")
    names = ["none", "adaptive", "static_1", "static_mean", "inverse"]
    plan = plan_of(["clean"], [1, 2, 3], names)
    lines = {("composition", "all", "group"): [0.0, 1.0, 1.0], ("general", "all", "text-to-image recall@1"): [1.0] * 3}
    arms = ["base", *(f"clean/{seed}/{name}" for seed in plan.seeds for name in names)]
    results = summarize_sweep(pd.concat([outcomes(arm, lines) for arm in arms]), plan, tmp_path)
    models = {arm: {"path": arm} for arm in arms}
    facts = {"method": "Slipform", "caveat": "A caveat.", "notes": [], "config": {}, "models": models}
    costs = [StageSummary(f"clean/1/{name}", 1, 1, 1, 1.0, 1.0, 1.0, 1.0, 0.0) for name in names]
    render_terminal(sweep_report(results, costs, facts, tmp_path, brief=True))
    shown = capsys.readouterr().out.rpartition("\nwritten to: ")[0]
    assert max(map(len, shown.splitlines())) <= 80
    assert "means over" in shown and "minus none" in shown and "A caveat." in shown
    assert "static_mean" in shown and "text-to-image" in shown


def test_the_markdown_has_a_row_for_each_measure(swept):
    folder, _ = swept
    report = (folder / "report.md").read_text()
    for line in (
        "### slow: primary: own: caption choice; general: average of 2 lines",
        "### fast: high minus none",
        "| own caption choice (primary) |",
        "| variant | margin |",
    ):
        assert line in report
    assert "## Cost" in report
    assert "3 seeds: the lowest and the highest are shown" in report and "One seed" not in report


def test_a_logged_metric_is_a_mean_over_steps(tmp_path):
    """A checkpoint at step 3 brings a line of its own, which must not weigh as much as one of four steps."""
    plan = plan_of(["clean"], [1], ["kept"], logged=["margin"])
    (tmp_path / "clean/1/kept").mkdir(parents=True)
    lines = [{"step": 3, "margin": 1.0}, {"step": 4, "margin": 5.0}, {"step": 4, "train_loss": 1.0}]
    (tmp_path / "clean/1/kept/history.json").write_text(json.dumps(lines))
    share = {("composition", "all", "group"): [1.0, 0.0]}
    items = pd.concat([outcomes("base", share), outcomes("clean/1/kept", share)])
    variant = sweep_contents(items, plan, tmp_path)["settings"]["clean"]["kept"]
    assert variant["logged"] == {"margin": 2.0}
