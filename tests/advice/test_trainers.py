"""Follows the advice of trainers about rows, models and runs, with tiny models and at most two steps."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import datasets
import pytest
import torch
from accelerate import FullyShardedDataParallelPlugin
from peft import LoraConfig
from transformers import AutoProcessor, CLIPModel

import hfcomp
from hfcomp import cli
from hfcomp.data.collators import CompositionalCollator
from hfcomp.data.concepts.columns import with_concepts
from hfcomp.data.loading import load_training_set
from hfcomp.data.row_values import row_fields
from hfcomp.trainers._support import model_setup
from hfcomp.trainers._support.fsdp_checks import check_plugin, check_run
from hfcomp.trainers._support.reference_text import FrozenText
from hfcomp.trainers._support.sharded_weights import SplitOptimizer
from hfcomp.trainers.ahnpl import AHNPLTrainer
from hfcomp.trainers.c2lip import C2LIPTrainer
from hfcomp.trainers.ce_clip import CEClipTrainer
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.hierarcaps import HierarCapsTrainer
from hfcomp.trainers.info_nce import InfoNCEConfig, InfoNCETrainer
from hfcomp.trainers.replaced_negatives import ReplacedNegativesTrainer
from hfcomp.trainers.stages import read_summary, train_stage
from hfcomp.trainers.text_alignment import TextAlignmentTrainer
from hfcomp.trainers.triplet_clip import TripletClipTrainer
from tests import tiny
from tests.trainers.group_rows import add_groups
from tests.trainers.runs import build

follows = pytest.mark.follows


@pytest.fixture
def make(clip, tmp_path):
    """A trainer on the tiny CLIP, of one step."""

    def make(kind, rows, model=str(clip), **settings):
        return build(kind, model, rows, tmp_path, **{"max_steps": 1, **settings})

    return make


@pytest.fixture
def train(make):
    def train(kind, rows, *args, resume=None, **settings):
        return make(kind, rows, *args, **settings).train(resume_from_checkpoint=resume)

    return train


@pytest.fixture(scope="module")
def rows() -> datasets.Dataset:
    return tiny.pairs(8, concepts=True, ragged=False)


@follows("hfcomp/trainers/_support/model_setup.py", "both define an adapter. Remove one of them.")
@follows(
    "hfcomp/trainers/_support/model_setup.py",
    "Remove peft (peft_config) to continue training it, or merge it first: hfcomp.merge_adapter(",
)
@follows(
    "hfcomp/trainers/_support/callbacks.py", "hardly moves at this rate. Set a higher learning_rate, such as 1e-4."
)
@follows("hfcomp/trainers/_support/callbacks.py", "Set fewer warmup_steps, or a share below 1.")
def test_adapters(advice, make, train, rows, tmp_path, capsys):
    lora = LoraConfig(target_modules=["q_proj"])
    advice.of(make, InfoNCETrainer, rows, peft="lora", peft_config=lora)
    make(InfoNCETrainer, rows, peft_config=lora)
    trainer = make(InfoNCETrainer, rows, peft="lora", learning_rate=1e-6, warmup_steps=5)
    capsys.readouterr()
    trainer.train()
    advice.read(capsys.readouterr().out)
    trainer.save_model(tmp_path / "adapter")
    model = trainer.model.backbone if hasattr(trainer.model, "backbone") else trainer.model
    train(InfoNCETrainer, rows, peft="lora", learning_rate=1e-4, warmup_steps=0)
    train(InfoNCETrainer, rows, peft="lora", learning_rate=1e-4, warmup_steps=0.5, max_steps=2)
    shown = capsys.readouterr().out
    assert "hardly moves" not in shown and "Set fewer" not in shown
    advice.of(make, InfoNCETrainer, rows, model, peft="lora", processing_class=trainer.processing_class)
    make(InfoNCETrainer, rows, model, processing_class=trainer.processing_class)
    hfcomp.merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    make(InfoNCETrainer, rows, str(tmp_path / "merged"), peft="lora")


@follows("hfcomp/trainers/_support/step_log.py", "Raise learning_rate (now {learning_rate:g}) or train longer.")
def test_a_run_that_changes_nothing(advice, train, rows, caplog):
    def list_warnings(**settings):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            train(InfoNCETrainer, rows, **settings)
        return [record.message for record in caplog.records if "almost unchanged" in record.message]

    (said,) = list_warnings(learning_rate=0.0)
    advice.read(said)
    assert not list_warnings(learning_rate=1e-3) and not list_warnings(learning_rate=1e-3, max_steps=2)


@follows(
    "hfcomp/trainers/_support/reference_text.py",
    "Pass the run's initial model, not its checkpoint, and use the checkpoint only as",
)
def test_a_copy_of_another_model(advice, clip, tmp_path):
    def copy(place):
        return FrozenText(CLIPModel.from_pretrained(place), AutoProcessor.from_pretrained(place))

    copy(clip).sign(tmp_path)
    advice.of(copy(tiny.clip(tmp_path / "trained", seed=1)).check, tmp_path)
    copy(clip).check(tmp_path)


@follows("hfcomp/trainers/_support/model_setup.py", "Pass model.float() and fp16=True.")
@follows("hfcomp/trainers/_support/model_setup.py", "Use model.float() with bf16=True.")
def test_half_precision(advice, clip, train, rows, caplog):
    half = CLIPModel.from_pretrained(clip).half()
    advice.of(model_setup.check_trainable, half)
    processor = AutoProcessor.from_pretrained(clip)
    train(InfoNCETrainer, rows, half.float(), fp16=True, processing_class=processor)
    brief = CLIPModel.from_pretrained(clip).bfloat16()
    with caplog.at_level(logging.WARNING):
        model_setup.check_trainable(brief)
        advice.read(caplog.records[-1].message)
        caplog.clear()
        train(InfoNCETrainer, rows, brief.float(), bf16=True, processing_class=processor)
    assert "small updates" not in caplog.text


@follows("hfcomp/trainers/_support/sampling.py", "so grouping would save nothing. Remove it.")
@follows("hfcomp/trainers/info_nce.py", "on this model set sigmoid=False, or remove num_negatives")
@follows("hfcomp/trainers/info_nce.py", "such as SigLIP. Remove it to train a CLIP.")
def test_siglip(advice, make, train, rows, siglip):
    advice.of(train, InfoNCETrainer, rows, str(siglip), train_sampling_strategy="group_by_length")
    train(InfoNCETrainer, rows, str(siglip))
    advice.of(make, InfoNCETrainer, rows, str(siglip), num_negatives=1)
    make(InfoNCETrainer, rows, str(siglip), num_negatives=1, sigmoid=False)
    make(InfoNCETrainer, rows, str(siglip))
    advice.of(make, InfoNCETrainer, rows, sigmoid=True)
    make(InfoNCETrainer, rows)


class OwnCollator:
    """As a user writes one: pixels and texts alone."""

    def __init__(self, inner, *, ids: bool = False):
        self.inner, self.ids = inner, ids

    def __call__(self, batch):
        made = self.inner(batch)
        kept = {name: value for name, value in made.items() if name != "image_id"}
        return kept | (row_fields(batch, [row["row"] for row in batch]) if self.ids else {})


@follows(
    "hfcomp/trainers/_support/row_report.py",
    "Add hfcomp.data.row_values.row_fields(rows, names) to the collator's batch.",
)
@follows("hfcomp/trainers/c2lip.py", "Create the data_collator as CompositionalCollator(..., max_concepts=")
def test_own_collators(advice, clip, train, rows):
    inner = CompositionalCollator(AutoProcessor.from_pretrained(clip), CLIPModel.from_pretrained(clip).config)
    advice.of(train, InfoNCETrainer, rows, data_collator=OwnCollator(inner))
    train(InfoNCETrainer, rows, data_collator=OwnCollator(inner, ids=True))
    train(InfoNCETrainer, rows.remove_columns("image_id"), data_collator=OwnCollator(inner))
    advice.of(train, C2LIPTrainer, rows, data_collator=inner, concept_source="tokens", max_concepts=2)
    own = CompositionalCollator(
        inner_processor(clip), CLIPModel.from_pretrained(clip).config, max_concepts=2, concept_tokens=True
    )
    train(C2LIPTrainer, rows, data_collator=own, concept_source="tokens", max_concepts=2)
    train(C2LIPTrainer, rows, concept_source="tokens", max_concepts=2)


def inner_processor(clip):
    return AutoProcessor.from_pretrained(clip)


@follows("hfcomp/trainers/_support/row_report.py", "Return PixelBatch(pixels, boxes) with the rows'")
@follows("hfcomp/trainers/hooks.py", "{type(self).__name__} reads no images. Remove it.")
@follows("hfcomp/trainers/base.py", "does not use {field_name!r}. Remove it.")
def test_settings_that_an_objective_has_no_use_for(advice, clip, make, train, rows):
    inner = CompositionalCollator(AutoProcessor.from_pretrained(clip), CLIPModel.from_pretrained(clip).config)

    class Whole(OwnCollator):
        def __call__(self, batch):
            collated = super().__call__(batch)
            return collated | {"pixels": type(collated["pixels"])(collated["pixels"].pixels, None)}

    given = {"data_collator": Whole(inner, ids=True)}
    advice.of(train, InfoNCETrainer, rows, random_crop=0.9, **given)
    train(InfoNCETrainer, rows, **given)
    train(InfoNCETrainer, rows, random_crop=0.9)
    texts = add_groups(rows).select_columns(["caption", "generalized_caption"])
    advice.of(make, TextAlignmentTrainer, texts, random_crop=0.9)
    make(TextAlignmentTrainer, texts)
    advice.of(make, CementTrainer, rows, max_concepts=2)
    make(CementTrainer, rows)


@follows("hfcomp/trainers/base.py", "An evaluation set cannot be streamed. Load it without streaming=True.")
@follows("hfcomp/trainers/hooks.py", "Lower per_device_train_batch_size.")
@follows("hfcomp/trainers/replaced_negatives.py", "Lower num_negatives or raise per_device_train_batch_size.")
def test_batches(advice, make, train, rows):
    advice.of(make(InfoNCETrainer, rows).evaluate, rows.to_iterable_dataset())
    make(InfoNCETrainer, rows).evaluate(rows)
    advice.of(train, InfoNCETrainer, rows, per_device_train_batch_size=9)
    train(InfoNCETrainer, rows, per_device_train_batch_size=8)
    advice.of(train, ReplacedNegativesTrainer, rows, num_negatives=2, per_device_train_batch_size=2)
    train(ReplacedNegativesTrainer, rows, num_negatives=1, per_device_train_batch_size=2)
    train(ReplacedNegativesTrainer, rows, num_negatives=2, per_device_train_batch_size=4)


@follows("hfcomp/trainers/c2lip.py", "Set concept_source='phrase'")
@follows("hfcomp/trainers/c2lip.py", "Create them with `hfcomp build concepts` or a recipe's concept_parser")
@follows("hfcomp/trainers/c2lip.py", "or rename yours with column_names={")
def test_concepts(advice, make, rows, photographs, tmp_path):
    spanless = rows.remove_columns("concept_spans")
    advice.of(make, C2LIPTrainer, spanless, concept_source="tokens")
    make(C2LIPTrainer, spanless, concept_source="phrase")
    renamed = rows.rename_columns({"concepts": "phrases", "concept_spans": "places"})
    advice.of(make, C2LIPTrainer, renamed)
    make(C2LIPTrainer, renamed, column_names={"concepts": "phrases", "concept_spans": "places"})
    make(C2LIPTrainer, with_concepts(renamed, "rules", print))
    words = ["build", "concepts", "--source", str(photographs), "--column_names", "image=file,caption=text"]
    cli.main([*words, "--parser", "rules", "--output", str(tmp_path / "built")])
    make(C2LIPTrainer, load_training_set(str(tmp_path / "built")))


@follows(
    "hfcomp/trainers/cement.py",
    "Add a negative_image that matches the row's first negative caption; or use an objective",
)
@follows(
    "hfcomp/trainers/triplet_clip.py", "or use that objective: InfoNCETrainer with num_negatives=1 (recipe negclip)."
)
def test_rows_without_negative_images(advice, train, rows):
    without = datasets.Dataset.from_dict(
        {**rows.remove_columns("negative_image")[:], "negative_image": [None] * len(rows)}, features=rows.features
    )
    for kind in (CementTrainer, TripletClipTrainer):
        advice.of(train, kind, without)
        train(kind, rows)
    train(InfoNCETrainer, without, num_negatives=1)
    train(CEClipTrainer, without, num_negatives=1)
    train(CementTrainer, without, allow_missing_negative_images=True)


@follows("hfcomp/trainers/hierarcaps.py", "or add a column {NEGATIVES!r} and set negative_source={NEGATIVES!r}.")
@follows("hfcomp/trainers/hierarcaps.py", "Choose other chain_columns, or a dataset with more names.")
@follows(
    "hfcomp/trainers/text_alignment.py", "to make pairs, but the dataset is streamed. Load it without streaming=True."
)
@follows(
    "hfcomp/trainers/text_alignment.py",
    "Exclude such rows (--leave_out_levels true), or set allow_levels (--allow_levels true)",
)
def test_texts_of_levels(advice, make, rows):
    levels = add_groups(rows)
    levels = levels.add_column("level_1", [f"{text} here" for text in levels["caption"]])
    chain = {"chain_columns": ["level_1", "caption"]}
    advice.of(make, HierarCapsTrainer, levels.to_iterable_dataset(), **chain)
    make(HierarCapsTrainer, levels, **chain)
    make(HierarCapsTrainer, levels.to_iterable_dataset(), negative_source="negative_captions", **chain)
    single = levels.select([0])
    advice.of(make, HierarCapsTrainer, single, **chain)
    make(HierarCapsTrainer, levels, **chain)
    pairs = levels.select_columns(["caption", "generalized_caption"])
    several = levels.select_columns(["caption", "generalized_caption", "level_1"])
    given = {"aligned_with": ["generalized_caption", "level_1"], "allow_levels": True}
    advice.of(make, TextAlignmentTrainer, several.to_iterable_dataset(), **given)
    make(TextAlignmentTrainer, several, **given)
    named = pairs.add_column("level_1", [pairs["generalized_caption"][0]] * len(pairs))
    advice.of(make, TextAlignmentTrainer, named)
    make(TextAlignmentTrainer, named, allow_levels=True)
    make(TextAlignmentTrainer, named, leave_out_levels=True)


@follows("hfcomp/trainers/weight_average.py", "each define the final model. Remove one of them.")
@follows("hfcomp/trainers/weight_average.py", "Lower it, or remove weight_average_decay.")
@follows("hfcomp/trainers/weight_average.py", "Omit weight_average_decay to resume that run, or start a new run.")
def test_averages(advice, train, rows, tmp_path):
    best = {"load_best_model_at_end": True, "eval_strategy": "steps", "save_strategy": "steps", "eval_dataset": rows}
    best |= {"eval_steps": 1, "save_steps": 1}
    advice.of(train, InfoNCETrainer, rows, weight_average_decay=0.9, **best)
    train(InfoNCETrainer, rows, weight_average_decay=0.9)
    train(InfoNCETrainer, rows, **best)
    advice.of(train, InfoNCETrainer, rows, weight_average_decay=0.9, weight_average_start=3)
    train(InfoNCETrainer, rows, weight_average_decay=0.9, weight_average_start=0)
    checkpoint = str(tmp_path / "run/checkpoint-1")
    advice.of(train, InfoNCETrainer, rows, weight_average_decay=0.9, max_steps=2, resume=checkpoint)
    train(InfoNCETrainer, rows, max_steps=2, resume=checkpoint)


@follows(
    "hfcomp/trainers/stages.py", "Remove {SUMMARY_FILE} and start the run again: this stage resumes from its last"
)
def test_a_damaged_stage(advice, clip, rows, tmp_path):
    def train_again():
        fields = {"max_steps": 1, "save_strategy": "no", "use_cpu": True, "disable_tqdm": True, "report_to": "none"}
        return train_stage("m", InfoNCETrainer, clip, rows, tmp_path / "m", fields, batch_size=8, resume=True)

    first = train_again()
    (tmp_path / "m/model.safetensors").write_bytes(b"damaged")
    advice.of(read_summary, tmp_path / "m")
    (tmp_path / "m/stage.json").unlink()
    assert train_again().steps == first.steps and read_summary(tmp_path / "m").loss == pytest.approx(first.loss)


@follows("hfcomp/trainers/ahnpl.py", "set margin_start or another margin_seed.")
def test_a_margin_at_its_floor(advice, make, rows, caplog):
    def list_warnings(**settings):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            make(AHNPLTrainer, rows, num_negatives=2, shift_source="live", **settings)
        return [record.message for record in caplog.records if "at or below its floor" in record.message]

    low = next(seed for seed in range(9) if torch.randn((), generator=torch.Generator().manual_seed(seed)) < 0)
    high = next(seed for seed in range(9) if torch.randn((), generator=torch.Generator().manual_seed(seed)) > 0.5)
    (said,) = list_warnings(margin_seed=low)
    advice.read(said)
    assert not list_warnings(margin_seed=high) and not list_warnings(margin_start=0.5)


@follows(
    "hfcomp/trainers/_support/fsdp_checks.py",
    "it renames the weights. Set it to false, and gradient_checkpointing to true",
)
@follows(
    "hfcomp/trainers/_support/fsdp_checks.py",
    "sharded weights cannot be joined for another attempt. Set mini_batch_size",
)
@follows(
    "hfcomp/trainers/_support/sharded_weights.py", "Set optim=adamw_torch_fused (the default), adamw_torch or sgd."
)
def test_settings_of_sharded_runs(advice, clip, tmp_path):
    """Whole runs are in tests/distributed."""
    plugin = {"fsdp_version": 2, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
    advice.of(check_plugin, FullyShardedDataParallelPlugin(**plugin, activation_checkpointing=True))
    check_plugin(FullyShardedDataParallelPlugin(**plugin))
    accelerator = SimpleNamespace(mixed_precision="no", device=torch.device("cpu"))

    def config(**settings):
        return InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True, **settings)

    advice.of(check_run, config(auto_find_batch_size=True), accelerator)
    check_run(config(mini_batch_size=4, gradient_checkpointing=True), accelerator)
    model = torch.nn.Linear(2, 2)
    advice.of(SplitOptimizer, torch.optim.Adafactor(model.parameters()), model, [])
    for optimizer in (torch.optim.AdamW(model.parameters()), torch.optim.SGD(model.parameters())):
        SplitOptimizer(optimizer, model, [])
