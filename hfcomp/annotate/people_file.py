"""Passwords of the page: one for everybody, or one for each person in a file of hashes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from hfcomp.data.annotations.entries import LONGEST_NAME, person_key, person_name
from hfcomp.reading import parse_json
from hfcomp.writing import replacing

# Lengths in characters.
SHORTEST_PASSWORD, LONGEST_PASSWORD = 8, 1024
# scrypt's n, r and p: 32 MB and about 0.1 s per guess (RFC 7914; OWASP's third choice).
COST, BLOCK, PARALLEL = 2**15, 8, 1
_MEMORY = 128 * COST * BLOCK + 2**20
_VERSION = 1


class Passwords(Protocol):
    """What lets people in.

    Attributes:
        what: What a person enters, in words.
    """

    what: str

    def person(self, name: str, password: str) -> str | None:
        """The person who signs in; None for a wrong name or password."""


class SharedPassword:
    """One password for everybody: whoever knows it may use any name."""

    what = "the password of this project"

    def __init__(self, password: str) -> None:
        check_password(password)
        self._password = password.encode()

    def person(self, name: str, password: str) -> str | None:
        try:
            found = person_name(name)
        except ValueError:
            return None
        return found if hmac.compare_digest(password.encode("utf-8", "replace"), self._password) else None


class PeopleFile:
    """A password for each person: a JSON file with a salted scrypt hash of each, which `add_person` writes."""

    what = "your own password"

    def __init__(self, path: Path) -> None:
        self._people = read_people(path)
        if not self._people:
            raise ValueError(f"{path} has no people. Add one with: hfcomp annotate add_person NAME --people {path}")
        self._nobody = hash_password(secrets.token_hex(16))

    def person(self, name: str, password: str) -> str | None:
        """The person as the file spells the name, if the password is theirs."""
        # Long texts are rejected before any work is done for them.
        if len(name) > 4 * LONGEST_NAME or len(password) > LONGEST_PASSWORD:
            return None
        found = next((one for one in self._people if person_key(one) == person_key(name)), None)
        # An unknown name takes as long as a known one.
        is_right = is_password(password, self._nobody if found is None else self._people[found])
        return found if is_right else None


def check_password(password: str) -> None:
    """Raises ValueError for a password that is too short or too long."""
    if len(password) < SHORTEST_PASSWORD:
        raise ValueError(f"The password has {len(password)} characters, expected {SHORTEST_PASSWORD} or more.")
    if len(password) > LONGEST_PASSWORD:
        raise ValueError(f"The password has {len(password):,} characters, expected {LONGEST_PASSWORD:,} or less.")


def add_person(path: Path, name: str, password: str) -> str:
    """Adds a person to a file, which is made if it is missing, or changes their password; returns the name."""
    check_password(password)
    people = read_people(path) if path.exists() else {}
    found = person_name(name)
    before = next((one for one in people if person_key(one) == person_key(found)), found)
    people[before] = hash_password(password)
    content = {"version": _VERSION, "people": dict(sorted(people.items()))}
    # Created with its mode before any hash is written: nobody else can read it, not even for a moment.
    with replacing(path) as part:
        part.touch(mode=0o600)
        part.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return before


def read_people(path: Path) -> dict[str, str]:
    """The hash of each person in a file."""
    advice = "Write a new file with: hfcomp annotate add_person NAME --people NEW_FILE"
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a file of people: {error}. {advice}") from error
    people = content.get("people") if isinstance(content, Mapping) else None
    if not isinstance(people, Mapping) or content.get("version") != _VERSION:
        raise ValueError(f"{path} is not a file of people. {advice}")
    # Names that differ in case or in letters that look alike are one person.
    keys: dict[str, str] = {}
    for name, hashed in people.items():
        other = keys.setdefault(person_key(person_name(name)), name)
        if other != name:
            raise ValueError(f"{path}: {other!r} and {name!r} are the same name. Remove one of them.")
        if not isinstance(hashed, str) or _parts(hashed) is None:
            raise ValueError(f"{path}: the hash of {name!r} is not one of hfcomp. {advice}")
    return dict(people)


def hash_password(password: str) -> str:
    """A salted scrypt hash, as `scrypt$n$r$p$salt$hash` with base64."""
    salt = secrets.token_bytes(16)
    return f"scrypt${COST}${BLOCK}${PARALLEL}${_text(salt)}${_text(_derive(password, salt))}"


def is_password(password: str, hashed: str) -> bool:
    parts = _parts(hashed)
    return parts is not None and hmac.compare_digest(_derive(password, parts[0]), parts[1])


def _derive(password: str, salt: bytes) -> bytes:
    text = password.encode("utf-8", "replace")
    return hashlib.scrypt(text, salt=salt, n=COST, r=BLOCK, p=PARALLEL, maxmem=_MEMORY, dklen=32)


def _parts(hashed: str) -> tuple[bytes, bytes] | None:
    """Salt and hash; None for a text of another form, or of other costs."""
    # A hash of other costs is rejected: cheap ones would silently weaken the sign-in.
    begin = f"scrypt${COST}${BLOCK}${PARALLEL}$"
    if not hashed.startswith(begin):
        return None
    try:
        salt, derived = (base64.b64decode(part, validate=True) for part in hashed.removeprefix(begin).split("$"))
    except ValueError:
        return None
    return (salt, derived) if len(salt) == 16 and len(derived) == 32 else None


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
