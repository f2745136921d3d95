"""Passwords of people: hashes in a file, and one password for everybody."""

from __future__ import annotations

import io
import json
import time

import pytest

from hfcomp.annotate.options import PASSWORD, ServeOptions
from hfcomp.annotate.people_file import PeopleFile, SharedPassword, add_person, read_people
from hfcomp.cli import main


def test_a_file_of_people_has_a_salted_hash_of_each(tmp_path):
    path = tmp_path / "people.json"
    assert add_person(path, " Anna ", "one and the same") == "Anna" and add_person(path, "Ben", "one and the same")
    hashes = read_people(path)
    assert list(hashes) == ["Anna", "Ben"] and hashes["Anna"] != hashes["Ben"]
    assert "one and the same" not in path.read_text() and path.stat().st_mode & 0o077 == 0
    people = PeopleFile(path)
    assert people.person("ANNA", "one and the same") == "Anna"
    assert people.person("Anna", "one and the other") is None and people.person("Cal", "one and the same") is None
    assert people.person("Anna" * 100, "one and the same") is people.person("Anna", "x" * 10**7) is None


def test_a_password_is_changed_under_any_spelling_of_the_name(tmp_path):
    path = tmp_path / "people.json"
    add_person(path, "Anna", "the first one")
    assert add_person(path, "anna", "the second one") == "Anna" and list(read_people(path)) == ["Anna"]
    people = PeopleFile(path)
    assert people.person("Anna", "the first one") is None and people.person("Anna", "the second one") == "Anna"


def test_an_unknown_name_takes_as_long_as_a_wrong_password(tmp_path):
    add_person(tmp_path / "people.json", "Anna", "correct horse")
    people, seconds = PeopleFile(tmp_path / "people.json"), []
    for name in ("Anna", "Nobody"):
        begin = time.process_time()
        for _ in range(3):
            people.person(name, "wrong horse")
        seconds.append(time.process_time() - begin)
    assert 1 / 3 < seconds[0] / seconds[1] < 3


@pytest.mark.parametrize("name", ["", "automatic", "Ann\N{CYRILLIC SMALL LETTER A}"])
def test_a_name_that_nobody_may_have_is_not_added(tmp_path, name):
    with pytest.raises(ValueError, match="Person's name"):
        add_person(tmp_path / "people.json", name, "correct horse")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("password", ["short", "x" * 1025])
def test_a_password_has_some_length(tmp_path, password):
    with pytest.raises(ValueError, match=r"[\d,]+ characters, expected"):
        add_person(tmp_path / "people.json", "Anna", password)
    with pytest.raises(ValueError, match=r"[\d,]+ characters, expected"):
        SharedPassword(password)


@pytest.mark.follows(
    "hfcomp/annotate/people_file.py", "Create a new file with: hfcomp annotate add_person NAME --people NEW_FILE"
)
def test_a_new_file_takes_the_place_of_another(tmp_path, monkeypatch):
    (tmp_path / "people.txt").write_text("Anna: secret")
    with pytest.raises(ValueError, match="people.txt .*hfcomp annotate add_person NAME --people NEW_FILE"):
        PeopleFile(tmp_path / "people.txt")
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    main(["annotate", "add_person", "Anna", "--people", str(tmp_path / "people.json")])
    assert PeopleFile(tmp_path / "people.json").person("Anna", "correct horse") == "Anna"


@pytest.mark.follows("hfcomp/annotate/options.py", "gives everyone the same one. Remove one of them.")
@pytest.mark.follows("hfcomp/annotate/app/server.py", "pass --password_file or --people, or omit --host.")
@pytest.mark.follows("hfcomp/annotate/app/server.py", "pass --password_file or --people, or omit --public_names.")
def test_each_way_to_a_password_that_an_error_names_opens_the_page_to_others(tmp_path, monkeypatch):
    server = pytest.importorskip("hfcomp.annotate.app.server")
    monkeypatch.delenv(PASSWORD, raising=False)
    (tmp_path / "password").write_text("correct horse")
    add_person(tmp_path / "people.json", "Anna", "correct horse")
    ways = [{"password_file": str(tmp_path / "password")}, {"people": str(tmp_path / "people.json")}]
    for open_to in ({"host": "0.0.0.0"}, {"public_names": ("a.example",)}):
        options = ServeOptions(**open_to)
        with pytest.raises(ValueError, match="--password_file or --people.*--"):
            server.check_access(options.host, options.passwords(), options.public_names)
        for way in ways:
            options = ServeOptions(**open_to, **way)
            server.check_access(options.host, options.passwords(), options.public_names)
    with pytest.raises(ValueError, match="Remove one"):
        ServeOptions(**ways[0], **ways[1]).passwords()
    monkeypatch.setenv(PASSWORD, "correct horse")
    server.check_access("0.0.0.0", ServeOptions(host="0.0.0.0").passwords())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nonsense", "not a people file"),
        ("[]", "not a people file"),
        ('{"version": 2, "people": {}}', "not a people file"),
        ('{"version": 1, "people": {"Anna": "secret in plain text"}}', "hash of 'Anna'"),
        ('{"version": 1, "people": {}}', "no people.*hfcomp annotate add_person NAME --people "),
    ],
)
def test_another_file_is_refused(tmp_path, content, message):
    path = tmp_path / "people.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        PeopleFile(path)


def test_two_spellings_of_a_name_in_a_file_are_refused(tmp_path):
    path = tmp_path / "people.json"
    add_person(path, "Anna", "correct horse")
    content = json.loads(path.read_text())
    content["people"]["ANNA"] = content["people"]["Anna"]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="'Anna' and 'ANNA'"):
        PeopleFile(path)


def test_options_choose_between_one_password_and_one_for_each(tmp_path, monkeypatch):
    monkeypatch.delenv(PASSWORD, raising=False)
    add_person(tmp_path / "people.json", "Anna", "correct horse")
    people = str(tmp_path / "people.json")
    assert ServeOptions().passwords() is None
    assert ServeOptions(people=people).passwords().person("anna", "correct horse") == "Anna"
    monkeypatch.setenv(PASSWORD, "for everybody")
    assert ServeOptions().passwords().person("Cal", "for everybody") == "Cal"
    with pytest.raises(ValueError, match=f"people and {PASSWORD}"):
        ServeOptions(people=people).passwords()
