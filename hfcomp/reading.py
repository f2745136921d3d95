"""Safe readers for untrusted text files: no content can make them hang or exhaust memory, and errors name the place.

YAML can refer to one list a billion times (aliases), YAML and JSON can both nest until the interpreter gives up, and
their escapes can encode half a character, which no file and no tokenizer accepts. In each case the reader raises an
error with file and line.
"""

from __future__ import annotations

import csv
import difflib
import gc
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import yaml

import hfcomp

FILE_ENDINGS = (".json", ".jsonl", ".csv", ".tsv", ".parquet", ".arrow", ".tar", ".gz", ".txt", ".yaml")
MAX_YAML_BYTES = 1024**2
"""Maximum size of a recipe, sweep, search or keyword table; PyYAML reads 100 kB per second."""
MAX_YAML_VALUES = 100_000
"""Maximum number of values in such a file; the values of an alias count every time it is used."""
MAX_YAML_DEPTH = 50
"""Maximum depth of nested lists and mappings."""


class FileError(ValueError):
    """A problem in a user's file; the message names the file and needs no further context."""


_Hook = Callable[[list[tuple[str, Any]]], Any]
_SURROGATE = re.compile("[\ud800-\udfff]")
# A lone surrogate, or an escaped one whose backslash may itself be escaped.
_HALF_ESCAPE = re.compile(
    r"\\u[dD](?:(?<=\\\\u[dD])[89a-fA-F]|[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F])"  # starts with fixed text, which makes the search fast
)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})", re.ASCII)
# TOKEN and KEY as whole words (CLIP_TOKENIZER and KEYWORDS hold no secret), in a name with "_" before capitals.
_SECRET = re.compile(
    "SECRET|PASSWORD|PASSWD|CREDENTIAL|(?<![A-Z])(API|ACCESS|AUTH|PRIVATE)?(TOKEN|KEY)S?(?![A-Z])", re.IGNORECASE
)


def shipped_folder(name: str, pattern: str) -> Path:
    """Finds a folder of files that come with hfcomp: inside the installed package, or next to it in a clone.

    Raises:
        FileNotFoundError: If no such folder has a file that matches the pattern.
    """
    package = Path(hfcomp.__file__).parent
    for folder in (package / name, package.parent / name):
        if any(folder.glob(pattern)):
            return folder
    raise FileNotFoundError(f"{name}/{pattern} does not exist in {package} or next to it. Reinstall hfcomp.")


def short_repr(value: Any) -> str:
    """The representation of a value for an error message, at most 80 characters."""
    try:
        text = repr(value)
    except RecursionError:
        return "lists or objects that are nested too deeply to show"
    return text if len(text) <= 80 else f"{text[:77]}..."


def nearest(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'caption'?` with the nearest name in `known`, or an empty string."""
    match = nearest_name(name, known)
    return f" Did you mean {match!r}?" if match else ""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def may_be_hub_id(name: str) -> bool:
    """Whether the name of a missing file may be a Hub id: no path prefix, at most one slash, no file extension."""
    return name.count("/") <= 1 and not name.startswith((".", "/", "~")) and not name.endswith(FILE_ENDINGS)


def split_revision(place: str) -> tuple[str, str]:
    """Splits `ID@REVISION` of a Hub model; the revision is empty for a plain id, and a path may contain `@`."""
    name, _, revision = place.partition("@")
    return (place, "") if os.path.exists(place) or os.path.exists(name) else (name, revision)


def check_place(place: str | PathLike[str], needed_by: str = "") -> None:
    """Raises `ValueError` for a place that is not a file, folder or possible Hub id; `needed_by` says who needs it."""
    if not os.path.exists(place) and not may_be_hub_id(os.fspath(place)):
        raise ValueError(f"{needed_by}{': ' if needed_by else ''}{place}: no such folder.")


def check_dataset_place(name: str) -> None:
    """Raises `FileNotFoundError` for a name that is neither a file or folder nor a possible Hub id."""
    if not os.path.exists(name) and not may_be_hub_id(name):
        raise FileNotFoundError(f"no file or folder {name!r} exists; relative paths start at {os.getcwd()!r}.")


def expand_variables(value: str, name: str) -> str:
    """Replaces `$NAME` and `${NAME}` in a path field by environment variables.

    Paths are printed and written into reports and cards. A variable whose name suggests a secret therefore raises,
    because someone else's recipe could request it.

    Raises:
        ValueError: If a variable is not set, or its name contains SECRET, PASSWORD, PASSWD or CREDENTIAL, or the word
            TOKEN or KEY.
    """

    def look_up(match: re.Match[str]) -> str:
        variable = match[1] or match[2]
        if _SECRET.search(re.sub("(?<=[a-z])(?=[A-Z])", "_", variable)):
            raise ValueError(
                f"{name}={value!r}: by its name, the environment variable {variable} may hold a secret, and paths are "
                f"written into reports. Rename it, or pass --{name.lstrip('-')} with the path itself."
            )
        if variable not in os.environ:
            raise ValueError(
                f"{name}={value!r}: the environment variable {variable} is not set. Set it, or pass "
                f"--{name.lstrip('-')}."
            )
        return os.environ[variable]

    return _VARIABLE.sub(look_up, value)


def read_yaml(path: str | PathLike[str]) -> Any:
    """Reads a YAML file.

    Raises:
        ValueError: If the file is not YAML in UTF-8, repeats a key in a mapping, or exceeds the limits. The message
            names file and line.
        OSError: If the file is missing or cannot be read.
    """
    path = Path(path)
    content = path.read_bytes()
    if len(content) > MAX_YAML_BYTES:
        raise ValueError(f"{path}: found {len(content):,} bytes, expected at most {MAX_YAML_BYTES:,} of YAML.")
    try:
        text = content.decode("utf-8-sig")
        # Reads the text twice: the first pass over parser events takes no memory, and only valid text is loaded.
        _check_events(yaml.parse(text, Loader=yaml.SafeLoader))
        return yaml.load(text, Loader=_Loader)
    except _Rejected as error:
        raise ValueError(f"{path}, {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ValueError(f"{path}, line {mark.line + 1 if mark else 1}: not YAML: {error.problem}.") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}). Save it as UTF-8.") from error
    except (ValueError, OverflowError) as error:  # from a number or date that Python cannot represent
        raise ValueError(f"{path}: not YAML: a value in it cannot be read: {error}.") from error


class _Rejected(Exception):
    """Raised with the line of valid YAML that this reader rejects."""


def _check_events(events: Iterable[yaml.Event]) -> None:
    # Counts values before anything is built: each level of aliases takes one line and can multiply the values by ten.
    # An alias counts the values of the part that it refers to, which are known by then because YAML has no forward
    # aliases. Sizes multiply along a chain of aliases as the lists themselves would, but here they are only numbers.
    sizes: dict[str, int] = {}
    open_parts: list[tuple[str | None, int]] = []  # anchor, and the number of values before it
    total = 0
    for event in events:
        line = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in (anchor for anchor, _ in open_parts):
                raise _Rejected(f"{line}: *{event.anchor} refers to itself. Write the values out.")
            total += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            if "\0" in event.value or _SURROGATE.search(event.value):
                raise _Rejected(f"{line}: found a NUL or lone surrogate in {event.value[:60]!a}. Remove it.")
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_parts.append((event.anchor, total))
            total += 1
            if len(open_parts) > MAX_YAML_DEPTH:
                raise _Rejected(f"{line}: found more than {MAX_YAML_DEPTH} levels of lists and mappings.")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_parts.pop()
            if anchor:
                sizes[anchor] = total - before
        if total > MAX_YAML_VALUES:
            raise _Rejected(f"{line}: found more than {MAX_YAML_VALUES:,} values, counting every use of an alias.")


class _Loader(yaml.SafeLoader):
    """Rejects duplicate keys; PyYAML would silently keep the last one."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        # Checks the source text, because construction adds merged keys to a mapping's own keys, even in a mapping that
        # is itself merged later.
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], yaml.ScalarNode] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            before = first.setdefault((key.tag, key.value), key)
            if before is not key:
                line, above = key.start_mark.line + 1, before.start_mark.line + 1
                raise _Rejected(f"line {line}: duplicate key {key.value!r}, first used in line {above}. Remove one.")
        return node


def parse_json(content: str | bytes, *, object_pairs_hook: _Hook | None = None) -> Any:
    """Parses a JSON text; the caller adds file and line to errors.

    Raises:
        json.JSONDecodeError: for invalid JSON.
        ValueError: If lists and objects are nested deeper than Python can read, a number has thousands of digits, or
            a text contains half a character.
    """
    if isinstance(content, bytes):
        content = content.decode("utf-8-sig")
    # The depth limit is Python's own recursion limit: `json` raises, while some parsers would crash the process.
    try:
        with _no_garbage_collection():
            value = json.loads(content, object_pairs_hook=object_pairs_hook)
        if _HALF_ESCAPE.search(content):  # rare; the check takes as long as parsing, and memory
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("lists or objects are nested too deeply to read") from None
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ValueError(f"a text in it is not valid Unicode: it has the lone surrogate {half!a}") from None
    return value


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    # Deep inside nested lists, the finalizers of other objects would have no stack left to run on.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def check_surrogates(path: Path | str) -> None:
    """Raises FileError for the first half character in a JSON or JSON Lines file that another reader will load."""
    path = Path(path)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if b"\\ud" in line.lower():
                text = line.decode("utf-8", "replace").replace("\\\\", "  ")  # escaped backslashes start no escape
                if match := _HALF_ESCAPE.search(text):
                    raise FileError(
                        f"{path}, line {number}: a text in it is not valid Unicode: it has the lone surrogate "
                        f"{text[match.start() : match.start() + 6]}. Correct it, or remove the entry."
                    )


def read_json(path: Path | str) -> Any:
    try:
        return parse_json(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}. Correct the file or download it again.") from error


def csv_rows(lines: Iterable[str], name: str, *, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yields the rows of a CSV table, each with the number of its last line.

    Raises:
        FileError: If the CSV is invalid or a field is too long. The error names the line.
    """
    # `strict` makes an unclosed quote an error; otherwise the rest of the file would become one field. The line before
    # a row shows where the failing row began, which may be far above the line at which the reader gave up.
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    before = 0
    try:
        for row in rows:
            before = rows.line_num
            yield rows.line_num, row
    except csv.Error as error:
        opened = f" (the row begins in line {before + 1})" if rows.line_num > before + 1 else ""
        if "field limit" in str(error):
            raise FileError(
                f"{name}, line {rows.line_num}: a field has more than {csv.field_size_limit():,} characters{opened}. "
                "Check for an unclosed quote, or shorten the text."
            ) from error
        raise FileError(
            f"{name}, line {rows.line_num}: {error}{opened}. Double every quote inside a text, and enclose the text "
            "in quotes."
        ) from error
