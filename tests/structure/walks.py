"""How far a reader walks from what a user types to the code that uses it: `python -m tests.structure.walks [--rooms]`.

A walk follows one value of a command, which is marked to be recognized, to the function that the walk names. The
command runs in this process under `sys.setprofile` until that function is called with the value.

- A room is a function of hfcomp whose body is entered with the value: in its arguments, or in what it returns or
  yields. Rooms are also the functions that are still open at the end. The value may lie deep in an argument: in
  containers, tables, closures and objects of hfcomp, and in the text that it is parsed from. Comprehensions and
  lambdas belong to the function around them.
- A step leads from a room to the next one, by a call or a return, past functions without the value. It counts once.
- A climb is a step to a module on a higher floor: between packages, by the layer contract in pyproject.toml; in one
  package, to a module that imports the other one, directly or through others, and is not imported by it.
- Files and lines are those of the files with rooms, which must be read to follow the value.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path
from types import CellType, FrameType, FunctionType
from typing import Any, NamedTuple

import networkx as nx
import pandas as pd

from tests.structure.import_graph import ROOT, import_graph, is_above


class Walk(NamedTuple):
    """The rooms of a walk, `FILE:LINE NAME`, in the order of their first visits, and its climbs."""

    rooms: list[str]
    climbs: list[tuple[str, str]]

    def counts(self) -> dict[str, int]:
        files = {room.partition(":")[0] for room in self.rooms}
        lines = sum((ROOT / file).read_text(encoding="utf-8").count("\n") for file in files)
        return {"rooms": len(self.rooms), "climbs": len(self.climbs), "files": len(files), "lines": lines}


class Reached(BaseException):
    """Ends a command at the end of its walk; no `except Exception` stops it."""


def is_higher(room: str, other: str) -> bool:
    """Whether the file of a room is on a higher floor than the file of another one."""
    high, low = (step.partition(":")[0] for step in (room, other))
    if high == low or Path(high).parts[:2] != Path(low).parts[:2]:
        return is_above(high, low)
    return nx.has_path(import_graph(), high, low) and not nx.has_path(import_graph(), low, high)


def follow(run: Callable[[], Any], value: str, target: Callable[..., Any], root: Path = ROOT) -> Walk:
    """Runs a command until `target` is called with a value, a text that occurs nowhere else."""
    known: dict[Any, str | None] = {}  # by code object; None for the functions of others
    opened: list[tuple[str, bool]] = []  # calls that have not returned, and whether each was made with the value
    trail: list[str] = []

    def record(frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        if code not in known:
            ours = code.co_filename.startswith(f"{root}/hfcomp/") and not code.co_name.startswith("<")
            place = f"{code.co_filename.removeprefix(f'{root}/')}:{code.co_firstlineno} {code.co_qualname}"
            known[code] = place if ours else None
        if (room := known[code]) is None:
            return
        if event == "call":
            held = holds(frame.f_locals, value)
            opened.append((room, held))
            trail.extend([room] * held)
            if held and code is target.__code__:
                raise Reached
        elif event == "return":
            _, held = opened.pop()
            if held or holds(result, value):
                trail.extend([room, *[caller for caller, holding in reversed(opened) if holding][:1]])

    sys.setprofile(record)
    try:
        run()
    except Reached:
        climbs = [(low, high) for low, high in dict.fromkeys(pairwise(trail)) if is_higher(high, low)]
        return Walk(list(dict.fromkeys([*trail, *(room for room, _ in opened)])), climbs)
    finally:
        sys.setprofile(None)
    raise LookupError(f"{target.__qualname__} was not called with {value}")


def holds(thing: Any, value: str) -> bool:
    """Whether a value is somewhere in a thing. Models, datasets and objects of other libraries are not searched."""
    pending, seen = [thing], set()
    for part in pending:  # grows meanwhile
        if isinstance(part, str | int | float | Path):
            if value in str(part):
                return True
        elif id(part) not in seen and len(pending) < 5000:  # enough for options, little of a dataset
            seen.add(id(part))
            pending.extend(_parts(part))
    return False


def _parts(thing: Any) -> Iterable[Any]:
    if isinstance(thing, dict):
        return [*thing, *thing.values()]
    if isinstance(thing, list | tuple | set | frozenset):
        return thing
    if isinstance(thing, pd.DataFrame):
        return [text for name in thing.select_dtypes(exclude=["number", "bool"]) for text in thing[name].unique()]
    if isinstance(thing, FunctionType):
        return [cell.cell_contents for cell in thing.__closure__ or () if cell != CellType()]  # an empty one
    if type(thing).__module__.startswith("hfcomp") and hasattr(thing, "__dict__"):
        return vars(thing).values()
    return ()


def recipe_route(folder: Path) -> tuple[str, str, Callable[..., Any]]:
    """A field of a recipe's YAML file, to the trainer that has it in its config."""
    from hfcomp.trainers import CementTrainer

    text = (ROOT / "recipes/slipform/sandbox.yaml").read_text(encoding="utf-8")
    (folder / "recipe.yaml").write_text(f"{text}\nmargin_threshold: 3.98765\n", encoding="utf-8")
    words = f"train {folder}/recipe.yaml --output_dir {folder}/run --controls none --dataset_rows 16 --batch_size 8"
    words += " --max_steps 1 --evaluation_items 2 --page false --disable_tqdm true"
    return words, "3.98765", CementTrainer.__init__


def builder_route(folder: Path) -> tuple[str, str, Callable[..., Any]]:
    """An option of `hfcomp build concretebatch`, to the runner of its first step."""
    from hfcomp.factory.runner import run_stages
    from tests.factory.concretebatch import sets

    source, ratings = sets.photos(folder / "photos"), sets.ratings(folder / "ratings.txt")
    words = f"build concretebatch --source {source} --concreteness_ratings {ratings} --output {folder}/set"
    return f"{words} --parser rules --writer substitute --until captions --seed 398765", "398765", run_stages


def evaluation_route(folder: Path) -> tuple[str, str, Callable[..., Any]]:
    """A model of `hfcomp evaluate`, by its name, to the table that is printed."""
    from hfcomp.reporting.terminal import render_terminal
    from tests import tiny
    from tests.evaluation import small_sugarcrepe

    model, data = tiny.clip(folder / "clip"), small_sugarcrepe.write(folder / "data")
    words = f"evaluate followed={model} --benchmarks sugarcrepe --data_dir {data} --output_dir {folder}/out"
    return f"{words} --device cpu --no_cache", "followed", render_terminal


ROUTES = {"recipe": recipe_route, "builder": builder_route, "evaluation": evaluation_route}


def walk(name: str) -> Walk:
    """Walks one of `ROUTES`; what its command prints is not shown."""
    from hfcomp import cli

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        words, value, target = ROUTES[name](Path(folder))
        return follow(lambda: cli.main(words.split()), value, target)


if __name__ == "__main__":
    import tests.conftest  # noqa: F401  # caches of its own, no GPU

    for title, route in {name: walk(name) for name in ROUTES}.items():
        print(f"{title}: {', '.join(f'{number:,} {unit}' for unit, number in route.counts().items())}")
        if "--rooms" in sys.argv:
            print(*route.rooms, *(" -> ".join(climb) for climb in route.climbs), sep="\n")
