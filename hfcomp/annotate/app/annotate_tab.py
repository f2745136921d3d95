"""Event handlers of the Annotate tab."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gradio as gr
from PIL import Image

from hfcomp.annotate.app import markup
from hfcomp.annotate.app.tabs import Session, Tab, Updates, acting_person, image_file, show_errors
from hfcomp.annotate.app.uploads import Uploads, read_strokes
from hfcomp.annotate.captions import proposed_caption
from hfcomp.annotate.page_draft import PageDraft, Segmentation, offer, update_caption
from hfcomp.annotate.service import CANDIDATES, AnnotationService, ModelError, is_outdated
from hfcomp.data.annotations.entries import Item, Quality
from hfcomp.data.annotations.masks import overlay

OUTDATED = "The mask or the prompt was changed after these candidates were painted. The candidates are kept unchanged."


class AnnotateTab(Tab):
    """Event handlers of the Annotate tab."""

    noun = "item"

    def __init__(self, service: AnnotationService, components: SimpleNamespace, uploads: Uploads) -> None:
        super().__init__(service, components)
        self.uploads = uploads

    @property
    def mask_fields(self) -> list[Any]:
        return [self.at.mask_prompt, self.at.threshold, self.at.x, self.at.y]

    @property
    def fields(self) -> list[Any]:
        """All submitted fields, preceded by the item they belong to."""
        at = self.at
        return [at.item, *self.mask_fields, at.prompt, at.base, at.caption, at.chosen, at.quality]

    def failure(self, session: Session, error: Exception, repeats: str = "") -> Updates:
        """Shows an error message, with a retry button if trying again may help."""
        may_help = bool(repeats) and isinstance(error, OSError | ModelError)
        session.failed = repeats if may_help else ""
        return self.error_message(error) | {self.at.retry: gr.update(visible=may_help), self.at.session: session}

    @show_errors("next")
    def show_next(self, session: Session, request: gr.Request) -> Updates:
        person = acting_person(session, request)
        item = self.service.next_item(person)
        if item is None:
            session.item, session.failed = None, "next"
            counts = self.service.project.decisions.counts(concept=self.service.concept)
            others = f"Open items that others are working on: {counts['open']}. To review: {counts['annotated']}."
            return self.nothing_left(session, f"No free items are left. {others}")
        return self.show(session, person, item)

    def show(self, session: Session, person: str, item: Item) -> Updates:
        """Shows an item with the person's draft."""
        at, draft = self.at, self.service.draft(person, item)
        session.item, session.failed = item.id, ""
        segmentation = draft.segmentation
        numbers = [str(number + 1) for number in range(len(item.captions))]
        offered = offer(item, draft.original)
        return {
            at.session: session,
            at.work: gr.update(visible=True),
            at.item: item.id,
            at.message: markup.message(draft.note, "note"),
            at.retry: gr.update(visible=False),
            at.title: markup.title(item, offered.keyword),
            at.captions: markup.captions(item, draft.original),
            at.base: gr.update(choices=numbers, value=str(item.captions.index(draft.original) + 1)),
            at.image: gr.update(value=image_file(self._image(item, segmentation)), visible=True),
            at.mask_prompt: segmentation.prompt,
            at.threshold: segmentation.threshold,
            at.x: segmentation.enlarge[0],
            at.y: segmentation.enlarge[1],
            at.brush: gr.update(visible=False),
            at.brush_open: False,
            at.word: gr.update(choices=list(offered.prompts), value=_word(offered.prompts, draft.prompt)),
            at.prompt: draft.prompt,
            at.caption: draft.caption,
            at.difference: markup.difference(draft.original, draft.caption),
            at.reason: None,
            **self._candidates(draft),
        }

    @show_errors()
    def keep_caption(self, session: Session, request: gr.Request, name: str, caption: str) -> Updates:
        return self._keep(session, request, name, {"caption": caption or ""})

    @show_errors()
    def keep_prompt(self, session: Session, request: gr.Request, name: str, prompt: str) -> Updates:
        return self._keep(session, request, name, {"prompt": prompt or ""})

    @show_errors()
    def keep_choice(
        self, session: Session, request: gr.Request, name: str, chosen: str | None, quality: Quality | None
    ) -> Updates:
        return self._keep(session, request, name, _choice(chosen, quality))

    @show_errors()
    def choose_base(self, session: Session, request: gr.Request, name: str, base: str) -> Updates:
        """Switches to another original caption, with its own replacements and the caption proposed from it."""
        person, item = self._shown_item(session, request, name)
        original = _original(item, base)
        draft = self.service.update(
            person,
            item,
            lambda draft: replace(
                draft, original=original, caption=proposed_caption(original, item.concept, draft.prompt)
            ),
        )
        prompts = offer(item, original).prompts
        words = gr.update(choices=list(prompts), value=_word(prompts, draft.prompt))
        return self._texts(session, item, draft) | {self.at.caption: draft.caption, self.at.word: words}

    @show_errors()
    def choose_word(self, session: Session, request: gr.Request, name: str, word: str) -> Updates:
        """Applies a replacement to the inpainting prompt."""
        person, item = self._shown_item(session, request, name)
        prompts = offer(item, self.service.draft(person, item).original).prompts
        if word not in prompts:
            return {self.at.session: session}
        return self._keep(session, request, name, {"prompt": prompts[word]}) | {self.at.prompt: prompts[word]}

    def _keep(self, session: Session, request: gr.Request, name: str, changes: dict[str, Any]) -> Updates:
        """Saves only the event's own fields, because a late event carries outdated values of the other fields.

        A caption that nobody has edited by hand follows the prompt. Only then is it sent to the page.
        """
        if not name or name != session.item:  # the page has moved on to the next item
            return {self.at.session: session}
        person, item = self._shown_item(session, request, name)
        steps: list[PageDraft] = []

        def change(before: PageDraft) -> PageDraft:
            draft = replace(before, **changes)
            steps.extend([before, update_caption(item, before, draft) if draft.prompt != before.prompt else draft])
            return steps[-1]

        draft = self.service.update(person, item, change)
        if draft == steps[0]:
            return {self.at.session: session}
        # Send the caption only if it followed the prompt. Otherwise it would overwrite what the person is typing.
        followed = "caption" not in changes and draft.caption != steps[0].caption
        updates = self._texts(session, item, draft) | ({self.at.caption: draft.caption} if followed else {})
        if is_outdated(draft) == is_outdated(steps[0]):  # the current message may belong to a later event
            del updates[self.at.message], updates[self.at.retry]
        return updates

    @show_errors("mask")
    def segment(self, session: Session, request: gr.Request, name: str, *fields: Any) -> Updates:
        """Updates the mask from its fields and shows it."""
        if session.item is None:
            return {self.at.session: session}
        person, item = self._shown_item(session, request, name)
        draft = self.service.update(person, item, lambda draft: _with_mask(draft, *fields))
        shown = self._mask(item, draft)
        return self._texts(session, item, draft) | shown if session.item == item.id else {self.at.session: session}

    @show_errors("mask")
    def show_mask(self, session: Session, request: gr.Request, name: str) -> Updates:
        """Shows the mask of an item that was just displayed, without changing the messages of the page."""
        if not name or name != session.item:
            return {self.at.session: session}
        person, item = self._shown_item(session, request, name)
        return self._mask(item, self.service.draft(person, item))

    def _mask(self, item: Item, draft: PageDraft) -> Updates:
        mask = self.service.mask(item, draft.segmentation)
        image = image_file(overlay(self.service.image(item.image), mask))
        return {self.at.image: image, self.at.share: markup.share(mask.mean())}

    def paint(self, session: Session, request: gr.Request, *rest: Any) -> Iterator[Updates]:
        """Paints new candidates, with a message while the person waits."""
        waiting = self.service.queue.waiting()
        ahead = f" Requests ahead of yours: {waiting}." if waiting else ""
        text = f"Painting {CANDIDATES} candidates.{ahead} You can work on the caption in the meantime."
        yield {self.at.message: markup.message(text, "note"), self.at.retry: gr.update(visible=False)}
        yield self._paint(session, request, *rest)

    @show_errors("candidates")
    def _paint(self, session: Session, request: gr.Request, name: str, *rest: Any) -> Updates:
        *fields, prompt = rest
        person, item = self._shown_item(session, request, name)
        draft = self.service.update(
            person, item, lambda draft: replace(_with_mask(draft, *fields), prompt=prompt or "")
        )
        with self.service.turn(person):
            painting = self.service.paint(item, draft)
        if session.item != item.id:  # the person has moved on to another item
            return {self.at.session: session}
        # The choice belongs to the old candidates.
        changes = {"painting": painting, "chosen": None, "quality": None, "next_seed": draft.next_seed + CANDIDATES}
        # Keep what was typed while the model was working.
        draft = self.service.update(person, item, lambda newer: replace(newer, **changes))
        return self._texts(session, item, draft) | self._candidates(draft)

    @show_errors()
    def open_brush(self, session: Session, request: gr.Request, name: str, is_open: bool) -> Updates:
        """Opens the editor with the image as currently tinted, or closes it."""
        person, item = self._shown_item(session, request, name)
        shown = {
            self.at.brush: gr.update(visible=not is_open),
            self.at.image: gr.update(visible=is_open),
            self.at.brush_open: not is_open,
        }
        if is_open:
            return shown
        segmentation = self.service.draft(person, item).segmentation
        return shown | {self.at.editor: _background(image_file(self._image(item, segmentation)))}

    @show_errors()
    def add_strokes(self, session: Session, request: gr.Request, name: str, value: Any) -> Updates:
        return self._brush(session, request, name, value, erases=False)

    @show_errors()
    def erase_strokes(self, session: Session, request: gr.Request, name: str, value: Any) -> Updates:
        return self._brush(session, request, name, value, erases=True)

    def _brush(self, session: Session, request: gr.Request, name: str, value: Any, *, erases: bool) -> Updates:
        _, item = self._shown_item(session, request, name)
        try:
            drawn = read_strokes(value, self.service.image(item.image).size)
        finally:
            # The files are not needed anymore, whether the strokes were read or rejected.
            self.uploads.remove(value)
        return self._change_mask(
            session, request, name, lambda mask: self.service.brush(item, mask, drawn, erases=erases)
        )

    @show_errors()
    def clear_strokes(self, session: Session, request: gr.Request, name: str) -> Updates:
        return self._change_mask(session, request, name, lambda mask: replace(mask, added=None, erased=None))

    def _change_mask(
        self, session: Session, request: gr.Request, name: str, change: Callable[[Segmentation], Segmentation]
    ) -> Updates:
        person, item = self._shown_item(session, request, name)
        draft = self.service.update(
            person, item, lambda draft: replace(draft, segmentation=change(draft.segmentation))
        )
        updates = self._texts(session, item, draft)
        try:
            updates |= self._mask(item, draft)
        except ValueError as error:  # keep the strokes even if the mask covers nothing or everything
            updates |= {self.at.image: image_file(self.service.image(item.image))} | self.failure(session, error)
        return updates | {self.at.editor: _background(updates[self.at.image])}

    @show_errors("submit")
    def submit(self, session: Session, request: gr.Request, *rest: Any) -> Updates:
        name, *fields, prompt, base, caption, chosen, quality = rest
        person, item = self._shown_item(session, request, name)
        changes = {"prompt": prompt or "", "caption": caption or "", "original": _original(item, base)}
        changes |= _choice(chosen, quality)
        draft = self.service.update(person, item, lambda draft: replace(_with_mask(draft, *fields), **changes))
        self.service.submit(person, item, draft)
        return self.after_decision(session, f"{item.id} was submitted.", request)

    @show_errors("skip")
    def skip(self, session: Session, request: gr.Request, name: str, reason: str | None) -> Updates:
        person, item = self._shown_item(session, request, name)
        if not (reason or "").strip():
            raise ValueError("The reason is missing. To skip, choose a reason or write your own.")
        self.service.project.decisions.skip(person, item.id, str(reason))
        return self.after_decision(session, f"{item.id} was skipped.", request)

    def _shown_item(self, session: Session, request: gr.Request, name: str) -> tuple[str, Item]:
        """Returns the person and the item that an event belongs to. Raises the same errors as `acting_on`."""
        person = self.acting_on(session, request, name, session.item)
        return person, self.service.project.decisions.item(name)

    def _texts(self, session: Session, item: Item, draft: PageDraft) -> Updates:
        """Updates everything that depends on the texts, except for their fields."""
        return {
            self.at.session: session,
            self.at.message: markup.message(OUTDATED, "note") if is_outdated(draft) else "",
            self.at.retry: gr.update(visible=False),
            self.at.captions: markup.captions(item, draft.original),
            self.at.difference: markup.difference(draft.original, draft.caption),
        }

    def _candidates(self, draft: PageDraft) -> Updates:
        candidates = draft.painting.candidates if draft.painting else ()
        files = [str(self.service.project.path(candidate.file)) for candidate in candidates]
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

    def _image(self, item: Item, segmentation: Segmentation) -> Image.Image:
        """Returns the image, with its mask tinted if the mask is ready."""
        image = self.service.image(item.image)
        if not self.service.is_ready(item, segmentation):
            return image
        try:
            return self.service.overlay(item, segmentation)
        except (ValueError, ModelError):  # the next handler shows the error
            return image


def _with_mask(draft: PageDraft, prompt: str, threshold: float, x: float | None, y: float | None) -> PageDraft:
    changes = {"prompt": prompt or "", "threshold": float(threshold), "enlarge": (int(x or 0), int(y or 0))}
    return replace(draft, segmentation=replace(draft.segmentation, **changes))


def _choice(chosen: str | None, quality: Quality | None) -> dict[str, Any]:
    return {"chosen": int(chosen) - 1 if chosen else None, "quality": quality or None}


def _original(item: Item, base: str | None) -> str:
    number = int(base) - 1 if str(base).isdecimal() else -1
    if not 0 <= number < len(item.captions):
        raise ValueError("Choose one of the original captions as the base of the new one.")
    return item.captions[number]


def _word(prompts: Any, prompt: str) -> str | None:
    return next((word for word, text in prompts.items() if text == prompt), None)


def _background(image: str) -> dict[str, Any]:
    return {"background": image, "layers": [], "composite": None}
