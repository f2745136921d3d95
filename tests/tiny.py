"""Tiny dual encoders and datasets on disk in the Hub's layout, built without network."""

from __future__ import annotations

import io
import json
from pathlib import Path

import datasets
import numpy as np
import sentencepiece
import torch
from PIL import Image
from tokenizers import Tokenizer, models, trainers
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    CLIPConfig,
    CLIPModel,
    CLIPProcessor,
    CLIPTokenizer,
    GemmaTokenizer,
    MetaClip2Config,
    MetaClip2Model,
    SiglipConfig,
    SiglipModel,
    SiglipProcessor,
    SiglipTokenizer,
)

from hfcomp.data.columns import CONCEPT_FEATURES
from hfcomp.modeling.image_processors import CLIPImageProcessorPil, SiglipImageProcessorPil

COLORS = ("red", "blue", "green", "yellow", "white", "black")
SHAPES = ("cube", "ball", "cone", "ring", "star", "cross")
IMAGE_SIZE = 32
TEXT_LENGTH = 24


def captions() -> list[str]:
    """Every caption of the tiny world."""
    return [
        f"a {color} {first} on a {other_color} {second}"
        for color in COLORS
        for first in SHAPES
        for other_color in COLORS
        for second in SHAPES
        if color != other_color and first != second
    ]


def _towers(vocabulary: int, **text) -> dict:
    shared = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return {
        "text_config": {**shared, "vocab_size": vocabulary, "max_position_embeddings": TEXT_LENGTH, **text},
        "vision_config": {**shared, "image_size": IMAGE_SIZE, "patch_size": 16},
    }


def _bpe(vocabulary: int, special: list[str], normalizer, pre_tokenizer, suffix: str | None) -> dict:
    ending = {"end_of_word_suffix": suffix} if suffix else {}
    # else ends of words would be numbered as a hash map has them, other in every process
    ends = [letter + suffix for letter in sorted(set("".join(captions()).lower()))] if suffix else []
    tokenizer = Tokenizer(models.BPE(unk_token=special[-1], **ending))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[*special, *ends],
        initial_alphabet=ByteLevel.alphabet() if suffix else [],
        show_progress=False,
        **ending,
    )
    tokenizer.train_from_iterator(captions(), trainer)
    return json.loads(tokenizer.to_str())["model"]


def clip(folder: str | Path, *, seed: int = 0, dropout: float = 0.0, dtype: torch.dtype = torch.float32) -> Path:
    """A CLIP of 40,000 parameters with its processor, as `save_pretrained` writes them."""
    backend = CLIPTokenizer().backend_tokenizer
    model = _bpe(700, ["<|startoftext|>", "<|endoftext|>"], backend.normalizer, backend.pre_tokenizer, "</w>")
    tokenizer = CLIPTokenizer(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]], model_max_length=77)
    towers = _towers(
        len(tokenizer),
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attention_dropout=dropout,
    )
    torch.manual_seed(seed)
    network = CLIPModel(CLIPConfig(**towers, projection_dim=16)).to(dtype)
    size = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    images = CLIPImageProcessorPil(size={"shortest_edge": IMAGE_SIZE}, crop_size=size)
    network.save_pretrained(folder)
    CLIPProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return Path(folder)


def old_clip(folder: str | Path, *, seed: int = 0) -> Path:
    """The same CLIP as transformers 4 wrote it and the Hub still holds it.

    `eos_token_id` of 2, whole configurations repeated in `text_config_dict`, a `preprocessor_config.json` of a feature
    extractor, and the tokenizer as `vocab.json` with `merges.txt`, its end-of-text token the highest.
    """
    folder = clip(folder, seed=seed)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())["model"]
    special = ["<|startoftext|>", "<|endoftext|>"]
    words = [
        token for token, _ in sorted(tokenizer["vocab"].items(), key=lambda item: item[1]) if token not in special
    ]
    vocabulary = {token: index for index, token in enumerate([*words, *special])}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    start, end = ({"content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True,
                   "__type": "AddedToken"} for token in special)  # fmt: skip
    size = {"size": IMAGE_SIZE, "crop_size": IMAGE_SIZE, "do_resize": True, "do_center_crop": True, "resample": 3}
    mean_and_std = {
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] |= {"eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 1}
    config["text_config_dict"], config["vision_config_dict"] = config["text_config"], config["vision_config"]
    config |= {"transformers_version": None, "torch_dtype": "float32", "logit_scale_init_value": 2.6592}
    config.pop("dtype", None)
    files = {
        "config.json": config,
        "vocab.json": vocabulary,
        "special_tokens_map.json": {"bos_token": start, "eos_token": end, "unk_token": end, "pad_token": special[1]},
        "tokenizer_config.json": {
            "bos_token": start,
            "eos_token": end,
            "unk_token": end,
            "pad_token": special[1],
            "add_prefix_space": False,
            "errors": "replace",
            "do_lower_case": True,
            "model_max_length": 77,
            "tokenizer_class": "CLIPTokenizer",
            "name_or_path": "openai/clip-vit-base-patch32",
        },
        "preprocessor_config.json": {
            "feature_extractor_type": "CLIPFeatureExtractor",
            "do_normalize": True,
            **size,
            **mean_and_std,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    for name in ("tokenizer.json", "processor_config.json"):
        (folder / name).unlink()
    return folder


def metaclip2(folder: str | Path, *, seed: int = 0) -> Path:
    """A MetaCLIP 2 with CLIP's kind of tokenizer: another network, which pools at its own end-of-text token only."""
    processor = CLIPProcessor.from_pretrained(clip(folder, seed=seed))
    tokenizer = processor.tokenizer
    ids = {name: getattr(tokenizer, name) for name in ("eos_token_id", "bos_token_id", "pad_token_id")}
    torch.manual_seed(seed)
    network = MetaClip2Model(MetaClip2Config(**_towers(len(tokenizer), **ids), projection_dim=16))
    network.save_pretrained(folder)
    return Path(folder)


def siglip(folder: str | Path, *, seed: int = 0) -> Path:
    """A SigLIP with the slow sentencepiece tokenizer of the first generation."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(captions()),
        model_writer=stream,
        vocab_size=80,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        model_type="unigram",
        minloglevel=2,
    )
    (folder / "spiece.model").write_bytes(stream.getvalue())
    tokenizer = SiglipTokenizer(str(folder / "spiece.model"), model_max_length=TEXT_LENGTH)
    _save_siglip(folder, tokenizer, seed)
    return folder


def siglip2(folder: str | Path, *, seed: int = 0) -> Path:
    """A fixed-resolution SigLIP 2: a `SiglipModel` with a Gemma tokenizer, which keeps upper case."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    backend = GemmaTokenizer().backend_tokenizer
    model = _bpe(300, special, backend.normalizer, backend.pre_tokenizer, None)
    tokenizer = GemmaTokenizer(
        vocab=model["vocab"],
        merges=[tuple(m) for m in model["merges"]],
        add_bos_token=False,
        add_eos_token=True,
        padding_side="right",
        model_max_length=TEXT_LENGTH,
    )
    _save_siglip(Path(folder), tokenizer, seed)
    return Path(folder)


def _save_siglip(folder: Path, tokenizer, seed: int) -> None:
    torch.manual_seed(seed)
    ids = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    network = SiglipModel(SiglipConfig(**_towers(len(tokenizer), projection_size=32, **ids)))
    with torch.no_grad():
        network.logit_scale.fill_(2.3)
        network.logit_bias.fill_(-10.0)
    network.save_pretrained(folder)
    images = SiglipImageProcessorPil(size={"height": IMAGE_SIZE, "width": IMAGE_SIZE})
    SiglipProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)


def image(seed: int, size: tuple[int, int] = (IMAGE_SIZE, IMAGE_SIZE)) -> Image.Image:
    """A noise image."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), dtype=np.uint8))


def pairs(number: int = 32, *, negatives: int = 2, concepts: bool = False, ragged: bool = True) -> datasets.Dataset:
    """Images, captions and negatives in the column contract.

    With `ragged`, some rows lack a negative image, a negative caption or a rating.
    """
    chosen = captions()
    rows = []
    for index in range(number):
        caption = chosen[(index * 37) % len(chosen)]
        wrong = [chosen[(index * 37 + 11 * (slot + 1)) % len(chosen)] for slot in range(negatives)]
        missing = ragged and index % 5 == 3
        row = {
            "image": image(index),
            "caption": caption,
            "negative_captions": [
                "" if missing and slot == negatives - 1 else text for slot, text in enumerate(wrong)
            ],
            "negative_kinds": ["swap_att", "replace_obj", "other"][:negatives],
            "negative_concreteness": [None if ragged and index % 7 == 2 else 2.5 + index % 3] * negatives,
            "negative_image": None if ragged and index % 4 == 1 else image(1000 + index),
            "image_id": f"tiny-{index}",
        }
        if concepts:
            phrases = caption.split(" on ")[: 1 + index % 2]
            starts = [caption.index(phrase) for phrase in phrases]
            row["concepts"] = phrases
            row["concept_spans"] = [[[at, at + len(phrase)]] for at, phrase in zip(starts, phrases, strict=True)]
        rows.append(row)
    features = {
        "image": datasets.Image(),
        "caption": datasets.Value("string"),
        "negative_captions": datasets.List(datasets.Value("string")),
        "negative_kinds": datasets.List(datasets.Value("string")),
        "negative_concreteness": datasets.List(datasets.Value("float64")),
        "negative_image": datasets.Image(),
        "image_id": datasets.Value("string"),
    }
    if concepts:
        features |= CONCEPT_FEATURES
    return datasets.Dataset.from_list(rows, features=datasets.Features(features))
