"""Follows the advice of conversions and models, with files of tiny models."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModel, AutoProcessor, CLIPModel

from hfcomp import cli
from hfcomp.convert.processors import clip_tokenizer, siglip_tokenizer
from hfcomp.modeling import adapters, load_backbone, load_processor
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tiny
from tests.convert import worlds
from tests.convert.worlds import Shape
from tests.trainers.runs import build

FILES, ACTIVATIONS = "hfcomp/convert/checkpoint_file.py", "hfcomp/convert/activations.py"
TOKENIZERS = "hfcomp/convert/processors.py"
PLAIN = Shape(head_width=64, text_heads=1)
follows = pytest.mark.follows


class Unsafe:
    """An object that a training script saves alongside its tensors."""


@pytest.fixture
def convert(tmp_path, old_clip):
    """The words of `hfcomp convert` for a file with this content."""

    def words(content, *more: str, tag: bool = True, head_width: bool = True) -> list[str]:
        torch.save(content, tmp_path / "a.pt")
        given = ["--pretrained", "openai"] if tag else []
        given += ["--head_width", "64"] if head_width else []
        return [
            "convert",
            str(tmp_path / "a.pt"),
            "--output",
            str(tmp_path / "out"),
            "--processor",
            str(old_clip),
            *given,
            *more,
        ]

    return words


@pytest.fixture(scope="module")
def weights(old_clip):
    return worlds.state(worlds.model(PLAIN, worlds.vocabulary(old_clip)))


@follows(ACTIVATIONS, "Choose --activation {QUICK_GELU} or --activation {GELU}.")
@follows(ACTIVATIONS, "Pass the weights from which training started, such as --pretrained openai or")
@follows(ACTIVATIONS, "(quick_gelu=True or not) and pass --activation {QUICK_GELU} or --activation {GELU}.")
def test_activations(advice, convert, weights):
    wrong = convert(weights, "--model", "ViT-B-32-quickgelu", "--pretrained", "laion2b_s34b_b79k", tag=False)
    advice.command(*wrong)
    for name in ("quick_gelu", "gelu"):
        cli.main([*wrong, "--activation", name])
    advice.command(*convert(weights, tag=False))
    for more in (
        "--pretrained openai",
        "--pretrained laion2b_s34b_b79k",
        "--activation quick_gelu",
        "--activation gelu",
    ):
        cli.main(convert(weights, *more.split(), tag=False))
    advice.command(*convert(weights, "--pretrained", "mine", tag=False))
    cli.main(convert(weights, "--pretrained", "mine", "--activation", "gelu", tag=False))


@follows(FILES, "safetensors.torch.save_file(torch.load(path, weights_only=False)['state_dict'], ...).")
@follows(FILES, "Choose one, such as --state {next(iter(nested))}.")
@follows(FILES, "Choose one, such as --prefix {first!r}.")
@follows(FILES, "Load the folder with AutoModel, or convert it with --to open_clip.")
@follows("hfcomp/convert/clip_layout.py", "Pass --head_width, which is {HEAD_WIDTH} in most models.")
@follows("hfcomp/convert/clip_layout.py", "Merge them with the code that trained them and save the merged state")
def test_files(advice, convert, weights, old_clip, tmp_path):
    advice.command(*convert({"state_dict": weights, "args": Unsafe()}))
    loaded = torch.load(tmp_path / "a.pt", weights_only=False)["state_dict"]
    save_file(loaded, tmp_path / "a.safetensors")
    cli.main([word.replace("a.pt", "a.safetensors") for word in convert({"state_dict": weights, "args": Unsafe()})])
    message = advice.command(*convert({"state_dict": weights, "state_dict_ema": weights}))
    option, name = message.rpartition("such as ")[2].rstrip(".").split()
    cli.main(convert({"state_dict": weights, "state_dict_ema": weights}, option, name))
    two = {f"{side}.{key}": value for key, value in weights.items() for side in ("student", "teacher")}
    message = advice.command(*convert(two))
    option, name = message.rpartition("such as ")[2].rstrip(".").split()
    cli.main(convert(two, option, name.strip("'")))
    advice.command(*convert(CLIPModel.from_pretrained(old_clip).state_dict()))
    AutoModel.from_pretrained(old_clip)
    cli.main(["convert", str(old_clip), "--output", str(tmp_path / "back"), "--to", "open_clip"])
    adapted = {**weights, "transformer.resblocks.0.attn.q_proj.lora_A": torch.ones(1)}
    advice.command(*convert(adapted))
    cli.main(convert(weights))
    odd = worlds.state(worlds.model(Shape(width=72, head_width=24, text_heads=1), worlds.vocabulary(old_clip)))
    advice.command(*convert(odd, head_width=False))
    cli.main(convert(odd, "--head_width", "24", head_width=False))


@follows(TOKENIZERS, "Pass --processor with a folder or Hub id that has this tokenizer.")
@follows(TOKENIZERS, "highest token id. Pass --processor with the tokenizer that the model was trained with.")
@follows(TOKENIZERS, "from Google has {vocabulary:,} tokens. Pass --processor with the model's tokenizer.")
@follows(
    TOKENIZERS, "but the model has {vocabulary:,}. Pass --processor with the tokenizer that the model was trained"
)
@follows(
    TOKENIZERS, "the tokenizer cannot be loaded. Pass --processor with a folder or Hub id of a model that has the"
)
def test_tokenizers(advice, old_clip, siglip, tmp_path):
    number = worlds.vocabulary(old_clip)
    right = {"vocabulary": number, "length": 24}
    advice.of(clip_tokenizer, None, own_name="bert-base-uncased", **right)
    clip_tokenizer(str(old_clip), own_name="bert-base-uncased", **right)
    advice.of(clip_tokenizer, str(old_clip), own_name=None, vocabulary=number + 1, length=24)
    clip_tokenizer(str(old_clip), own_name=None, **right)
    (tmp_path / "empty").mkdir()
    advice.of(clip_tokenizer, str(tmp_path / "empty"), own_name=None, **right)
    number = worlds.vocabulary(siglip)
    advice.of(siglip_tokenizer, None, vocabulary=number, length=24)
    siglip_tokenizer(str(siglip), vocabulary=number, length=24)
    advice.of(siglip_tokenizer, str(siglip), vocabulary=number - 1, length=24)


@follows("hfcomp/modeling/adapters.py", "Remove SigLIP's pooling from the targets, or use lora without dropout.")
@follows("hfcomp/modeling/adapters.py", "Remove it from lora_targets.")
@follows(
    "hfcomp/modeling/backbones.py", "Pass the plain model: the trainer itself wraps it in DistributedDataParallel"
)
@follows("hfcomp/modeling/backbones.py", "own processor: {argument}=AutoProcessor.from_pretrained(...).")
def test_models(advice, clip, siglip, tmp_path):
    pooled = load_backbone(siglip)
    advice.of(adapters.lora_config, pooled, kind="dora", targets=["attention", "pooling"])
    adapters.lora_config(pooled, kind="dora", targets=["attention"])
    adapters.lora_config(pooled, kind="lora", targets=["attention", "pooling"])
    image = [r"vision_model\..*q_proj"]
    advice.of(adapters.lora_config, load_backbone(clip), targets=["attention", *image], frozen_towers=["image"])
    adapters.lora_config(load_backbone(clip), targets=["attention"], frozen_towers=["image"])
    advice.of(load_backbone, nn.DataParallel(AutoModel.from_pretrained(clip)))
    load_backbone(AutoModel.from_pretrained(clip))
    nameless = CLIPModel(AutoModel.from_pretrained(clip).config)
    nameless.name_or_path = nameless.config._name_or_path = ""
    advice.of(load_processor, nameless, argument="processing_class")
    build(InfoNCETrainer, nameless, tiny.pairs(8), tmp_path, processing_class=AutoProcessor.from_pretrained(clip))
