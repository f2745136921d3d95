"""What `hfcomp build` makes of a small source, for each kind of set: rows, manifests and cards (about 5 s)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp import cli
from hfcomp.hub.dataset_cards import SetFolders, set_card
from tests.factory.concretebatch import sets as concretebatch
from tests.factory.inpaintcoco import sets as inpaintcoco
from tests.factory.magic import sets as magic
from tests.golden.folders import everything, plain
from tests.golden.record import check, needs_newer_libraries
from tests.golden.test_golden import WRITE

PARSED = "--skip_damaged --parser rules --shard_size 5"
SUBSTITUTE = "--parser rules --shard_size 5 --writer substitute"
COMMANDS = {
    "negatives": f"--source photos {PARSED} --kinds keyword:color,keyword:object,swap:nouns --num_negatives 3",
    "concepts": f"--source photos {PARSED} --max_concepts 2",
    "neighbors": "--source photos --skip_damaged --model clip --number 2 --device cpu",
    "magic": "--source captioned --writer taxonomy --taxonomy taxonomy.yaml --encoder captions "
    "--negative_similarity -1 --shared_levels 3 --shard_size 7",
    "inpaintcoco": "--source project --shard_size 4",
    "pixels": "--source captioned --limit 8 --model clip",
}


@pytest.fixture(scope="module")
def root(clip, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("builds")
    concretebatch.photos(folder / "photos")
    concretebatch.ratings(folder / "ratings.txt")
    magic.source(folder / "captioned", per_concept=5)
    inpaintcoco.project(folder / "project")
    (folder / "clip").symlink_to(clip)
    return folder


@pytest.fixture
def build(root, monkeypatch):
    """Builds a kind with the words of its command, whose paths begin at the root."""
    monkeypatch.chdir(root)
    monkeypatch.setenv("HF_HOME", str(root / "home"))

    def run(kind: str, words: str) -> None:
        cli.main(["build", kind, *words.split(), "--output", f"out/{kind}"])
        files = everything(root / "out" / kind, root)
        if kind != "pixels":
            pushed = plain(set_card(SetFolders.of(root / "out" / kind), "me/set").splitlines(), root)
            files["pushed card has other lines"] = [line for line in pushed if line not in files["README.md"]]
        check(f"build_{kind}", files, write=WRITE)

    return run


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[needs_newer_libraries] * (k in ("neighbors", "pixels"))) for k in COMMANDS],
)
def test_a_set(build, kind):
    build(kind, COMMANDS[kind])


@pytest.mark.slow
def test_pairs_of_three_configurations_with_edited_images(build, root, clip):
    from hfcomp.testing import write_tiny_sdxl

    write_tiny_sdxl(root / "sdxl", clip)
    images = "--image_pipeline sdxl --image_size 32 --image_batch_size 2"
    configs = "--configs high_concreteness,low_concreteness,random --concreteness_ratings ratings.txt"
    words = f"--source photos {SUBSTITUTE} {configs} {images} --only_adaptable"
    build("concretebatch", words)
