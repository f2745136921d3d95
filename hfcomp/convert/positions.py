"""Stretches a dual encoder's text positions for longer texts, as Long-CLIP does before it fine-tunes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from hfcomp.convert.clip_layout import KEPT_POSITIONS as KEPT
from hfcomp.convert.convert import RECORD_FILE, check_folder, library_versions
from hfcomp.convert.export import load_plain, source_name
from hfcomp.families import family_of
from hfcomp.modeling.backbones import load_processor
from hfcomp.modeling.checkpoints import write_sentence_transformers_files
from hfcomp.writing import replacing_folder, write_json


def stretch(table: torch.Tensor, positions: int) -> torch.Tensor:
    """Returns a position table `[P, D]` with more rows: the first 20 stay, and the others are interpolated linearly.

    The last step continues to the end. CLIP's 77 rows become 248, as 57 of them move to 4 times their distance.

    Source:
        Long-CLIP (Zhang et al. 2024, arXiv 2403.15378), section 3.1; the rows after the last old one as in its code.
    """
    rest = table[KEPT:].double()
    ratio, remainder = divmod(positions - KEPT, len(rest))
    if ratio < 2 or remainder:
        choices = ", ".join(str(KEPT + factor * len(rest)) for factor in (2, 3, 4))
        raise ValueError(
            f"stretch_positions: found {positions} for a table of {len(table)}, expected {KEPT} plus a multiple of "
            f"{len(rest)}, such as {choices}."
        )
    steps = rest.diff(dim=0)
    steps = torch.cat([steps, steps[-1:]])
    fractions = torch.arange(ratio, dtype=rest.dtype)[None, :, None] / ratio
    spread = (rest[:, None] + fractions * steps[:, None]).flatten(0, 1)
    return torch.cat([table[:KEPT], spread.to(table.dtype)])


def stretch_positions(model: str | Path, folder: Path, positions: int) -> dict[str, Any]:
    """Writes a dual encoder with text positions for longer texts, as Long-CLIP's before training.

    The result is a plain folder for any recipe. In a causal tower, texts of up to 20 tokens keep their embeddings.

    Args:
        model: Hub id or folder of a dual encoder.
        folder: Output folder. Created if missing; replaced if an earlier conversion wrote it.
        positions: Number of tokens that a text may have: 20 plus a multiple of the other positions; 248 for CLIP.

    Returns:
        The content of `conversion.json`.

    Raises:
        ValueError: If the model is an adapter or has no such table (as a BERT), the number does not fit the table, or
            the folder contains other files.
    """
    check_folder(folder)
    backbone = load_plain(model)
    table = dict(backbone.named_modules()).get("text_model.embeddings.position_embedding")
    if not isinstance(table, nn.Embedding) or table.num_embeddings < KEPT + 2:
        raise ValueError(
            f"{model}: the text tower of a {type(backbone).__name__} has no text_model.embeddings.position_embedding "
            f"of more than {KEPT + 1} rows, as CLIP and SigLIP have. Other positions cannot be stretched."
        )
    before = table.num_embeddings
    table.weight = nn.Parameter(stretch(table.weight.detach(), positions))
    backbone.config.text_config.max_position_embeddings = positions
    processor = load_processor(model, argument="model")
    processor.tokenizer.model_max_length = positions
    changed = "fine-tune it before use: its text tower reads the padding, so short texts embed differently too"
    record = {
        "source": source_name(model),
        "layout": f"{type(backbone).__name__}, text positions stretched from {before} to {positions}",
        "positions": {"before": before, "after": positions, "kept": KEPT},
        "note": changed if family_of(backbone.config).padding == "read" else "",
        "versions": library_versions(),
    }
    with replacing_folder(folder) as part:
        backbone.save_pretrained(part)
        processor.save_pretrained(part)
        write_sentence_transformers_files(part, backbone.config)
        write_json(part / RECORD_FILE, record)
    return record
