"""Images that are made for the page."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Literal

from gradio.utils import get_upload_folder
from PIL import Image

from hfcomp.writing import write_bytes


def image_file(image: Image.Image, kind: Literal["jpeg", "png"] = "jpeg") -> str:
    """The file of an image in the folder that the page serves, written whole and once.

    Gradio would write an equal image again over its file, which a browser may be reading.
    """
    stream = io.BytesIO()
    image.save(stream, kind)
    content = stream.getvalue()
    path = Path(get_upload_folder()) / "shown" / f"{hashlib.sha256(content).hexdigest()}.{kind}"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
    return str(path)
