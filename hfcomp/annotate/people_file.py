"""Passwords for the page: one shared password, or a file of hashes with one password per person."""

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
    """Checks names and passwords.

    Attributes:
        what: Description of the password that a person enters.
    """

    what: str

    def person(self, name: str, password: str) -> str | None:
        """Returns the name of the person who signs in, or None if the name or password is wrong."""


class SharedPassword:
    """One shared password: anyone who knows it may use any name."""

    what = "the password of this project"

    def __init__(self, password: str) -> None:
        check_password(password)
        self._password = password.encode()

    def person(self, name: str, password: str) -> str | None:
        try:
            person = person_name(name)
        except ValueError:
            return None
        return person if hmac.compare_digest(password.encode("utf-8", "replace"), self._password) else None


class PeopleFile:
    """One password per person: a JSON file of salted scrypt hashes, written by `add_person`."""

    what = "your own password"

    def __init__(self, path: Path) -> None:
        self._people = read_people(path)
        if not self._people:
            raise ValueError(f"{path} has no people. Add one with: hfcomp annotate add_person NAME --people {path}")
        self._nobody = hash_password(secrets.token_hex(16))

    def person(self, name: str, password: str) -> str | None:
        """Returns the name as spelled in the file if the password matches, or None."""
        # Reject long texts before doing any work for them.
        if len(name) > 4 * LONGEST_NAME or len(password) > LONGEST_PASSWORD:
            return None
        person = next((stored for stored in self._people if person_key(stored) == person_key(name)), None)
        # An unknown name takes as long as a known one.
        is_right = is_password(password, self._nobody if person is None else self._people[person])
        return person if is_right else None


def check_password(password: str) -> None:
    """Raises ValueError if a password is too short or too long."""
    if len(password) < SHORTEST_PASSWORD:
        raise ValueError(f"The password has {len(password)} characters, expected {SHORTEST_PASSWORD} or more.")
    if len(password) > LONGEST_PASSWORD:
        raise ValueError(f"The password has {len(password):,} characters, expected {LONGEST_PASSWORD:,} or less.")


def add_person(path: Path, name: str, password: str) -> str:
    """Adds a person to a file or changes their password, and returns the name as stored. Creates a missing file."""
    check_password(password)
    people = read_people(path) if path.exists() else {}
    person = person_name(name)
    stored = next((existing for existing in people if person_key(existing) == person_key(person)), person)
    people[stored] = hash_password(password)
    content = {"version": _VERSION, "people": dict(sorted(people.items()))}
    # Set the mode before writing any hash, so nobody else can read the file even for a moment.
    with replacing(path) as part:
        part.touch(mode=0o600)
        part.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return stored


def read_people(path: Path) -> dict[str, str]:
    """Reads the password hash of each person from a file."""
    advice = "Create a new file with: hfcomp annotate add_person NAME --people NEW_FILE"
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a people file: {error}. {advice}") from error
    people = content.get("people") if isinstance(content, Mapping) else None
    if not isinstance(people, Mapping) or content.get("version") != _VERSION:
        raise ValueError(f"{path} is not a people file (written by `hfcomp annotate add_person`). {advice}")
    # Names that differ only in case or in look-alike letters are the same person.
    keys: dict[str, str] = {}
    for name, hashed in people.items():
        other = keys.setdefault(person_key(person_name(name)), name)
        if other != name:
            raise ValueError(f"{path}: {other!r} and {name!r} are the same name. Remove one of them.")
        if not isinstance(hashed, str) or _parts(hashed) is None:
            raise ValueError(f"{path}: the hash of {name!r} was not written by this version of hfcomp. {advice}")
    return dict(people)


def hash_password(password: str) -> str:
    """Returns a salted scrypt hash in the form `scrypt$n$r$p$salt$hash`, with salt and hash in base64."""
    salt = secrets.token_bytes(16)
    return f"scrypt${COST}${BLOCK}${PARALLEL}${_text(salt)}${_text(_derive(password, salt))}"


def is_password(password: str, hashed: str) -> bool:
    parts = _parts(hashed)
    return parts is not None and hmac.compare_digest(_derive(password, parts[0]), parts[1])


def _derive(password: str, salt: bytes) -> bytes:
    text = password.encode("utf-8", "replace")
    return hashlib.scrypt(text, salt=salt, n=COST, r=BLOCK, p=PARALLEL, maxmem=_MEMORY, dklen=32)


def _parts(hashed: str) -> tuple[bytes, bytes] | None:
    """Returns the salt and the hash, or None if the text has another form or other costs."""
    # Reject hashes with other costs: a cheaper hash would silently weaken the sign-in.
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
