"""Who a page acts for, and the images that are made for it."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import gradio as gr
from gradio.utils import get_upload_folder
from PIL import Image

from hfcomp.data.annotations.entries import is_same_person, person_name
from hfcomp.writing import write_bytes


@dataclass
class Session:
    """What the server keeps of a page.

    Attributes:
        person: who signed in; empty before.
        item: id of the item that is annotated.
        review: id of the item that is reviewed.
        failed: what the retry button repeats: a mask, candidates, or the next item.
    """

    person: str = ""
    item: str | None = None
    review: str | None = None
    failed: str = ""


def acting_person(session: Session, request: gr.Request) -> str:
    """The person that a request acts for.

    With a password it is the name that was signed in with, which the server knows from its cookie; no value that the
    page sends has a say in it. Without one, the page is open to this machine only, and the name is the one it began
    with.

    Raises:
        ValueError: for a page that has not signed in, or that began as somebody else.
    """
    signed_in = person_name(request.username) if request.username else session.person
    if not signed_in:
        raise ValueError("Enter your name to begin.")
    if session.person and not is_same_person(session.person, signed_in):
        raise ValueError(f"This page was opened by {session.person}, but {signed_in} is signed in. Reload it.")
    return signed_in


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
