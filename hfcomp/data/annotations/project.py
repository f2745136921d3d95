"""Annotation project folders: a database of decisions, and images named by their content."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

from PIL import Image

from hfcomp.data.annotations.decisions import Decisions
from hfcomp.data.images import decode_image
from hfcomp.reading import read_json
from hfcomp.writing import write_bytes, write_json

DATABASE, IMAGES, MODELS = "annotations.sqlite", "images", "models"


class Project:
    """An annotation project; its folder is created if missing."""

    def __init__(self, folder: Path, *, lease_seconds: float = 900.0) -> None:
        if folder.is_dir() and any(folder.iterdir()) and not (folder / DATABASE).is_file():
            raise ValueError(
                f"{folder} is not an annotation project: it has files, but no {DATABASE}. Choose another folder."
            )
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.decisions = Decisions(folder / DATABASE, lease_seconds=lease_seconds)

    def save(self, image: Image.Image) -> str:
        stream = io.BytesIO()
        image.save(stream, "PNG")
        return self.save_bytes(stream.getvalue(), "png")

    def save_bytes(self, content: bytes, ending: str) -> str:
        """Writes the bytes of an image unless they already exist, and returns the name of the file."""
        # Files are named by content: equal images share one file, and a file never changes once it has its name.
        digest = hashlib.sha256(content).hexdigest()[:32]
        name = f"{digest[:2]}/{digest}.{ending}"
        path = self.path(name)
        if not path.is_file():
            write_bytes(path, content)
        return name

    def path(self, name: str) -> Path:
        return self.folder / IMAGES / name

    def read(self, name: str) -> Image.Image:
        return decode_image(self.path(name), where=f"{IMAGES}/{name}")

    def add_model(self, role: str, identity: str) -> None:
        """Records a model used for edits, for the dataset card. An identity must not contain a local path."""
        digest = hashlib.sha256(f"{role} {identity}".encode()).hexdigest()[:12]
        path = self.folder / MODELS / f"{role}-{digest}.json"
        if not path.is_file():
            write_json(path, {"role": role, "model": identity})


def project_models(folder: Path) -> list[tuple[str, str]]:
    """Lists the roles and models of a project, sorted."""
    models = []
    for path in (folder / MODELS).glob("*.json"):
        note = read_json(path)
        if not isinstance(note, dict) or not {"role", "model"} <= note.keys():
            raise ValueError(f"{path} is damaged: expected a role and a model. Remove it; only dataset cards use it.")
        models.append((str(note["role"]), str(note["model"])))
    return sorted(models)
