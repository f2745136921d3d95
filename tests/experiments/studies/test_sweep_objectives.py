"""Variants of a sweep that train another objective than the recipe's."""

from __future__ import annotations

import re
from math import nan
from pathlib import Path

import pytest
import yaml

from hfcomp.data.concepts.spans import RandomSpans
from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.experiments.studies.plans import SweepPlan
from hfcomp.experiments.studies.sweep_report import SweepResults, contrast_pair, publish_sweep
from hfcomp.trainers.ce_clip import CEClipTrainer
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.cost import StageSummary
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests.experiments.arms import arms_of

INFO_NCE = "hfcomp.trainers.info_nce:InfoNCETrainer"
CE_CLIP = "hfcomp.trainers.ce_clip:CEClipTrainer"
VALUES = {
    "seeds": [1],
    "settings": {"all": {"margin": "static"}},
    "variants": {"cement": {}, "plain": {"objective": INFO_NCE, "num_negatives": 0}},
    "reference": "plain",
}
NOTE = f"plain: margin ignored, because {INFO_NCE} has no such field"


def read(folder: Path, *words: str, recipe: str = "slipform", **changes: object):
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**VALUES, **changes}, sort_keys=False))
    return read_plan(recipe, ["--report", str(path), *words])


def test_a_variant_trains_its_own_objective_with_the_fields_that_it_has(tmp_path):
    sweep = read(tmp_path, "--learning_rate", "0.5")
    own, plain = sweep.first("cement"), sweep.first("plain")
    assert (own.trainer_class, plain.trainer_class) == (CementTrainer, InfoNCETrainer)
    assert plain.experiment.objective == INFO_NCE
    lacking = {"margin"}
    assert set(own.trainer_arguments) - set(plain.trainer_arguments) == lacking
    for key in set(own.trainer_arguments) - lacking:
        assert plain.trainer_arguments[key] == own.trainer_arguments[key], key
    assert plain.trainer_arguments["num_negatives"] == 0 and plain.trainer_arguments["learning_rate"] == 0.5
    assert sweep.notes == [NOTE] and sweep.plan.variant_values("objective") == {"plain": INFO_NCE}


def test_a_variants_own_fields_get_the_kinds_of_its_trainer(tmp_path):
    """YAML reads 1e-1 as a text; `margin` is a text for the recipe's trainer, and unknown to this one."""
    fields = {"objective": CE_CLIP, "rank_weight": "1e-1", "weight_decay": "2e-1"}
    sweep = read(tmp_path, variants={"cement": {}, "other": fields}, reference="other")
    recipe = sweep.first("other")
    assert recipe.trainer_class is CEClipTrainer
    assert (recipe.trainer_arguments["rank_weight"], recipe.trainer_arguments["weight_decay"]) == (0.1, 0.2)


def test_the_recipes_own_objective_is_no_other(tmp_path):
    sweep = read(tmp_path, variants={"one": {"objective": "hfcomp.trainers.cement:CementTrainer"}}, reference="one")
    assert sweep.notes == [] and sweep.plan.variant_values("objective") == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"variants": {"plain": {"objective": INFO_NCE, "margin": "none"}}},
            "plain: hfcomp.trainers.info_nce:InfoNCETrainer: unknown field 'margin'",
        ),
        ({"variants": {"plain": {"objective": INFO_NCE, "learning_rat": 1}}}, "Did you mean 'learning_rate'?"),
        ({"variants": {"plain": {"objective": f"{INFO_NCE}s"}}}, "plain: objective 'hfcomp.trainers.info_nce:InfoNCE"),
        ({"variants": {"plain": {"objective": 3}}}, "plain: objective: found 3, expected module:class"),
        ({"variants": {"plain": {"objective": CE_CLIP, "rank_weight": "low"}}}, "rank_weight: found 'low', expected"),
        ({"variants": {"plain": {"objective": INFO_NCE, "batch_size": 8}}}, "plain: batch_size changes the rows or"),
        ({"variants": {"plain": {"max_steps": 9}}}, "plain: max_steps changes the steps. Move it to a setting."),
        (
            {"variants": {"plain": {"control": "equal-images"}}},
            "plain: control: found 'equal-images', expected one of",
        ),
        ({"variants": {"one": {"after": "plain"}, "plain": {}}}, "one: after: found 'plain', expected a variant"),
        (
            {"contrasts": {"part": {"with": ["plain"]}}},
            "contrasts: part: without is missing. Expected a list of variants or base",
        ),
        (
            {"contrasts": {"part": {"with": ["plain"], "without": ["cemnt"]}}},
            "contrasts: part: found 'cemnt', expected one of base, cement, plain. Did you mean 'cement'?",
        ),
        (
            {"contrasts": {"part": {"with": [], "without": ["base"]}}},
            "part: with: found [], expected at least 1 of them",
        ),
        (
            {"variants": {"cement": {}, "plain": {"after": "cement"}}, "embeddings": {"variants": ["plain"]}},
            "embeddings: variants: plain starts from cement",
        ),
        ({"settings": {"all": {"control": "shuffled"}}}, "settings: all: unknown field 'control'"),
        ({"settings": {"all": {"objective": INFO_NCE}}}, "settings: all: objective must be the same for all runs"),
    ],
)
def test_a_wrong_variant_is_refused_by_file_and_name(tmp_path, changes, message):
    with pytest.raises(ValueError) as caught:
        read(tmp_path, **changes)
    assert message in str(caught.value) and "mine.yaml: " in str(caught.value)


def test_a_field_that_no_trainer_of_the_recipe_has_stays_unknown(tmp_path):
    """What is dropped are fields of the recipe's own trainer, not mistyped ones."""
    with pytest.raises(ValueError, match="mine.yaml: settings: all: .*'edit_nois'"):
        read(tmp_path, settings={"all": {"edit_nois": 0.5}}, variants={"plain": VALUES["variants"]["plain"]})


def test_the_command_line_does_not_set_a_variants_own_field(tmp_path):
    variants = {"plain": {"objective": CE_CLIP, "rank_weight": 1.0}}
    with pytest.raises(ValueError, match="command line: --rank_weight .*mine.yaml: variants: plain"):
        read(tmp_path, "--rank_weight", "2", variants=variants, recipe="ceclip", settings={"all": {}})


def test_neighbors_that_a_variant_does_not_read_are_refused(tmp_path):
    fields = {"hard_images": 3, "num_neighbors": 1}
    variants = {"plain": {}, "other": {"objective": CE_CLIP}}
    with pytest.raises(ValueError, match="variants: other: hard_images=3"):
        read(tmp_path, recipe="negclip", settings={"all": fields}, variants=variants)


def test_every_variant_has_the_same_rows_steps_and_seed(tmp_path):
    """Also where one of them reads no negatives: rows are made for the one that reads most."""
    sweep = read(tmp_path, "--dataset_rows", "64", recipe="ceclip", settings={"all": {}})
    arms, notes = arms_of(sweep, tmp_path, steps=lambda name: 4 + ("plain" in name))
    assert [arm.trainer_class for arm in arms] == [CEClipTrainer, InfoNCETrainer]
    assert arms[0].rows is arms[1].rows and {len(texts) for texts in arms[1].rows["negative_captions"]} == {3}
    assert {key: {arm.arguments[key] for arm in arms} for key in ("seed", "max_steps")} == {
        "seed": {1},
        "max_steps": {250},
    }
    assert notes[-1] == "the runs differ in steps: all/1/cement 4, all/1/plain 5"


def test_a_variant_that_is_a_control_trains_the_same_on_other_rows(tmp_path):
    values = {"settings": {"all": {}}, "variants": {"npc": {}, "spans": {"control": "random-spans"}}}
    sweep = read(tmp_path, "--dataset_rows", "64", recipe="c2lip", reference="npc", **values)
    assert sweep.plan.variant_values("control") == {"spans": "random-spans"}
    (npc, spans), _ = arms_of(sweep, tmp_path)
    assert (npc.name, spans.name) == ("all/1/npc", "all/1/spans")
    assert npc.arguments == spans.arguments and npc.trainer_class is spans.trainer_class
    assert isinstance(spans.rows, RandomSpans) and spans.rows.column("caption") == npc.rows["caption"][:]
    publish(tmp_path, sweep.plan, method="C2LIP")
    assert "- spans: C2LIP with random word spans" in (tmp_path / "report.md").read_text()


def test_a_variant_starts_from_what_another_left_under_the_same_seed(tmp_path, capsys):
    values = {"seeds": [1, 2, 3], "variants": {"cement": {}, "after_it": {"after": "cement"}, "plain": {}}}
    sweep = read(tmp_path, "--dataset_rows", "64", **values)
    starts = {arm.name: arm.start for arm in arms_of(sweep, tmp_path)[0]}
    assert starts["all/1/after_it"] == "all/1/cement" and starts["all/2/after_it"] == "all/2/cement"
    assert {starts[f"all/{seed}/{name}"] for seed in (1, 2) for name in ("cement", "plain")} == {"base"}
    publish(tmp_path, sweep.plan)
    assert "- after_it: starts from cement" in (tmp_path / "report.md").read_text()
    assert "after_it: starts from cement" in capsys.readouterr().out


def test_a_variant_may_read_other_columns_of_the_same_rows(tmp_path):
    """The alignment of texts needs the caption that the groups' trainer has exchanged for the generalized one."""
    align = {"objective": "hfcomp.trainers.text_alignment:TextAlignmentTrainer", "column_names": {}}
    values = {"settings": {"all": {}}, "variants": {"groups": {}, "more": {}, "align": align}, "reference": "groups"}
    sweep = read(tmp_path, "--dataset_rows", "64", recipe="clear_glass", **values)
    groups, more, align = (arm.rows for arm in arms_of(sweep, tmp_path)[0])
    assert groups is more and groups["image_id"][:] == align["image_id"][:]
    assert groups["caption"][:] == align["generalized_caption"][:] != align["caption"][:]


def test_contrasts_stand_among_the_differences(tmp_path, capsys):
    plan = read(tmp_path, contrasts={"method": {"with": ["cement"], "without": ["plain", "base"]}}).plan
    publish(tmp_path, plan)
    report = (tmp_path / "report.md").read_text()
    assert "- method: mean of cement minus mean of plain + base" in report
    assert "| with method | without it | +10.0 | [-20.0, +40.0] | 0.500 | 0.500 |" in report
    shown = capsys.readouterr().out
    assert re.search(r"^with method +without it +\+10\.0 +\[-20\.0, \+40\.0\]", shown, re.M)


def test_a_control_that_says_nothing_stops_the_sweep_before_training(tmp_path):
    values = {"settings": {"all": {}}, "variants": {"plain": {}, "spans": {"control": "random-spans"}}}
    sweep = read(tmp_path, "--dataset_rows", "64", reference="plain", **values)
    with pytest.raises(ValueError, match="all/1/spans: .*random-spans .*concepts"):
        arms_of(sweep, tmp_path)


CHANGE = {"value": 0.1, "low": -0.2, "high": 0.4, "p": 0.5, "p_holm": 0.5}
FACTS = {
    "method": "Slipform",
    "caveat": "A caveat.",
    "notes": [NOTE],
    "config": {"objective": "hfcomp.trainers.cement:CementTrainer"},
}


def made_up(plan: SweepPlan, change: dict[str, float]) -> SweepResults:
    """Results in which the variants with another objective log nothing."""
    others = plan.variant_values("objective")
    logged = {name: dict.fromkeys(plan.logged, nan if name in others else 1.0) for name in plan.variants}
    minus = {name: {plan.reference: change} for name in plan.variants if name != plan.reference}
    minus |= {first: {second: change} for first, second in map(contrast_pair, plan.contrasts)}
    about = {"name": "m", "benchmark": "", "subset": "all", "metric": "m", "aspect": "composition", "chance": None}
    about["primary"] = "m"
    models = dict.fromkeys(["base", *plan.variants], {"value": 0.5, "lowest": 0.5, "highest": 0.5})
    lines = [{**about, "models": models, "differences": minus}]
    return SweepResults(plan, {"all": lines}, {"all": None}, {"all": logged})


def publish(folder: Path, plan: SweepPlan, change: dict[str, float] = CHANGE, **facts: object) -> None:
    models = {
        name: {"path": name} for name in ["base", *(f"all/{plan.seeds[0]}/{variant}" for variant in plan.variants)]
    }
    publish_sweep(folder, made_up(plan, change), stages=_costs(plan), facts={**FACTS, "models": models, **facts})


def _costs(plan: SweepPlan) -> list[StageSummary]:
    costs = {"steps": 1, "images": 1, "texts": 1, "seconds": 1.0, "images_per_second": 1.0, "peak_memory_gib": 1.0}
    return [StageSummary(f"all/1/{name}", **costs, loss=1.0, truncated_text_share=0.0) for name in plan.variants]


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"p_holm": 0.001}, "m (primary endpoint, p by Holm): better than plain: cement +10.0 [-20.0, +40.0] points."),
        (
            {"p_holm": 0.2, "low": 0.01},
            "m (primary endpoint, p by Holm): no significant difference from plain: cement.",
        ),
        (
            {"p_holm": 0.01, "value": -0.1},
            "m (primary endpoint, p by Holm): worse than plain: cement -10.0 [-20.0, +40.0] points.",
        ),
    ],
)
def test_a_sweep_ends_with_a_verdict_by_the_adjusted_p_and_the_next_command(tmp_path, capsys, change, verdict):
    plan = read(tmp_path).plan
    publish(tmp_path, plan, change={**CHANGE, **change})
    shown = " ".join(capsys.readouterr().out.split())
    verdict = f"all, on this seed: {verdict}"
    assert verdict in shown and f"{verdict}**" in (tmp_path / "report.md").read_text()
    assert "next: hfcomp evaluate base=base cement=all/1/cement plain=all/1/plain --suite compositional" in shown
    assert shown.endswith(verdict)


def test_the_report_says_who_trains_what(tmp_path):
    plan = read(tmp_path, logged=["margin"]).plan
    publish(tmp_path, plan)
    report = (tmp_path / "report.md").read_text()
    assert f"- plain: trained with {INFO_NCE}\n- cement: trained with hfcomp.trainers.cement:CementTrainer\n" in report
    assert f"- {NOTE}\n" in report
    assert "| cement | 1.000 |" in report and "| plain | - |" in report


def test_long_names_of_logged_metrics_leave_room_for_the_numbers(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    plan = read(tmp_path, logged=["active_positive_margins", "active_negative_margins"]).plan
    publish(tmp_path, plan)
    shown = capsys.readouterr().out
    assert f"plain: trained with {INFO_NCE}" in shown
    assert re.search(r"^cement +50\.0 \(50\.0 to 50\.0\) +\+10\.0 \[-20\.0, \+40\.0\] *$", shown, re.M)
    assert re.search(r"Training log.*^cement +1\.000 +1\.000 *$", shown, re.M | re.S)
