"""Names of models on a command line (under 1 s)."""

from __future__ import annotations

import pytest

from hfcomp.options import named_models


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["openai/clip", "runs/c2lip/"], {"clip": "openai/clip", "c2lip": "runs/c2lip/"}),
        (["runs/a/method", "runs/b/method"], {"a/method": "runs/a/method", "b/method": "runs/b/method"}),
        (["ours=runs/a", "openai/clip"], {"ours": "runs/a", "clip": "openai/clip"}),
        (["tau=0.01=openai/clip"], {"tau=0.01": "openai/clip"}),
    ],
)
def test_names_are_given_or_the_last_parts_of_places(given, expected):
    assert named_models(given) == expected


def test_folders_may_have_an_equals_sign(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("lr=1/method", "lr=2/method"):
        (tmp_path / name).mkdir(parents=True)
    assert named_models(["lr=1/method", "lr=2/method"]) == {f"lr={at}/method": f"lr={at}/method" for at in (1, 2)}
    assert named_models(["ours=lr=1/method"]) == {"ours": "lr=1/method"}
    assert named_models(["a=b=lr=1/method"]) == {"a=b": "lr=1/method"}


@pytest.mark.parametrize(
    ("given", "taken", "message"),
    [
        ([], (), "at least one model"),
        (["x", "x"], (), "two models .*'x'.*second=x"),
        (["a=x", "a=y"], (), "two models .*'a'.*second=y"),
        (["blind=x"], ("blind",), "two models .*'blind'"),
    ],
)
def test_every_model_has_its_own_name(given, taken, message):
    with pytest.raises(ValueError, match=message):
        named_models(given, taken=taken)
