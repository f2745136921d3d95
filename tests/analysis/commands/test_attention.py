"""`hfcomp attention` from its words to table, picture and values (3 s)."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest
from PIL import Image

from hfcomp import cli
from tests import tiny


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image.png"
    tiny.image(0, (60, 40)).save(path)
    return str(path)


def words(folder, image, *more: str) -> list[str]:
    return ["--image", image, "--output", str(folder / "out" / "a.png"), "--device", "cpu", *more]


def test_two_models_are_shown_for_each_phrase(clip, siglip, image, tmp_path, capsys):
    texts = ["--text", "red cube", "--text", "blue ball " * 30, "--text", "red cube"]
    cli.main(
        [
            "attention",
            f"ours={clip}",
            str(siglip),
            *texts,
            *words(tmp_path, image, "--values", str(tmp_path / "new" / "v.json")),
        ]
    )
    out = capsys.readouterr().out
    with Image.open(tmp_path / "out" / "a.png") as picture:
        assert picture.format == "PNG" and min(picture.size) > 400
    values = json.loads((tmp_path / "new" / "v.json").read_text())
    assert values["phrases"] == ["red cube", "blue ball " * 30] and values["temperature"] == 1
    assert list(values["models"]) == ["ours", "siglip"] and values["models"]["ours"]["path"] == str(clip)
    for name, model in values["models"].items():
        assert model["truncated"] == [False, True]
        assert re.search(f"{name}: '{'blue ball ' * 30}' .*truncated", out)
        cosines = np.array(model["cosine"][0])
        place = ", ".join(str(index + 1) for index in np.unravel_index(cosines.argmax(), (2, 2)))
        weights = np.exp(cosines) / np.exp(cosines).sum()
        assert np.array(model["attention"][0]) == pytest.approx(4 * weights)
        entropy = -100 * (weights * np.log(weights)).sum() / np.log(4)
        numbers = f"{model['pooled'][0]:.3f} +{cosines.max():.3f} +{place} +{4 * weights.max():.3f} +{entropy:.2f}"
        assert re.search(rf"{name} +{numbers}", out)
    # the crop of the one, all that the other sees: compared on finer cells where both see the image
    assert values["models"]["ours"]["box"] == pytest.approx([1 / 6, 0, 5 / 6, 1], abs=0.01)
    change = values["difference"]
    assert change["box"] == values["models"]["ours"]["box"] and np.shape(change["cosine"]) == (2, 2, 2)
    assert f"written to {tmp_path / 'out' / 'a.png'}" in out


def test_one_model_has_no_difference(siglip2, image, tmp_path, capsys):
    values = tmp_path / "v.json"
    sharp = ["--temperature", "0.01", "--map", "cosine", "--values", str(values)]
    cli.main(["attention", str(siglip2), "--text", "red", *words(tmp_path, image, *sharp)])
    report = json.loads(values.read_text())
    assert "difference" not in report and np.max(report["models"]["siglip2"]["attention"]) > 1.2
    assert "at temperature 0.01" in capsys.readouterr().out


def test_without_matplotlib_the_table_is_printed(clip, image, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit, match=r"^error: .*a.png.*matplotlib.*pip install"):
        cli.main(["attention", str(clip), "--text", "red", *words(tmp_path, image)])
    assert re.search(r"red +clip +-?0\.\d{3}", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("models", "more", "message"),
    [
        ([], [], "name at least one model"),
        (["a=x", "b=y", "c=z"], [], "found 3 models, expected one or two"),
        (["x", "x"], [], "two models are called 'x'. Name them, as in second=x"),
        (["x"], ["--text", " "], "phrases: found ' ', expected words"),
        (["x"], ["--temperature", "0"], "temperature: found 0, expected a finite number above 0"),
        (["x"], ["--temperature", "nan"], "temperature: found nan"),
        (["x"], ["--output", "a.jpg"], "--output: found a.jpg, expected the name of a .png file"),
        (["x"], ["--values", "v.npz"], "--values: found v.npz, expected the name of a .json file"),
        (["x"], ["--device", "quantum"], "device: 'quantum' cannot be used here"),
        (["x"], ["--image", "nowhere.png"], "--image: nowhere.png does not exist"),
        (["nowhere/model"], [], "nowhere/model is not a local folder, and as a Hub id:"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(models, more, message, image, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SystemExit) as ended:
        cli.main(["attention", *models, "--text", "red", *words(tmp_path, image, *more)])
    assert str(ended.value).startswith("error: ") and message in str(ended.value)


def test_files_that_are_no_images_and_models_that_are_no_dual_encoders_are_refused(image, tmp_path):
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    for more, message in (
        (["--image", str(tmp_path / "text.png")], "supported image format"),
        ([], "'bert' .*dual encoder"),
    ):
        with pytest.raises(SystemExit, match=message):
            cli.main(["attention", str(tmp_path), "--text", "red", *words(tmp_path, image, *more)])
