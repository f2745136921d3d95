"""Encoders other than dual encoders: the vision transformer of DINOScore, and the text encoder of BERTScore.

BERTScore (Zhang et al., "BERTScore: Evaluating Text Generation with BERT", ICLR 2020) uses no idf weights here. The
code is our own, because `bert-score` 0.3.13, the last release, no longer reproduces its own numbers with transformers
5: the space that it puts before a text for RoBERTa is silently dropped, which changes the token of the first word.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import PIL
import torch
import transformers
from numpy.typing import NDArray
from torch import nn
from tqdm.auto import tqdm
from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoTokenizer, GPT2Tokenizer, RobertaTokenizer

from hfcomp.data.pixels import PixelTransform
from hfcomp.devices import default_device
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Indexed, index_images
from hfcomp.evaluation.encoding.evaluated_model import EvaluatedModel
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.evaluation.models import check_device
from hfcomp.modeling.weight_checks import name_damaged_weights, silence_library
from hfcomp.negatives.language_models import length_sorted_batches, position_limit
from hfcomp.reading import check_place
from hfcomp.text_tables import open_table

IMAGE_MODEL, TEXT_MODEL = "image_model", "text_model"
POOLER = "pooler"
"""Part of the names of weights that neither score uses and that many checkpoints lack."""
KNOWN = {"roberta-large": (17, 0.83122575), "roberta-base": (10, 0.814463)}
"""Layer chosen by the authors, and baseline of its F1 for English texts, by the last part of a model's id.

Source: `model2layers` and `rescale_baseline/en` of github.com/Tiiiger/bert_score (MIT), version 0.3.13.
"""


def load_model(source: str, *, needed_by: str) -> nn.Module:
    """Loads a model from a Hub id or folder, in eval mode.

    Raises:
        ValueError: If the source has no model, the weights are damaged, or the file lacks weights that the model needs
            (transformers would initialize them at random).
    """
    check_place(source, needed_by)
    try:
        with silence_library(), name_damaged_weights(source):
            model, loading = AutoModel.from_pretrained(
                source, dtype=torch.float32, trust_remote_code=False, use_safetensors=True, output_loading_info=True
            )
    except (OSError, ValueError) as error:  # no such model, another kind of folder, or damaged weights
        raise ValueError(f"{needed_by}: {source} could not be loaded: {error}") from error
    missing = sorted(key for key in loading["missing_keys"] if POOLER not in key)
    if missing:
        raise ValueError(f"{needed_by}: {source} lacks {len(missing)} weights, for example {missing[:3]}.")
    return model.eval()


class ImageEmbedder(EvaluatedModel):
    """Encodes images with a vision transformer from a Hub id or folder, each distinct image once, in fp32.

    An image's vector is the L2-normalized class token of the last layer after its layer norm (DINOv2's
    `pooler_output`). This is the usual meaning of "DINOScore" and our choice, because the paper does not specify it.
    """

    def __init__(
        self, source: str, *, batch_size: int = 128, device: str | None = None, cache: EmbeddingCache | None = None
    ) -> None:
        check_device(device)
        super().__init__(source, device=device, batch_size=batch_size, cache=cache, split=False)
        try:
            config = AutoConfig.from_pretrained(source, trust_remote_code=False)
            processor = AutoImageProcessor.from_pretrained(source, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"{IMAGE_MODEL}: {source} has no configuration or image processor: {error}") from error
        self.source, self.width = source, config.hidden_size
        self.transform = PixelTransform.from_processor(processor)
        facts = {
            "use": "class token",
            "weights": identity(source),
            "device": self.device.type,
            "pixels": {"class": type(processor).__name__, **json.loads(processor.to_json_string())},
            # Versions are part of the cache key, because another version may compute different pixels or vectors.
            "versions": [torch.__version__, transformers.__version__, PIL.__version__],
        }
        self._fingerprints = {"images": facts}

    def load(self) -> nn.Module:
        return load_model(self.source, needed_by=IMAGE_MODEL)

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        """Returns one vector per distinct image. An image that is `None` gets no vector.

        Raises:
            ValueError: If an image cannot be read, an embedding is not finite, or the model has no class token.
        """
        settings = {"column": column, "progress": progress, "desc": f"{IMAGE_MODEL}: {column}"}
        return index_images(self, self.transform, images, self._encode, self.width, **settings)

    def _encode(self, pixels: torch.Tensor) -> NDArray[np.float32]:
        tokens = self.backbone(pixel_values=pixels).last_hidden_state
        # A convolutional network returns a feature map instead of tokens.
        if tokens.ndim != 3:
            raise ValueError(
                f"{IMAGE_MODEL}: {self.source} is not a vision transformer with a class token, such as DINOv2."
            )
        return nn.functional.normalize(tokens[:, 0].float(), dim=-1).cpu().numpy()


class BertScore:
    """F1 of greedily matched tokens of two texts, rescaled if a baseline is known.

    Args:
        source: Hub id or folder of a model with a tokenizer.
        layer: Layer whose outputs are compared; 0 is the embedding layer.
        baseline: File with the columns `LAYER,P,R,F` in the format of bert-score.

    Attributes:
        layer: The layer used.
        baseline: Baseline of F1; `None` if unknown, in which case scores are not rescaled.
        truncated: Number of texts truncated so far because they were too long for the model.
    """

    def __init__(
        self,
        source: str,
        *,
        layer: int | None = None,
        baseline: str | Path | None = None,
        batch_size: int = 128,
        device: str | None = None,
    ) -> None:
        check_device(device)
        self.source, self.batch_size, self.device = source, batch_size, torch.device(device or default_device())
        self.model = load_model(source, needed_by=TEXT_MODEL).to(self.device)
        self.tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        own_layer, own_baseline = KNOWN.get(source.rstrip("/").rpartition("/")[2], (None, None))
        layers = self.model.config.num_hidden_layers
        self.layer = next(number for number in (layer, own_layer, layers) if number is not None)
        if self.layer > layers:
            raise ValueError(f"text_layer: found {self.layer}, but {source} has the layers 0 to {layers}.")
        # A baseline is valid for one layer only.
        self.baseline = own_baseline if self.layer == own_layer else None
        if baseline is not None:
            self.baseline = read_baseline(baseline, self.layer)
        self.truncated = 0
        self._limit = position_limit(self.model, self.tokenizer)
        # The published scores put a space before each text, so its first word is tokenized like any other.
        self._prefix = " " if isinstance(self.tokenizer, RobertaTokenizer | GPT2Tokenizer) else ""

    def __call__(self, first: Sequence[str], second: Sequence[str], *, progress: bool = False) -> NDArray[np.float64]:
        """Returns F1 `[n]` of each pair. It is symmetric, because no idf weights distinguish a reference."""
        ids = [self._ids(text) for text in (*first, *second)]
        number = len(first)
        scores = np.full(number, np.nan)
        # Batch by length, because padding to the longest text would take most of the time.
        longest = [max(len(ids[row]), len(ids[number + row])) for row in range(number)]
        with tqdm(total=number, desc=TEXT_MODEL, disable=not progress, leave=False) as bar:
            for rows in length_sorted_batches(longest, self.batch_size):
                pair = [self._embed([ids[start + row] for row in rows]) for start in (0, number)]
                scores[rows] = greedy_f1(*pair).cpu().numpy()
                bar.update(len(rows))
        return scores if self.baseline is None else (scores - self.baseline) / (1 - self.baseline)

    def _ids(self, text: str) -> list[int]:
        text = text.strip()
        text = self._prefix * bool(text) + text
        # Tokenize in full first, to see whether truncation is needed.
        ids = self.tokenizer(text, verbose=False)["input_ids"]
        if len(ids) > self._limit:
            self.truncated += 1
            ids = self.tokenizer(text, truncation=True, max_length=self._limit)["input_ids"]
        return list(ids)

    @torch.inference_mode()
    def _embed(self, ids: list[list[int]]) -> Tokens:
        padded = self.tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(self.device)
        output = self.model(**padded, output_hidden_states=True).hidden_states[self.layer].float()
        is_token = padded["attention_mask"].bool()
        ends = (self.tokenizer.cls_token_id, self.tokenizer.sep_token_id)
        special = torch.tensor([token for token in ends if token is not None], device=self.device, dtype=torch.long)
        return Tokens(
            nn.functional.normalize(output, dim=-1), is_token, is_token & ~torch.isin(padded["input_ids"], special)
        )


class Tokens(NamedTuple):
    """Encoded tokens of B texts."""

    vectors: torch.Tensor  # `[B, T, D]`, L2-normalized
    is_token: torch.Tensor  # `[B, T]`, True except for padding
    words: torch.Tensor  # `[B, T]`, True except for padding and the tokens that begin and end a text


def greedy_f1(first: Tokens, second: Tokens) -> torch.Tensor:
    """Computes the harmonic mean of each side's mean highest cosine with the other side (Eqs. 1 to 3).

    As in the authors' code, a word may match the begin or end token of the other text, but these tokens do not count
    as words.

    Returns:
        Scores `[B]`; 0 for a pair in which one side has no words.
    """
    cosines = first.vectors @ second.vectors.transpose(1, 2)
    # Padding must never be the nearest token.
    cosines = cosines.masked_fill(~(first.is_token[:, :, None] & second.is_token[:, None, :]), -torch.inf)
    means = [
        torch.where(side.words, cosines.amax(axis), 0.0).sum(1) / side.words.sum(1).clamp(min=1)
        for side, axis in ((first, 2), (second, 1))
    ]
    total = means[0] + means[1]
    empty = ~(first.words.any(1) & second.words.any(1)) | (total == 0)
    # `torch.where` evaluates both branches, so the divisor of an empty pair must not be 0.
    return torch.where(empty, 0.0, 2 * means[0] * means[1] / torch.where(empty, 1.0, total))


def read_baseline(path: str | Path, layer: int) -> float:
    """Reads the F1 baseline of a layer from a bert-score file."""
    table = open_table(Path(path))
    header, rows = [name.strip() for name in table.columns], [row for _, row in table.rows()]
    if not {"LAYER", "F"} <= set(header):
        raise ValueError(f"{path}: found the columns {header}, expected LAYER,P,R,F.")
    row_of_layer = next((row for row in rows if row[header.index("LAYER")].strip() == str(layer)), None)
    if row_of_layer is None:
        raise ValueError(f"{path} has no row for layer {layer}.")
    text = row_of_layer[header.index("F")]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    # This also rejects NaN. A baseline of 1 would divide by 0.
    if not value < 1:
        raise ValueError(f"{path}, LAYER {layer}: found F {text!r}, expected a number below 1.")
    return value
