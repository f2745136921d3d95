"""Writes docs/reproducing.md from docs/reproducing.yaml: `python docs/site/reproducing.py`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).resolve().parents[1]
SOURCE, PAGE = DOCS / "reproducing.yaml", DOCS / "reproducing.md"
MADE = "<!-- Made from reproducing.yaml by docs/site/reproducing.py. -->"
WIDTH = 100


def read_registry() -> dict[str, Any]:
    return yaml.safe_load(SOURCE.read_text(encoding="utf-8"))


def page(registry: Mapping[str, Any]) -> str:
    sections = [_section(paper) for paper in registry["papers"].values()]
    return "\n\n".join(["# Reproducing a paper", MADE, registry["introduction"].strip(), *sections]) + "\n"


def _section(paper: Mapping[str, Any]) -> str:
    commands = "\n".join(_command(name, command) for name, command in paper["commands"].items())
    parts = [f"## {paper['title']}", f"<!-- needs the Hub -->\n```bash\n{commands}\n```"]
    if "items" in paper:
        rows = "\n".join(_row(numbers, item) for numbers, item in paper["items"].items())
        parts.append(f"| in the paper | made by | differs |\n|---|---|---|\n{rows}")
    return "\n\n".join([*parts, f"Missing: {paper['missing'].strip()}"])


def _command(name: str, command: Mapping[str, Any]) -> str:
    about = "; ".join(filter(None, [command.get("about"), _needs(command)]))
    # Lines end before an option rather than before its value.
    parts = re.split(r"\s+(?=--)", " ".join(command["run"].split()))
    pieces = [piece for part in parts for piece in (_wrap(part) if len(part) > WIDTH else [part])]
    lines = [pieces[0]]
    for piece in pieces[1:]:
        if len(lines[-1]) + len(piece) + 1 > WIDTH:
            lines.append(f"    {piece}")
        else:
            lines[-1] += f" {piece}"
    comment = "\n".join(f"# {line}" for line in _wrap(f"{name}{': ' if about else ''}{about}"))
    return "\n".join([comment, " \\\n".join(lines)])


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _needs(command: Mapping[str, Any]) -> str:
    hours = f"{command['rows']:,} rows, {command['hours']:g} GPU hours" if command.get("hours") else ""
    needs = f"needs {command['needs']}" if "needs" in command else ""
    return "; ".join(filter(None, [needs, hours]))


def _row(numbers: str, item: Mapping[str, Any]) -> str:
    (kind, value), *_ = item.items()
    if kind in ("by", "function"):
        made = ", ".join(name if kind == "by" else f"`{name}`" for name in value)
    else:
        made = f"{kind}: {value}"
    return f"| {numbers.replace('-', ' to ')} | {made} | {item.get('differs', '')} |"


if __name__ == "__main__":
    PAGE.write_text(page(read_registry()), encoding="utf-8")
