"""The tab where items are annotated: its components and what happens in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import gradio as gr
from PIL import Image

from hfcomp.annotation.app import markup
from hfcomp.annotation.app.annotate_layout import Annotating
from hfcomp.annotation.app.sessions import Session, acting_person
from hfcomp.annotation.app.uploads import strokes
from hfcomp.annotation.captions import proposed_caption
from hfcomp.annotation.model_queue import ModelError
from hfcomp.annotation.page_draft import PageDraft, Segmentation, following, offer
from hfcomp.annotation.studio import CANDIDATES, Studio, is_outdated
from hfcomp.data.annotations.masks import overlay
from hfcomp.data.annotations.records import Item

Updates = dict[Any, Any]
ERRORS = (ValueError, OSError, ModelError)
"""What a page shows; other errors are ours."""
CAPTION = 7
"""Index of the new caption in `Annotating.fields`."""
OUTDATED = "The mask or the prompt was changed after these candidates were painted. They are kept as they are."


def shows_errors(repeats: str = "") -> Callable[[Callable[..., Updates]], Callable[..., Updates]]:
    """A handler whose errors become a message in the page; nothing else in it changes.

    Args:
        repeats: what the retry button repeats after a model or the disk failed.
    """

    def decorate(handler: Callable[..., Updates]) -> Callable[..., Updates]:
        @wraps(handler)
        def run(self: AnnotateTab, session: Session, request: gr.Request, *rest: Any) -> Updates:
            try:
                return handler(self, session, request, *rest)
            except ERRORS as error:
                return self.failure(session, error, repeats)

        return run

    return decorate


class AnnotateTab:
    """What happens in the tab. Each handler takes the session, the request, and the values of the fields.

    Args:
        studio: does the work.
        layout: the components.
    """

    def __init__(self, studio: Studio, layout: Annotating) -> None:
        self.studio, self.at = studio, layout

    def failure(self, session: Session, error: Exception, repeats: str = "") -> Updates:
        """The message of an error, with a retry button where trying again may help."""
        may_help = bool(repeats) and isinstance(error, OSError | ModelError)
        session.failed = repeats if may_help else ""
        return {
            self.at.message: markup.message(str(error) or type(error).__name__, "error"),
            self.at.retry: gr.update(visible=may_help),
            self.at.session: session,
        }

    @shows_errors("next")
    def show_next(self, session: Session, request: gr.Request) -> Updates:
        """The item that the person works on."""
        person = acting_person(session, request)
        item = self.studio.next_item(person)
        if item is None:
            session.item = None
            return self._nothing_left(session)
        return self.show(session, person, item)

    def show(self, session: Session, person: str, item: Item) -> Updates:
        """An item with what the person has made of it so far."""
        at, draft = self.at, self.studio.draft(person, item)
        session.item, session.failed = item.id, ""
        made = draft.segmentation
        numbers = [str(number + 1) for number in range(len(item.captions))]
        offered = offer(item, draft.original)
        return {
            at.session: session,
            at.work: gr.update(visible=True),
            at.item: item.id,
            at.message: markup.message(draft.note, "note"),
            at.retry: gr.update(visible=False),
            at.title: f"Concept: **{item.concept}** · keyword: **{offered.keyword}** · item {item.id}",
            at.captions: markup.captions(item, draft.original),
            at.base: gr.update(choices=numbers, value=str(item.captions.index(draft.original) + 1)),
            at.image: gr.update(value=self._image(item, made), visible=True),
            at.mask_prompt: made.prompt,
            at.threshold: made.threshold,
            at.x: made.enlarge[0],
            at.y: made.enlarge[1],
            at.brush: gr.update(visible=False),
            at.brush_open: False,
            at.word: gr.update(choices=list(offered.prompts), value=_word(offered.prompts, draft.prompt)),
            at.prompt: draft.prompt,
            at.caption: draft.caption,
            at.difference: markup.difference(draft.original, draft.caption),
            at.reason: None,
            **self._candidates(draft),
        }

    @shows_errors()
    def keep(self, session: Session, request: gr.Request, *rest: Any) -> Updates:
        """Keeps what was typed or chosen; a caption that nobody has changed follows the prompt."""
        _, item, draft = self._draft(session, request, *rest)
        return self._texts(session, item, draft, rest)

    @shows_errors()
    def choose_base(self, session: Session, request: gr.Request, *rest: Any) -> Updates:
        """Another original caption: its own replacements, and the proposal made of it."""
        person, item, draft = self._draft(session, request, *rest)
        caption = proposed_caption(draft.original, item.concept, draft.prompt)
        draft = self.studio.update(person, item, lambda draft: replace(draft, caption=caption))
        prompts = offer(item, draft.original).prompts
        words = gr.update(choices=list(prompts), value=_word(prompts, draft.prompt))
        return self._texts(session, item, draft, rest) | {self.at.word: words}

    @shows_errors()
    def choose_word(self, session: Session, request: gr.Request, *rest: Any) -> Updates:
        """A replacement: the inpainting prompt with it."""
        word, *fields = rest
        person, item, draft = self._draft(session, request, *fields)
        prompt = offer(item, draft.original).prompts.get(word or "", draft.prompt)
        draft = self.studio.update(
            person, item, lambda before: following(item, before, replace(before, prompt=prompt))
        )
        return self._texts(session, item, draft, fields) | {self.at.prompt: prompt}

    @shows_errors("mask")
    def segment(self, session: Session, request: gr.Request, *rest: Any) -> Updates:
        """The mask with the values of the fields."""
        if session.item is None:
            return {self.at.session: session}
        _, item, draft = self._draft(session, request, *rest)
        mask = self.studio.mask(item, draft.segmentation)
        share = f"The mask is {100 * mask.mean():.1f} % of the image. The enlargement is in pixels."
        image = overlay(self.studio.image(item.image), mask)
        return self._texts(session, item, draft, rest) | {self.at.image: image, self.at.share: share}

    def paint(self, session: Session, request: gr.Request, *rest: Any) -> Iterator[Updates]:
        """New candidates; the page says meanwhile what it waits for."""
        waiting = self.studio.queue.waiting()
        ahead = f" Requests before yours: {waiting}." if waiting else ""
        text = f"Painting {CANDIDATES} candidates.{ahead} You can go on with the caption meanwhile."
        yield {self.at.message: markup.message(text, "note"), self.at.retry: gr.update(visible=False)}
        yield self._paint(session, request, *rest)

    @shows_errors("candidates")
    def _paint(self, session: Session, request: gr.Request, *rest: Any) -> Updates:
        person, item, draft = self._draft(session, request, *rest)
        painting = self.studio.paint(item, draft)
        changes = {"painting": painting, "chosen": None, "quality": None, "next_seed": draft.next_seed + CANDIDATES}
        if session.item != item.id:  # the person went on to another one meanwhile
            return {self.at.session: session}
        # what was typed while the model worked is kept
        draft = self.studio.update(person, item, lambda newer: replace(newer, **changes))
        return {self.at.message: "", self.at.session: session, **self._candidates(draft)}

    @shows_errors()
    def open_brush(self, session: Session, request: gr.Request, *rest: Any) -> Updates:
        """The editor with the image as it is tinted now, or closes it."""
        is_open, *fields = rest
        shown = {
            self.at.brush: gr.update(visible=not is_open),
            self.at.image: gr.update(visible=is_open),
            self.at.brush_open: not is_open,
        }
        if is_open:
            return shown
        _, item, draft = self._draft(session, request, *fields)
        return shown | {self.at.editor: _background(self._image(item, draft.segmentation))}

    def add_strokes(self, session: Session, request: gr.Request, *rest: Any) -> Updates:
        """Adds strokes of the brush to the mask."""
        return self._brush(session, request, *rest, erases=False)

    def erase_strokes(self, session: Session, request: gr.Request, *rest: Any) -> Updates:
        """Erases strokes of the brush from the mask."""
        return self._brush(session, request, *rest, erases=True)

    def _brush(self, session: Session, request: gr.Request, *rest: Any, erases: bool) -> Updates:
        value, *fields = rest

        def change(item: Item, made: Segmentation) -> Segmentation:
            drawn = strokes(value, self.studio.image(item.image).size)
            return self.studio.brush(item, made, drawn, erases=erases)

        return self._change_mask(session, request, change, *fields)

    def clear_strokes(self, session: Session, request: gr.Request, *rest: Any) -> Updates:
        """The mask without strokes of the brush."""
        return self._change_mask(session, request, lambda item, made: replace(made, added=None, erased=None), *rest)

    @shows_errors()
    def _change_mask(
        self, session: Session, request: gr.Request, change: Callable[[Item, Segmentation], Segmentation], *rest: Any
    ) -> Updates:
        person, item, _ = self._draft(session, request, *rest)
        draft = self.studio.update(
            person, item, lambda draft: replace(draft, segmentation=change(item, draft.segmentation))
        )
        image = self._image(item, draft.segmentation)
        updates = self._texts(session, item, draft, rest) | {self.at.image: image, self.at.editor: _background(image)}
        self.studio.mask(item, draft.segmentation)  # its error is shown where nothing or everything is left
        return updates

    @shows_errors("submit")
    def submit(self, session: Session, request: gr.Request, *rest: Any) -> Updates:
        """Submits the item and shows the next one."""
        person, item, draft = self._draft(session, request, *rest)
        self.studio.submit(person, item, draft)
        return self._after(session, f"{item.id} was submitted.", request)

    @shows_errors("skip")
    def skip(self, session: Session, request: gr.Request, *rest: Any) -> Updates:
        """Skips the item for a reason and shows the next one."""
        reason, *fields = rest
        person, item, _ = self._draft(session, request, *fields)
        if not (reason or "").strip():
            raise ValueError("The reason is missing. Choose one, or write your own, to skip.")
        self.studio.project.decisions.skip(person, item.id, reason)
        return self._after(session, f"{item.id} was skipped.", request)

    def _after(self, session: Session, done: str, request: gr.Request) -> Updates:
        updates = self.show_next(session, request)
        if not updates.get(self.at.message):
            updates[self.at.message] = markup.message(done, "done")
        return updates

    def _draft(self, session: Session, request: gr.Request, *rest: Any) -> tuple[str, Item, PageDraft]:
        """The person, the item, and its draft with the values of the fields, which is kept.

        Raises:
            ValueError: for values of another item than the page shows, as of an event that came late.
        """
        name, prompt, threshold, x, y, painted, base, caption, chosen, quality = rest
        person = acting_person(session, request)
        if session.item is None or name != session.item:
            raise ValueError("The page has gone on to another item. Reload it if it looks wrong.")
        item = self.studio.project.decisions.item(session.item)
        number = int(base) - 1 if str(base).isdecimal() else -1
        made = {"prompt": prompt or "", "threshold": float(threshold), "enlarge": (int(x or 0), int(y or 0))}

        def change(before: PageDraft) -> PageDraft:
            draft = replace(
                before,
                original=item.captions[number] if 0 <= number < len(item.captions) else before.original,
                segmentation=replace(before.segmentation, **made),
                prompt=painted or "",
                caption=caption or "",
                chosen=int(chosen) - 1 if chosen and before.painting else None,
                quality=quality or None if before.painting else None,
            )
            return following(item, before, draft)

        return person, item, self.studio.update(person, item, change)

    def _texts(self, session: Session, item: Item, draft: PageDraft, fields: Sequence[Any]) -> Updates:
        """What follows from the texts. The caption is sent back only where it is another one than the page sent: what
        is typed in the meantime would be lost.
        """
        caption = {} if draft.caption == fields[CAPTION] else {self.at.caption: draft.caption}
        return caption | {
            self.at.session: session,
            self.at.message: markup.message(OUTDATED, "note") if is_outdated(draft) else "",
            self.at.retry: gr.update(visible=False),
            self.at.captions: markup.captions(item, draft.original),
            self.at.difference: markup.difference(draft.original, draft.caption),
        }

    def _candidates(self, draft: PageDraft) -> Updates:
        found = draft.painting.candidates if draft.painting else ()
        files = [str(self.studio.project.path(one.file)) for one in found]
        chosen = None if draft.chosen is None else str(draft.chosen + 1)
        images = {
            image: gr.update(value=files[index] if index < len(files) else None, visible=index < len(files))
            for index, image in enumerate(self.at.candidates)
        }
        return images | {
            self.at.chosen: chosen,
            self.at.quality: draft.quality,
            self.at.paint: gr.update(value="New candidates (N)" if files else "Paint candidates (P)"),
        }

    def _image(self, item: Item, made: Segmentation) -> Image.Image:
        """The image, tinted where its mask is there already."""
        image = self.studio.image(item.image)
        if not self.studio.is_ready(item, made):
            return image
        try:
            return self.studio.overlay(item, made)
        except (ValueError, ModelError):  # the handler that follows shows it
            return image

    def _nothing_left(self, session: Session) -> Updates:
        counts = self.studio.project.decisions.counts(concept=self.studio.concept)
        text = f"There is no free item. Open, worked on by others: {counts['open']}. To review: {counts['annotated']}."
        session.failed = "next"
        return {
            self.at.session: session,
            self.at.work: gr.update(visible=False),
            self.at.message: markup.message(text, "note"),
            self.at.retry: gr.update(visible=True),
        }


def _word(prompts: Any, prompt: str) -> str | None:
    return next((word for word, text in prompts.items() if text == prompt), None)


def _background(image: Image.Image) -> dict[str, Any]:
    return {"background": image, "layers": [], "composite": None}
