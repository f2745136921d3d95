"""Layout of the Annotate tab."""

from __future__ import annotations

from abc import ABCMeta
from types import SimpleNamespace
from typing import Any

import gradio as gr

from hfcomp.annotate.app import markup
from hfcomp.annotate.service import CANDIDATES, MOST_ENLARGEMENT
from hfcomp.data.annotations.entries import QUALITIES
from hfcomp.data.annotations.masks import THRESHOLD

SKIP_REASONS = (
    "Nothing in the image can be replaced",
    "The object is too small, hidden or cut off",
    "No mask fits the object",
    "No good image after several attempts",
    "The captions are wrong or unclear",
    "The image should not be published",
)


def _stroke_files(self: gr.ImageEditor, payload: Any) -> dict[str, list[str]] | None:
    """Returns the uploaded files without decoding them; the handler decodes the layers after validating them."""
    if payload is None:
        return None
    layers = [layer.path for layer in payload.layers or () if layer is not None]
    others = [image.path for image in (payload.background, payload.composite) if image is not None]
    return {"layers": layers, "files": [*layers, *others]}


# A `gradio.ImageEditor` that decodes nothing. Gradio decodes whatever a browser sends and builds new components for
# each session, so only a subclass can change that. Gradio's own metaclass would write a .pyi file next to this one.
StrokeEditor = ABCMeta.__new__(
    type(gr.ImageEditor),
    "StrokeEditor",
    (gr.ImageEditor,),
    {"preprocess": _stroke_files, "is_template": True, "__module__": __name__},
)


def layout(session: gr.State) -> SimpleNamespace:
    """Adds the components to the current tab and returns them by name."""
    at = SimpleNamespace(session=session)
    with gr.Row(elem_classes="messages"):
        at.message = gr.HTML(elem_id="message", min_width=300, scale=5)
        at.retry = gr.Button("Try again", visible=False, elem_id="retry", scale=0, min_width=110, size="sm")
    with gr.Column(visible=False, elem_id="work") as at.work:
        with gr.Row():
            with gr.Column(min_width=340):
                _image(at)
                _brush(at)
                _mask(at)
            with gr.Column(min_width=340):
                _prompt(at)
        _candidates(at)
        _caption(at)
        with gr.Row(elem_classes="decide"):
            at.submit = gr.Button("Submit (Ctrl+Enter)", variant="primary", elem_id="submit", min_width=200)
            at.reason = gr.Dropdown(
                SKIP_REASONS,
                value=None,
                label="Reason for skipping (S): choose or write",
                allow_custom_value=True,
                elem_id="reason",
                min_width=220,
                scale=2,
            )
            at.skip = gr.Button("Skip", elem_id="skip", min_width=80, scale=0)
            at.undo = gr.Button("Undo (U)", elem_id="undo", min_width=120, scale=0)
    gr.HTML(markup.shortcuts("Annotate"))
    return at


def _image(at: SimpleNamespace) -> None:
    at.item = gr.Textbox(visible="hidden", elem_id="item")
    at.image = gr.Image(
        label="Image and mask",
        interactive=False,
        format="jpeg",
        height=340,
        buttons=["fullscreen"],
        elem_id="image",
    )


def _mask(at: SimpleNamespace) -> None:
    with gr.Row(elem_classes="fields"):
        at.mask_prompt = gr.Textbox(
            label="1 · Mask prompt (M)", max_lines=1, max_length=300, elem_id="mask-prompt", min_width=120, scale=4
        )
        at.segment = gr.Button("Find", elem_id="segment", min_width=64, scale=0)
        at.brush_button = gr.Button("Brush (B)", elem_id="brush-button", min_width=104, scale=0)
    with gr.Row(elem_classes="fields"):
        at.threshold = gr.Slider(
            0.05, 0.95, THRESHOLD, step=0.01, label="Threshold", elem_id="threshold", min_width=160, scale=3
        )
        at.x, at.y = (
            gr.Number(
                0,
                label=f"Enlarge {name}",
                minimum=0,
                maximum=MOST_ENLARGEMENT,
                precision=0,
                elem_id=f"enlarge-{name}",
                min_width=90,
            )
            for name in ("x", "y")
        )
    at.share = gr.HTML(elem_id="share")


def _prompt(at: SimpleNamespace) -> None:
    at.title = gr.HTML(elem_id="title")
    at.captions = gr.HTML(elem_id="captions")
    at.word = gr.Radio([], label="2 · Replace the keyword with", elem_id="word")
    at.prompt = gr.Textbox(
        label="Inpainting prompt (I): what to paint",
        max_lines=2,
        lines=1,
        max_length=300,
        elem_id="prompt",
    )
    at.paint = gr.Button("Paint candidates (P)", variant="primary", elem_id="paint")


def _brush(at: SimpleNamespace) -> None:
    at.brush_open = gr.State(False)
    with gr.Column(visible=False, elem_id="brush") as at.brush:
        at.editor = StrokeEditor(
            type="filepath",
            image_mode="RGBA",
            format="png",
            sources=(),
            transforms=(),
            layers=False,
            buttons=[],
            brush=gr.Brush(default_size=24, colors=["#00c2ff"], color_mode="fixed"),
            label="Draw, then add or erase",
            height=400,
            elem_id="editor",
        )
        with gr.Row():
            at.add = gr.Button("Add to the mask", elem_id="add", min_width=130)
            at.erase = gr.Button("Erase from it", elem_id="erase", min_width=130)
            at.clear = gr.Button("Undo all strokes", elem_id="clear", min_width=130)


def _candidates(at: SimpleNamespace) -> None:
    with gr.Row(elem_id="candidates"):
        at.candidates = [
            gr.Image(
                label=f"Candidate {number}",
                interactive=False,
                visible=False,
                height=240,
                min_width=200,
                buttons=["fullscreen"],
                elem_id=f"candidate-{number}",
                elem_classes="candidate",
            )
            for number in range(1, CANDIDATES + 1)
        ]
    with gr.Row(elem_id="choice"):
        numbers = [str(number) for number in range(1, CANDIDATES + 1)]
        at.chosen = gr.Radio(numbers, label="3 · Best candidate (1, 2, 3)", elem_id="chosen", min_width=200)
        at.quality = gr.Radio(QUALITIES, label="4 · Its quality (V, O)", elem_id="quality", min_width=200)


def _caption(at: SimpleNamespace) -> None:
    with gr.Row(elem_classes="fields"):
        at.base = gr.Radio([], label="5 · Base caption", elem_id="base", min_width=200, scale=1)
        at.caption = gr.Textbox(
            label="New caption (C), must fit the chosen image",
            lines=2,
            max_lines=3,
            max_length=1000,
            elem_id="caption",
            min_width=320,
            scale=3,
        )
    at.difference = gr.HTML(elem_id="difference")
