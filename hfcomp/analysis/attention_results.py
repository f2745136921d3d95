"""Attention of one or two models for phrases side by side, as a table, a figure and numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from hfcomp.analysis.attention import (
    TokenCosines,
    attention,
    best_token,
    check_phrases,
    check_temperature,
    evenness,
    token_cosines,
)
from hfcomp.analysis.attention_figure import QUANTITIES, attention_maps, draw_attention
from hfcomp.data.images import decode_image
from hfcomp.data.urls import UrlAccess
from hfcomp.evaluation.models import open_embedder
from hfcomp.options import named_models, place_of
from hfcomp.reporting.report import Lines, Report, Section, Table
from hfcomp.writing import write_text

SCHEMA_VERSION = 1
HEADER = ["phrase", "model", "pooled\ncosine", "best\ntoken", "its row,\ncolumn", "its\nattention", "entropy,\n%"]


@dataclass(frozen=True)
class AttentionResults:
    """Attention of one or two models for phrases; see `compare_attention`."""

    models: Mapping[str, str]  # Hub id or folder by name
    cosines: Mapping[str, TokenCosines]
    phrases: Sequence[str]  # in the order of the maps in `cosines`
    source: str  # path or URL of the image
    image: Image.Image  # RGB, upright
    temperature: float

    def report(self) -> Report:
        rows = [
            [phrase, name, *_format_numbers(own, row, self.temperature)]
            for row, phrase in enumerate(self.phrases)
            for name, own in self.cosines.items()
        ]
        truncated = [
            f"{name}: {phrase!r} is too long for its text tower and was truncated"
            for name, own in self.cosines.items()
            for phrase, is_truncated in zip(self.phrases, own.truncated, strict=True)
            if is_truncated
        ]
        grids = ", ".join(
            f"{name} {own.tokens.shape[1]} x {own.tokens.shape[2]}" for name, own in self.cosines.items()
        )
        return Report(
            f"Attention of the tokens of {self.source}",
            sections=[Section("", [Table("", HEADER, rows, labels=2), Lines(truncated, whole=True)])],
            legend=[
                f"Best token: its cosine. Rows and columns count from 1 at the top left of {grids}.",
                f"Attention: at temperature {self.temperature:g}. 1 and an entropy of 100: the same for all.",
            ],
        )

    def draw(self, path: str | Path, *, quantity: str = "attention") -> Path:
        """Draws a PNG with one row per phrase, see `hfcomp.analysis.attention_figure.draw_attention`.

        Raises:
            ImportError: If matplotlib is missing.
        """
        settings = {"quantity": quantity, "temperature": self.temperature}
        return draw_attention(path, self.image, self.phrases, self.cosines, **settings)

    def save(self, path: str | Path) -> None:
        """Writes the maps of each model as JSON; for two models, also their difference."""
        content: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "image": self.source,
            "phrases": list(self.phrases),
            "temperature": self.temperature,
            "models": {
                name: {
                    "path": self.models[name],
                    "box": own.box,
                    "pooled": own.pooled.tolist(),
                    "cosine": own.tokens.tolist(),
                    "attention": attention(own.tokens, self.temperature).tolist(),
                    "truncated": own.truncated,
                }
                for name, own in self.cosines.items()
            },
        }
        if len(self.cosines) == 2:
            changes = {
                kind: attention_maps(self.cosines, quantity=kind, temperature=self.temperature).change
                for kind in QUANTITIES
            }
            content["difference"] = {
                # Both kinds come from the same tokens, so they have the same box.
                "box": changes["cosine"][1],
                **{kind: values.tolist() for kind, (values, _) in changes.items()},
            }
        write_text(path, json.dumps(content) + "\n")


def compare_attention(
    models: Sequence[str] | Mapping[str, str],
    image: str | Path,
    phrases: Sequence[str],
    *,
    temperature: float = 1.0,
    device: str | None = None,
) -> AttentionResults:
    """Compares where the image tokens of one or two models attend for phrases, like `hfcomp attention`.

    Args:
        models: One or two Hub ids or folders, also as `name=PLACE` or as a mapping by name.
        image: Path or URL; a URL is downloaded.
        phrases: Phrases, at least one. Repeated phrases count once.
        temperature: Temperature of the attention; below 1 sharpens it.
        device: Device. Defaults to a GPU if available.

    Raises:
        ValueError: If the number of models is not one or two, a phrase is empty, the temperature is not above 0, the
            image cannot be used, or a model is not a dual encoder.
        OSError: If the image cannot be read.
    """
    sources = {name: place_of(model) for name, model in named_models(models).items()}
    if len(sources) > 2:
        raise ValueError(f"found {len(sources)} models, expected one or two.")
    phrases = list(dict.fromkeys(phrases))
    # Check these before loading a model, which takes seconds.
    check_phrases(phrases)
    check_temperature(temperature)
    pixels = decode_image(image, where="image", urls=UrlAccess())  # passing a URL is permission to download it
    cosines = {}
    for name, source in sources.items():
        embedder = open_embedder(source, device=device)
        cosines[name] = token_cosines(embedder, pixels, phrases)
        # Keep only one model in memory at a time.
        embedder.release()
    return AttentionResults(sources, cosines, phrases, str(image), pixels, temperature)


def _format_numbers(cosines: TokenCosines, row: int, temperature: float) -> list[str]:
    best = best_token(cosines.tokens[row])
    attended = attention(cosines.tokens[row], temperature)
    cells = [f"{value:.3f}" for value in (cosines.pooled[row], cosines.tokens[row][best])]
    position = f"{best[0] + 1}, {best[1] + 1}"
    return [*cells, position, f"{attended[best]:.3f}", f"{100 * float(evenness(attended)):.2f}"]
