"""One or two models side by side: where their image tokens attend for phrases, as a table, a picture and numbers."""

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
    """Where one or two models attend for phrases; see `compare_attention`."""

    models: Mapping[str, str]  # Hub id or folder by name
    cosines: Mapping[str, TokenCosines]
    phrases: Sequence[str]  # as many as the cosines have maps
    source: str  # path or URL of the image
    image: Image.Image  # RGB, upright
    temperature: float

    def report(self) -> Report:
        rows = [
            [phrase, name, *_numbers(one, row, self.temperature)]
            for row, phrase in enumerate(self.phrases)
            for name, one in self.cosines.items()
        ]
        truncated = [
            f"{name}: {phrase!r} is longer than its text tower and was cut"
            for name, one in self.cosines.items()
            for phrase, cut in zip(self.phrases, one.truncated, strict=True)
            if cut
        ]
        grids = ", ".join(
            f"{name} {one.tokens.shape[1]} x {one.tokens.shape[2]}" for name, one in self.cosines.items()
        )
        return Report(
            f"Attention of the tokens of {self.source}",
            sections=[Section("", [Table("", HEADER, rows, labels=2), Lines(truncated, whole=True)])],
            legend=[
                f"Best token: its cosine; rows and columns count from 1 at the top left of {grids}.",
                f"Attention: at temperature {self.temperature:g}; 1 and an entropy of 100 = the same for every token.",
            ],
        )

    def draw(self, path: str | Path, *, quantity: str = "attention") -> Path:
        """Draws a PNG with a row for each phrase, see `hfcomp.analysis.attention_figure.draw_attention`.

        Raises:
            ImportError: without matplotlib.
        """
        shown = {"quantity": quantity, "temperature": self.temperature}
        return draw_attention(path, self.image, self.phrases, self.cosines, **shown)

    def save(self, path: str | Path) -> None:
        """Writes the maps of each model, and of two their difference, as JSON."""
        content: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "image": self.source,
            "phrases": list(self.phrases),
            "temperature": self.temperature,
            "models": {
                name: {
                    "path": self.models[name],
                    "box": one.box,
                    "pooled": one.pooled.tolist(),
                    "cosine": one.tokens.tolist(),
                    "attention": attention(one.tokens, self.temperature).tolist(),
                    "truncated": one.truncated,
                }
                for name, one in self.cosines.items()
            },
        }
        if len(self.cosines) == 2:
            changes = {
                kind: attention_maps(self.cosines, quantity=kind, temperature=self.temperature).change
                for kind in QUANTITIES
            }
            content["difference"] = {
                # Both kinds come from the same tokens and so have the same box.
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
    """Compares where the image tokens of one or two models attend for phrases, as `hfcomp attention` does.

    Args:
        models: one or two Hub ids or folders, also as `name=PLACE`; or places by name.
        image: path, or a URL, which is fetched.
        phrases: at least one; repeated ones count once.
        temperature: of the attention; below 1 it is sharper.
        device: by default a GPU where there is one.

    Raises:
        ValueError: for other numbers of models, an empty phrase, a temperature that is not above 0, an image that
            cannot be used, or a model that is not a supported dual encoder.
        OSError: for an image that cannot be read.
    """
    places = {name: place_of(model) for name, model in named_models(models).items()}
    if len(places) > 2:
        raise ValueError(f"found {len(places)} models, expected one or two.")
    phrases = list(dict.fromkeys(phrases))
    # Checked before a model is loaded, which takes seconds.
    check_phrases(phrases)
    check_temperature(temperature)
    pixels = decode_image(image, where="image", urls=UrlAccess())  # a URL was asked for by name
    cosines = {}
    for name, place in places.items():
        embedder = open_embedder(place, device=device)
        cosines[name] = token_cosines(embedder, pixels, phrases)
        # Only one model is in memory at a time.
        embedder.release()
    return AttentionResults(places, cosines, phrases, str(image), pixels, temperature)


def _numbers(one: TokenCosines, row: int, temperature: float) -> list[str]:
    best = best_token(one.tokens[row])
    attended = attention(one.tokens[row], temperature)
    cosines = [f"{value:.3f}" for value in (one.pooled[row], one.tokens[row][best])]
    place = f"{best[0] + 1}, {best[1] + 1}"
    return [*cosines, place, f"{attended[best]:.3f}", f"{100 * float(evenness(attended)):.2f}"]
