"""Who a page acts for."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from hfcomp.data.annotations.entries import is_same_person, person_name


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
