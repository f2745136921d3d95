"""Collator for CLIP and SigLIP: turns rows of the column contract into a batch for [`hfcomp.modeling.DualEncoder`]."""

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
from hfcomp.data.pixels import PixelBatch, PixelTransform, choose_transform
from hfcomp.data.pixels.store import ImageReader, PixelStore
from hfcomp.data.row_values import negative_fields, read_value, row_fields, text_key
from hfcomp.data.sampling.draws import CROP_BOX
from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.data.urls import UrlAccess
from hfcomp.families import family_of
from hfcomp.parsing.captions import lone_surrogate

_SURROGATE = (
    "which contains a lone surrogate that tokenizers cannot encode. Correct the row in its file, or remove it in "
    "Python with dataset.filter()."
)


class CompositionalCollator:
    """Turns rows of the column contract (`hfcomp.data.columns`) into a batch.

    Args:
        processor: The model's processor (`AutoProcessor.from_pretrained`).
        config: The model's configuration.
        num_negatives: Number of entries of `negative_captions` to read, `K`; 0 reads none.
        negative_image: Whether to read `negative_image`. Rows without one still contribute their texts.
        max_concepts: Maximum number of concepts per image; 0 reads none. Any more are dropped and counted.
        max_image_pixels: Maximum number of pixels of an image, before or during resizing. Larger ones raise an error.
        urls: Limits for downloading images that are given as URLs. By default, URLs raise an error.
        pixel_cache: Store made by `hfcomp build pixels`, from which images are read. Missing images are decoded.
        reduced_jpeg: Whether to decode JPEG files at 1/2, 1/4 or 1/8 of their size, as long as their shorter side
            remains at least as long as the model's input. This changes pixels; see [`for_evaluation`].
        concept_tokens: Whether a concept is the caption tokens at its `concept_spans` rather than a separate text. A
            concept that truncation or the tokenizer removes entirely is dropped; one that truncation shortens keeps
            its remaining tokens. Both are counted as shortened.
        pad_to_multiple_of: CLIP texts are padded to the longest text of the batch, rounded up to a multiple of this.

    The batch contains CPU tensors: the arguments of `DualEncoder.forward`, and counts for the trainer. The counts are
    `row [B]` (index in the dataset), `truncated [B]` (truncated texts of the row), `tiny [B]` (images one pixel wide
    or high), `uncached [B]` (with `pixel_cache`, decoded images), `cut_concepts [B]` (concepts over `max_concepts`),
    `shortened_concepts [B]` (with `concept_tokens`) and, for a stream, `left_out_rows [B]` (rows left out just before
    this one). Pixels are uint8, resized and cropped as the model's own processor does; the model normalizes them. If
    rows have a `crop_box`, which `hfcomp.data.sampling.draws.DrawnCrops` adds for the option `random_crop`, their
    images are cropped to it: on the model's device, or here if only the processor itself can prepare images. There is
    no other augmentation, and no flip, because it would turn "left" into "right".

    Raises:
        ValueError: Raised by a call, if a caption is empty, a list or not encodable, if a row has too few negatives,
            if a negative's kind is unknown, if a concreteness is outside 1 to 5 (NaN counts as missing), if an entry
            has another type, or if an image cannot be used. The message names the column, the row and the fix.
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
        names = family_of(config).image_inputs
        self.transform = choose_transform(processor.image_processor, names, max_pixels=max_image_pixels)
        if not isinstance(self.transform, PixelTransform) and (pixel_cache is not None or reduced_jpeg):
            raise ValueError(
                f"pixel_cache and reduced_jpeg cannot be used with {type(processor.image_processor).__name__}, which "
                "must prepare every image itself. Remove them."
            )
        self.num_negatives = num_negatives
        self.negative_image = negative_image
        self.max_concepts = max_concepts
        store = None if pixel_cache is None else PixelStore(pixel_cache, self.transform)
        side = max(self.transform.size) if reduced_jpeg else None
        self._read = ImageReader(self.transform, max_image_pixels, urls, store, side)
        self.concept_tokens = concept_tokens
        self._uses_crop_boxes = True

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Returns a batch of `len(rows)` rows; see the class."""
        row_numbers = [row.get("row", index) for index, row in enumerate(rows)]
        batch: dict[str, Any] = {"row": torch.tensor(row_numbers, dtype=torch.long)}
        if LEFT_OUT in rows[0]:
            batch[LEFT_OUT] = torch.tensor([row[LEFT_OUT] for row in rows], dtype=torch.long)
        return batch | row_fields(rows, row_numbers) | self._images(rows, row_numbers) | self._texts(rows, row_numbers)

    def for_evaluation(self) -> CompositionalCollator:
        """Returns a copy that reads exact pixels of whole images: without `reduced_jpeg`, ignoring `crop_box`."""
        # A shallow copy shares the tokenizer and the pixel store.
        exact = copy.copy(self)
        exact._read, exact._uses_crop_boxes = replace(self._read, shortest_side=None), False
        return exact

    def _images(self, rows: Sequence[dict[str, Any]], row_numbers: list[int]) -> dict[str, Any]:
        where = [f"column 'image', row {row_number}" for row_number in row_numbers]
        # Images and negative images form one tensor, which the model encodes in one pass.
        values, row_index = [row["image"] for row in rows], list(range(len(rows)))
        batch: dict[str, Any] = {}
        if self.negative_image:
            exists = [row.get("negative_image") is not None for row in rows]
            for index, (row, row_number) in enumerate(zip(rows, row_numbers, strict=True)):
                if exists[index]:
                    where.append(f"column 'negative_image', row {row_number}")
                    values.append(row["negative_image"])
                    row_index.append(index)
            batch["negative_image_mask"] = torch.tensor(exists)
        places = torch.tensor(row_index, dtype=torch.long)
        has_boxes = self._uses_crop_boxes and CROP_BOX in rows[0]
        boxes = torch.tensor([row[CROP_BOX] for row in rows])[places] if has_boxes else None
        images = self._read(values, where, boxes)
        counts = {"tiny": images.tiny} | ({"uncached": images.decoded} if self._read.store is not None else {})
        zeros = torch.zeros(len(rows), dtype=torch.long)
        counted = {name: zeros.index_add(0, places, torch.tensor(flags).long()) for name, flags in counts.items()}
        return {**counted, **batch, "pixels": PixelBatch(images.pixels, boxes)}

    def _texts(self, rows: Sequence[dict[str, Any]], row_numbers: list[int]) -> dict[str, Any]:
        captions = [
            _caption(row.get("caption"), row_number) for row, row_number in zip(rows, row_numbers, strict=True)
        ]
        ids, caption_cut = self.tokenizer(captions)
        truncated = torch.tensor(caption_cut, dtype=torch.long)
        batch: dict[str, Any] = {}
        parts = {"input_ids": ids}
        if self.num_negatives:
            texts, fields = self._negatives(rows, row_numbers)
            batch |= fields
            parts["negative_input_ids"], cut = self.tokenizer(texts)
            row_index = fields["negative_text_mask"].nonzero()[:, 0]
            truncated.index_add_(0, row_index, torch.tensor(cut, dtype=torch.long))
        if self.max_concepts:
            concepts, fields = self._concepts(rows, row_numbers, captions)
            batch |= fields
            if not self.concept_tokens:
                phrases = [concept.text for row_concepts in concepts for concept in row_concepts]
                # A phrase such as "dog" occurs in many rows of a batch and is encoded once.
                texts, batch["concept_text_index"] = unique_texts(phrases)
                parts["concept_input_ids"], cut = self.tokenizer(texts)
                is_cut = torch.tensor(cut, dtype=torch.long)[batch["concept_text_index"]]
                index = fields["concept_image_index"]
                truncated.index_add_(0, index[index >= 0], is_cut)
        # All texts get the same length, so the model can encode captions, negatives and concepts in one pass.
        length = self.tokenizer.length(row for part in parts.values() for row in part)
        batch |= {key: self.tokenizer.pad(part, length) for key, part in parts.items()}
        if self.max_concepts and self.concept_tokens:
            mask, batch["shortened_concepts"] = self._token_mask(concepts, captions, length)
            batch["concept_image_index"] = batch["concept_image_index"].masked_fill(~mask.any(-1), -1)
            batch["concept_token_mask"] = mask
        return {"truncated": truncated, **batch}

    def _negatives(self, rows: Sequence[dict[str, Any]], row_numbers: list[int]) -> tuple[list[str], dict[str, Any]]:
        entries = [
            entry
            for row, row_number in zip(rows, row_numbers, strict=True)
            for entry in negative_entries(row, row_number, self.num_negatives)
        ]
        texts = [text for text, _ in entries]
        size = (len(rows), self.num_negatives)
        fields = {"negative_text_mask": torch.tensor([bool(text) for text in texts], dtype=torch.bool).reshape(size)}
        for field_name, field in negative_fields().items():
            values = [values[field_name] for _, values in entries]
            fields[field_name] = torch.tensor(values, dtype=field.dtype).reshape(size)
        return [text for text in texts if text], fields

    def _concepts(
        self, rows: Sequence[dict[str, Any]], row_numbers: list[int], captions: list[str]
    ) -> tuple[list[list[Concept]], dict[str, Any]]:
        size = (len(rows), self.max_concepts)
        image, number = torch.full(size, -1, dtype=torch.long), torch.zeros(size, dtype=torch.long)
        cut = torch.zeros(len(rows), dtype=torch.long)
        kept = []
        for index, (row, row_number, caption) in enumerate(zip(rows, row_numbers, captions, strict=True)):
            concepts = _row_concepts(row, row_number, caption, self.concept_tokens)
            kept.append(concepts[: self.max_concepts])
            cut[index] = len(concepts) - len(kept[-1])
            image[index, : len(kept[-1])] = index
            # Equal phrases have equal ids, so "dog" in one image is not a negative for "dog" in another.
            number[index, : len(kept[-1])] = torch.tensor([text_key(concept.text) for concept in kept[-1]])
        return kept, {"concept_image_index": image.flatten(), "concept_id": number.flatten(), "cut_concepts": cut}

    def _token_mask(
        self, concepts: list[list[Concept]], captions: list[str], length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mask of each concept's tokens, `[B * max_concepts, L]`, and number of shortened concepts per row."""
        mask = torch.zeros((len(captions), self.max_concepts, length), dtype=torch.bool)
        shortened = torch.zeros(len(captions), dtype=torch.long)
        for index, (row_concepts, places) in enumerate(zip(concepts, self.tokenizer.places(captions), strict=True)):
            for slot, (tokens, whole) in enumerate(tokens_of(row_concepts, places)):
                mask[index, slot, tokens] = True
                shortened[index] += not whole
        return mask.flatten(0, 1), shortened


def unique_texts(texts: Sequence[str]) -> tuple[list[str], torch.Tensor]:
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return list(places), torch.tensor([places[text] for text in texts], dtype=torch.long)


def exact_collator(collator: Any) -> Any:
    """Returns `CompositionalCollator.for_evaluation()`, or a user's own collator unchanged."""
    return collator.for_evaluation() if isinstance(collator, CompositionalCollator) else collator


def texts_of_row(row: dict[str, Any], row_number: int, num_negatives: int) -> list[str]:
    """A row's caption and first negatives `[1 + K]`, as the collator reads them; masked negatives are empty."""
    return [
        _caption(row.get("caption"), row_number),
        *(text for text, *_ in negative_entries(row, row_number, num_negatives)),
    ]


def _caption(caption: Any, row: int) -> str:
    if isinstance(caption, list | tuple):
        raise ValueError(
            f"column 'caption', row {row}: found a list of {len(caption)} captions, expected one string. Put every "
            "caption in its own row, or choose one in Python: dataset.map(lambda row: {'caption': row['caption'][0]})."
        )
    if not isinstance(caption, str) or not caption.strip():
        raise ValueError(
            f"column 'caption', row {row}: found {caption!r}, expected a string. Remove such rows from the file, or "
            "in Python: dataset.filter(lambda row: row['caption'] and row['caption'].strip())."
        )
    if lone_surrogate(caption) >= 0:
        raise ValueError(f"column 'caption', row {row}: found {caption!r}, {_SURROGATE}")
    return caption


def _row_concepts(row: dict[str, Any], row_number: int, caption: str, spans: bool) -> list[Concept]:
    named = _list_of(row, "concepts", row_number) or []
    if spans:
        concepts = with_spans(named, row.get("concept_spans"), caption=caption, row=row_number)
    else:
        concepts = [Concept(text) for text in named if text and text.strip()]
    return concepts or [Concept(caption, [(0, len(caption))])]


def negative_entries(row: dict[str, Any], row_number: int, number: int) -> list[tuple[str, dict[str, float]]]:
    """Reads the first negatives of a row, as the collator does.

    Returns:
        For each negative, its text and its values by field name. For a masked negative, the text is empty and the
        values are missing.
    """
    texts = _list_of(row, "negative_captions", row_number)
    if texts is None or len(texts) < number:
        raise ValueError(too_few_negatives(row_number, None if texts is None else len(texts), number))
    # Check the types and lengths of all entries, including those after the first K: another epoch may draw them.
    columns = {}
    for field_name, field in negative_fields().items():
        values = _list_of(row, field.column, row_number, text=isinstance(field.missing, str))
        if values is not None and len(values) != len(texts):
            raise ValueError(
                f"column '{field.column}', row {row_number}: found {len(values)} entries, expected {len(texts)}, one "
                "per entry of 'negative_captions'; use null for an unknown value."
            )
        columns[field_name] = values if values is not None else [None] * len(texts)
    entries = []
    for place, text in enumerate(itertools.islice(texts, number)):
        is_given = bool(text and text.strip())
        numbers = {
            key: read_value(key, part[place] if is_given else None, row_number) for key, part in columns.items()
        }
        entries.append((text if is_given else "", numbers))
    return entries


def too_few_negatives(row: int, count: int | None, number: int) -> str:
    entries = "nothing" if count is None else f"{count} entries"
    fewer = f" or set num_negatives={count}" if count else ""
    return (
        f"column 'negative_captions', row {row}: found {entries}, expected {number}. Every row needs the same number; "
        f"pad with empty strings (they are masked){fewer}."
    )


def _list_of(row: dict[str, Any], column: str, row_number: int, *, text: bool = True) -> list[Any] | None:
    """Reads a list of strings or numbers from a column; entries may be missing. `None` if there is no list."""
    kind = "string" if text else "number"
    values = row.get(column)
    if values is None:
        return None
    if isinstance(values, np.ndarray | torch.Tensor):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        value_text = f"the string {values!r}" if isinstance(values, str) else repr(values)
        raise ValueError(
            f"column '{column}', row {row_number}: found {value_text}, expected a list of {kind}s. "
            f"Wrap it in a list; in Python: dataset.map(lambda row: {{'{column}': [row['{column}']]}})."
        )
    for index, value in enumerate(values):
        fits = isinstance(value, str) if text else isinstance(value, Real) and not isinstance(value, bool)
        if value is not None and not fits:
            raise ValueError(
                f"column '{column}', row {row_number}, entry {index}: found {value!r}, expected a {kind}. "
                "Correct it in the file, or use null for an unknown value."
            )
        if text and value is not None and lone_surrogate(value) >= 0:
            raise ValueError(f"column '{column}', row {row_number}, entry {index}: found {value!r}, {_SURROGATE}")
    return list(values)
