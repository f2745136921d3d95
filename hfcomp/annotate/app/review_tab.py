"""The Review tab: a second person accepts edits or sends them back without seeing their annotator or rating."""

from __future__ import annotations

from types import SimpleNamespace

import gradio as gr

from hfcomp.annotate.app import markup
from hfcomp.annotate.app.tabs import Session, Tab, Updates, acting_person, image_file, show_errors
from hfcomp.data.annotations.entries import QUALITIES, Edit, Item
from hfcomp.data.annotations.masks import outline, read_mask

BACK_REASONS = (
    "The new caption is not true of the edited image",
    "The original caption is still true of the edited image",
    "The edit looks unnatural",
    "Something other than the object was changed",
    "The new caption contains a language mistake",
)


def layout(session: gr.State) -> SimpleNamespace:
    """Adds the components to the current tab and returns them by name."""
    at = SimpleNamespace(session=session)
    with gr.Row(elem_classes="messages"):
        at.message = gr.HTML(elem_id="review-message", min_width=300, scale=5)
        at.retry = gr.Button("Check again", visible=False, elem_id="review-again", scale=0, min_width=110, size="sm")
    with gr.Column(visible=False, elem_id="review-work") as at.work:
        at.item = gr.Textbox(visible="hidden", elem_id="review-item")
        with gr.Row():
            at.original, at.edited = (
                gr.Image(
                    label=name.capitalize(),
                    interactive=False,
                    format="png",
                    height=420,
                    min_width=300,
                    buttons=["fullscreen"],
                    elem_id=f"review-{name}",
                )
                for name in ("original", "edited")
            )
        at.captions = gr.HTML(elem_id="review-captions")
        with gr.Row(elem_classes="decide"):
            at.quality = gr.Radio(
                QUALITIES, label="Quality of the edit (V, O)", elem_id="review-quality", min_width=220
            )
            at.outline = gr.Checkbox(False, label="Outline of the mask (M)", elem_id="outline", min_width=200)
            at.accept = gr.Button("Accept (A)", variant="primary", elem_id="accept", min_width=120)
        with gr.Row(elem_classes="decide"):
            at.reason = gr.Dropdown(
                BACK_REASONS,
                value=None,
                label="Reason for sending back (R): choose or write",
                allow_custom_value=True,
                elem_id="review-reason",
                min_width=260,
                scale=3,
            )
            at.back = gr.Button("Send back", elem_id="back", min_width=120, scale=0)
            at.undo = gr.Button("Undo (U)", elem_id="review-undo", min_width=120, scale=0)
    gr.HTML(markup.shortcuts("Review"))
    return at


class ReviewTab(Tab):
    """Event handlers of the Review tab."""

    noun = "edit"

    def failure(self, session: Session, error: Exception, repeats: str = "") -> Updates:
        """Shows an error message and keeps the person's choices."""
        return self.error_message(error) | {self.at.retry: gr.update(visible=True)}

    @show_errors()
    def show_next(self, session: Session, request: gr.Request) -> Updates:
        person = acting_person(session, request)
        review = self.service.project.decisions.next_review(person, concept=self.service.concept)
        if review is None:
            session.review = None
            text = "There is nothing for you to review. Your own edits are reviewed by others."
            return self.nothing_left(session, text)
        item, edit = review
        session.review = item.id
        return {
            self.at.session: session,
            self.at.work: gr.update(visible=True),
            self.at.message: "",
            self.at.retry: gr.update(visible=False),
            self.at.item: item.id,
            self.at.captions: markup.two_captions(edit.original, edit.caption),
            self.at.outline: False,
            # Preset no rating, so that the reviewer is not influenced by the annotator's.
            self.at.quality: None,
            self.at.reason: None,
            **self._images(item, edit, outlined=False),
        }

    @show_errors()
    def outline(self, session: Session, request: gr.Request, outlined: bool) -> Updates:
        """Shows both images with or without the outline of the mask."""
        acting_person(session, request)
        if session.review is None:
            return {self.at.session: session}
        item = self.service.project.decisions.item(session.review)
        return self._images(item, self.service.project.decisions.edit(item.id), outlined=outlined)

    @show_errors()
    def accept(self, session: Session, request: gr.Request, name: str, quality: str | None) -> Updates:
        """Accepts the edit with the reviewer's own rating and shows the next one."""
        person = self.acting_on(session, request, name, session.review)
        if quality not in QUALITIES:
            raise ValueError(f"The quality is missing. Rate the edited image: {' or '.join(QUALITIES)}.")
        self.service.project.decisions.accept(person, name, quality)
        return self.after_decision(session, f"{name} was accepted.", request)

    @show_errors()
    def send_back(self, session: Session, request: gr.Request, name: str, reason: str | None) -> Updates:
        person = self.acting_on(session, request, name, session.review)
        if not (reason or "").strip():
            raise ValueError("The reason is missing. Choose one or write your own; the annotator will see it.")
        self.service.project.decisions.send_back(person, name, str(reason))
        return self.after_decision(session, f"{name} was sent back.", request)

    def _images(self, item: Item, edit: Edit, *, outlined: bool) -> Updates:
        project = self.service.project
        if not outlined:
            return {self.at.original: str(project.path(item.image)), self.at.edited: str(project.path(edit.image))}
        mask = read_mask(self.service.image(edit.mask))
        return {
            self.at.original: image_file(outline(self.service.image(item.image), mask), "png"),
            self.at.edited: image_file(outline(self.service.image(edit.image), mask), "png"),
        }
