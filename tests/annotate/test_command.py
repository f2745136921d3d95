"""`hfcomp annotate` as a process: it serves, ends, and continues after a kill."""

from __future__ import annotations

import io
import os
import re
import signal
import urllib.request

import pytest

from hfcomp.annotate import command as annotate
from hfcomp.annotate.options import PASSWORD, ServeOptions
from hfcomp.cli import main
from hfcomp.data.annotations.project import Project
from tests import processes
from tests.annotate.app import stand_ins


@pytest.fixture
def project(tmp_path):
    made = stand_ins.project(tmp_path / "boxes", 3)
    made.decisions.close()
    return made.folder


def start(*words, **environment):
    process = processes.start(["-m", "hfcomp.cli", "annotate", *words], env=os.environ | environment)
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("page: "):
            break
    return process, "".join(lines)


def test_it_serves_and_a_signal_ends_it(project):
    process, said = start(project, **{PASSWORD: "correct horse"})
    address = re.search(r"page: (http://127.0.0.1:\d+)", said)[1]
    assert "3 items are open" in said and "correct horse" not in said
    assert b"Sign in with your own name" in urllib.request.urlopen(address).read()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{address}/config")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0 and "Traceback" not in process.stdout.read()


@pytest.mark.slow
def test_killed_it_continues_with_the_draft(project):
    process, said = start(project)
    assert "page: " in said
    decisions = Project(project).decisions
    item = decisions.next_item("Ann")
    decisions.save_draft("Ann", item.id, {"caption": "so far"})
    process.kill()
    process.wait(30)
    assert decisions.next_item("Ann") == item and decisions.draft("Ann", item.id) == {"caption": "so far"}
    decisions.close()


def test_progress_prints_the_tables(project, capsys):
    main(["annotate", "progress", str(project)])
    said = capsys.readouterr().out
    assert "Items" in said and re.search(r"color +3 +0 +0 +0 +3", said)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere has no annotations.sqlite"),
        (["progress", "nowhere"], "nowhere has no annotations.sqlite"),
        (["draft", "nowhere"], "nowhere has no annotations.sqlite"),
        (["nowhere", "--limit", "3"], "--limit: no effect without --source"),
        (["nowhere", "--concept", "shape"], "concept: found 'shape'"),
        (["nowhere", "--lease_minutes", "0"], "lease_minutes: found 0"),
    ],
)
def test_mistakes_are_one_line(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(PASSWORD, raising=False)
    with pytest.raises(SystemExit, match=re.escape(message)):
        main(["annotate", *words])
    assert not any(tmp_path.iterdir())


def test_another_host_needs_a_password(tmp_path, monkeypatch):
    Project(tmp_path / "empty").decisions.close()
    monkeypatch.delenv(PASSWORD, raising=False)
    with pytest.raises(SystemExit, match="requires a password"):
        main(["annotate", str(tmp_path / "empty"), "--host", "0.0.0.0"])


@pytest.mark.parametrize(("words", "kind"), [([], "no item"), (["--concept", "size"], "no item of the concept size")])
def test_a_project_without_items_is_not_served(words, kind, tmp_path):
    Project(tmp_path / "empty").decisions.close()
    with pytest.raises(SystemExit, match=f"empty has {kind} .*--source"):
        main(["annotate", str(tmp_path / "empty"), *words])


def test_without_gradio_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(annotate, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=re.escape('pip install "hfcomp[demo]"')):
        main(["annotate", "boxes"])


def test_the_password_is_of_the_environment_or_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv(PASSWORD, "from the environment")
    assert ServeOptions().password() == "from the environment"
    (tmp_path / "password").write_text("from the file\n")
    assert ServeOptions(password_file=str(tmp_path / "password")).password() == "from the file"
    (tmp_path / "password").write_text("\n")
    with pytest.raises(ValueError, match="is empty"):
        ServeOptions(password_file=str(tmp_path / "password")).password()


@pytest.mark.parametrize("name", ["segmenter", "inpainter"])
def test_a_model_that_does_not_exist_is_named_before_the_page_is_served(name, tmp_path):
    Project(tmp_path / "empty").decisions.close()
    for words in ([], ["draft"]):
        with pytest.raises(SystemExit, match=f"--{name}: ./nope: no such"):
            main(["annotate", *words, str(tmp_path / "empty"), f"--{name}", "./nope"])


def test_a_person_is_added_with_a_password_from_standard_input(tmp_path, monkeypatch, capsys):
    path = tmp_path / "people.json"
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\nand more\n"))
    main(["annotate", "add_person", "Anna", "--people", str(path)])
    assert "password of Anna" in capsys.readouterr().out
    monkeypatch.delenv(PASSWORD, raising=False)
    assert ServeOptions(people=str(path)).passwords().person("Anna", "correct horse") == "Anna"


def test_a_password_that_is_typed_is_typed_twice(tmp_path, monkeypatch):
    typed = iter(["correct horse", "correct house"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(typed))
    with pytest.raises(SystemExit, match="passwords differ"):
        main(["annotate", "add_person", "Anna", "--people", str(tmp_path / "people.json")])
    assert not any(tmp_path.iterdir())


@pytest.mark.follows("hfcomp/annotate/people_file.py", "has no people. Add one with: hfcomp annotate add_person NAME")
def test_a_file_without_people_is_filled_as_advised(tmp_path, monkeypatch):
    path = tmp_path / "people.json"
    path.write_text('{"version": 1, "people": {}}')
    monkeypatch.delenv(PASSWORD, raising=False)
    with pytest.raises(ValueError, match="Add .*hfcomp annotate add_person NAME --people (.+)"):
        ServeOptions(people=str(path)).passwords()
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    main(["annotate", "add_person", "NAME", "--people", str(path)])
    assert ServeOptions(people=str(path)).passwords().person("name", "correct horse") == "NAME"
