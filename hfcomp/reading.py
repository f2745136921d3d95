"""Safe readers for untrusted text files: no content makes one hang, run out of memory or fail without a place.

YAML can name one list a billion times (aliases), both YAML and JSON can nest until the interpreter gives up, and their
escapes can write half a character, which no file and no tokenizer accepts. Each raises an error with file and line.
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
"""Of a recipe, sweep, search or table of keywords; PyYAML reads 100 kB a second."""
MAX_YAML_VALUES = 100_000
"""Values of such a file, those of an alias counted as often as it is named."""
MAX_YAML_DEPTH = 50
"""Lists and mappings inside one another."""


class FileError(ValueError):
    """What a file of the user's lacks; the message names the file, and needs no other around it."""


_Hook = Callable[[list[tuple[str, Any]]], Any]
_SURROGATE = re.compile("[\ud800-\udfff]")
# A lone surrogate, or an escaped one whose backslash may itself be escaped.
_HALF_ESCAPE = re.compile(
    r"\\u[dD](?:(?<=\\\\u[dD])[89a-fA-F]|[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F])"  # begins with what it looks for, which is found fast
)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})", re.ASCII)
# TOKEN and KEY as whole words (CLIP_TOKENIZER and KEYWORDS hold no secret), in a name with "_" before capitals.
_SECRET = re.compile(
    "SECRET|PASSWORD|PASSWD|CREDENTIAL|(?<![A-Z])(API|ACCESS|AUTH|PRIVATE)?(TOKEN|KEY)S?(?![A-Z])", re.IGNORECASE
)


def shipped_folder(name: str, pattern: str) -> Path:
    """A folder of files that come with hfcomp: inside the installed package, or next to it in a clone.

    Raises:
        FileNotFoundError: if no such folder has a file that matches the pattern.
    """
    package = Path(hfcomp.__file__).parent
    for folder in (package / name, package.parent / name):
        if any(folder.glob(pattern)):
            return folder
    raise FileNotFoundError(f"there is no {name}/{pattern} in or beside {package}. Reinstall hfcomp.")


def shortened(value: Any) -> str:
    """A value as an error shows it."""
    try:
        text = repr(value)
    except RecursionError:
        return "lists or objects that are nested too deeply to be shown"
    return text if len(text) <= 80 else f"{text[:77]}..."


def nearest(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'caption'?` for the nearest of `known`, or an empty string."""
    match = nearest_name(name, known)
    return f" Did you mean {match!r}?" if match else ""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def may_be_hub_id(name: str) -> bool:
    """Whether a name where nothing is may be of the Hub: begun as no path, with one slash at most, no file ending."""
    return name.count("/") <= 1 and not name.startswith((".", "/", "~")) and not name.endswith(FILE_ENDINGS)


def check_place(place: str | PathLike[str], needed_by: str = "") -> None:
    """Raises `ValueError` for a place that is no file, folder or possible Hub id; `needed_by` is its use."""
    if not os.path.exists(place) and not may_be_hub_id(os.fspath(place)):
        raise ValueError(f"{needed_by}{': ' if needed_by else ''}{place}: no such folder.")


def check_dataset_place(name: str) -> None:
    """Raises `FileNotFoundError` for a name that is neither a file or folder nor a possible Hub id."""
    if not os.path.exists(name) and not may_be_hub_id(name):
        raise FileNotFoundError(f"there is no file or folder {name!r}; relative paths start at {os.getcwd()!r}.")


def expand_variables(value: str, name: str) -> str:
    """A value of a field of paths, with `$NAME` and `${NAME}` replaced by environment variables.

    Paths are printed, and written into reports and cards. So a variable that holds a secret by its name raises: a
    recipe of somebody else could ask for it.

    Raises:
        ValueError: for a variable that is not set, or whose name holds SECRET, PASSWORD, PASSWD or
            CREDENTIAL, or the word TOKEN or KEY.
    """

    def of(found: re.Match[str]) -> str:
        variable = found[1] or found[2]
        if _SECRET.search(re.sub("(?<=[a-z])(?=[A-Z])", "_", variable)):
            raise ValueError(
                f"{name}={value!r}: the environment variable {variable} may hold a secret by its name, and paths are "
                f"written into reports. Rename it, or pass --{name.lstrip('-')} with the path itself."
            )
        if variable not in os.environ:
            raise ValueError(
                f"{name}={value!r} names an environment variable that is not set. Set it, or pass "
                f"--{name.lstrip('-')}."
            )
        return os.environ[variable]

    return _VARIABLE.sub(of, value)


def read_yaml(path: str | PathLike[str]) -> Any:
    """What a YAML file holds.

    Raises:
        ValueError: for a file that is not YAML in UTF-8, has a key twice in one mapping, or is over the limits, naming
            file and line.
        OSError: for a file that is not there or cannot be read.
    """
    path = Path(path)
    content = path.read_bytes()
    if len(content) > MAX_YAML_BYTES:
        raise ValueError(f"{path}: found {len(content):,} bytes, expected at most {MAX_YAML_BYTES:,} of YAML.")
    try:
        text = content.decode("utf-8-sig")
        # The text is read twice: events are a stream that costs no memory, and only a text that passes is built.
        _check_events(yaml.parse(text, Loader=yaml.SafeLoader))
        return yaml.load(text, Loader=_Loader)
    except _Refused as error:
        raise ValueError(f"{path}, {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ValueError(f"{path}, line {mark.line + 1 if mark else 1}: not YAML: {error.problem}.") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}). Save it as UTF-8.") from error
    except (ValueError, OverflowError) as error:  # of a number or date that Python does not have
        raise ValueError(f"{path}: not YAML: a value in it cannot be read: {error}.") from error


class _Refused(Exception):
    """What YAML would allow and is refused here, with its line."""


def _check_events(events: Iterable[yaml.Event]) -> None:
    # Counts before anything is built: an alias of an alias of a list costs a line, and its values grow tenfold.
    # An alias counts as many values as the part that it names, which is known by then: YAML knows no forward aliases.
    # Sizes multiply along a chain of aliases as the built lists would, but here they are numbers.
    sizes: dict[str, int] = {}
    open_parts: list[tuple[str | None, int]] = []  # anchor, and the values before it
    total = 0
    for event in events:
        line = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in (anchor for anchor, _ in open_parts):
                raise _Refused(f"{line}: *{event.anchor} refers to itself. Write it out.")
            total += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            if "\0" in event.value or _SURROGATE.search(event.value):
                raise _Refused(f"{line}: found a NUL or lone surrogate in {event.value[:60]!a}. Remove it.")
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_parts.append((event.anchor, total))
            total += 1
            if len(open_parts) > MAX_YAML_DEPTH:
                raise _Refused(f"{line}: found more than {MAX_YAML_DEPTH} nested lists and mappings.")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_parts.pop()
            if anchor:
                sizes[anchor] = total - before
        if total > MAX_YAML_VALUES:
            raise _Refused(f"{line}: found more than {MAX_YAML_VALUES:,} values, counting aliases each time.")


class _Loader(yaml.SafeLoader):
    """Refuses duplicate keys, of which YAML would keep the last."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        # Checked on the source text: construction adds merged keys to a mapping's own, also into one that is merged
        # later.
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], yaml.ScalarNode] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            before = first.setdefault((key.tag, key.value), key)
            if before is not key:
                line, above = key.start_mark.line + 1, before.start_mark.line + 1
                raise _Refused(f"line {line}: {key.value!r} is duplicated, first in line {above}. Remove one.")
        return node


def parse_json(content: str | bytes, *, object_pairs_hook: _Hook | None = None) -> Any:
    """The content of a JSON text; the caller adds file and line to errors.

    Raises:
        json.JSONDecodeError: for invalid JSON.
        ValueError: for lists and objects nested deeper than Python reads, a number of thousands of digits, or half a
            character in a text.
    """
    if isinstance(content, bytes):
        content = content.decode("utf-8-sig")
    # The depth limit is Python's own recursion limit: `json` raises, while some parsers would crash the process.
    try:
        with _no_collection():
            found = json.loads(content, object_pairs_hook=object_pairs_hook)
        if _HALF_ESCAPE.search(content):  # rare; what follows takes as long as reading, and memory
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("lists or objects are nested too deeply to be read") from None
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ValueError(f"a text in it is not valid Unicode: it has the lone surrogate {half!a}") from None
    return found


@contextmanager
def _no_collection() -> Iterator[None]:
    # Deep inside nested lists, the finalizers of other objects would find no stack left.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def check_surrogates(path: Path | str) -> None:
    """Raises FileError for the first half character of a JSON or JSON-lines file that another reader will read."""
    path = Path(path)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if b"\\ud" in line.lower():
                text = line.decode("utf-8", "replace").replace("\\\\", "  ")  # escaped backslashes begin nothing
                if found := _HALF_ESCAPE.search(text):
                    raise FileError(
                        f"{path}, line {number}: a text in it is not valid Unicode: it has the lone surrogate "
                        f"{text[found.start() : found.start() + 6]}. Correct it, or remove the entry."
                    )


def read_json(path: Path | str) -> Any:
    try:
        return parse_json(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}. Correct the file or download it again.") from error


def csv_rows(lines: Iterable[str], name: str, *, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Rows of a table in CSV, each with the number of its last line.

    Raises:
        FileError: for invalid CSV or a field that is too long, with its line.
    """
    # `strict` makes an unclosed quote an error instead of one field with the rest of the file. The line before a row
    # shows where the failing row began, which may be far above the line at which the reader gave up.
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
            f"{name}, line {rows.line_num}: {error}{opened}. Double a quote inside a text, and put such a text in "
            "quotes."
        ) from error
