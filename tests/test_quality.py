"""The house rules: the lines of `make check`, and what no linter can say."""

import ast
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from datasets import load_dataset

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "hfcomp"
MODULES = sorted(PACKAGE.rglob("*.py"))
SLOW_IMPORTS = {
    "bert_score",
    "diffusers",
    "evaluate",
    "faiss",
    "gradio",
    "matplotlib",
    "nltk",
    "openai",
    "optuna",
    "peft",
    "ray",
    "simplemma",
    "sklearn",
    "spacy",
    "statsmodels",
    "tensorboard",
    "textblob",
    "trackio",
    "wandb",
}


@cache
def trees() -> dict[Path, ast.Module]:
    """The syntax trees of the package, by file."""
    return {path: ast.parse(path.read_text(encoding="utf-8"), filename=str(path)) for path in MODULES}


@cache
def calls() -> list[tuple[Path, str, ast.Call]]:
    """Yields the file, the called expression as written and the node of all calls in the package."""
    return [(path, name, node) for path, tree in trees().items() for name, node in called_names(tree)]


@cache
def imports() -> list[tuple[Path, str, ast.AST]]:
    """Yields the file, the name and the node of all imports in the package; see `imported_names`."""
    return [(path, name, node) for path, tree in trees().items() for name, node in imported_names(tree)]


def make_check() -> list[list[str]]:
    """The commands of the Makefile's `check`, run by this interpreter."""
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    scripts = str(Path(sys.executable).parent)
    text = recipe[1].replace("$(PY)", sys.executable).replace("$(VENV)/bin", scripts)
    return [shlex.split(line) for line in text.splitlines()]


def name_of(command: list[str]) -> str:
    return " ".join(word for word in command if word not in (sys.executable, "-m", ".")).rpartition("/")[2]


COMMANDS = {name_of(command): command for command in make_check()}


def test_make_check_is_complete():
    assert set(COMMANDS) == {"ruff check", "ruff format --check", "lint-imports", "mypy"}


@pytest.mark.parametrize("name", COMMANDS)
def test_make_check(name):
    environment = os.environ | {"NO_COLOR": "1"}
    done = subprocess.run(COMMANDS[name], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def imported_names(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Absolute dotted names that a tree imports; `from a import b` gives `a` and `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module, node
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node


def imported_on_load(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Yields like `imported_names`, without function bodies and `if TYPE_CHECKING:` blocks."""
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imported_names(node)
        pending.extend(ast.iter_child_nodes(node))


def called_names(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno}"


def is_in_folder(path: Path, *names: str) -> bool:
    return path.relative_to(PACKAGE).parts[0] in names


def test_torch_distributed_is_imported_in_one_folder():
    uses = {
        place(path, node)
        for path, name, node in imports()
        if f"{name}.".startswith("torch.distributed.") and not is_in_folder(path, "distributed")
    }
    assert not uses


def test_torch_distributed_is_not_reached_as_an_attribute():
    uses = [
        place(path, node)
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "distributed" and ast.unparse(node) == "torch.distributed"
        if not is_in_folder(path, "distributed")
    ]
    assert not uses


def test_slow_packages_are_imported_inside_functions():
    # an evaluate.Metric face is itself loaded by evaluate: it imports its base class at the top
    faces = PACKAGE / "metrics" / "modules"
    # the page's own modules are imported by the command that serves it, and by nothing else
    page = PACKAGE / "annotate" / "app"
    uses = {
        f"{place(path, node)} {name}"
        for path, tree in trees().items()
        for name, node in imported_on_load(tree)
        if name.partition(".")[0] in SLOW_IMPORTS
        and not (name.partition(".")[0] == "evaluate" and faces in path.parents)
        and not (name.partition(".")[0] == "gradio" and page in path.parents)
    }
    assert not uses


def test_losses_import_torch_and_nothing_else():
    allowed = {"torch", *sys.stdlib_module_names}
    uses = {
        f"{place(path, node)} {name}"
        for path, name, node in imports()
        if is_in_folder(path, "losses")
        if name.partition(".")[0] not in allowed and not f"{name}.".startswith(("hfcomp.losses.", "hfcomp._lazy."))
    }
    assert not uses


def test_negatives_and_metrics_load_without_torch():
    uses = {
        f"{place(path, node)} {name}"
        for path, tree in trees().items()
        if is_in_folder(path, "negatives", "parsing", "metrics")
        for name, node in imported_on_load(tree)
        if name.partition(".")[0] in ("torch", "transformers")
    }
    assert not uses


def test_no_module_imports_the_tests_or_the_recipes():
    uses = {
        f"{place(path, node)} {name}"
        for path, name, node in imports()
        if name.partition(".")[0] in ("recipes", "tests", "benchmarks_perf", "dataset_builders")
    }
    assert not uses


def test_no_print_outside_the_command_line():
    uses = [
        place(path, node)
        for path, name, node in calls()
        if name == "print"
        and path.name != "command.py"
        and "commands" not in path.parts
        and not is_in_folder(path, "cli", "experiments")
    ]
    assert not uses


def test_no_assert_and_no_bare_except():
    uses = [
        place(path, node)
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) or (isinstance(node, ast.ExceptHandler) and node.type is None)
    ]
    assert not uses


def test_no_code_from_elsewhere_is_run():
    loaders = {"eval", "exec"}
    picklers = {"pickle", "cloudpickle", "dill", "joblib"}
    uses = [place(path, node) for path, name, node in calls() if name in loaders]
    uses += [
        place(path, node)
        for path, name, node in calls()
        if name == "torch.load" and "weights_only=True" not in map(ast.unparse, node.keywords)
    ]
    uses += [
        place(path, node)
        for path, _, node in calls()
        for keyword in node.keywords
        if keyword.arg == "trust_remote_code" and ast.unparse(keyword.value) not in ("False", "is_trusted(place)")
    ]
    uses += [
        place(path, node)
        for path, name, node in imports()
        if name.partition(".")[0] in picklers and ast.unparse(node) != "from pickle import UnpicklingError"
    ]
    assert not uses


def test_every_model_and_processor_is_loaded_without_code_of_its_author():
    """Left out, `trust_remote_code` asks at the terminal; datasets' loading has no such parameter any more."""
    scripts = {path: ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "benchmarks_perf").rglob("*.py")}
    others = [(path, name, node) for path, tree in scripts.items() for name, node in called_names(tree)]
    unable = {"PeftConfig", "PeftModel"}  # adapters hold no code
    loads = [
        (place(path, node), {keyword.arg for keyword in node.keywords})
        for path, name, node in [*calls(), *others]
        if name.endswith(".from_pretrained") and name.partition(".")[0] not in unable
    ]
    assert len(loads) > 8
    assert not [where for where, given in loads if "trust_remote_code" not in given]
    assert "trust_remote_code" not in inspect.signature(load_dataset).parameters


def test_images_are_opened_in_one_place():
    """Pillow starts Ghostscript for a PostScript file unless it is told which formats to open."""
    places = [
        (str(path.relative_to(PACKAGE)), any(keyword.arg == "formats" for keyword in node.keywords))
        for path, name, node in calls()
        if name in ("Image.open", "PIL.Image.open")
    ]
    assert places == [("data/images.py", True)]


def test_no_file_is_called_utils():
    folders = ("hfcomp", "recipes", "tests", "dataset_builders", "benchmarks_perf")
    assert not [path for folder in folders for path in (ROOT / folder).rglob("utils.py")]


def test_no_open_ends_are_left_in_the_code():
    modules = [
        path
        for path in MODULES
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\b(TODO|FIXME|XXX)\b", line.partition("#")[2])
    ]
    assert not modules
