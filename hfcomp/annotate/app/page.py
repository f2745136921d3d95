"""The page: sign-in, three tabs, and events that involve more than one of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import gradio as gr

from hfcomp.annotate.app import annotate_layout, markup, review_tab
from hfcomp.annotate.app.annotate_tab import AnnotateTab
from hfcomp.annotate.app.review_tab import ReviewTab
from hfcomp.annotate.app.tabs import ERRORS, Session, Updates, acting_person
from hfcomp.annotate.app.uploads import Uploads
from hfcomp.annotate.progress import progress_report
from hfcomp.annotate.service import AnnotationService
from hfcomp.data.annotations.entries import person_name

FOLDER = Path(__file__).parent
CSS, SCRIPT = FOLDER / "page.css", FOLDER / "shortcuts.js"
# Key under which a browser stores the name. It is not secret: the name only tells who continues after a reload.
STORAGE = "hfcomp-annotate"
# Maximum number of seconds between two renewals of a lease.
TICK_SECONDS = 60.0


class Page:
    """The page of an annotation service."""

    def __init__(
        self, service: AnnotationService, *, title: str, has_password: bool, lease_seconds: float, uploads: Uploads
    ) -> None:
        self.service, self.title, self.has_password = service, title, has_password
        settings = {"fill_width": True, "delete_cache": (3600, 24 * 3600)}
        with gr.Blocks(analytics_enabled=False, title=title, **settings) as blocks:
            self.blocks = blocks
            self.session = gr.State(Session())
            self.stored = gr.BrowserState("", storage_key=STORAGE, secret=STORAGE)
            self._header()
            with gr.Tabs(visible=False, elem_id="tabs") as self.tabs:
                with gr.Tab("Annotate", id="annotate", elem_id="tab-annotate"):
                    self.annotating = annotate_layout.layout(self.session)
                with gr.Tab("Review", id="review", elem_id="tab-review") as self.review_tab:
                    self.reviewing = review_tab.layout(self.session)
                with gr.Tab("Progress", id="progress", elem_id="tab-progress") as self.progress_tab:
                    self.progress = gr.HTML(elem_id="progress")
                    refresh = gr.Button("Refresh", elem_id="refresh", size="sm")
            self.annotate, self.review = (
                AnnotateTab(service, self.annotating, uploads),
                ReviewTab(service, self.reviewing),
            )
            decisions = (self.annotate.submit, self.annotate.skip, self.review.accept, self.review.send_back)
            self.submit, self.skip, self.accept, self.send_back = map(self._with_counts, decisions)
            self._sign_in_events()
            self._annotate_events()
            self._review_events()
            for event in (self.progress_tab.select, refresh.click):
                event(self.show_progress, self.session, [self.progress], **_event_settings())
            timer = gr.Timer(min(TICK_SECONDS, lease_seconds / 3))
            timer.tick(self.tick, self.session, [self.status, *self._messages()], **_event_settings())

    def _header(self) -> None:
        with gr.Row(elem_id="header"):
            self.status = gr.HTML(markup.status(self.title), elem_id="status", min_width=300, scale=5)
            self.other = gr.Button(
                "Another person", visible=False, size="sm", scale=0, min_width=130, elem_id="other-person"
            )
        with gr.Column(visible=False, elem_id="sign-in") as self.sign_in_box:
            gr.HTML("Who is annotating? Your name is saved with each of your decisions.")
            with gr.Row(elem_classes="fields"):
                self.name = gr.Textbox(label="Your name", max_lines=1, max_length=60, elem_id="name", scale=3)
                self.begin = gr.Button("Begin", variant="primary", elem_id="begin", scale=0, min_width=120)
            self.sign_in_message = gr.HTML(elem_id="sign-in-message")

    def _sign_in_events(self) -> None:
        outputs = [self.sign_in_box, self.sign_in_message, self.tabs, self.other, self.status, self.stored]
        outputs += _components(self.annotating)
        self.blocks.load(self.load, [self.session, self.stored], outputs, **_event_settings())
        for event in (self.begin.click, self.name.submit):
            event(self.sign_in, [self.session, self.name], outputs, **_event_settings())
        self.other.click(self.sign_out, self.session, [*outputs, self.name], **_event_settings())

    def load(self, session: Session, request: gr.Request, stored: str) -> Updates:
        name = request.username if self.has_password else stored
        if not name:
            return {self.sign_in_box: gr.update(visible=True)}
        return self.sign_in(session, request, name)

    def sign_in(self, session: Session, request: gr.Request, name: str) -> Updates:
        # First sign out whoever used the page before. A rejected name then leaves nobody signed in.
        session.person, session.item, session.review = "", None, None
        try:
            session.person = person_name(name or "")
            acting_person(session, request)
        except ValueError as error:
            session.person = ""
            return {
                self.sign_in_box: gr.update(visible=True),
                self.sign_in_message: markup.message(str(error), "error"),
                self.session: session,
            }
        return {
            self.sign_in_box: gr.update(visible=False),
            self.sign_in_message: "",
            self.tabs: gr.update(visible=True),
            self.other: gr.update(visible=not self.has_password),
            self.stored: session.person,
            **self.annotate.show_next(session, request),
            **self._status(session),
        }

    def sign_out(self, session: Session) -> Updates:
        """Releases the person's items, so that somebody else can sign in on this page."""
        if session.person:
            self.service.project.decisions.release(session.person)
        session.person, session.item, session.review = "", None, None
        return {
            self.session: session,
            self.sign_in_box: gr.update(visible=True),
            self.tabs: gr.update(visible=False),
            self.other: gr.update(visible=False),
            self.stored: "",
            self.name: "",
            self.status: markup.status(self.title),
        }

    def _annotate_events(self) -> None:
        at, tab = self.annotating, self.annotate
        outputs, last = _components(at), {"trigger_mode": "always_last", **_event_settings()}
        with_status, here = [*outputs, self.status], [at.session, at.item]
        # Use change events: an input event is lost if the server has just changed the text.
        at.caption.change(tab.keep_caption, [*here, at.caption], outputs, **last)
        at.prompt.change(tab.keep_prompt, [*here, at.prompt], outputs, **last)
        for choice in (at.chosen, at.quality):
            choice.input(tab.keep_choice, [*here, at.chosen, at.quality], outputs, **last)
        at.base.input(tab.choose_base, [*here, at.base], outputs, **_event_settings())
        at.word.input(tab.choose_word, [*here, at.word], outputs, **_event_settings())
        segmenting = _event_settings(show_progress="minimal") | {"show_progress_on": [at.share]}
        mask = [*here, *tab.mask_fields]
        for event in (at.mask_prompt.submit, at.mask_prompt.blur, at.segment.click):
            event(tab.segment, mask, outputs, **segmenting)
        for number in (at.threshold, at.x, at.y):
            number.input(tab.segment, mask, outputs, trigger_mode="always_last", **segmenting)
        painting = _event_settings(show_progress="minimal") | {"show_progress_on": [at.paint]}
        at.paint.click(tab.paint, [*mask, at.prompt], outputs, trigger_mode="once", **painting)
        at.item.change(tab.show_mask, here, outputs, **segmenting)
        drawn_on = [*outputs, at.editor]
        at.brush_button.click(tab.open_brush, [*here, at.brush_open], drawn_on, **_event_settings())
        for button, handler in ((at.add, tab.add_strokes), (at.erase, tab.erase_strokes)):
            button.click(handler, [*here, at.editor], drawn_on, **_event_settings())
        at.clear.click(tab.clear_strokes, here, drawn_on, **_event_settings())
        at.submit.click(self.submit, [at.session, *tab.fields], with_status, **_event_settings())
        at.skip.click(self.skip, [*here, at.reason], with_status, **_event_settings())
        at.retry.click(self.retry, [at.session, at.reason, *tab.fields], with_status, **painting)
        everything = [*with_status, *_components(self.reviewing), self.tabs]
        for undo in (at.undo, self.reviewing.undo):
            undo.click(self.undo, self.session, everything, **_event_settings())

    def retry(self, session: Session, request: gr.Request, *rest: Any) -> Any:
        """Repeats the failed action with the current values of the fields."""
        reason, *fields = rest
        if session.failed == "candidates":
            yield from self.annotate.paint(session, request, *fields[:6])
        elif session.failed == "mask":
            yield self.annotate.segment(session, request, *fields[:5])
        elif session.failed == "submit":
            yield self.submit(session, request, *fields)
        elif session.failed == "skip":
            yield self.skip(session, request, fields[0], reason)
        else:
            yield self.annotate.show_next(session, request) | self._status(session)

    def _review_events(self) -> None:
        at, tab = self.reviewing, self.review
        outputs = [*_components(at), self.status]
        for event in (self.review_tab.select, at.retry.click):
            event(tab.show_next, at.session, outputs, **_event_settings())
        at.outline.input(tab.outline, [at.session, at.outline], outputs, **_event_settings())
        at.accept.click(self.accept, [at.session, at.item, at.quality], outputs, **_event_settings())
        at.back.click(self.send_back, [at.session, at.item, at.reason], outputs, **_event_settings())

    def undo(self, session: Session, request: gr.Request) -> Updates:
        """Undoes the person's last decision and shows its item in the tab where it was decided."""
        decisions = self.service.project.decisions
        try:
            person = acting_person(session, request)
            item = decisions.undo(person)
            if item is None:
                return self._show_message("You have no decision to undo.", "note")
            is_review = decisions.state(item.id) == "annotated"
        except ERRORS as error:
            return self._show_message(str(error), "error")
        shown = (self.review if is_review else self.annotate).show_next(session, request)
        message = self._show_message(f"Your decision on {item.id} was undone.", "done")
        tab = "review" if is_review else "annotate"
        return shown | message | {self.tabs: gr.update(selected=tab)} | self._status(session)

    def show_progress(self, session: Session, request: gr.Request) -> Updates:
        try:
            acting_person(session, request)
            return {self.progress: markup.report_html(progress_report(self.service.project.decisions))}
        except ERRORS as error:
            return {self.progress: markup.message(str(error), "error")}

    def tick(self, session: Session, request: gr.Request) -> Updates:
        """Renews the leases of an open page and updates the counts."""
        try:
            if not session.person:
                return {self.status: markup.status(self.title)}
            person = acting_person(session, request)
            # Only an open page renews its leases. After it is closed, they expire and others get the items.
            for name, at in ((session.item, self.annotating.message), (session.review, self.reviewing.message)):
                if name and not self.service.project.decisions.renew(person, name):
                    text = f"{name} was assigned to somebody else, because its lease expired. Reload the page."
                    return self._status(session) | {at: markup.message(text, "error")}
        except ERRORS as error:
            return self._show_message(str(error), "error")
        return self._status(session)

    def _with_counts(self, handler: Callable[..., Updates]) -> Callable[..., Updates]:
        """Wraps a handler that makes a decision, so that it also updates the counts."""

        @wraps(handler)
        def run(session: Session, request: gr.Request, *rest: Any) -> Updates:
            return handler(session, request, *rest) | self._status(session)

        return run

    def _status(self, session: Session) -> Updates:
        """Updates the progress line and this person's counts, or shows a note if the database does not respond."""
        try:
            counts = self.service.project.decisions.counts(concept=self.service.concept)
            own = self.service.project.decisions.by_person().get(session.person, {})
        except ERRORS:
            return {self.status: markup.status(self.title, ["The counts cannot be read at the moment."])}
        reviewed = own.get("accept", 0) + own.get("send back", 0)
        decided = sum(counts.values()) - counts["open"]
        parts = [
            f"{decided:,} of {sum(counts.values()):,} items decided",
            f"{counts['annotated']:,} to review",
            f"{counts['accepted']:,} accepted",
            f"{session.person}: {own.get('submit', 0):,} submitted, {own.get('skip', 0):,} skipped, "
            f"{reviewed:,} reviewed",
        ]
        return {self.status: markup.status(self.title, parts)}

    def _show_message(self, text: str, kind: str) -> Updates:
        return {message: markup.message(text, kind) for message in self._messages()}

    def _messages(self) -> list[gr.HTML]:
        return [self.annotating.message, self.reviewing.message]


def _components(layout: Any) -> list[Any]:
    """Returns the components of a layout, except for the editor, which uploads its whole content on such events."""
    components: list[Any] = []
    for value in vars(layout).values():
        components += value if isinstance(value, list) else [value]
    return [component for component in components if not isinstance(component, gr.ImageEditor)]


def _event_settings(show_progress: str = "hidden") -> dict[str, Any]:
    """Returns the settings of every event: no concurrency limit (models have their own queues) and no public API."""
    return {"show_progress": show_progress, "concurrency_limit": None, "api_visibility": "private"}
