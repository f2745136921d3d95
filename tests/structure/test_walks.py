"""How far a reader walks at most: see `tests/structure/walks.py` (a second; about 30 s with the slow ones)."""

from __future__ import annotations

import sys
from typing import Any

import pandas as pd
import pytest

from tests.structure.walks import follow, holds, is_higher, walk

# What was counted last. Lower these when a walk gets shorter.
LIMITS = {
    "recipe": {"rooms": 52, "climbs": 23, "files": 26, "lines": 5_297},  # one more: --rows
    "builder": {"rooms": 22, "climbs": 12, "files": 11, "lines": 2_648},  # four more: --preset sets options first
    "evaluation": {"rooms": 90, "climbs": 63, "files": 12, "lines": 2_998},
}
FILES = {
    "cli/command.py": "def main(words): options = read(words); show('no'); run(lambda: use(options))\n"
    "def show(text): pass\n",
    "experiments/options.py": "def read(words): options = {name: convert(text) for name, text in [words]};"
    " check(options); check(options); return options\ndef run(call): call()\n",
    "schemas.py": "def convert(text): return int(text)\ndef check(options): list(numbers(options))\n"
    "def numbers(options): yield from options.values()\n",
    "trainers/use.py": "def use(options): pass\n",
}  # a command reads an option, has it checked and hands it on in a closure


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITS)
def test_no_walk_gets_longer(name):
    counts = walk(name).counts()
    assert not {unit: number for unit, number in counts.items() if number > LIMITS[name][unit]}, counts


def test_rooms_hold_the_value_and_climbs_lead_upstairs(tmp_path):
    names: dict[str, Any] = {}
    for file, text in FILES.items():
        exec(compile(text, str(tmp_path / "hfcomp" / file), "exec"), names)
    route = follow(lambda: names["main"](("size", "4711")), "4711", names["use"], tmp_path)
    assert [room.split()[1] for room in route.rooms] == ["main", "read", "convert", "check", "numbers", "run", "use"]
    climbs = [tuple(room.split()[1] for room in step) for step in route.climbs]
    assert climbs == [("convert", "read"), ("check", "read"), ("read", "main")]
    with pytest.raises(LookupError, match="use was not called with 4712"):
        follow(lambda: names["read"](("size", "4711")), "4712", names["use"], tmp_path)
    assert sys.getprofile() is None
    assert is_higher("hfcomp/trainers/cement.py", "hfcomp/trainers/config.py")  # in one package the one that imports
    assert not is_higher("hfcomp/trainers/config.py", "hfcomp/trainers/cement.py")
    assert not is_higher("hfcomp/trainers/cement.py", "hfcomp/trainers/dcl.py")


def test_a_value_is_found_wherever_it_lies(tmp_path):
    for thing in ({"a": [{"b": (1, 0.4711)}]}, tmp_path / "0.4711", pd.DataFrame({"arm": ["0.4711"]})):
        assert holds(thing, "0.4711") and not holds(thing, "0.4712")
