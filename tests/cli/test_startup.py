"""Help and mistakes are answered before torch, transformers' models and datasets are loaded."""

import json
import subprocess
import sys

import pytest

from hfcomp.cli import COMMANDS

SLOW = ("torch", "transformers", "datasets", "sklearn", "spacy", "diffusers")
PROGRAM = f"""
import contextlib, io, json, sys
from hfcomp.cli import main
ends = []
for words in json.loads(sys.argv[1]):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        try:
            main(words)
            end = ""
        except SystemExit as error:
            end = str(error)
    loaded = [name for name in {SLOW} if name in sys.modules]
    ends.append([end, loaded])
    if loaded:
        break
print(json.dumps(ends))
"""
BROKEN = ("broken.csv", "broken.parquet", "broken.json")
HELP = [
    *([name, "--help"] for name in COMMANDS),
    *(["build", kind, "--help"] for kind in ("negatives", "concretebatch", "magic", "inpaintcoco", "pixels")),
    *(["annotate", word, "--help"] for word in ("progress", "draft")),
    ["analyze", "magic", "--help"],
    ["evaluate", "--list"],
]
MISTAKES = [
    ["train", "negclp"],
    ["train", "negclip/own", "--dataset", "./gone.csv"],
    ["train", "negclip/own", "--dataset=./gone.csv"],
    ["train", "negclip/own", "--dataset", "photos.csv", "--model", "./gone"],
    ["train", "negclip", "--config", "./gone.yaml"],
    ["evaluate", "./gone", "--suite", "compositional"],
    ["evaluate", "base=./gone", "--suite", "compositional"],
    ["build", "negatives", "--source", "./gone.csv", "--output", "built"],
    ["build", "negatives", "--sourc", "./gone.csv", "--output", "built"],
    ["build", "pixels", "--source", "./gone.csv", "--model", "./gone", "--output", "built"],
    ["build", "verify", "gone"],
    ["audit", "./gone.csv"],
    ["analyze", "high=./gone"],
    ["analyze", "magic", "gone"],
    ["gallery", "./gone"],
    ["annotate", "gone"],
    ["annotate", "draft", "gone"],
    ["levels", "./gone"],
    ["probe", "./gone", "--dataset", "sandbox"],
    ["probe", "sandbox", "--dataset", "./gone.csv"],
    ["merge", "./gone", "./gone2", "--alpha", "0.5", "--output_dir", "merged"],
    ["attention", "./gone", "--image", "gone.png", "--text", "a cube"],
    ["convert", "./gone.pt", "--output", "converted"],
    ["push", "gone", "--repo", "org/name"],
    ["push-dataset", "gone", "--repo", "org/name"],
    ["compare", "./gone", "./gone2"],
    *(["audit", name] for name in BROKEN),
    *(["build", "negatives", "--source", name, "--output", "built"] for name in BROKEN),
    ["train", "negclip/own", "--dataset", "broken.csv"],
    ["train", "broken.yaml"],
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """How each command ends, in one process: what one loads, the next ones have."""
    folder = tmp_path_factory.mktemp("startup")
    (folder / "photos.csv").write_text("image,caption\n0.png,a cube\n")
    (folder / "broken.csv").write_text('image,caption\na.png,"a dog\n')
    (folder / "broken.parquet").write_bytes(b"PAR1broken")
    (folder / "broken.json").write_text('{"image": "a.png", "caption": ')
    (folder / "broken.yaml").write_text("method: [x\n")
    words = [sys.executable, "-c", PROGRAM, json.dumps(HELP + MISTAKES)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_help_and_mistakes_load_no_slow_library(answers):
    command, (end, loaded) = (HELP + MISTAKES)[len(answers) - 1], answers[-1]
    assert not loaded, f"hfcomp {' '.join(command)} ({end}) loads {loaded}"
    assert len(answers) == len(HELP + MISTAKES)


def test_mistakes_are_named(answers):
    for command, (end, _) in zip(MISTAKES, answers[len(HELP) :], strict=True):
        assert end == "2" or end.startswith("error: "), (command, end)
        if end != "2":
            assert any(word.rpartition("=")[2].removeprefix("./") in end for word in command[1:]), (command, end)
