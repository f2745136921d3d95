"""Benchmarks scored in training: by whose values a checkpoint is chosen, and that training goes on as without them."""

from __future__ import annotations

import gc
import itertools
import json
import random
import weakref

import numpy as np
import pandas as pd
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModel, AutoProcessor, EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

from hfcomp.evaluation import callback as module
from hfcomp.evaluation.benchmarks.composition.sugarcrepe import SUGARCREPE
from hfcomp.evaluation.blind.encoders import BLIND
from hfcomp.evaluation.callback import EvaluateBenchmarks, benchmark_values
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import run_benchmark, validate
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.protocols.retrieval import Retrieval
from hfcomp.evaluation.sources import RawFiles, load_items
from hfcomp.evaluation.spec import Average, Benchmark, Folders, Unavailable
from hfcomp.statistics import summarize
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tiny
from tests.evaluation import small_sugarcrepe
from tests.trainers.runs import assert_same_weights, build, history, weights

KEY = "eval_sugarcrepe_caption_choice"
EVERY_STEP = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
CHOOSE = {"load_best_model_at_end": True, "metric_for_best_model": KEY}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = small_sugarcrepe.write(tmp_path_factory.mktemp("sugarcrepe"))
    (root / "own").symlink_to(root)
    return root


@pytest.fixture
def trainer_of(clip, pairs, tmp_path, root):
    """An InfoNCE trainer with the callback; settings of the callback are in `scoring`."""

    def make(folder="one", *, model=clip, benchmarks=("sugarcrepe",), scoring=None, ruined=(), **settings):
        settings = {"max_steps": 3, "callbacks": [Ruin(ruined)], **settings}
        if settings.get("eval_strategy", "no") != "no":
            settings.setdefault("eval_dataset", pairs.select(range(2)))
        trainer = build(InfoNCETrainer, model, pairs, tmp_path / folder, **settings)
        trainer.add_callback(EvaluateBenchmarks(trainer, benchmarks, **{"folders": root, **(scoring or {})}))
        return trainer

    return make


def score(model, source, root) -> dict[str, float]:
    """The values of a saved or held model of `source`, as `hfcomp evaluate` finds them."""
    items = validate(SUGARCREPE, load_items(SUGARCREPE, Folders(root)))
    embedder = Embedder(model, AutoProcessor.from_pretrained(source), device="cpu")
    return benchmark_values(SUGARCREPE, run_benchmark(SUGARCREPE, items, embedder).items)


class Ruin(TrainerCallback):
    """Makes the model worthless for the length of a few steps' ends: every embedding is 0, so that all items tie."""

    def __init__(self, steps):
        self.steps = steps
        self.kept = {}

    @torch.no_grad()
    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        if state.global_step + 1 in self.steps:
            for parameter in model.parameters():
                self.kept[parameter] = parameter.clone()
                parameter.zero_()

    @torch.no_grad()
    def on_step_begin(self, args, state, control, **kwargs):
        for parameter, value in self.kept.items():
            parameter.copy_(value)
        self.kept = {}


class UsersTrainer(Trainer):
    """A Trainer of somebody who does not know hfcomp: the model's own loss."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        output = model(**inputs, return_loss=True)
        return (output.loss, {"loss": output.loss}) if return_outputs else output.loss


def users_trainer(model, source, pairs, tmp_path, **settings):
    processor = AutoProcessor.from_pretrained(source)

    def collate(rows):
        text = processor.tokenizer([row["caption"] for row in rows], padding=True, return_tensors="pt")
        images = processor.image_processor([row["image"] for row in rows], return_tensors="pt")
        return {"input_ids": text["input_ids"], "pixel_values": images["pixel_values"]}

    arguments = TrainingArguments(
        output_dir=str(tmp_path / "run"),
        remove_unused_columns=False,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        logging_steps=1,
        max_steps=3,
        **settings,
    )
    few = pairs.select(range(2))
    return UsersTrainer(model, arguments, train_dataset=pairs, eval_dataset=few, data_collator=collate)


def add_adapter(folder):
    torch.manual_seed(0)
    settings = LoraConfig(r=2, target_modules=r".*encoder\.layers\.\d+\.self_attn\.(q|k|v|out)_proj")
    return get_peft_model(AutoModel.from_pretrained(folder), settings)


# Choosing a checkpoint


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")  # transformers, of saving a PeftModel
@pytest.mark.parametrize("kind", ["InfoNCE in bf16", "user", "user with PEFT"])
def test_the_best_checkpoint_is_the_one_with_the_best_value(kind, clip, pairs, tmp_path, root, trainer_of):
    settings = {**EVERY_STEP, **CHOOSE, "learning_rate": 1e-2}
    if kind == "user with PEFT":  # whose checkpoints cannot be ruined: they hold the adapter alone
        trainer = users_trainer(add_adapter(clip), clip, pairs, tmp_path, **settings)
    elif kind == "user":
        trainer = users_trainer(AutoModel.from_pretrained(clip), clip, pairs, tmp_path, **settings)
        trainer.add_callback(Ruin([1, 3]))
    else:
        trainer = trainer_of("", bf16=True, ruined=[1, 3], **settings)
    if kind.startswith("user"):
        trainer.add_callback(EvaluateBenchmarks(trainer, ["sugarcrepe"], folders=root))
    trainer.train()
    start, *values = history(trainer, KEY)
    assert start == score(clip, clip, root)[KEY] > 0
    places = [tmp_path / "run" / f"checkpoint-{step}" for step in (1, 2, 3)]
    assert values == [score(place, clip, root)[KEY] for place in places]
    best = values.index(max(values))
    assert trainer.state.best_model_checkpoint == str(places[best])
    assert trainer.state.best_metric == values[best]
    assert score(getattr(trainer.model, "backbone", trainer.model), clip, root)[KEY] == values[best]
    assert kind == "user with PEFT" or values == [0, values[1], 0] != [0, 0, 0]


def test_without_a_set_for_evaluation_steps_choose_the_best(trainer_of, siglip, tmp_path):
    settings = {"save_strategy": "best", "logging_steps": 50, "ruined": [1, 3]}
    trainer = trainer_of("", model=siglip, scoring={"steps": 1}, **settings, **CHOOSE)
    trainer.train()
    values = history(trainer, KEY)
    assert values[1:] == [0, values[2], 0] and values[2] > 0
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"checkpoint-1", "checkpoint-2"}
    assert trainer.state.best_global_step == 2 and trainer.state.best_metric == values[2]
    best = load_file(tmp_path / "run" / "checkpoint-2" / "model.safetensors")
    assert all(torch.equal(trainer.model.backbone.state_dict()[name], value) for name, value in best.items())
    # hfcomp's trainers ask for a line of the log at each checkpoint: they have to hear of it in time
    assert [line["step"] for line in trainer.state.log_history if "loss" in line] == [1, 2]


def test_steps_score_at_multiples_and_at_the_end(trainer_of):
    trainer = trainer_of(scoring={"steps": 2, "at_start": False}, logging_steps=2)
    trainer.train()
    assert [line["step"] for line in trainer.state.log_history if KEY in line] == [2, 3]
    # the callback's own line does not take the place of another
    assert [line["step"] for line in trainer.state.log_history if "loss" in line] == [2]


def test_early_stopping_sees_the_values_wherever_it_stands(trainer_of):
    stop = EarlyStoppingCallback(early_stopping_patience=1)
    trainer = trainer_of(**EVERY_STEP, **CHOOSE, callbacks=[stop], learning_rate=0.0)
    trainer.train()
    assert trainer.state.global_step == 2 and trainer.state.best_global_step == 1


def test_a_resumed_run_goes_on_choosing(trainer_of, tmp_path):
    settings = {**EVERY_STEP, **CHOOSE, "ruined": [1, 3]}
    whole = trainer_of("", **settings)
    whole.train()
    resumed = trainer_of("", **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert whole.state.best_global_step == 2
    for name in ("best_metric", "best_global_step", "best_model_checkpoint"):
        assert getattr(resumed.state, name) == getattr(whole.state, name)
    assert history(resumed, KEY) == history(whole, KEY)
    assert history(resumed, f"{KEY}_best") == history(whole, f"{KEY}_best")


def test_several_sets_for_evaluation_score_once(trainer_of, pairs):
    settings = {**EVERY_STEP, **CHOOSE, "ruined": [3]}
    trainer = trainer_of(**settings, eval_dataset={"a": pairs.select([0]), "b": pairs.select([1])})
    trainer.train()
    values = history(trainer, KEY)
    assert len(values) == 1 + 3
    # after training the weights are those of the best step, no longer those of the last
    assert trainer.evaluate(pairs.select([0]))[KEY] == max(values[1:]) != values[-1]
    for parameter in trainer.model.parameters():
        parameter.data.zero_()
    assert trainer.evaluate(pairs.select([0]))[KEY] == 0


# What is left behind


def test_training_is_the_same_bit_for_bit(clip_with_dropout, pairs, tmp_path, root):
    runs = []
    for scored in (False, True):
        settings = {"max_steps": 3, "eval_dataset": pairs.select(range(2)), **EVERY_STEP, "save_strategy": "no"}
        trainer = build(InfoNCETrainer, clip_with_dropout, pairs, tmp_path / str(scored), **settings)
        if scored:
            benchmarks = ["sugarcrepe", own_benchmark(protocol=Drawing())]
            folders = {name: root / name for name in ("sugarcrepe", "val2017", "own")}
            trainer.add_callback(EvaluateBenchmarks(trainer, benchmarks, folders=folders))
        trainer.train()
        drawn = random.random(), np.random.random(), torch.rand(1).item()
        runs.append((weights(trainer), history(trainer, "loss"), history(trainer, "eval_loss"), drawn))
    assert_same_weights(runs[0][0], runs[1][0])
    assert runs[0][1:] == runs[1][1:]
    assert len(history(trainer, "eval_own_caption_choice")) == len(history(trainer, KEY)) == 4


class Drawing(CaptionChoice):
    """A protocol that uses up random numbers, as fitting a probe does."""

    def score(self, embedded):
        random.random(), np.random.random(), torch.rand(3)
        return super().score(embedded)


def own_benchmark(name="own", protocol=None, image="val2017/1.png", **settings):
    """Two items about one image, a file of the folder `own`."""

    def rows(folder):
        texts = {"caption": "a red cube on a blue ball", "negative_captions": ["a blue ball"]}
        return [{"image": str(folder / image), "subset": name, **texts} for name in ("swap", "other")]

    data = (RawFiles(required_files=("val2017",), read=rows, layout="a folder val2017"),)
    about = {"title": name, "suite": "compositional", "paper": "", "license": "", "obtain": "Draw them."}
    return Benchmark(name=name, protocol=protocol or CaptionChoice(), data=data, **(about | settings))


def test_embeddings_are_dropped_after_each_scoring(trainer_of, monkeypatch):
    alive, at_steps = weakref.WeakSet(), []

    def cache():
        made = EmbeddingCache()
        alive.add(made)
        return made

    class Look(TrainerCallback):
        def on_step_begin(self, *args, **kwargs):
            gc.collect()
            at_steps.append(len(alive))

    monkeypatch.setattr(module, "EmbeddingCache", cache)
    trainer = trainer_of(scoring={"steps": 1}, max_steps=2, callbacks=[Look()])
    trainer.train()
    assert at_steps == [0, 0]


# Keys, logs, files


def test_values_are_those_of_the_report(root, clip):
    items = validate(SUGARCREPE, load_items(SUGARCREPE, Folders(root)))
    table = run_benchmark(SUGARCREPE, items, Embedder(clip, device="cpu")).items
    # unequal subsets, so that averages differ
    table = table.drop(index=table.index[[0, 1, 2, 6, 9]])
    lines = summarize(table, averages={"SugarCrepe": SUGARCREPE.averages})
    expected = {line["subset"]: line["models"]["model"]["value"] for line in lines}
    values = benchmark_values(SUGARCREPE, table, details=True)
    names = ["macro_of_3_groups", "micro", "replace", "swap", "add", *sorted(table["subset"].unique())]
    assert list(values) == [KEY, f"{KEY}_ties", *(f"{KEY}/{name}" for name in names)]
    assert values[KEY] == pytest.approx(expected["macro of 7 subsets"], abs=1e-11)
    for name in ("macro of 3 groups", "micro", "SWAP", "add_att", "swap_obj"):
        assert values[f"{KEY}/{name.lower().replace(' ', '_')}"] == pytest.approx(expected[name], abs=1e-11)
    assert len({round(value, 6) for value in values.values()}) > 6
    assert list(benchmark_values(SUGARCREPE, table)) == [KEY, f"{KEY}_ties"]


def outcomes(columns):
    """An item an image."""
    table = pd.DataFrame(columns)
    names = [str(row) for row in range(len(table))]
    return table.assign(item=names, image_id=names, benchmark="own", aspect="general")


def test_a_benchmark_without_averages_is_the_mean_over_items(root):
    table = outcomes(
        {
            "metric": ["text-to-image recall@1"] * 4 + ["group"],
            "subset": ["a", "a", "a", "b", "a"],
            "value": [1.0, 1, 0, 0, 1],
            "tie": [False, False, True, False, False],
        }
    )
    values = benchmark_values(own_benchmark(protocol=Retrieval()), table)
    assert values == {
        "eval_own_text_to_image_recall@1": 0.5,
        "eval_own_text_to_image_recall@1_ties": 0.25,
        "eval_own_group": 1.0,
        "eval_own_group_ties": 0.0,
    }
    # an average over a subset that is not there is none
    averages = (Average("absent", (("a",), ("c",))), Average("macro"))
    macro = benchmark_values(own_benchmark(averages=averages), table)
    assert macro["eval_own_text_to_image_recall@1"] == pytest.approx(1 / 3)


def test_a_set_too_small_for_any_metric_has_no_values(root):
    assert benchmark_values(own_benchmark(protocol=Retrieval()), pd.DataFrame()) == {}


def test_steps_that_are_equally_good_have_the_same_value():
    """0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1: by it a later checkpoint would seem the better."""
    benchmark = own_benchmark(averages=(Average("macro"),))
    rights, values = (1, 2, 3), set()
    for order in itertools.permutations(rights):
        rows = [(subset, item < right) for subset, right in zip("abc", order, strict=True) for item in range(10)]
        table = outcomes(pd.DataFrame(rows, columns=["subset", "value"]).assign(metric="choice"))
        values.add(benchmark_values(benchmark, table)["eval_own_choice"])
    assert values == {0.2}


def test_ties_are_wrong_and_shown(root):
    items = validate(SUGARCREPE, load_items(SUGARCREPE, Folders(root)))
    item_outcomes = run_benchmark(SUGARCREPE, items, BLIND["constant"][1]()).items
    assert benchmark_values(SUGARCREPE, item_outcomes) == {KEY: 0.0, f"{KEY}_ties": 1.0}


class Tracker(TrainerCallback):
    """What TensorBoard and the others are given."""

    def __init__(self):
        self.lines = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.lines.append({**logs, "step": state.global_step})


def test_trackers_see_the_values_the_best_and_its_step(trainer_of):
    tracker = Tracker()
    trainer = trainer_of(**EVERY_STEP, callbacks=[tracker, Ruin([1, 2, 3])])
    trainer.train()
    assert tracker.lines == trainer.state.log_history
    by_step = {line["step"]: line[KEY] for line in tracker.lines if KEY in line}
    assert list(by_step) == [0, 1, 2, 3]
    # nothing comes up to the model that training began with
    assert tracker.lines[-1][f"{KEY}_best"] == by_step[0] > max(by_step[1], by_step[2], by_step[3])
    assert tracker.lines[-1][f"{KEY}_best_step"] == 0
    assert not [key for line in tracker.lines for key in line if "/" in key]


def test_a_run_that_ends_before_anything_is_scored_has_no_best(trainer_of):
    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = True

    trainer = trainer_of(scoring={"at_start": False}, eval_strategy="steps", eval_steps=2, callbacks=[Stop()])
    assert trainer.evaluate()[KEY] > 0
    trainer.train()
    assert trainer.state.global_step == 1
    assert not [key for line in trainer.state.log_history for key in line if key.startswith(KEY)]


def test_outcomes_per_item_are_written_if_asked_for(trainer_of, pairs, tmp_path):
    trainer = trainer_of("", scoring={"steps": 2, "save_items": True}, benchmarks=["sugarcrepe", own_benchmark()])
    trainer.train()
    files = sorted((tmp_path / "run").iterdir())
    assert [path.name for path in files] == [f"benchmarks-{step}.parquet" for step in (0, 2, 3)]
    tables = [pd.read_parquet(path) for path in files]
    assert [table["step"].unique().tolist() for table in tables] == [[0], [2], [3]]
    for table, value in zip(tables, history(trainer, KEY), strict=True):
        own = table[table["benchmark"] == "SugarCrepe"]
        assert own.groupby("subset")["value"].mean().mean() == pytest.approx(value)
        assert (table["benchmark"] == "own").sum() == 2
    for parameter in trainer.model.parameters():
        parameter.data.zero_()
    assert trainer.evaluate(pairs.select([0]))[KEY] == 0
    assert pd.read_parquet(files[-1]).equals(tables[-1]), "the file is of step 3, whatever is scored afterwards"
    # two steps are compared as two models are
    summarize(pd.concat(tables), models=["step 0", "step 3"], references=["step 0"])


# Refusals


@pytest.fixture(scope="module")
def idle(clip, pairs, tmp_path_factory):
    """A trainer that is not trained."""
    return users_trainer(AutoModel.from_pretrained(clip), clip, pairs, tmp_path_factory.mktemp("idle"))


@pytest.mark.parametrize(
    ("benchmarks", "scoring", "error", "message"),
    [
        ("sugarcrepe", {}, TypeError, "expected a list"),
        ([], {}, ValueError, "at least one"),
        (["sugarcrep"], {}, ValueError, "'sugarcrep'.*'sugarcrepe'"),
        (["sugarcrepe", SUGARCREPE], {}, ValueError, r"twice.*\['sugarcrepe'\]"),
        (["sugarcrepe"], {"steps": 0}, ValueError, "steps: found 0,.* 1"),
        (["sugarcrepe"], {"folders": {"sugarcrepe": "nowhere"}}, ValueError, "sugarcrepe=nowhere"),
        (["sugarcrepe"], {"processing_class": tiny}, ValueError, "processor .*tokenizer"),
        ([own_benchmark("absent")], {}, Unavailable, "absent: Not on the Hub .* Draw them."),
        ([own_benchmark(image="none.png")], {}, ValueError, "no items"),
    ],
)
def test_what_cannot_be_scored_is_refused_at_once(benchmarks, scoring, error, message, idle, root):
    with pytest.raises(error, match=message):
        EvaluateBenchmarks(idle, benchmarks, **{"folders": root, **scoring})


def test_a_name_of_a_group_stands_for_all_of_it(idle, root, monkeypatch):
    group = [own_benchmark(f"group_{name}", folder="own") for name in ("a", "b", "c")]
    known = {benchmark.name: benchmark for benchmark in (*group, SUGARCREPE)}
    monkeypatch.setattr("hfcomp.evaluation.benchmarks.benchmarks", lambda: known)
    callback = EvaluateBenchmarks(idle, ["group", "sugarcrepe"], folders=root)
    assert callback.benchmarks == [*group, SUGARCREPE]
    with pytest.raises(ValueError, match=r"found \['group_b'\]"):
        EvaluateBenchmarks(idle, ["group", group[1]], folders=root)


@pytest.mark.parametrize(
    ("settings", "scoring", "message"),
    [
        ({}, {}, "would never be scored"),
        (
            {**EVERY_STEP, **CHOOSE, "metric_for_best_model": "sugarcrepe_choice"},
            {},
            f"'sugarcrepe_choice' is .* {KEY}",
        ),
        ({**EVERY_STEP, **CHOOSE, "metric_for_best_model": f"{KEY}/swap"}, {}, "details=True.* adds"),
        ({**CHOOSE, "save_strategy": "best", "metric_for_best_model": "loss"}, {"steps": 1}, "='loss' is not"),
        ({**EVERY_STEP, **CHOOSE}, {"steps": 2}, "is read at every evaluation"),
    ],
)
def test_a_run_that_could_not_choose_stops_before_its_first_step(settings, scoring, message, trainer_of):
    trainer = trainer_of(scoring=scoring, **settings)
    with pytest.raises(ValueError, match=message):
        trainer.train()
    assert trainer.state.global_step == 0


def test_a_part_can_be_chosen_by(trainer_of):
    settings = {**EVERY_STEP, **CHOOSE, "metric_for_best_model": f"{KEY}/swap"}
    trainer = trainer_of(scoring={"details": True}, **settings, max_steps=1)
    trainer.train()
    assert trainer.state.best_metric == history(trainer, f"{KEY}/swap")[-1]


def test_an_image_that_cannot_be_read_stops_the_run_before_its_first_step(trainer_of, root):
    trainer = trainer_of(benchmarks=[own_benchmark(image="sugarcrepe/add_att.json")], scoring={"steps": 1})
    with pytest.raises(ValueError, match="'image', row 0 .*supported"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_a_metric_of_the_same_name_is_not_overwritten(trainer_of):
    trainer = trainer_of(**EVERY_STEP, compute_metrics=lambda _: {KEY.removeprefix("eval_"): 1.0})
    with pytest.raises(ValueError, match=f"has a metric '{KEY}'"):
        trainer.train()


def test_a_callback_of_another_trainer_is_refused(trainer_of, idle, root):
    trainer = trainer_of(scoring={"steps": 1})
    trainer.add_callback(EvaluateBenchmarks(idle, ["sugarcrepe"], folders=root, steps=1))
    with pytest.raises(ValueError, match="for another trainer"):
        trainer.train()


def test_a_trainer_without_the_models_processor_needs_one(clip, pairs, tmp_path, root):
    model = AutoModel.from_pretrained(clip)
    model.config._name_or_path = model.name_or_path = ""
    trainer = users_trainer(model, clip, pairs, tmp_path)
    with pytest.raises(ValueError, match="processing_class=AutoProcessor.from_pretrained"):
        EvaluateBenchmarks(trainer, ["sugarcrepe"], folders=root, steps=1)
    own = AutoProcessor.from_pretrained(clip)
    EvaluateBenchmarks(trainer, ["sugarcrepe"], folders=root, steps=3, processing_class=own)


def test_rows_that_are_not_scored_are_reported_when_it_is_made(trainer_of, tmp_path, caplog):
    root = small_sugarcrepe.write(tmp_path / "data")
    path = root / "sugarcrepe" / "add_att.json"
    rows = json.loads(path.read_text())
    rows["0"]["filename"] = "missing.png"
    path.write_text(json.dumps(rows))
    trainer_of(scoring={"folders": root})
    assert "sugarcrepe: 1 of 35 rows left out: " in caplog.text
