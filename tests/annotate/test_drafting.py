"""The automatic mode on a world of colored boxes, with models that see and paint them, and with tiny real ones."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from hfcomp.annotate import drafting
from hfcomp.annotate.drafting import UNREADABLE, draft
from hfcomp.annotate.edits import (
    BAD_MASK,
    EDIT_MISREAD,
    LARGE_MASK,
    NOT_OFFERED,
    OLD_CAPTION,
    ORIGINAL_MISREAD,
    SMALL_MASK,
    UNCHANGED,
    WRONG_MASK,
    WRONG_PAINT,
)
from hfcomp.annotate.models import Segmenter
from hfcomp.annotate.options import DraftOptions
from hfcomp.data.annotations.entries import AUTOMATIC, Item
from hfcomp.data.annotations.masks import changed_outside, read_mask
from hfcomp.data.annotations.project import IMAGES, Project
from hfcomp.factory.images.editor import Edit as Painted
from hfcomp.factory.images.stage import BLANK, SAFETY_CHECKER
from hfcomp.testing import write_tiny_llama
from tests.annotate.models import clipseg, inpainting
from tests.factory.writers.endpoint import Answer, closed_address, completion, serving

COLORS = {
    **{"blue": (0, 0, 255), "red": (255, 0, 0), "green": (0, 128, 0), "yellow": (255, 255, 0), "black": (0, 0, 0)},
    **{"white": (255, 255, 255), "brown": (139, 69, 19), "gray": (128, 128, 128), "orange": (255, 165, 0)},
}
BOX = (10, 10, 30, 24)
SIZE = (60, 40)


def color_in(text: str) -> str:
    return next(name for name in COLORS if name in text.casefold())


class World:
    """Models that see the box, paint it in the color of the prompt and know its color, unless they are changed."""

    device = "cpu"
    identity = "a world of boxes"

    def __init__(self, *_, **__) -> None:
        self.calls: list[tuple] = []
        self.box, self.blanked, self.painted, self.seen, self.error = BOX, False, color_in, None, None

    def probability_map(self, image, prompt):
        self.calls.append(("probability_map", prompt))
        heat = np.zeros((image.height, image.width), dtype=np.float32)
        heat[self.box[1] : self.box[3], self.box[0] : self.box[2]] = 0.9
        return heat

    def paint(self, image, mask, prompt, seeds):
        self.calls.append(("paint", prompt, tuple(seeds)))
        if self.error:
            raise self.error
        candidates = []
        for seed in seeds:
            pixels = np.random.default_rng(seed).integers(0, 256, (image.height, image.width, 3), dtype=np.uint8)
            name = self.painted(prompt)
            if name is None:
                pixels = np.asarray(image)
            else:
                pixels[mask] = COLORS[name]
            candidates.append(Painted(Image.fromarray(pixels), self.blanked))
        return candidates

    def images(self, images):
        names = [*COLORS]
        scores = np.zeros((len(images), len(names)), dtype=np.float32)
        for row, image in enumerate(images):
            middle = np.asarray(image)[BOX[1] + 4 : BOX[3] - 4, BOX[0] + 4 : BOX[2] - 4].reshape(-1, 3).mean(0)
            nearest = min(names, key=lambda name: np.abs(middle - COLORS[name]).sum())
            scores[row, names.index(self.seen or nearest)] = 1
        return scores

    def texts(self, texts):
        vectors = np.eye(len(COLORS), dtype=np.float32)[[[*COLORS].index(color_in(text)) for text in texts]]
        return SimpleNamespace(vectors=vectors)


@pytest.fixture
def world(monkeypatch) -> World:
    stand_in = World()
    monkeypatch.setattr(drafting, "load_segmenter", lambda _: stand_in)
    monkeypatch.setattr(drafting, "load_inpainter", lambda _: stand_in)
    monkeypatch.setattr(drafting, "Embedder", lambda *_, **__: stand_in)
    monkeypatch.setattr(drafting, "identity", str)
    return stand_in


def scene(color: str, number: int) -> Image.Image:
    pixels = np.random.default_rng(number).integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8)
    pixels[BOX[1] : BOX[3], BOX[0] : BOX[2]] = COLORS[color]
    return Image.fromarray(pixels)


def fill(folder: Path, colors: tuple[str, ...] = ("red", "blue", "green")) -> Project:
    project = Project(folder)
    items = []
    for number, color in enumerate(colors):
        caption = f"A {color} box on a wall."
        items.append(Item(f"{number}/color", project.save(scene(color, number)), "color", (caption,), (color,)))
    project.decisions.add_items(items)
    return project


@pytest.fixture
def project(tmp_path) -> Project:
    return fill(tmp_path / "project")


def run(project: Project, **settings):
    lines: list[str] = []
    return draft(project, DraftOptions(**{"enlarge_x": 1, "enlarge_y": 2} | settings), log=lines.append), lines


def states(project: Project) -> dict[str, str]:
    return {item.id: project.decisions.state(item.id) for item in project.decisions.items()}


def records(project: Project) -> list[dict]:
    return [json.loads(line) for line in (project.folder / "drafts" / "drafts.jsonl").read_text().splitlines()]


def test_drafts_are_submitted_for_a_review_and_differ_in_the_mask_alone(project, world):
    outcome, lines = run(project)
    assert (outcome.submitted, outcome.failed, sum(outcome.set_aside.values())) == (3, 0, 0)
    assert {*states(project).values()} == {"annotated"} and any(line.startswith("3 drafts ") for line in lines)
    for item in project.decisions.items():
        edit = project.decisions.edit(item.id)
        old, new = color_in(edit.original), color_in(edit.caption)
        assert old != new and edit.caption == edit.original.replace(old, new).replace("A orange", "An orange")
        assert (edit.mask_prompt, edit.inpaint_prompt) == (f"{old} box", f"{new} box")
        assert (edit.threshold, edit.enlarge, edit.is_corrected, edit.quality) == (0.4, (1, 2), False, "okay")
        original, edited = project.read(item.image), project.read(edit.image)
        with Image.open(project.folder / IMAGES / edit.mask) as image:
            mask = read_mask(image)
        assert np.argwhere(mask).min(0).tolist() == [BOX[1] - 2, BOX[0] - 1] and mask.sum() == 22 * 18
        assert changed_outside(original, edited, mask) == 0
        assert (np.asarray(edited)[mask] == COLORS[new]).all()
    item, edit = project.decisions.next_review("Ada")
    project.decisions.accept("Ada", item.id, "very good")
    assert next(project.decisions.accepted()).annotator == AUTOMATIC


def test_the_same_seed_gives_the_same_drafts_whatever_runs_beside(tmp_path, world):
    edits = []
    for number, (seed, colors) in enumerate([(0, ("red", "blue", "green")), (0, ("red",)), (1, ("red",))]):
        project = fill(tmp_path / f"project{number}", colors)
        run(project, seed=seed)
        edits.append(project.decisions.edit("0/color"))
    assert edits[0] == edits[1] != edits[2]


def test_a_second_run_tries_nothing_twice(project, world):
    run(project, number=2)
    assert [*states(project).values()] == ["annotated", "annotated", "open"]
    painted = len(world.calls)
    outcome, _ = run(project)
    assert outcome.submitted == 1 and len(world.calls) > painted
    outcome, lines = run(project)
    assert outcome.submitted == 0 and "trying 0 open items" in lines


def test_an_interrupted_run_goes_on_where_it_was(project, world, monkeypatch):
    class Killed(BaseException):
        pass

    calls = []

    def paint(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise Killed
        return World.paint(world, *arguments)

    monkeypatch.setattr(world, "paint", paint)
    with pytest.raises(Killed):
        run(project)
    assert [*states(project).values()] == ["annotated", "open", "open"]
    assert run(project)[0].submitted == 2
    other = fill(project.folder.parent / "other")
    run(other)
    assert [other.decisions.edit(name) for name in states(other)] == [
        project.decisions.edit(name) for name in states(project)
    ]


def test_half_a_line_of_a_killed_run_is_not_read_and_not_joined(project, world):
    world.seen = "white"
    run(project, number=1)
    path = project.folder / "drafts" / "drafts.jsonl"
    path.write_bytes(path.read_bytes() + b'{"item": "1/color", "outco')
    assert sum(run(project, number=1)[0].set_aside.values()) == 1
    lines = path.read_text().splitlines()
    assert [json.loads(lines[place])["item"] for place in (0, 2)] == ["0/color", "1/color"]


@pytest.mark.parametrize(
    "change, settings, reason",
    [
        ({"box": (0, 0, 0, 0)}, {}, BAD_MASK),
        ({"box": (0, 0, 60, 40)}, {}, BAD_MASK),
        ({"box": (0, 0, 50, 40)}, {}, LARGE_MASK),
        ({"box": (0, 0, 1, 1)}, {"enlarge_x": 0, "enlarge_y": 0}, SMALL_MASK),
        ({"blanked": True}, {}, SAFETY_CHECKER),
        ({"painted": lambda _: None}, {}, UNCHANGED),
        ({"painted": lambda _: "red"}, {"min_change": 0.0}, EDIT_MISREAD),
        ({"seen": "white"}, {}, ORIGINAL_MISREAD),
        ({}, {"edited_margin": 1.0}, EDIT_MISREAD),
        ({}, {"original_margin": 1.0}, ORIGINAL_MISREAD),
    ],
)
def test_what_fails_a_test_stays_open_with_its_reason(tmp_path, world, change, settings, reason):
    project = fill(tmp_path / "project", ("red",))
    for name, value in change.items():
        setattr(world, name, value)
    outcome, lines = run(project, **settings)
    assert outcome.set_aside == {reason: 1} and states(project) == {"0/color": "open"}
    assert f"1 items stay open: {reason}" in lines
    (record,) = records(project)
    assert (record["item"], record["outcome"], record["reasons"]) == ("0/color", "set aside", [reason] * 3)
    assert run(project, **settings)[1][0] == "trying 0 open items"
    assert project.decisions.next_item("Ada").id == "0/color"


def test_an_image_of_one_color_is_no_candidate(tmp_path, world, monkeypatch):
    project = fill(tmp_path / "project", ("red",))
    black = Painted(Image.new("RGB", SIZE), False)
    monkeypatch.setattr(world, "paint", lambda image, mask, prompt, seeds: [black for _ in seeds])
    assert run(project)[0].set_aside == {BLANK: 1}


def test_the_best_candidate_is_kept(tmp_path, world, monkeypatch):
    project = fill(tmp_path / "project", ("red",))

    def paint(image, mask, prompt, seeds):
        return [
            World.paint(world, image, mask, prompt if number == 1 else "red", [seed])[0]
            for number, seed in enumerate(seeds)
        ]

    monkeypatch.setattr(world, "paint", paint)
    assert run(project, min_change=0.0)[0].submitted == 1
    edit = project.decisions.edit("0/color")
    seeds = [call[2][0] for call in world.calls if call[0] == "paint"]
    assert len({*seeds}) == 3 and edit.seed == seeds[1]


def test_another_edit_is_tried_after_one_that_fails(tmp_path, world):
    project = fill(tmp_path / "project", ("red",))
    prompts = []
    world.painted = lambda prompt: prompts.append(prompt) or (color_in(prompt) if len({*prompts}) > 1 else "red")
    assert run(project, min_change=0.0)[0].submitted == 1
    (record,) = records(project)
    assert record["before"] == [EDIT_MISREAD] and record["edited_margin"] == 1.0
    assert project.decisions.edit("0/color").inpaint_prompt == prompts[-1] != prompts[0]


def test_other_settings_try_an_item_again(tmp_path, world):
    project = fill(tmp_path / "project", ("red",))
    run(project, edited_margin=1.0)
    assert run(project, edited_margin=0.5)[0].submitted == 1
    hashes = [record["settings"] for record in records(project)]
    assert len({*hashes}) == 2
    for name in hashes:
        assert (project.folder / "drafts" / f"settings-{name}.json").is_file()


def test_without_a_dual_encoder_the_first_candidate_is_taken(tmp_path, world):
    project = fill(tmp_path / "project", ("red",))
    world.seen = "white"
    assert run(project, clip_model="none")[0].submitted == 1
    assert project.decisions.edit("0/color").seed == world.calls[1][2][0]


def test_items_of_people_and_those_sent_back_are_left_to_people(project, world):
    held = project.decisions.next_item("Ada")
    assert run(project)[0].submitted == 2
    assert states(project)[held.id] == "open"
    project.decisions.release("Ada")
    item, _ = project.decisions.next_review("Ada")
    project.decisions.send_back("Ada", item.id, "a shadow is left")
    assert run(project, seed=3)[0].submitted == 1
    assert states(project)[item.id] == "open"
    assert run(project, seed=3)[1][0] == "trying 0 open items"


def test_only_items_of_a_concept(project, world):
    assert run(project, concept="object")[1][0] == "trying 0 open items"
    assert run(project, concept="color")[0].submitted == 3


def test_a_model_that_fails_is_tried_again_by_the_next_run(project, world):
    world.error = RuntimeError("no kernel image")
    with pytest.raises(RuntimeError, match="no kernel image"):
        run(project)
    assert {*states(project).values()} == {"open"} and project.decisions.next_item("Ada").id == "0/color"
    project.decisions.release("Ada")
    world.error = None
    assert run(project)[0].submitted == 3


def test_a_damaged_image_is_set_aside(project, world):
    path = project.folder / IMAGES / next(project.decisions.items()).image
    path.write_bytes(path.read_bytes()[:100])
    outcome, _ = run(project)
    assert outcome.submitted == 2 and outcome.set_aside == {UNREADABLE: 1}


def test_two_runs_at_once_are_refused(project, world, monkeypatch):
    monkeypatch.setattr("hfcomp.writing.LOCK_SECONDS", 0)

    def paint(*_):
        with pytest.raises(ValueError, match="in use"):
            run(project)
        raise KeyboardInterrupt

    monkeypatch.setattr(world, "paint", paint)
    with pytest.raises(KeyboardInterrupt):
        run(project)


def answer(**fields: str):
    return lambda body: Answer(completion(json.dumps(fields)))


GOOD = {"mask": "the box", "paint": "completely blue painted box", "caption": "a blue box on a wall"}


def test_a_language_model_proposes_edits(tmp_path, world):
    project = fill(tmp_path / "project", ("red",))
    settings = {"writer": "endpoint", "llm": "m", "answer_cache": str(tmp_path / "answers")}
    with serving(answer(**GOOD)) as server:
        assert run(project, **settings, base_url=server.base_url)[0].submitted == 1
    (body,) = server.bodies
    text = body["messages"][0]["content"]
    assert "A red box on a wall." in text and "- red: blue, green, yellow" in text
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["mask", "paint", "caption"] and schema["additionalProperties"] is False
    edit = project.decisions.edit("0/color")
    assert (edit.mask_prompt, edit.inpaint_prompt) == ("the box", "completely blue painted box")
    assert (edit.caption, edit.original) == ("A blue box on a wall.", "A red box on a wall.")
    # its answer is kept: another project needs no server
    other = fill(tmp_path / "other", ("red",))
    assert run(other, **settings, base_url=closed_address())[0].submitted == 1
    assert other.decisions.edit("0/color") == edit


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"caption": "A red box on a wall."}, OLD_CAPTION),
        ({"caption": "A purple box on a wall."}, NOT_OFFERED),
        ({"caption": "A blue box on a floor."}, NOT_OFFERED),
        ({"caption": "Sorry, I cannot do that."}, "refuses in words"),
        ({"caption": ""}, "empty answer"),
        ({"paint": "a green box"}, WRONG_PAINT),
        ({"mask": "blue box"}, WRONG_MASK),
        ({"mask": "box\nbox"}, "several lines"),
        ({"more": "x"}, "not the JSON that was asked for"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_and_asked_again(tmp_path, world, change, reason):
    project = fill(tmp_path / "project", ("red",))
    settings = {"writer": "endpoint", "llm": "m", "answer_cache": str(tmp_path / "answers"), "attempts": 2}
    with serving([answer(**GOOD | change), answer(**GOOD)]) as server:
        assert run(project, **settings, base_url=server.base_url)[0].submitted == 1
    first, second = server.bodies
    assert first["seed"] != second["seed"] and second["temperature"] == pytest.approx(first["temperature"] + 0.2)
    assert records(project)[0]["before"] == [reason]
    assert len([call for call in world.calls if call[0] == "paint"]) == 1


def test_a_model_without_structured_output_answers_in_lines(tmp_path, world):
    project = fill(tmp_path / "project", ("red", "green"))
    settings = {"writer": "endpoint", "llm": "m", "answer_cache": str(tmp_path / "answers"), "plain_answers": True}
    lines = "Mask: box\npaint: blue box\n\ncaption: A blue box on a wall."
    with serving(lambda body: Answer(completion(lines))) as server:
        assert run(project, **settings, base_url=server.base_url)[0].submitted == 2
    assert "response_format" not in server.bodies[0]
    with serving(lambda body: Answer(completion("mask: box\npaint: blue box"))) as server:
        other = fill(tmp_path / "other", ("white",))
        outcome, _ = run(other, **settings, base_url=server.base_url)
    assert outcome.set_aside == {"not the lines that were asked for": 1}


def test_a_small_model_in_this_process_that_answers_nonsense_leaves_items_open(tmp_path, world):
    project = fill(tmp_path / "project", ("red", "blue"))
    model = write_tiny_llama(tmp_path / "llama")
    settings = {"writer": "transformers", "llm": str(model), "answer_cache": str(tmp_path / "answers")}
    outcome, _ = run(project, **settings, device="cpu")
    assert outcome.submitted == 0 and sum(outcome.set_aside.values()) == 2 and not world.calls
    assert all(len(record["reasons"]) == 3 for record in records(project))


def test_a_server_out_of_reach_ends_the_run_and_keeps_what_is_done(project, world, tmp_path, monkeypatch):
    settings = {"writer": "endpoint", "llm": "m", "answer_cache": str(tmp_path / "answers"), "retries": 0}
    with pytest.raises(OSError, match="127.0.0.1"):
        run(project, **settings, base_url=closed_address(), llm_timeout=1.0)
    assert {*states(project).values()} == {"open"}


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"number": 0}, "number: found 0"),
        ({"candidates": 0}, "candidates: found 0"),
        ({"threshold": 1.5}, "threshold: found 1.5"),
        ({"min_area": 0.6}, "min_area: found 0.6,.*max_area=0.5"),
        ({"enlarge_x": -1}, "enlarge_x: found -1"),
        ({"concept": "location"}, "concept: found 'location'"),
        ({"writer": "endpoint"}, "--writer endpoint .*--base_url"),
        ({"base_url": "http://127.0.0.1:1/v1"}, "--base_url .*--writer endpoint"),
        ({"inpaint_steps": 0}, "inpaint_steps: found 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        DraftOptions(**settings)


def test_real_models_of_a_tiny_size(tmp_path, clip):
    """Random weights decide nothing: margins and thresholds let all pass."""
    project = fill(tmp_path / "project", ("red", "blue"))
    settings = {
        **{"segmenter": str(clipseg(tmp_path / "clipseg")), "inpainter": str(inpainting(tmp_path / "inpainting"))},
        **{"clip_model": str(clip), "inpaint_steps": 2, "inpaint_size": 64, "device": "cpu"},
        **{"original_margin": -2.0, "edited_margin": -2.0, "min_area": 0.0, "max_area": 1.0},
    }
    heat = Segmenter(settings["segmenter"])
    settings["threshold"] = round(float(np.quantile(heat.probability_map(scene("red", 0), "red box"), 0.9)), 6)
    edits = []
    for folder in ("project", "other"):
        project = fill(tmp_path / folder, ("red", "blue"))
        outcome, _ = run(project, **settings)
        assert outcome.submitted + sum(outcome.set_aside.values()) == 2 and outcome.submitted >= 1
        edits.append([project.decisions.edit(n) for n, state in states(project).items() if state == "annotated"])
    assert edits[0] == edits[1]
    settings_file = next((project.folder / "drafts").glob("settings-*.json")).read_text()
    assert "2 steps" in settings_file and str(tmp_path) not in settings_file
