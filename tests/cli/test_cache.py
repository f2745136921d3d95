"""`hfcomp cache`: what is kept is shown, and nothing else is removed than what was asked for."""

from __future__ import annotations

import os
import time

import pytest

from hfcomp import cli, store
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from tests import tiny

TEXTS = tiny.captions()[:7]


@pytest.fixture
def folder(clip, siglip, tmp_path):
    """Two images and seven texts of a CLIP, used today; five texts of a SigLIP, used ten days ago."""
    folder = tmp_path / "hfcomp" / "embeddings"
    embedder = Embedder(clip, device="cpu", cache=EmbeddingCache(folder))
    embedder.images([tiny.image(0), tiny.image(1)]), embedder.texts(TEXTS)
    before = set(folder.iterdir())
    Embedder(siglip, device="cpu", cache=EmbeddingCache(folder)).texts(TEXTS[:5])
    for place in set(folder.iterdir()) - before:
        for path in place.iterdir():
            os.utime(path, (time.time() - 10 * 24 * 3600,) * 2)
    return folder


def show_cache(capsys, *words) -> str:
    capsys.readouterr()
    cli.main(["cache", *map(str, words)])
    return " ".join(capsys.readouterr().out.split())


def test_what_is_kept_is_shown_by_model(folder, clip, siglip, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("HFCOMP_CACHE_LIMIT", "5GB")
    text = show_cache(capsys, "--cache", folder)
    size = sum(path.stat().st_size for path in folder.glob("*/*.safetensors"))
    assert text.startswith(f"{folder}: {size / 1000:.1f} kB used of at most 5.0 GB (set HFCOMP_CACHE_LIMIT")
    for name, kind, entries in ((clip, "images", 2), (clip, "texts", 7), (siglip, "texts", 5)):
        assert f"{name} {kind} {entries} " in text
    assert time.strftime("%Y-%m-%d") in text and "torch 2" in text and "transformers" in text
    assert str(siglip) not in show_cache(capsys, "show", "--cache", folder, "--model", clip)


def test_an_empty_cache_is_said_to_be_empty(tmp_path, capsys):
    assert "no embeddings" in show_cache(capsys, "--cache", tmp_path)
    assert "nothing to clear" in show_cache(capsys, "clear", "--cache", tmp_path)


def test_clear_removes_all_or_one_model_or_what_is_old(folder, clip, siglip, capsys):
    (folder / "own.txt").write_text("a user's own")
    assert "nothing to clear" in show_cache(capsys, "clear", "--cache", folder, "--older_than", "11", "--yes")
    assert "removed" in show_cache(capsys, "clear", "--cache", folder, "--older_than", "9", "--yes")
    assert str(siglip) not in show_cache(capsys, "--cache", folder)
    Embedder(siglip, device="cpu", cache=EmbeddingCache(folder)).texts(TEXTS)
    show_cache(capsys, "clear", "--cache", folder, "--model", clip, "--yes")
    again = Embedder(siglip, device="cpu", cache=EmbeddingCache(folder))
    again.texts(TEXTS)
    assert again.encoded_texts == 0 and len(list(folder.glob("*/*.safetensors"))) == 1
    show_cache(capsys, "clear", "--cache", folder, "--yes")
    assert [path.name for path in folder.iterdir()] == ["own.txt"]


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("no", 3), ("", 3), (KeyboardInterrupt, 3), (EOFError, 3)])
def test_it_asks_before_it_removes(answer, left, folder, capsys, monkeypatch):
    def say(question):
        assert "Remove " in question and str(folder) in question
        if not isinstance(answer, str):
            raise answer
        return answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", say)
    cli.main(["cache", "clear", "--cache", str(folder)])
    assert len(list(folder.glob("*/*.safetensors"))) == left


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["clear"], "removed.*--yes"),
        (["clear", "--model", "clop", "--yes"], "--model: .*'clop'; it has "),
        (["--older_than", "-1"], "--older_than: found -1.0"),
        (["--older_than", "nan"], "--older_than: found nan"),
    ],
)
def test_mistakes_are_named(words, message, folder):
    with pytest.raises(SystemExit, match=f"error: .*{message}"):
        cli.main(["cache", *words, "--cache", str(folder)])
    assert len(list(folder.glob("*/*.safetensors"))) == 3


def test_a_folder_that_is_not_there_and_a_limit_that_is_no_size_are_named(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="error: --cache: .*nowhere .*folder"):
        cli.main(["cache", "--cache", str(tmp_path / "nowhere")])
    monkeypatch.setenv("HFCOMP_CACHE_LIMIT", "lots")
    with pytest.raises(SystemExit, match="error: HFCOMP_CACHE_LIMIT: found 'lots'"):
        cli.main(["cache", "--cache", str(tmp_path)])


@pytest.fixture
def hashes(folder, tmp_path, monkeypatch):
    """The folder of the search for scored images, beside that of embeddings, both at their usual places."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path))
    place = store.cache_folder("image_hashes")
    for name in ("v1/a.npy", "v2/b.npy"):
        (place / name).parent.mkdir(parents=True)
        (place / name).write_bytes(bytes(3000))
    return place


def test_image_hashes_are_shown_and_cleared_too(hashes, folder, clip, capsys):
    assert f"{hashes}: 6.0 kB of image hashes" in show_cache(capsys)
    for words in (["--cache", folder], ["--model", clip]):
        assert "image hashes" not in show_cache(capsys, *words)
    show_cache(capsys, "clear", "--model", clip, "--yes")
    assert "image hashes" not in show_cache(capsys, "clear", "--older_than", "1", "--yes")
    assert len(list(hashes.glob("*/*.npy"))) == 2
    with pytest.raises(SystemExit, match=f"error: 6.0 kB .*{hashes}.*--yes"):
        cli.main(["cache", "clear"])
    assert f"removed 6.0 kB of image hashes from {hashes}" in show_cache(capsys, "clear", "--yes")
    assert not list(hashes.glob("*/*")) and "0 B of image hashes" in show_cache(capsys)
    assert "nothing to clear" in show_cache(capsys, "clear", "--yes")


def test_old_image_hashes_alone_are_cleared(hashes, folder, capsys):
    for path in hashes.glob("*/*"):
        os.utime(path, (time.time() - 11 * 24 * 3600,) * 2)
    assert "removed 6.0 kB of image hashes" in show_cache(capsys, "clear", "--older_than", "10.5", "--yes")
    assert not list(hashes.glob("*/*")) and len(list(folder.glob("*/*.safetensors"))) == 3
