"""What both tabs share: sessions of pages, who they act for, files of images, and errors that become messages."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import gradio as gr
from gradio.utils import get_upload_folder
from PIL import Image

from hfcomp.annotate.app import markup
from hfcomp.annotate.service import AnnotationService, ModelError
from hfcomp.data.annotations.entries import is_same_person, person_name
from hfcomp.writing import write_bytes

Updates = dict[Any, Any]
# Errors that a page shows. Any other error is a bug in hfcomp.
ERRORS = (ValueError, OSError, ModelError)


@dataclass
class Session:
    """What the server keeps of a page.

    Attributes:
        person: who signed in; empty before.
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
    # Gradio's user name is what our own server put into the request.
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
    # Named by its content: equal images are one file, which is never written twice.
    content = stream.getvalue()
    path = Path(get_upload_folder()) / "shown" / f"{hashlib.sha256(content).hexdigest()}.{kind}"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
    return str(path)


def shows_errors(repeats: str = "") -> Callable[[Callable[..., Updates]], Callable[..., Updates]]:
    """A handler of a tab whose errors become a message in the page, by the tab's `failure`; nothing else changes.

    Args:
        repeats: what the retry button repeats after a model or the disk failed.
    """

    def decorate(handler: Callable[..., Updates]) -> Callable[..., Updates]:
        @wraps(handler)
        def run(self: Any, session: Session, request: gr.Request, *rest: Any) -> Updates:
            try:
                return handler(self, session, request, *rest)
            except ERRORS as error:
                return self.failure(session, error, repeats)

        return run

    return decorate


class Tab:
    """A tab: its components, among them `session`, `message`, `retry` and `work`, and what happens in them.

    Each handler takes the session, the request, and the values of the fields.
    """

    noun: str
    """What the tab shows, for messages."""

    def __init__(self, service: AnnotationService, components: SimpleNamespace) -> None:
        self.service, self.at = service, components

    def failure(self, session: Session, error: Exception, repeats: str = "") -> Updates:
        raise NotImplementedError

    def show_next(self, session: Session, request: gr.Request) -> Updates:
        raise NotImplementedError

    def error_message(self, error: Exception) -> Updates:
        return {self.at.message: markup.message(str(error) or type(error).__name__, "error")}

    def acting_on(self, session: Session, request: gr.Request, name: str, shown: str | None) -> str:
        """The person whose event is about an item.

        Raises:
            ValueError: for another item than the page shows, as of an event that came late.
        """
        person = acting_person(session, request)
        if shown is None or name != shown:
            raise ValueError(f"The page has gone on to another {self.noun}. Reload it if it looks wrong.")
        return person

    def after_decision(self, session: Session, done: str, request: gr.Request) -> Updates:
        """The next item, with what was done, unless there is more to say of the next one."""
        updates = self.show_next(session, request)
        if not updates.get(self.at.message):
            updates[self.at.message] = markup.message(done, "done")
        return updates

    def nothing_left(self, session: Session, text: str) -> Updates:
        return {
            self.at.session: session,
            self.at.work: gr.update(visible=False),
            self.at.message: markup.message(text, "note"),
            self.at.retry: gr.update(visible=True),
        }
