"""From rows of the column contract to a batch of [`hfcomp.modeling.DualEncoder`]: one collator for CLIP and SigLIP."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import torch

from hfcomp.data.columns import LEFT_OUT
from hfcomp.data.concepts.spans import Concept, tokens_of, with_spans
from hfcomp.data.images import MAX_IMAGE_PIXELS
from hfcomp.data.pixels import PixelBatch, PixelTransform
from hfcomp.data.pixels.store import ImageReader, PixelStore
from hfcomp.data.row_values import negative_fields, read_value, row_fields, text_key
from hfcomp.data.sampling.draws import CROP_BOX
from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.data.urls import UrlAccess
from hfcomp.parsing.captions import lone_surrogate


class CompositionalCollator:
    """Turns rows of the column contract (`hfcomp.data.columns`) into a batch.

    Args:
        processor: the model's processor (`AutoProcessor.from_pretrained`).
        config: the model's configuration.
        num_negatives: entries of `negative_captions` that are read, `K`; 0 reads none.
        negative_image: whether `negative_image` is read. A row without one takes part with its texts.
        max_concepts: concepts per image, 0 reads none; further ones are cut and counted.
        max_image_pixels: an image with more, as it is or while it is resized, is refused.
        urls: that images named by URLs are fetched, and within which limits; by default they are refused.
        pixel_cache: a store of `hfcomp build pixels` that images are taken from; one that it lacks is decoded.
        reduced_jpeg: whether JPEG files are decoded at 1/2, 1/4 or 1/8 of their size, as far as their shorter side
            stays as long as the model's. It changes pixels; see [`for_evaluation`].
        concept_tokens: whether a concept is a part of the caption's tokens, at its `concept_spans`, and not a text of
            its own. One that truncation or the tokenizer removes entirely is dropped, one that truncation shortens
            keeps the rest; both are counted as shortened.
        pad_to_multiple_of: CLIP's texts are padded to the longest of the batch, rounded up to such a multiple.

    The batch holds CPU tensors, first `row [B]` (index in the dataset), `truncated [B]` (texts of the row that were
    cut), `tiny [B]` (images one pixel wide or high), `uncached [B]` (with `pixel_cache`, images that were decoded),
    `cut_concepts [B]` (those over `max_concepts`) and `shortened_concepts [B]` (with `concept_tokens`), which the
    trainer counts, then the arguments of `DualEncoder.forward`. Pixels are uint8, resized and cropped as the model's
    own processor does it; the model normalizes them. The images of rows that have a `crop_box`, as
    `hfcomp.data.sampling.draws.DrawnCrops` adds it for the field `random_crop`, are cropped to it on the model's
    device. There is no other augmentation, and no flip: it would turn "left" into "right".

    Raises:
        ValueError: when called, for a caption that is empty or a list, negatives of unequal number, an unknown kind of
            negative, a concreteness outside 1 to 5 (NaN counts as missing), an entry of another type, or an image that
            cannot be used, naming column, row and how to fix it.
    """

    def __init__(
        self,
        processor: Any,
        config: Any,
        *,
        num_negatives: int = 0,
        negative_image: bool = False,
        max_concepts: int = 0,
        max_image_pixels: int = MAX_IMAGE_PIXELS,
        urls: UrlAccess | None = None,
        pixel_cache: str | None = None,
        reduced_jpeg: bool = False,
        concept_tokens: bool = False,
        pad_to_multiple_of: int = 1,
    ) -> None:
        self.tokenizer = TextTokenizer.from_processor(processor, config, multiple=pad_to_multiple_of)
        self.transform = PixelTransform.from_processor(processor.image_processor, max_pixels=max_image_pixels)
        self.num_negatives = num_negatives
        self.negative_image = negative_image
        self.max_concepts = max_concepts
        store = None if pixel_cache is None else PixelStore(pixel_cache, self.transform)
        side = max(self.transform.size) if reduced_jpeg else None
        self._read = ImageReader(self.transform, max_image_pixels, urls, store, side)
        self.concept_tokens = concept_tokens
        self._crops = True

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A batch of `len(rows)` rows; see the class."""
        names = [row.get("row", index) for index, row in enumerate(rows)]
        batch: dict[str, Any] = {"row": torch.tensor(names, dtype=torch.long)}
        if LEFT_OUT in rows[0]:
            batch[LEFT_OUT] = torch.tensor([row[LEFT_OUT] for row in rows], dtype=torch.long)
        return batch | row_fields(rows, names) | self._images(rows, names) | self._texts(rows, names)

    def for_evaluation(self) -> CompositionalCollator:
        """A copy with exact pixels of whole images: without `reduced_jpeg`, ignoring `crop_box`."""
        # A shallow copy: tokenizer and pixel store are shared.
        exact = copy.copy(self)
        exact._read, exact._crops = replace(self._read, shortest_side=None), False
        return exact

    def _images(self, rows: Sequence[dict[str, Any]], names: list[int]) -> dict[str, Any]:
        where = [f"column 'image', row {name}" for name in names]
        # Images and negative images become one tensor, which the model encodes in one pass.
        values, of_row = [row["image"] for row in rows], list(range(len(rows)))
        batch: dict[str, Any] = {}
        if self.negative_image:
            exists = [row.get("negative_image") is not None for row in rows]
            for index, (row, name) in enumerate(zip(rows, names, strict=True)):
                if exists[index]:
                    where.append(f"column 'negative_image', row {name}")
                    values.append(row["negative_image"])
                    of_row.append(index)
            batch["negative_image_mask"] = torch.tensor(exists)
        images, places = self._read(values, where), torch.tensor(of_row, dtype=torch.long)
        counts = {"tiny": images.tiny} | ({"uncached": images.decoded} if self._read.store is not None else {})
        zeros = torch.zeros(len(rows), dtype=torch.long)
        counted = {name: zeros.index_add(0, places, torch.tensor(one).long()) for name, one in counts.items()}
        boxes = torch.tensor([row[CROP_BOX] for row in rows])[places] if self._crops and CROP_BOX in rows[0] else None
        return {**counted, **batch, "pixels": PixelBatch(images.pixels, boxes)}

    def _texts(self, rows: Sequence[dict[str, Any]], names: list[int]) -> dict[str, Any]:
        captions = [_caption(row.get("caption"), name) for row, name in zip(rows, names, strict=True)]
        ids, caption_cut = self.tokenizer(captions)
        truncated = torch.tensor(caption_cut, dtype=torch.long)
        batch: dict[str, Any] = {}
        parts = {"input_ids": ids}
        if self.num_negatives:
            texts, fields = self._negatives(rows, names)
            batch |= fields
            parts["negative_input_ids"], cut = self.tokenizer(texts)
            of_row = fields["negative_text_mask"].nonzero()[:, 0]
            truncated.index_add_(0, of_row, torch.tensor(cut, dtype=torch.long))
        if self.max_concepts:
            concepts, fields = self._concepts(rows, names, captions)
            batch |= fields
            if not self.concept_tokens:
                found = [one.text for part in concepts for one in part]
                # A phrase such as "dog" occurs in many rows of a batch and is encoded once.
                texts, batch["concept_text_index"] = listed_once(found)
                parts["concept_input_ids"], cut = self.tokenizer(texts)
                cut_of = torch.tensor(cut, dtype=torch.long)[batch["concept_text_index"]]
                truncated.index_add_(0, _present(fields["concept_image_index"]), cut_of)
        # All texts get the same length, so the model can encode captions, negatives and concepts in one pass.
        length = self.tokenizer.length(row for part in parts.values() for row in part)
        batch |= {key: self.tokenizer.pad(part, length) for key, part in parts.items()}
        if self.max_concepts and self.concept_tokens:
            mask, batch["shortened_concepts"] = self._token_mask(concepts, captions, length)
            batch["concept_image_index"] = batch["concept_image_index"].masked_fill(~mask.any(-1), -1)
            batch["concept_token_mask"] = mask
        return {"truncated": truncated, **batch}

    def _negatives(self, rows: Sequence[dict[str, Any]], names: list[int]) -> tuple[list[str], dict[str, Any]]:
        entries = [
            entry
            for row, name in zip(rows, names, strict=True)
            for entry in negative_entries(row, name, self.num_negatives)
        ]
        texts = [text for text, _ in entries]
        size = (len(rows), self.num_negatives)
        fields = {"negative_text_mask": torch.tensor([bool(text) for text in texts], dtype=torch.bool).reshape(size)}
        for field_name, field in negative_fields().items():
            values = [values[field_name] for _, values in entries]
            fields[field_name] = torch.tensor(values, dtype=field.dtype).reshape(size)
        return [text for text in texts if text], fields

    def _concepts(
        self, rows: Sequence[dict[str, Any]], names: list[int], captions: list[str]
    ) -> tuple[list[list[Concept]], dict[str, Any]]:
        size = (len(rows), self.max_concepts)
        image, number = torch.full(size, -1, dtype=torch.long), torch.zeros(size, dtype=torch.long)
        cut = torch.zeros(len(rows), dtype=torch.long)
        kept = []
        # Equal phrases have equal ids, so "dog" of one image is not a negative of "dog" of another.
        for index, (row, name, caption) in enumerate(zip(rows, names, captions, strict=True)):
            concepts = _concepts_of(row, name, caption, self.concept_tokens)
            kept.append(concepts[: self.max_concepts])
            cut[index] = len(concepts) - len(kept[-1])
            image[index, : len(kept[-1])] = index
            number[index, : len(kept[-1])] = torch.tensor([text_key(one.text) for one in kept[-1]])
        return kept, {"concept_image_index": image.flatten(), "concept_id": number.flatten(), "cut_concepts": cut}

    def _token_mask(
        self, concepts: list[list[Concept]], captions: list[str], length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Which tokens make up each concept, `[B * max_concepts, L]`, and how many concepts of a row lost some."""
        mask = torch.zeros((len(captions), self.max_concepts, length), dtype=torch.bool)
        shortened = torch.zeros(len(captions), dtype=torch.long)
        for index, (of_row, places) in enumerate(zip(concepts, self.tokenizer.places(captions), strict=True)):
            for slot, (tokens, whole) in enumerate(tokens_of(of_row, places)):
                mask[index, slot, tokens] = True
                shortened[index] += not whole
        return mask.flatten(0, 1), shortened


def listed_once(texts: Sequence[str]) -> tuple[list[str], torch.Tensor]:
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return list(places), torch.tensor([places[text] for text in texts], dtype=torch.long)


def exact_collator(collator: Any) -> Any:
    """A collator for evaluation: that of `CompositionalCollator.for_evaluation`, or a user's own as it is."""
    return collator.for_evaluation() if isinstance(collator, CompositionalCollator) else collator


def texts_of_row(row: dict[str, Any], name: int, num_negatives: int) -> list[str]:
    """A row's caption and its first negatives `[1 + K]`, as the collator reads them; a masked negative is empty."""
    return [_caption(row.get("caption"), name), *(text for text, *_ in negative_entries(row, name, num_negatives))]


def _caption(caption: Any, row: int) -> str:
    if isinstance(caption, list | tuple):
        raise ValueError(
            f"column 'caption', row {row}: found a list of {len(caption)}, expected one text. Give every caption a "
            "row of its own, or choose one in Python: dataset.map(lambda row: {'caption': row['caption'][0]})."
        )
    if not isinstance(caption, str) or not caption.strip() or lone_surrogate(caption) >= 0:
        raise ValueError(
            f"column 'caption', row {row}: found {caption!r}, expected a text. Remove such rows from the file, or in "
            "Python: dataset.filter(lambda row: row['caption'] and row['caption'].strip())."
        )
    return caption


def _concepts_of(row: dict[str, Any], name: int, caption: str, spans: bool) -> list[Concept]:
    named = _list_of(row, "concepts", name) or []
    if spans:
        concepts = with_spans(named, row.get("concept_spans"), caption=caption, row=name)
    else:
        concepts = [Concept(text) for text in named if text and text.strip()]
    return concepts or [Concept(caption, [(0, len(caption))])]


def negative_entries(row: dict[str, Any], name: int, number: int) -> list[tuple[str, dict[str, float]]]:
    """The first negatives of a row, as the collator reads them.

    Returns:
        For each its text, empty if masked, and its values by the names of their fields; those of a masked one are
        missing.
    """
    texts = _list_of(row, "negative_captions", name)
    if texts is None or len(texts) < number:
        raise ValueError(too_few_negatives(name, None if texts is None else len(texts), number))
    # Types and lengths of all entries are checked, also of those behind the first K: another epoch may draw them.
    columns = {}
    for field_name, field in negative_fields().items():
        values = _list_of(row, field.column, name, text=isinstance(field.missing, str))
        if values is not None and len(values) != len(texts):
            raise ValueError(
                f"column '{field.column}' has {len(values)} entries in row {name}, but 'negative_captions' has "
                f"{len(texts)}. Every negative needs one; use null for an unknown value."
            )
        columns[field_name] = values if values is not None else [None] * len(texts)
    entries = []
    for place, text in enumerate(itertools.islice(texts, number)):
        there = bool(text and text.strip())
        numbers = {key: read_value(key, part[place] if there else None, name) for key, part in columns.items()}
        entries.append((text if there else "", numbers))
    return entries


def too_few_negatives(row: int, found: int | None, number: int) -> str:
    entries = "nothing" if found is None else f"{found} entries"
    fewer = f" or set num_negatives={found}" if found else ""
    return (
        f"column 'negative_captions', row {row}: found {entries}, expected {number}. Every row needs the same number; "
        f"pad with empty strings (they are masked){fewer}."
    )


def _list_of(row: dict[str, Any], column: str, name: int, *, text: bool = True) -> list[Any] | None:
    """A column's list of texts or numbers, whose entries may be missing; `None` for a missing list."""
    kind = "texts" if text else "numbers"
    values = row.get(column)
    if values is None:
        return None
    if isinstance(values, np.ndarray | torch.Tensor):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        found = f"the text {values!r}" if isinstance(values, str) else repr(values)
        raise ValueError(
            f"column '{column}', row {name}: found {found}, expected a list of {kind}. "
            f"Put it into a list, in Python: dataset.map(lambda row: {{'{column}': [row['{column}']]}})."
        )
    for index, value in enumerate(values):
        fits = isinstance(value, str) if text else isinstance(value, Real) and not isinstance(value, bool)
        if value is not None and not fits:
            raise ValueError(
                f"column '{column}', row {name}, entry {index}: found {value!r}, expected one of a list of {kind}. "
                "Correct it in the file, or use null for an unknown value."
            )
        if text and value is not None and lone_surrogate(value) >= 0:
            raise ValueError(
                f"column '{column}', row {name}, entry {index}: found {value!r}, expected a text. It has a lone "
                "surrogate, which tokenizers cannot encode: correct the row in its file, or in Python remove it with "
                "dataset.filter."
            )
    return list(values)


def _present(index: torch.Tensor) -> torch.Tensor:
    return index[index >= 0]
