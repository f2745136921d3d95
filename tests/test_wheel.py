"""What a user gets who installs hfcomp without a clone."""

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import hfcomp

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(next(folder.glob("hfcomp-*.whl"))) as archive:
        yield archive


def test_wheel_ships_the_recipes(wheel):
    on_disk = {path.relative_to(ROOT).as_posix() for path in (ROOT / "recipes").rglob("*.yaml")}
    shipped = {name.removeprefix("hfcomp/") for name in wheel.namelist() if name.endswith(".yaml")}
    assert "recipes/slipform/sandbox.yaml" in shipped
    assert on_disk <= shipped


def test_wheel_ships_the_template_of_model_cards_and_none_of_the_examples(wheel):
    assert [name for name in wheel.namelist() if "model_cards" in name] == ["hfcomp/model_cards/template.md"]


def test_wheel_ships_every_module_and_nothing_beside_the_package(wheel):
    # modules, types, pages of the evaluate modules, lists of names, prompts and words
    kinds = {".py", ".pyi", ".typed", ".md", ".txt", ".yaml"}
    files = (ROOT / "hfcomp").rglob("*.*")
    on_disk = {path.relative_to(ROOT).as_posix() for path in files if path.suffix in kinds}
    names = set(wheel.namelist())
    assert on_disk <= names
    assert {name.split("/")[0] for name in names} == {"hfcomp", f"hfcomp-{hfcomp.__version__}.dist-info"}
    assert not [name for name in names if name.endswith(".pyc")]


def test_wheel_has_the_license_and_what_others_made(wheel):
    folder = f"hfcomp-{hfcomp.__version__}.dist-info/licenses"
    for name in ("LICENSE", "NOTICE"):
        assert wheel.read(f"{folder}/{name}") == (ROOT / name).read_bytes()


def test_wheel_metadata(wheel):
    metadata = Parser().parsestr(wheel.read(f"hfcomp-{hfcomp.__version__}.dist-info/METADATA").decode())
    assert metadata["Version"] == hfcomp.__version__
    assert not [line for line in metadata.get_all("Requires-Dist") if line.startswith("torchvision")]
    entry_points = wheel.read(f"hfcomp-{hfcomp.__version__}.dist-info/entry_points.txt").decode()
    assert "hfcomp = hfcomp.cli:main" in entry_points
