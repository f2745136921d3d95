"""VQAScore with families of image-text-to-text models (about 2 s; with the slow ones 13 s)."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, ProcessorMixin

from hfcomp.evaluation.models import pair_model
from hfcomp.evaluation.pairs.models import VQAScorer
from hfcomp.evaluation.pairs.options import PairOptions
from tests.evaluation.pairs import language_models, readers

TEXTS = ["a red cube", "a blue ball on a green ring, and a white star on a black cross", "a cone"]
SIZES = (40, 64), (64, 16), (32, 32)
FIXED = "llava", "llava without a template", "paligemma", "gemma3"  # the same number of tokens for every image
OTHER = PairOptions(vqa_prompt="{text}: true or false?", vqa_answer="no")


def parameters():
    default = ("llava", "llava without a template", "qwen2_vl", "paligemma")
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in default)) for name in language_models.FAMILIES]


@pytest.fixture(scope="module", params=parameters())
def family(request, tmp_path_factory):
    """A family's name, the folder of its model, and its processor."""
    folder = tmp_path_factory.mktemp("models") / request.param
    with pytest.MonkeyPatch.context() as patch:  # for videos, processors need torchvision and num2words
        patch.setattr(ProcessorMixin, "check_argument_for_proper_class", lambda *words: None)
        try:
            if request.param == "smolvlm":
                patch.setattr(import_module("transformers.models.smolvlm.processing_smolvlm"), "num2words", str)
            config, processor = language_models.make(request.param)
        except ImportError as error:  # of older transformers, whose processors need torchvision for images too
            pytest.skip(str(error))
    readers.save(AutoModelForImageTextToText.from_config(config), folder)
    return request.param, folder, processor


def documented_inputs(name, processor, image, question):
    """The inputs of a single pair, as the families' documentation prepares them."""
    if processor.chat_template is None:
        start = "<image>" if name == "paligemma" else "<image>\n"
        inputs = processor(images=image, text=start + question, return_tensors="pt")
        return {name: value for name, value in inputs.items() if name != "labels"}
    chat = [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": question}]}]
    settings = {"add_generation_prompt": True, "return_dict": True, "return_tensors": "pt"}
    return processor.apply_chat_template(chat, tokenize=True, **settings)


@pytest.mark.parametrize("options", [PairOptions(), OTHER], ids=["paper", "other"])
def test_a_batch_scores_as_plain_forward_passes(family, options):
    name, folder, processor = family
    assert pair_model(folder) is VQAScorer
    scorer, model = VQAScorer(folder, processor, device="cpu"), AutoModelForImageTextToText.from_pretrained(folder)
    answers, expected, lengths = scorer.ask(options), [], set()
    assert [processor.tokenizer.decode(token).strip() for token in answers] == [options.vqa_answer] * 2
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    images = [Image.fromarray(noise[:height, :width]) for height, width in SIZES]
    with torch.inference_mode():
        for image, text in zip(images, TEXTS, strict=True):
            question = options.vqa_prompt.replace("{text}", text)
            inputs = documented_inputs(name, processor, image, question)
            lengths.add(inputs["input_ids"].shape[1] - len(processor.tokenizer(question)["input_ids"]))
            expected.append(model(**inputs).logits[0, -1].softmax(-1)[answers].sum().log())
        scores = scorer.log_probabilities(images, TEXTS)
        half = VQAScorer(model.bfloat16(), processor).log_probabilities(images, TEXTS)
    assert (scores - torch.stack(expected)).abs().max().item() <= readers.tolerance(scorer)
    assert torch.stack(expected).std().item() > 100 * readers.tolerance(scorer)
    assert (len(lengths) == 1) == (name in FIXED)
    assert half.dtype == torch.float32 and half.isfinite().all()
