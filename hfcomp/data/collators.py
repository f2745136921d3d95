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
        processor: The model's processor (`AutoProcessor.from_pretrained`).
        config: The model's configuration.
        num_negatives: Number of entries of `negative_captions` to read, `K`; 0 reads none.
        negative_image: Whether to read `negative_image`. Rows without one still contribute their texts.
        max_concepts: Maximum number of concepts per image; 0 reads none. Further ones are cut and counted.
        max_image_pixels: Maximum number of pixels of an image, before or during resizing. Larger ones raise an error.
        urls: Limits for downloading images that are given as URLs. By default, URLs raise an error.
        pixel_cache: Store made by `hfcomp build pixels`, from which images are read. Missing images are decoded.
        reduced_jpeg: Whether to decode JPEG files at 1/2, 1/4 or 1/8 of their size, as long as their shorter side
            remains at least as long as the model's input. This changes pixels; see [`for_evaluation`].
        concept_tokens: Whether a concept is the caption tokens at its `concept_spans` rather than a separate text. A
            concept that truncation or the tokenizer removes entirely is dropped; one that truncation shortens keeps
            the rest. Both are counted as shortened.
        pad_to_multiple_of: CLIP texts are padded to the longest text of the batch, rounded up to a multiple of this.

    The batch contains CPU tensors. First come the counts for the trainer: `row [B]` (index in the dataset),
    `truncated [B]` (truncated texts of the row), `tiny [B]` (images one pixel wide or high), `uncached [B]` (with
    `pixel_cache`, decoded images), `cut_concepts [B]` (concepts over `max_concepts`) and `shortened_concepts [B]`
    (with `concept_tokens`). Then come the arguments of `DualEncoder.forward`. Pixels are uint8, resized and cropped
    like by the model's own processor; the model normalizes them. If rows have a `crop_box`, which
    `hfcomp.data.sampling.draws.DrawnCrops` adds for the option `random_crop`, their images are cropped to it on the
    model's device. There is no other augmentation, and no flip, because it would turn "left" into "right".

    Raises:
        ValueError: When called, if a caption is empty or a list, rows have unequal numbers of negatives, a negative's
            kind is unknown, a concreteness is outside 1 to 5 (NaN counts as missing), an entry has another type, or an
            image cannot be used. The message names the column, the row and the fix.
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
        """Returns a batch of `len(rows)` rows; see the class."""
        names = [row.get("row", index) for index, row in enumerate(rows)]
        batch: dict[str, Any] = {"row": torch.tensor(names, dtype=torch.long)}
        if LEFT_OUT in rows[0]:
            batch[LEFT_OUT] = torch.tensor([row[LEFT_OUT] for row in rows], dtype=torch.long)
        return batch | row_fields(rows, names) | self._images(rows, names) | self._texts(rows, names)

    def for_evaluation(self) -> CompositionalCollator:
        """Returns a copy that reads exact pixels of whole images: without `reduced_jpeg`, ignoring `crop_box`."""
        # A shallow copy shares the tokenizer and the pixel store.
        exact = copy.copy(self)
        exact._read, exact._crops = replace(self._read, shortest_side=None), False
        return exact

    def _images(self, rows: Sequence[dict[str, Any]], names: list[int]) -> dict[str, Any]:
        where = [f"column 'image', row {name}" for name in names]
        # Images and negative images form one tensor, which the model encodes in one pass.
        values, row_index = [row["image"] for row in rows], list(range(len(rows)))
        batch: dict[str, Any] = {}
        if self.negative_image:
            exists = [row.get("negative_image") is not None for row in rows]
            for index, (row, name) in enumerate(zip(rows, names, strict=True)):
                if exists[index]:
                    where.append(f"column 'negative_image', row {name}")
                    values.append(row["negative_image"])
                    row_index.append(index)
            batch["negative_image_mask"] = torch.tensor(exists)
        images, places = self._read(values, where), torch.tensor(row_index, dtype=torch.long)
        counts = {"tiny": images.tiny} | ({"uncached": images.decoded} if self._read.store is not None else {})
        zeros = torch.zeros(len(rows), dtype=torch.long)
        counted = {name: zeros.index_add(0, places, torch.tensor(flags).long()) for name, flags in counts.items()}
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
            row_index = fields["negative_text_mask"].nonzero()[:, 0]
            truncated.index_add_(0, row_index, torch.tensor(cut, dtype=torch.long))
        if self.max_concepts:
            concepts, fields = self._concepts(rows, names, captions)
            batch |= fields
            if not self.concept_tokens:
                phrases = [concept.text for row_concepts in concepts for concept in row_concepts]
                # A phrase such as "dog" occurs in many rows of a batch and is encoded once.
                texts, batch["concept_text_index"] = unique_texts(phrases)
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
        # Equal phrases have equal ids, so "dog" in one image is not a negative for "dog" in another.
        for index, (row, name, caption) in enumerate(zip(rows, names, captions, strict=True)):
            concepts = _row_concepts(row, name, caption, self.concept_tokens)
            kept.append(concepts[: self.max_concepts])
            cut[index] = len(concepts) - len(kept[-1])
            image[index, : len(kept[-1])] = index
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


def texts_of_row(row: dict[str, Any], name: int, num_negatives: int) -> list[str]:
    """A row's caption and first negatives `[1 + K]`, as the collator reads them; masked negatives are empty."""
    return [_caption(row.get("caption"), name), *(text for text, *_ in negative_entries(row, name, num_negatives))]


def _caption(caption: Any, row: int) -> str:
    if isinstance(caption, list | tuple):
        raise ValueError(
            f"column 'caption', row {row}: found a list of {len(caption)}, expected one string. Put every caption in "
            "its own row, or choose one in Python: dataset.map(lambda row: {'caption': row['caption'][0]})."
        )
    if not isinstance(caption, str) or not caption.strip() or lone_surrogate(caption) >= 0:
        raise ValueError(
            f"column 'caption', row {row}: found {caption!r}, expected a string. Remove such rows from the file, or "
            "in Python: dataset.filter(lambda row: row['caption'] and row['caption'].strip())."
        )
    return caption


def _row_concepts(row: dict[str, Any], name: int, caption: str, spans: bool) -> list[Concept]:
    named = _list_of(row, "concepts", name) or []
    if spans:
        concepts = with_spans(named, row.get("concept_spans"), caption=caption, row=name)
    else:
        concepts = [Concept(text) for text in named if text and text.strip()]
    return concepts or [Concept(caption, [(0, len(caption))])]


def negative_entries(row: dict[str, Any], name: int, number: int) -> list[tuple[str, dict[str, float]]]:
    """Reads the first negatives of a row, as the collator does.

    Returns:
        The text of each negative, empty if masked, and its values by field name, which are missing if masked.
    """
    texts = _list_of(row, "negative_captions", name)
    if texts is None or len(texts) < number:
        raise ValueError(too_few_negatives(name, None if texts is None else len(texts), number))
    # Check the types and lengths of all entries, also after the first K, because another epoch may draw them.
    columns = {}
    for field_name, field in negative_fields().items():
        values = _list_of(row, field.column, name, text=isinstance(field.missing, str))
        if values is not None and len(values) != len(texts):
            raise ValueError(
                f"column '{field.column}' has {len(values)} entries in row {name}, but 'negative_captions' has "
                f"{len(texts)}. Every negative needs an entry; use null for an unknown value."
            )
        columns[field_name] = values if values is not None else [None] * len(texts)
    entries = []
    for place, text in enumerate(itertools.islice(texts, number)):
        is_given = bool(text and text.strip())
        numbers = {key: read_value(key, part[place] if is_given else None, name) for key, part in columns.items()}
        entries.append((text if is_given else "", numbers))
    return entries


def too_few_negatives(row: int, count: int | None, number: int) -> str:
    entries = "nothing" if count is None else f"{count} entries"
    fewer = f" or set num_negatives={count}" if count else ""
    return (
        f"column 'negative_captions', row {row}: found {entries}, expected {number}. Every row needs the same number; "
        f"pad with empty strings (they are masked){fewer}."
    )


def _list_of(row: dict[str, Any], column: str, name: int, *, text: bool = True) -> list[Any] | None:
    """Reads a list of strings or numbers from a column; entries may be missing. `None` if there is no list."""
    kind = "strings" if text else "numbers"
    values = row.get(column)
    if values is None:
        return None
    if isinstance(values, np.ndarray | torch.Tensor):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        value_text = f"the string {values!r}" if isinstance(values, str) else repr(values)
        raise ValueError(
            f"column '{column}', row {name}: found {value_text}, expected a list of {kind}. "
            f"Wrap it in a list; in Python: dataset.map(lambda row: {{'{column}': [row['{column}']]}})."
        )
    for index, value in enumerate(values):
        fits = isinstance(value, str) if text else isinstance(value, Real) and not isinstance(value, bool)
        if value is not None and not fits:
            raise ValueError(
                f"column '{column}', row {name}, entry {index}: found {value!r}, expected an entry of a list of "
                f"{kind}. Correct it in the file, or use null for an unknown value."
            )
        if text and value is not None and lone_surrogate(value) >= 0:
            raise ValueError(
                f"column '{column}', row {name}, entry {index}: found {value!r}, expected a string. It contains a "
                "lone surrogate, which tokenizers cannot encode. Correct the row in its file, or remove it in Python "
                "with dataset.filter()."
            )
    return list(values)


def _present(index: torch.Tensor) -> torch.Tensor:
    return index[index >= 0]
