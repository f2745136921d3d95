"""Settings of the page; the fields are options of `hfcomp annotate`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hfcomp.annotation.captions import CONCEPTS
from hfcomp.annotation.options import ModelOptions
from hfcomp.annotation.people_file import Passwords, PeopleFile, SharedPassword

PASSWORD = "HFCOMP_ANNOTATE_PASSWORD"
"""The environment variable of the password."""


@dataclass(kw_only=True)
class ServeOptions(ModelOptions):
    """Page.

    Attributes:
        host: address of this machine to listen at; any but loopback needs a password.
        port: by default the first free one from 7860.
        public_names: names that the page answers to besides its host, such as a reverse proxy's, with a port unless
            it is 80 or 443.
        password_file: file with one password for everybody, by default the environment variable
            HFCOMP_ANNOTATE_PASSWORD.
        people: file with a password for each person, which `hfcomp annotate add_person NAME --people FILE` writes.
        lease_minutes: after which an item whose page is closed is given to others.
        concept: object, color or size; by default all.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    public_names: tuple[str, ...] = ()
    password_file: str | None = None
    people: str | None = None
    lease_minutes: float = 15.0
    concept: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lease_minutes > 0:
            raise ValueError(f"lease_minutes: found {self.lease_minutes:g}, expected more than 0.")
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError(f"port: found {self.port}, expected 1 to 65535.")
        if self.concept is not None and self.concept not in CONCEPTS:
            raise ValueError(f"concept: found {self.concept!r}, expected one of {', '.join(CONCEPTS)}.")

    def passwords(self) -> Passwords | None:
        """What people sign in with; None without a password.

        Raises:
            ValueError: for one password beside a file of people, a short or empty one, or another file.
            OSError: for a file that cannot be read.
        """
        shared = self.password()
        if self.people is None:
            return None if shared is None else SharedPassword(shared)
        if shared is not None:
            given = PASSWORD if self.password_file is None else "password_file"
            raise ValueError(f"people: each person has a password there, and {given} gives one for all. Omit one.")
        return PeopleFile(Path(self.people))

    def password(self) -> str | None:
        """The password of everybody, of which no line is ever logged; None without one.

        Raises:
            ValueError: for an empty file.
            OSError: for a file that cannot be read.
        """
        if self.password_file is None:
            return os.environ.get(PASSWORD) or None
        found = Path(self.password_file).read_text(encoding="utf-8").strip()
        if not found:
            raise ValueError(f"{self.password_file} is empty, expected a password.")
        return found
