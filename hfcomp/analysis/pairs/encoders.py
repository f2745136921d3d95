"""Models that are no dual encoders: the vision transformer of DINOScore, and BERTScore's encoder of texts.

BERTScore (Zhang et al., "BERTScore: Evaluating Text Generation with BERT", ICLR 2020) is without idf weights. It is
our own code: with transformers 5 `bert-score` 0.3.13, the last release, no longer gives its own numbers. The blank
that it puts before a text for RoBERTa is silently dropped there, and the first word becomes another token.
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
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Indexed, index_images
from hfcomp.evaluation.encoding.evaluated_model import EvaluatedModel, free_device
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.evaluation.models import check_device
from hfcomp.modeling.weight_checks import name_damaged_weights, silence_library
from hfcomp.negatives.language_models import length_sorted_batches, position_limit
from hfcomp.reading import check_place
from hfcomp.text_tables import open_table

IMAGE_MODEL, TEXT_MODEL = "image_model", "text_model"
POOLER = "pooler"
"""In names of weights that neither score reads, and that many checkpoints lack."""
KNOWN = {
    "roberta-large": (17, 0.83122575),
    "roberta-base": (10, 0.814463),
}
"""By the last part of a model's id: the layer that the authors chose, and the baseline of its F1 for English texts.

Source: `model2layers` and `rescale_baseline/en` of github.com/Tiiiger/bert_score (MIT), version 0.3.13.
"""


def load_model(place: str, *, needed_by: str) -> nn.Module:
    """A model by Hub id or folder, in eval mode.

    Raises:
        ValueError: for a place without a model, damaged weights, or weights that the model needs and the file lacks:
            transformers would make them up at random.
    """
    check_place(place, needed_by)
    try:
        with silence_library(), name_damaged_weights(place):
            model, loading = AutoModel.from_pretrained(
                place, dtype=torch.float32, trust_remote_code=False, use_safetensors=True, output_loading_info=True
            )
    except (OSError, ValueError) as error:  # no such model, another kind of folder, damaged weights
        raise ValueError(f"{needed_by}: {place} could not be loaded: {error}") from error
    missing = sorted(key for key in loading["missing_keys"] if POOLER not in key)
    if missing:
        raise ValueError(f"{needed_by}: {place} lacks the weights {missing[:3]} ({len(missing)} in all).")
    return model.eval()


class ImageEmbedder(EvaluatedModel):
    """Encodes images with a vision transformer by Hub id or folder, each distinct one once, in fp32.

    The vector of an image is the class token of the last layer behind its layer norm (`pooler_output` of DINOv2),
    L2-normalized: the usual reading of "DINOScore", and our choice, as the paper does not say.
    """

    def __init__(
        self, place: str, *, batch_size: int = 128, device: str | None = None, cache: EmbeddingCache | None = None
    ) -> None:
        check_device(device)
        super().__init__(place, device=device, batch_size=batch_size, cache=cache, split=False)
        try:
            config = AutoConfig.from_pretrained(place, trust_remote_code=False)
            processor = AutoImageProcessor.from_pretrained(place, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"{IMAGE_MODEL}: {place} has no configuration or image processor: {error}") from error
        self.place, self.width = place, config.hidden_size
        self.transform = PixelTransform.from_processor(processor)
        facts = {
            "use": "class token",
            "weights": identity(place),
            "device": self.device.type,
            "pixels": {"class": type(processor).__name__, **json.loads(processor.to_json_string())},
            # Part of the cache's key: another version may compute other pixels or vectors.
            "versions": [torch.__version__, transformers.__version__, PIL.__version__],
        }
        self._fingerprints = {"images": facts}

    def load(self) -> nn.Module:
        return load_model(self.place, needed_by=IMAGE_MODEL)

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        """One vector for each distinct image; an image that is `None` gets none.

        Raises:
            ValueError: for an image that cannot be read, embeddings that are not finite, or a model without a class
                token.
        """
        how = {"column": column, "progress": progress, "desc": f"{IMAGE_MODEL}: {column}"}
        return index_images(self, self.transform, images, self._encode, self.width, **how)

    def _encode(self, pixels: torch.Tensor) -> NDArray[np.float32]:
        tokens = self.backbone(pixel_values=pixels).last_hidden_state
        # A convolutional network returns a map of features instead of tokens.
        if tokens.ndim != 3:
            raise ValueError(
                f"{IMAGE_MODEL}: {self.place} is not a vision transformer with a class token, such as DINOv2."
            )
        return nn.functional.normalize(tokens[:, 0].float(), dim=-1).cpu().numpy()


class BertScore:
    """F1 of greedily matched tokens of two texts, rescaled where a baseline is known.

    Args:
        place: Hub id or folder of a model with a tokenizer.
        layer: whose outputs are compared; 0 is that of the embeddings.
        baseline: a file `LAYER,P,R,F`, as bert-score has them.

    Attributes:
        layer: that is used.
        baseline: of F1; `None` where none is known, then scores are not rescaled.
        truncated: how many texts were longer than the model and were cut, so far.
    """

    def __init__(
        self,
        place: str,
        *,
        layer: int | None = None,
        baseline: str | Path | None = None,
        batch_size: int = 128,
        device: str | None = None,
    ) -> None:
        check_device(device)
        self.place, self.batch_size, self.device = place, batch_size, torch.device(device or free_device())
        self.model = load_model(place, needed_by=TEXT_MODEL).to(self.device)
        self.tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
        own_layer, own_baseline = KNOWN.get(place.rstrip("/").rpartition("/")[2], (None, None))
        layers = self.model.config.num_hidden_layers
        self.layer = next(one for one in (layer, own_layer, layers) if one is not None)
        if self.layer > layers:
            raise ValueError(f"text_layer: found {self.layer}, but {place} has the layers 0 to {layers}.")
        # A baseline belongs to a single layer.
        self.baseline = own_baseline if self.layer == own_layer else None
        if baseline is not None:
            self.baseline = read_baseline(baseline, self.layer)
        self.truncated = 0
        self._limit = position_limit(self.model, self.tokenizer)
        # The published scores begin a text with a blank, so its first word is tokenized like any other.
        self._prefix = " " if isinstance(self.tokenizer, RobertaTokenizer | GPT2Tokenizer) else ""

    def __call__(self, first: Sequence[str], second: Sequence[str], *, progress: bool = False) -> NDArray[np.float64]:
        """`[n]`: F1 of each pair; symmetric, since no idf weights distinguish a reference."""
        ids = [self._ids(text) for text in (*first, *second)]
        number = len(first)
        scores = np.full(number, np.nan)
        # Batches by length: padding to the longest text would cost most of the time.
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
        # Tokenized in full first, to see whether anything is cut.
        found = self.tokenizer(text, verbose=False)["input_ids"]
        if len(found) > self._limit:
            self.truncated += 1
            found = self.tokenizer(text, truncation=True, max_length=self._limit)["input_ids"]
        return list(found)

    @torch.inference_mode()
    def _embed(self, ids: list[list[int]]) -> Tokens:
        padded = self.tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(self.device)
        output = self.model(**padded, output_hidden_states=True).hidden_states[self.layer].float()
        there = padded["attention_mask"].bool()
        ends = (self.tokenizer.cls_token_id, self.tokenizer.sep_token_id)
        special = torch.tensor([one for one in ends if one is not None], device=self.device, dtype=torch.long)
        return Tokens(
            nn.functional.normalize(output, dim=-1), there, there & ~torch.isin(padded["input_ids"], special)
        )


class Tokens(NamedTuple):
    """Tokens of B texts."""

    vectors: torch.Tensor  # `[B, T, D]`, of length 1
    there: torch.Tensor  # `[B, T]`, no padding
    words: torch.Tensor  # `[B, T]`, all but the tokens that begin and end a text


def greedy_f1(first: Tokens, second: Tokens) -> torch.Tensor:
    """`[B]`: the harmonic mean of two means, of each side's highest cosines with the other side (Eqs. 1 to 3).

    As in the authors' code a word may be matched to the other text's first or last token, which itself does not count.

    Returns:
        0 for a pair of which one side has no words.
    """
    cosines = first.vectors @ second.vectors.transpose(1, 2)
    # Padding must never be the nearest token.
    cosines = cosines.masked_fill(~(first.there[:, :, None] & second.there[:, None, :]), -torch.inf)
    means = [
        torch.where(side.words, cosines.amax(axis), 0.0).sum(1) / side.words.sum(1).clamp(min=1)
        for side, axis in ((first, 2), (second, 1))
    ]
    total = means[0] + means[1]
    empty = ~(first.words.any(1) & second.words.any(1)) | (total == 0)
    # `torch.where` evaluates both branches, so the divisor of an empty pair must not be 0.
    return torch.where(empty, 0.0, 2 * means[0] * means[1] / torch.where(empty, 1.0, total))


def read_baseline(path: str | Path, layer: int) -> float:
    """The baseline of F1 of a layer, from a file of bert-score."""
    table = open_table(Path(path))
    header, rows = [name.strip() for name in table.columns], [row for _, row in table.rows()]
    if not {"LAYER", "F"} <= set(header):
        raise ValueError(f"{path}: found the columns {header}, expected LAYER,P,R,F.")
    found = next((row for row in rows if row[header.index("LAYER")].strip() == str(layer)), None)
    if found is None:
        raise ValueError(f"{path}: found no row of LAYER {layer}.")
    text = found[header.index("F")]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    # NaN is not below 1 either, and a baseline of 1 would divide by 0.
    if not value < 1:
        raise ValueError(f"{path}, LAYER {layer}: found the F {text!r}, expected a number below 1.")
    return value
