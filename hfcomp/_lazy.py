"""Lazy loading of public names, driven by the same list that type checkers read: `__init__.pyi`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__all__`, `__getattr__` and `__dir__` for a package whose `__init__.pyi` imports its public names.

    Args:
        package: `__name__` of the package. Its stub contains only lines such as
            `from hfcomp.data.columns import COLUMNS as COLUMNS`, or `from hfcomp.losses import *` for all public
            names of another package with a stub.
    """
    module = sys.modules[package]
    homes = _home_modules(Path(str(module.__file__)))

    def get(name: str) -> Any:
        if name in homes:
            value = getattr(import_module(str(homes[name])), name)
            setattr(module, name, value)
            return value
        near = get_close_matches(name, homes, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module {package!r} has no attribute {name!r}.{hint}")

    return sorted(homes), get, lambda: sorted({*vars(module), *homes})


def _home_modules(file: Path) -> dict[str, str]:
    """The module of each public name that the stub next to a package's `__init__.py` imports."""
    homes = {}
    for node in ast.parse(file.with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if alias.name == "*":
                    homes |= _home_modules(file.parent.joinpath(*node.module.split(".")[1:], "__init__.py"))
                else:
                    homes[alias.asname or alias.name] = node.module
    return homes
