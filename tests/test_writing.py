"""Files are there whole or not at all; folders are held by one process; nobody in the library writes otherwise."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from hfcomp import writing
from hfcomp.checksums import read_checked
from hfcomp.writing import (
    LOCK_FILE,
    append_bytes,
    append_text,
    check_free_file,
    check_free_folder,
    host,
    locked,
    remove_unfinished,
    replacing,
    replacing_folder,
    try_lock,
    write_bytes,
    write_json,
    write_parquet,
    write_text,
)

PACKAGE = Path(writing.__file__).parent


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_text_is_appended_and_a_full_disk_is_named(tmp_path):
    for line in ("Bär\n", "b\n"):
        append_text(tmp_path / "lines", line)
    assert (tmp_path / "lines").read_bytes() == "Bär\nb\n".encode()
    full = Path("/dev/full")
    if full.exists():  # Linux
        with pytest.raises(OSError, match="No space left") as caught:
            append_text(full, "a\n")
        assert caught.value.filename == "/dev/full"


def test_what_is_written_reads_back(tmp_path):
    write_bytes(tmp_path / "new" / "bytes", b"\0\n\r\n")
    write_text(tmp_path / "text", "Bär\n")
    write_json(tmp_path / "json", {"a": ["ä", None]})
    table = pd.DataFrame({"item": ["a", "b"], "value": [1.0, np.nan]}, index=[5, 7])
    write_parquet(tmp_path / "table", table, rows_per_group=1)
    assert (tmp_path / "new" / "bytes").read_bytes() == b"\0\n\r\n"
    assert (tmp_path / "text").read_bytes() == "Bär\n".encode()
    assert read_checked(tmp_path / "json", "") == {"a": ["ä", None]}
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "table"), table.reset_index(drop=True))
    assert pq.ParquetFile(tmp_path / "table").num_row_groups == 2
    assert names(tmp_path) == ["json", "new", "table", "text"] and names(tmp_path / "new") == ["bytes"]


def test_a_json_file_that_was_changed_is_named(tmp_path):
    write_json(tmp_path / "a.json", {"a": 1})
    (tmp_path / "a.json").write_text((tmp_path / "a.json").read_text().replace(": 1", ": 2"))
    with pytest.raises(ValueError, match=r"a\.json .*damaged.* Make it again"):
        read_checked(tmp_path / "a.json", "Make it again.")


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_after_an_error_the_earlier_file_is_as_it_was(tmp_path, error):
    path = tmp_path / "file"
    write_text(path, "before")
    with pytest.raises(type(error)) as raised, replacing(path) as part:
        part.write_text("half")
        raise error
    assert path.read_text() == "before" and names(tmp_path) == ["file"]
    if isinstance(error, OSError):
        assert raised.value.errno == 28 and raised.value.filename == str(path)


def test_a_folder_comes_whole_and_takes_the_place_of_the_earlier_one(tmp_path):
    folder = tmp_path / "model"
    with replacing_folder(folder) as part:
        (part / "old").touch()
    with pytest.raises(RuntimeError), replacing_folder(folder) as part:
        (part / "half").touch()
        raise RuntimeError
    assert names(folder) == ["old"] and names(tmp_path) == ["model"]
    with replacing_folder(folder) as part:
        (part / "new").touch()
        assert names(folder) == ["old"]
    assert names(folder) == ["new"] and names(tmp_path) == ["model"]


def test_output_that_would_replace_something_is_refused(tmp_path):
    folder = tmp_path / "out"
    given = {"written": ["a.json", "b.md"]}
    for there in (folder, tmp_path):  # missing, and without one of the files
        check_free_folder(there, False, **given)
    with locked(folder):
        for whole in (False, True):
            check_free_folder(folder, False, whole=whole, **given)
    folder.mkdir()
    (folder / "notes.txt").touch()
    check_free_folder(folder, False, **given)
    with pytest.raises(ValueError, match=r"out .*no a\.json .*other files \(notes\.txt\).* --output\."):
        check_free_folder(folder, True, whole=True, option="output", **given)
    (folder / "b.md").touch()
    for whole in (False, True):
        check_free_folder(folder, True, whole=whole, **given)
        with pytest.raises(ValueError, match=r"out .*b\.md.*--overwrite.*--output_dir"):
            check_free_folder(folder, False, whole=whole, **given)
    check_free_file(folder / "c.md", False, option="page")
    check_free_file(folder / "b.md", True, option="page")
    with pytest.raises(ValueError, match=r"b\.md .*--overwrite.*--page"):
        check_free_file(folder / "b.md", False, option="page")
    with pytest.raises(ValueError, match="out .*folder, expected a file"):
        check_free_file(folder, True, option="page")
    with pytest.raises(ValueError, match=r"b\.md .*file, expected a folder"):
        check_free_folder(folder / "b.md", True, **given)


def test_file_and_folder_are_forced_to_disk_around_the_renaming(tmp_path, monkeypatch):
    done = []
    sync, replace = os.fsync, os.replace

    def record_sync(descriptor):
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name.partition(".")[0])
        sync(descriptor)

    def record_replace(source, target):
        done.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_text(tmp_path / "file", "a")
    assert done == ["file", "replace", tmp_path.name]


def test_a_temporary_name_holds_host_and_process_and_is_no_other_writer_s(tmp_path):
    with replacing(tmp_path / "file") as first, replacing(tmp_path / "file") as second:
        assert f".{host()}-{os.getpid()}-" in first.name and first != second
        first.write_text("one")
        second.write_text("other")
    assert (tmp_path / "file").read_text() == "one"


def test_many_threads_write_one_file(tmp_path):
    texts = [str(number) * 50_000 for number in range(8)]
    threads = [threading.Thread(target=write_text, args=(tmp_path / "file", text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file").read_text() in texts and names(tmp_path) == ["file"]


def test_what_a_killed_process_left_goes_and_nothing_else(tmp_path):
    (tmp_path / "deep").mkdir()
    left = [tmp_path / f"a.json.{host()}-12-0123abcd.part", tmp_path / "deep" / "b.json.other-1-0123abcd.part"]
    for path in (*left, tmp_path / "of a user.part", tmp_path / "a.json"):
        path.write_text("half")
    remove_unfinished(tmp_path, older_than=60)
    assert left[0].exists()
    remove_unfinished(tmp_path)
    assert names(tmp_path) == ["a.json", "deep", "of a user.part"] and left[1].exists()
    remove_unfinished(tmp_path, "**/*")
    assert not left[1].exists()


HOLD = """
import sys, time
from pathlib import Path
from hfcomp.writing import try_lock
lock = try_lock(Path(sys.argv[1]))
print(lock is not None, flush=True)
time.sleep(60)
"""


def test_a_folder_in_use_is_named_and_a_killed_process_holds_none(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"True\n"
        assert try_lock(tmp_path) is None
        with pytest.raises(ValueError, match=f"{tmp_path} .*in use .*choose another"), locked(tmp_path):
            pass
        threading.Timer(0.2, holder.send_signal, [signal.SIGKILL]).start()
        with locked(tmp_path):  # waits for the holder to end
            assert try_lock(tmp_path) is None
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    assert names(tmp_path) == [LOCK_FILE]
    start = time.monotonic()
    with locked(tmp_path):
        assert try_lock(tmp_path, 0.2) is None and time.monotonic() - start >= 0.2


def test_a_new_folder_that_stays_empty_goes_again(tmp_path):
    with pytest.raises(RuntimeError), locked(tmp_path / "new"):
        raise RuntimeError
    with locked(tmp_path / "used"):
        write_text(tmp_path / "used" / "file", "a")
    (tmp_path / "old").mkdir()
    with locked(tmp_path / "old"):
        pass
    assert names(tmp_path) == ["old", "used"]


WRITERS = {"write_text", "write_bytes", "to_parquet", "to_csv", "write_table", "savefig", "save_file", "symlink_to"}
MOVERS = {"os.replace", "os.rename", "shutil.move"}


def unguarded_calls(node: ast.AST, inside: bool = False) -> Iterator[ast.Call]:
    """Calls that put a file in its place, outside of a `with replacing(...)`."""
    if isinstance(node, ast.With):
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        inside = inside or any(ast.unparse(call.func) in ("replacing", "replacing_folder") for call in calls)
    if isinstance(node, ast.Call):
        name, last = ast.unparse(node.func), ast.unparse(node.func).rpartition(".")[2]
        modes = [
            argument.value
            for argument in [*node.args, *(k.value for k in node.keywords)]
            if isinstance(argument, ast.Constant)
        ]
        opens = last == "open" and any(mode in ("w", "wb", "a", "ab", "x", "xb") for mode in modes)
        of_path = isinstance(node.func, ast.Attribute) and last in WRITERS and bool(node.args)
        if name in MOVERS or ((of_path or opens or last in ("save_file", "FileLock")) and not inside):
            yield node
    for child in ast.iter_child_nodes(node):
        yield from unguarded_calls(child, inside)


def test_nobody_else_in_the_library_puts_a_file_in_its_place():
    # write to the kernel and to memory, and within `replacing`
    allowed = {"trainers/cost.py", "reporting/figures.py", "platforms.py"}
    uses = [
        f"{path.relative_to(PACKAGE)}:{call.lineno} {ast.unparse(call.func)}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "writing.py" and str(path.relative_to(PACKAGE)) not in allowed
        for call in unguarded_calls(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not uses


@pytest.mark.parametrize(
    "code", ["os.replace(a, b)", "path.write_text('a')", "open(path, 'w')", "path.open(mode='wb')", "f.savefig(path)"]
)
def test_what_it_looks_for_is_found(code):
    assert len(list(unguarded_calls(ast.parse(code)))) == 1
    assert not list(unguarded_calls(ast.parse(f"with replacing(path) as part:\n    {code}"))) or "os." in code
    assert not list(
        unguarded_calls(ast.parse("write_text(path, json.dumps(a))\nopen(path, 'rb')\nt.to_csv(index=False)"))
    )


def test_bytes_are_appended_at_a_place_and_what_was_behind_it_is_cut_off(tmp_path):
    path = tmp_path / "grows.bin"
    append_bytes(path, b"finished", at=0)
    append_bytes(path, b"left by a killed process", at=8)
    append_bytes(path, b"next", at=8)
    assert path.read_bytes() == b"finishednext"
    with pytest.raises(ValueError, match="12 bytes.* 20"):
        append_bytes(path, b"more", at=20)
    assert path.read_bytes() == b"finishednext"
