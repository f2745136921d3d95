"""Both stages of a LLaVA on a tuned tower, at the size of seconds: what is trained, on which tokens, what loads."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoProcessor, LlamaConfig, LlamaForCausalLM, LlavaForConditionalGeneration

from hfcomp.evaluation.pairs.models import VQAScorer
from hfcomp.testing import write_tiny_llama
from tests import tiny
from tests.evaluation.pairs import readers

SCRIPT = Path(__file__).resolve().parents[2] / "recipes" / "llava.py"
RECIPE = runpy.run_path(str(SCRIPT))
FAST = ["--use_cpu", "true", "--max_steps", "2", "--per_device_train_batch_size", "2", "--disable_tqdm", "true"]
follows = pytest.mark.follows


def said(*texts: str) -> list[dict[str, str]]:
    return [{"from": ("human", "gpt")[place % 2], "value": text} for place, text in enumerate(texts)]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Four images, with captions and conversations as in LLaVA's files; a conversation about no image."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "part").mkdir()
    captions, chats = [], [{"id": "no image", "conversations": said("Who is <image>?", "Nobody.")}]
    for number, caption in enumerate(tiny.captions()[:4]):
        image = f"part/{number}.png"
        tiny.image(number).save(folder / image)
        captions.append({"id": str(number), "image": image, "conversations": said("<image>\nSay it.", caption)})
        chats.append({"image": image, "conversations": said("What?\n<image>", caption, "Is it red?", "Yes")})
    chats[1]["conversations"].insert(0, {"from": "gpt", "value": "an answer without a question"})
    (folder / "captions.json").write_text(json.dumps(captions))
    (folder / "chats.json").write_text(json.dumps(chats))
    return folder


@pytest.fixture(scope="module")
def language_model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "llama"
    tokenizer = readers.words()
    torch.manual_seed(0)
    config = LlamaConfig(
        **readers.SIZES, vocab_size=len(tokenizer), max_position_embeddings=256, bos_token_id=0, eos_token_id=1
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def train(data: Path, file: str, folder: Path, *more: object) -> LlavaForConditionalGeneration:
    words = ["--data", data / file, "--images", data, "--output_dir", folder, *FAST, *more]
    RECIPE["main"](list(map(str, words)))
    model, report = LlavaForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    return model


def same(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    weights, others = first.state_dict(), second.state_dict()
    return weights.keys() == others.keys() and all(torch.equal(weights[name], others[name]) for name in weights)


@pytest.mark.parametrize("family", ["clip", "siglip"])
def test_the_projector_is_trained_then_the_language_model_and_the_result_is_scored(
    family, data, language_model, request, tmp_path
):
    vision = request.getfixturevalue(family)
    parts = ("--vision", vision, "--language_model", language_model)
    first = train(data, "captions.json", tmp_path / "projector", *parts).model
    again = train(data, "captions.json", tmp_path / "again", *parts, "--learning_rate", "0").model
    tower = AutoModel.from_pretrained(vision).vision_model
    weights = {name.removeprefix("vision_model."): value for name, value in tower.state_dict().items()}
    for name, value in first.vision_tower.state_dict().items():
        assert torch.equal(value, weights[name.removeprefix("vision_model.")])
    plain = LlamaForCausalLM.from_pretrained(language_model)
    assert same(first.language_model, plain.model)
    assert not same(first.multi_modal_projector, again.multi_modal_projector)
    more = ("--stage", "instructions", "--llava", tmp_path / "projector")
    second = train(data, "chats.json", tmp_path / "both", *more).model
    assert same(second.vision_tower, first.vision_tower)
    assert not same(second.language_model, plain.model)
    assert not same(second.multi_modal_projector, first.multi_modal_projector)
    scorer = VQAScorer(tmp_path / "both", device="cpu")
    assert scorer.prompt("a cone").endswith('show "a cone"? Please answer yes or no. ASSISTANT:')
    scores = scorer.log_probabilities([tiny.image(0)], ["a red cube on a blue ball"])
    assert torch.isfinite(scores).all()


@follows("recipes/llava.py", "Raise --max_length.")
def test_a_batch_without_an_answer_would_spoil_the_weights(data, processor):
    rows = RECIPE["read_conversations"](data / "chats.json", data, captions=False)[1:2]
    with pytest.raises(ValueError, match="max_length: found no answer in 7 tokens"):
        RECIPE["collate"](rows, processor, 7, captions=False)
    assert (RECIPE["collate"](rows, processor, 64, captions=False)["labels"] != -100).any()


@pytest.fixture(scope="module")
def processor(siglip, language_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("processor")
    RECIPE["join_llava"](str(siglip), str(language_model))[1].save_pretrained(folder)
    return AutoProcessor.from_pretrained(folder)


@pytest.mark.parametrize(
    ("file", "captions", "expected"),
    [
        ("captions.json", True, [["a red cube on a blue ball\n"], ["a red cube on a blue cone\n"]]),
        ("chats.json", False, [[" Nobody.</s>"], [" a red cube on a blue ball</s>", " Yes</s>"]]),
    ],
)
def test_only_answers_have_labels(data, processor, file, captions, expected):
    rows = RECIPE["read_conversations"](data / file, data, captions=captions)[:2]
    batch = RECIPE["collate"](rows, processor, 2048, captions=captions)
    marks = (batch["input_ids"] == processor.image_token_id).sum(dim=1).tolist()
    assert marks == ([4, 4] if captions else [0, 4])  # four patches; a mark inside a text is no image
    for ids, labels, answers in zip(batch["input_ids"], batch["labels"], expected, strict=True):
        learned = labels != -100
        assert torch.equal(ids[learned], labels[learned])
        assert processor.tokenizer.decode(labels[learned]) == "".join(answers)


def test_a_vocabulary_without_the_images_mark_grows(siglip, tmp_path):
    model, processor = RECIPE["join_llava"](str(siglip), str(write_tiny_llama(tmp_path / "llama")))
    vocabulary = len(processor.tokenizer)
    assert model.lm_head.out_features == vocabulary == model.config.text_config.vocab_size
    assert model.config.image_token_id == processor.image_token_id == vocabulary - 1
    inputs = processor(images=tiny.image(0), text="<image> a dog", return_tensors="pt")
    assert torch.isfinite(model(**inputs).logits).all()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "found NoneType, expected a list of rows"),
        ([], "found no rows"),
        ([{"image": "no.png", "conversations": said("a", "b")}], r"1 of the images missing, such as .*no\.png"),
        ([{"image": "../x.png", "conversations": said("a", "b")}], "row 0: found the image '../x.png'"),
        ([{"conversations": [*said("a"), *said("b")]}], "row 0: expected turns of human and gpt"),
        ([{"conversations": [{"from": "human"}]}], "row 0: expected conversations"),
    ],
)
def test_data_are_checked_before_a_model_is_loaded(tmp_path, rows, message):
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    with pytest.raises(ValueError, match=message):
        RECIPE["read_conversations"](tmp_path / "rows.json", tmp_path, captions=False)


@follows("recipes/llava.py", "Pass --stage instructions.")
@follows("recipes/llava.py", "Pass another one.")
@follows("recipes/llava.py", "expected a path inside --images.")
@follows("recipes/llava.py", "expected either --llava MODEL, or both --vision MODEL and --language_model MODEL.")
def test_wrong_commands_end_in_a_line(data, tmp_path):
    words = ["--data", str(data / "chats.json"), "--images", str(data), "--output_dir", str(tmp_path), *FAST]
    with pytest.raises(SystemExit, match="error: expected either --llava"):
        RECIPE["main"]([*words, "--vision", "x"])
    with pytest.raises(SystemExit, match="found conversations, expected an answer per image"):
        RECIPE["main"]([*words, "--llava", "x"])
    with pytest.raises(SystemExit, match="output_dir: found files in .*, expected a new folder"):
        RECIPE["main"]([*words[:4], "--output_dir", str(data), "--llava", "x"])
    words = [*words, "--stage", "instructions", "--llava", str(readers.blip2(tmp_path.parent / "blip2"))]
    with pytest.raises(SystemExit, match="found a Blip2ForConditionalGeneration, expected a LlavaFor"):
        RECIPE["main"](words)
    rows = RECIPE["read_conversations"](data / "chats.json", data, captions=False)
    assert [len(row.texts) for row in rows] == [2, 4, 4, 4, 4] and rows[1].texts[2:] == ["Is it red?", "Yes"]
