"""Public names that are loaded on first use, from the one list that type checkers read: `__init__.pyi`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package whose `__init__.pyi` imports its public names.

    Args:
        package: its `__name__`; the stub has lines such as `from hfcomp.losses.dcl import dcl_loss as dcl_loss` only.
    """
    module = sys.modules[package]
    stub = Path(str(module.__file__)).with_suffix(".pyi").read_text(encoding="utf-8")
    home = {
        alias.asname or alias.name: node.module
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name in home:
            value = getattr(import_module(str(home[name])), name)
            setattr(module, name, value)
            return value
        near = get_close_matches(name, home, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module {package!r} has no attribute {name!r}.{hint}")

    return sorted(home), get, lambda: sorted({*vars(module), *home})
