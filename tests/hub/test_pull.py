"""Models and datasets from the Hub that cannot be read: one line, what to do, and never the token (about 20 s)."""

from __future__ import annotations

import json

import pytest

from hfcomp.data.publishing import TOKEN
from tests.hub.repositories import OTHER_TOKEN, WRONG_TOKEN, File
from tests.hub.running import Hub, run_in_hub

READ = """
import json, sys
from hfcomp.data.loading import load_training_set
from hfcomp.errors import one_line_errors
from hfcomp.modeling import load_backbone
said = {}
for place in sys.argv[1:]:
    load = load_backbone if place.endswith("model") else load_training_set
    try:
        with one_line_errors():
            load(place)
    except SystemExit as stopped:
        said[place.removeprefix("me/")] = str(stopped)
print(json.dumps(said))
"""


PLACES = [f"me/{name}-{kind}" for name in ("gated", "private", "none") for kind in ("model", "set")]


def said_of(hub: Hub, places: list[str], token: str, **more: str) -> dict[str, str]:
    for kind, file in (("model", "config.json"), ("set", "data/train.jsonl")):
        for name in ("gated", "private"):
            made = hub.create("models" if kind == "model" else "datasets", f"me/{name}-{kind}")
            made.commit("files", {file: File(b'{"caption": "a"}')})
            made.private, made.gated = name == "private", name == "gated"
    said = json.loads(run_in_hub(hub, READ, *places, token=token, **more))
    assert len(said) == len(places) and not any("\n" in line or TOKEN.search(line) for line in said.values())
    return said


def test_gated_and_private_repositories_are_one_line_that_says_what_to_do(hub):
    said = said_of(hub, PLACES, OTHER_TOKEN)
    assert "gated repo" in said["gated-model"] and "gated" in said["gated-set"]
    for name in ("private", "none"):
        assert "is not a valid model identifier" in said[f"{name}-model"] and "hf auth login" in said[f"{name}-model"]
        assert "doesn't exist on the Hub or cannot be accessed" in said[f"{name}-set"]


def test_a_wrong_token_is_one_line_without_it(hub):
    said = said_of(hub, ["me/private-model"], WRONG_TOKEN)
    assert "401" in said["private-model"] and "Invalid credentials" in said["private-model"]


@pytest.mark.slow  # clients try again for two minutes
def test_a_hub_that_is_down_is_one_line(hub):
    said = said_of(hub, ["me/none-model"], WRONG_TOKEN, HF_ENDPOINT="http://127.0.0.1:9")
    assert "couldn't connect to 'http://127.0.0.1:9'" in said["none-model"]
