"""What configs of trainers advise: the same config without the wrong field, or with the value that is named."""

from __future__ import annotations

import pytest

from hfcomp.trainers.ahnpl import AHNPLConfig
from hfcomp.trainers.clear_glass import ClearGlassConfig
from hfcomp.trainers.config import CompositionalConfig as Config
from hfcomp.trainers.drawn_batch import DrawnBatchConfig
from hfcomp.trainers.hierarcaps import HierarCapsConfig
from hfcomp.trainers.text_alignment import TextAlignmentConfig

ADAPTERS = "hfcomp/trainers/_support/model_setup.py"
EXECUTION = "hfcomp/trainers/_support/model_setup.py"
AHNPL, CONFIG = "hfcomp/trainers/ahnpl.py", "hfcomp/trainers/config.py"
GROUPED = "hfcomp/trainers/grouped.py"
case, follows = pytest.param, pytest.mark.follows


@pytest.fixture
def without_accelerator(monkeypatch):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)


@pytest.mark.usefixtures("without_accelerator")
@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        case(Config, {"peft": "ia3"}, [{}, {"peft": "lora"}],
             marks=follows(ADAPTERS, "peft: found {args.peft!r}, expected one of {', '.join(KINDS)}, or remove it.")),
        case(Config, {"lora_rank": 4}, [{"lora_rank": 4, "peft": "lora"}, {"lora_rank": 4, "peft": "dora"}, {}],
             marks=follows(ADAPTERS, "no adapter is trained. Set peft=lora or peft=dora, or remove it.")),
        case(Config, {"pad_to_multiple_of": 0}, [{}, {"pad_to_multiple_of": 1}],
             marks=follows(CONFIG, ", or omit pad_to_multiple_of")),
        case(AHNPLConfig, {"draw_captions": True, "shift_source": "frozen"},
             [{"draw_captions": True, "shift_source": "live"}, {"shift_source": "frozen"}],
             marks=follows(AHNPL, "Set shift_source='live', or remove draw_captions.")),
        case(AHNPLConfig, {"shift_gradient": True, "shift_source": "frozen"},
             [{"shift_gradient": True, "shift_source": "live"}, {"shift_source": "frozen"}],
             marks=follows(AHNPL, "Set shift_source='live', or remove shift_gradient.")),
        case(AHNPLConfig, {"margin_start": float("nan")}, [{}, {"margin_start": 0.1}],
             marks=follows(AHNPL, "expected a finite number. Omit it to sample one.")),
        case(Config, {"bf16": True}, [{"bf16": True, "use_cpu": True}, {"bf16": False}],
             marks=follows(CONFIG,
                           "Check the driver and CUDA_VISIBLE_DEVICES (nvidia-smi lists the GPUs), or use")),
        case(Config, {"reduced_jpeg": True, "pixel_cache": "x"}, [{"reduced_jpeg": True}, {"pixel_cache": "x"}],
             marks=follows(CONFIG, "would get different pixels. Set one or the other.")),
        case(Config, {"decoupled_weight_decay": False, "optim": "sgd"},
             [{"decoupled_weight_decay": False, "optim": "adamw_torch"}, {"optim": "sgd"}],
             marks=follows(CONFIG, "Set optim to {' or '.join(TORCH_ADAMW)}, or decoupled_weight_decay to true.")),
        case(Config, {"mini_batch_size": 0}, [{}, {"mini_batch_size": 1}],
             marks=follows(CONFIG, ", or omit mini_batch_size")),
        case(HierarCapsConfig, {"draw_captions": True}, [{}],
             marks=follows(CONFIG, "the objective reads a single caption per row. Remove draw_captions.")),
        case(ClearGlassConfig, {"num_negatives": 2}, [{}],
             marks=follows(CONFIG, "the objective reads no negative captions. Remove num_negatives.")),
        case(Config, {"weight_average_start": 2}, [{"weight_average_start": 2, "weight_average_decay": 0.9}],
             marks=follows(CONFIG, "no weights are averaged. Set weight_average_decay.")),
        case(DrawnBatchConfig, {"draw_negatives": True}, [{"draw_negatives": True, "num_negatives": 2}],
             marks=follows("hfcomp/trainers/drawn_batch.py", "which is 0. Set num_negatives.")),
        case(ClearGlassConfig, {"auto_find_batch_size": True}, [{"mini_batch_size": 4}],
             marks=follows(GROUPED, "would split groups. Use mini_batch_size instead.")),
        case(ClearGlassConfig, {"per_device_train_batch_size": 7}, [{}],
             marks=follows(GROUPED, "In Python, leave it out; in a recipe, set batch_size={whole}")),
        case(HierarCapsConfig, {"freeze_towers": ["image", "text"]}, [{"freeze_towers": ["image"]}],
             marks=follows("hfcomp/trainers/hierarcaps.py", "the tower that chains of texts train. Remove it.")),
        case(TextAlignmentConfig, {"freeze_towers": ["image", "text"]}, [{"freeze_towers": ["image"]}],
             marks=follows("hfcomp/trainers/text_alignment.py",
                           "the tower that textual alignment trains. Remove it.")),
    ],
)  # fmt: skip
def test_fields(advice, tmp_path, kind, wrong, right):
    advice.of(kind, output_dir=str(tmp_path), **wrong)
    for fields in right:
        kind(output_dir=str(tmp_path), **fields)


@pytest.mark.usefixtures("without_accelerator")
@pytest.mark.follows(EXECUTION, "attn_implementation='flash_attention_2' computes in half precision: set bf16=True.")
@pytest.mark.follows("hfcomp/trainers/trackers.py", "or remove report_to.")
def test_packages_that_are_there_or_not(advice, tmp_path, monkeypatch):
    monkeypatch.setattr("hfcomp.trainers._support.model_setup.is_flash_attn_2_available", lambda: True)
    given = {"output_dir": str(tmp_path), "use_cpu": True, "attn_implementation": "flash_attention_2"}
    advice.of(Config, **given)
    Config(**given, bf16=True)
    monkeypatch.setattr("hfcomp.trainers.trackers._is_installed", lambda name: False)
    advice.of(Config, output_dir=str(tmp_path), report_to=["trackio"])
    Config(output_dir=str(tmp_path))


@pytest.mark.usefixtures("without_accelerator")
@pytest.mark.follows(GROUPED, "In Python, leave it out; in a recipe, set batch_size={whole}")
@pytest.mark.follows(CONFIG, "Check the driver and CUDA_VISIBLE_DEVICES (nvidia-smi lists the GPUs), or use")
def test_the_same_on_the_command_line(advice, train_begins):
    words = [
        "clear_glass",
        "--evaluation_items",
        "2",
        "--dataset_rows",
        "400",
        "--groups_per_batch",
        "4",
        "--pairs_per_group",
        "3",
    ]
    message = advice.command("train", *words, "--batch_size", "10")
    train_begins(*words, "--batch_size", message.rpartition("batch_size=")[2].partition(",")[0])
    words = ["slipform", "--evaluation_items", "2", "--dataset_rows", "99"]
    advice.command("train", *words, "--bf16", "true")
    train_begins(*words, "--bf16", "true", "--use_cpu", "true")
    train_begins(*words, "--bf16", "false")
