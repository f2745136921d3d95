"""Shared code of both tabs: page sessions, the acting person, image files, and errors shown as messages."""

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
    """Server-side state of an open page.

    Attributes:
        person: Name of the person who signed in. Empty before.
        failed: Action that the retry button repeats, such as a mask, candidates or the next item.
    """

    person: str = ""
    item: str | None = None
    review: str | None = None
    failed: str = ""


def acting_person(session: Session, request: gr.Request) -> str:
    """Returns the person that a request acts for.

    With a password, it is the name of the signed-in session, which the server knows from the cookie. No value sent by
    the page can change it. Without a password, the page is open only to this machine, and the name is the one entered
    on the page.

    Raises:
        ValueError: If nobody has signed in, or the page was opened by somebody else.
    """
    # Gradio's user name is the one that our own server put into the request.
    signed_in = person_name(request.username) if request.username else session.person
    if not signed_in:
        raise ValueError("Enter your name to begin.")
    if session.person and not is_same_person(session.person, signed_in):
        raise ValueError(f"This page was opened by {session.person}, but {signed_in} is signed in. Reload the page.")
    return signed_in


def image_file(image: Image.Image, kind: Literal["jpeg", "png"] = "jpeg") -> str:
    """Writes an image to the folder that the page serves, at most once, and returns the file.

    Gradio would overwrite the file of an identical image while a browser may be reading it.
    """
    stream = io.BytesIO()
    image.save(stream, kind)
    # Name the file by its content, so identical images share one file that is never rewritten.
    content = stream.getvalue()
    path = Path(get_upload_folder()) / "shown" / f"{hashlib.sha256(content).hexdigest()}.{kind}"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
    return str(path)


def show_errors(repeats: str = "") -> Callable[[Callable[..., Updates]], Callable[..., Updates]]:
    """Decorates a tab's handler so that its errors are shown by the tab's `failure` and change nothing else.

    Args:
        repeats: Action that the retry button repeats after a failure of a model or the disk.
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
    """A tab with its components (`session`, `message`, `retry`, `work` and others) and their event handlers.

    Each handler takes the session, the request and the values of the fields.
    """

    noun: str
    """Noun for what the tab shows, used in messages."""

    def __init__(self, service: AnnotationService, components: SimpleNamespace) -> None:
        self.service, self.at = service, components

    def failure(self, session: Session, error: Exception, repeats: str = "") -> Updates:
        raise NotImplementedError

    def show_next(self, session: Session, request: gr.Request) -> Updates:
        raise NotImplementedError

    def error_message(self, error: Exception) -> Updates:
        return {self.at.message: markup.message(str(error) or type(error).__name__, "error")}

    def acting_on(self, session: Session, request: gr.Request, name: str, shown: str | None) -> str:
        """Returns the person who acts on an item.

        Raises:
            ValueError: If the page shows another item, for example because the event arrived late.
        """
        person = acting_person(session, request)
        if shown is None or name != shown:
            raise ValueError(f"The page has moved on to another {self.noun}. Reload the page if it looks wrong.")
        return person

    def after_decision(self, session: Session, done: str, request: gr.Request) -> Updates:
        """Shows the next item, and confirms the decision unless the next item has a message of its own."""
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
