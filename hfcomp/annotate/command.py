"""`hfcomp annotate`: a visual challenge set with people in the loop."""

from __future__ import annotations

import argparse
import getpass
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hfcomp.annotate.options import CandidateOptions, DraftOptions, ServeOptions
from hfcomp.options import Options, Spelling, command_parser, declared_options, make_options
from hfcomp.reading import check_place

if TYPE_CHECKING:
    from hfcomp.annotate.people_file import Passwords
    from hfcomp.data.annotations.project import Project

DRAFT, PROGRESS, ADD_PERSON = "draft", "progress", "add_person"
"""Subcommands. A project folder with one of these names is passed as a path, such as ./draft."""


@dataclass(kw_only=True)
class ProjectOptions(Options):
    """Project."""

    project: Annotated[Path, Spelling("PROJECT", positional=True), "Project folder."]


@dataclass(kw_only=True)
class NewProjectOptions(Options):
    """Project."""

    project: Annotated[Path, Spelling("PROJECT", positional=True), "Project folder. Created if missing."]


@dataclass(kw_only=True)
class PersonOptions(Options):
    """Person."""

    name: Annotated[str, Spelling("NAME", positional=True), "Name that the person signs in with."]
    people: Annotated[Path, Spelling("FILE"), "File of passwords. Created if missing."]


def main(arguments: Sequence[str]) -> None:
    """Serves the page of a project, prints its progress, creates drafts, or adds a person to a file of passwords."""
    if arguments[:1] == [PROGRESS]:
        _print_progress(arguments[1:])
    elif arguments[:1] == [DRAFT]:
        _draft(arguments[1:])
    elif arguments[:1] == [ADD_PERSON]:
        _add_person(arguments[1:])
    else:
        _serve(arguments)


def _serve(arguments: Sequence[str]) -> None:
    if find_spec("gradio") is None:
        raise ImportError('The page of hfcomp annotate requires Gradio: pip install "hfcomp[demo]"')
    given = vars(parser().parse_args(arguments))
    folder, candidates = make_options(NewProjectOptions, given).project, _candidate_options(given)
    options = make_options(ServeOptions, given)
    for name in ("segmenter", "inpainter"):  # loaded only when the first annotator needs them
        check_place(getattr(options, name), f"--{name}")
    if candidates is None:
        _check_project(folder)
    from hfcomp.annotate.app.server import check_access, check_port

    passwords = options.passwords()
    # Check access first, because adding candidates may take a long time.
    check_access(options.host, passwords, options.public_names)
    check_port(options.host, options.port)
    with open_project(folder, lease_seconds=60 * options.lease_minutes, is_new=candidates is not None) as project:
        if candidates is not None:
            from hfcomp.annotate.candidates import add_candidates

            add_candidates(project, candidates, log=_log, progress=sys.stderr.isatty())
        _check_items(project, options.concept)
        _run(project, options, passwords)


def _check_items(project: Project, concept: str | None) -> None:
    """Raises ValueError if the page would be empty, for example because the first source failed."""
    if any(project.decisions.counts(concept=concept).values()):
        return
    kind = "item" if concept is None else f"item of the concept {concept}"
    raise ValueError(f"{project.folder} has no {kind} to annotate. Add candidates with --source.")


def _run(project: Project, options: ServeOptions, passwords: Passwords | None) -> None:
    from hfcomp.annotate.app.server import serving
    from hfcomp.annotate.models import load_inpainter, load_segmenter
    from hfcomp.annotate.service import AnnotationService

    models = partial(load_segmenter, options), partial(load_inpainter, options)
    service = AnnotationService(project, *models, concept=options.concept)
    settings = {"host": options.host, "port": options.port, "public_names": options.public_names}
    settings |= {
        "title": project.folder.resolve().name,
        "lease_seconds": 60 * options.lease_minutes,
        "log": _log_timed,
    }
    with closing(service), stop_event() as stop:
        with serving(service, passwords=passwords, **settings) as address:
            counts = project.decisions.counts(concept=options.concept)
            _log(f"{counts['open']:,} items are open, {counts['annotated']:,} are waiting for review")
            _log(f"page: {address} (press Ctrl-C to stop)")
            stop.wait()
        if service.queue.waiting():
            _log("stopping after the current inpainting job; press Ctrl-C again to stop now")


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C and SIGTERM set. On exit, restores the previous signal handlers."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda number, frame: _stop(stop, number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(stop: threading.Event, number: int) -> None:
    if stop.is_set():  # this is the second signal
        raise SystemExit(128 + number)
    stop.set()


@contextmanager
def open_project(folder: Path, *, lease_seconds: float = 900.0, is_new: bool = False) -> Iterator[Project]:
    """Yields a project and closes it on exit. Raises ValueError if the folder is not a project, unless `is_new`."""
    from hfcomp.data.annotations.project import Project

    if not is_new:
        _check_project(folder)
    project = Project(folder, lease_seconds=lease_seconds)
    with closing(project.decisions):
        yield project


def _check_project(folder: Path) -> None:
    from hfcomp.data.annotations.project import DATABASE

    if not (folder / DATABASE).is_file():
        raise ValueError(f"{folder} has no {DATABASE}: it is not an annotation project. Create one with --source.")


def _print_progress(arguments: Sequence[str]) -> None:
    from hfcomp.annotate.progress import progress_report
    from hfcomp.reporting.terminal import render_terminal

    folder = make_options(ProjectOptions, vars(progress_parser().parse_args(arguments))).project
    with open_project(folder) as project:
        render_terminal(progress_report(project.decisions))


def _draft(arguments: Sequence[str]) -> None:
    given = vars(draft_parser().parse_args(arguments))
    folder, options = make_options(ProjectOptions, given).project, make_options(DraftOptions, given)
    for name in ("segmenter", "inpainter"):
        check_place(getattr(options, name), f"--{name}")
    _check_project(folder)
    from hfcomp.annotate.drafting import draft

    with open_project(folder) as project:
        draft(project, options, log=_log, progress=sys.stderr.isatty())


def _add_person(arguments: Sequence[str]) -> None:
    from hfcomp.annotate.people_file import add_person, check_password

    options = make_options(PersonOptions, vars(add_person_parser().parse_args(arguments)))
    password = _read_password()
    check_password(password)
    name = add_person(options.people, options.name, password)
    _log(f"{options.people}: set the password of {name}. Restart a running page to use it.")


def _read_password() -> str:
    """Reads a password, typed twice at a terminal, or the first line of standard input. It is never an argument.

    Raises:
        ValueError: If the two typed passwords differ.
    """
    # Every user of the machine could see a password among the arguments.
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != password:
        raise ValueError("The two passwords differ. Run the command again.")
    return password


def progress_parser() -> argparse.ArgumentParser:
    """Builds the parser of `hfcomp annotate progress`."""
    description = "Print the counts, the agreement and the newest decisions of a project."
    return command_parser(f"annotate {PROGRESS}", description, ProjectOptions)


def add_person_parser() -> argparse.ArgumentParser:
    """Builds the parser of `hfcomp annotate add_person`."""
    return command_parser(
        f"annotate {ADD_PERSON}",
        "Add a person to a file of passwords for --people, or change their password. The password is read from "
        "the terminal or from standard input.",
        PersonOptions,
    )


def draft_parser() -> argparse.ArgumentParser:
    """Builds the parser of `hfcomp annotate draft`."""
    description = "Create drafts of open items automatically, for people to review."
    return command_parser(f"annotate {DRAFT}", description, ProjectOptions, DraftOptions)


def parser() -> argparse.ArgumentParser:
    """Builds the parser of `hfcomp annotate PROJECT`, which serves the page."""
    return command_parser(
        "annotate",
        "Serve a page where people edit images inside a mask, following Rösch et al. 2024, sections 4 and A.3. "
        "With --source, candidates from that source are added first; existing candidates are kept unchanged. "
        "`hfcomp annotate draft`, `progress` and `add_person` draft edits automatically, print the progress, and add "
        "a person; each has its own --help.",
        NewProjectOptions,
        ServeOptions,
        CandidateOptions,
        optional=("source",),
    )


def _candidate_options(arguments: dict[str, Any]) -> CandidateOptions | None:
    """Removes the candidate options from `given` and returns them, or None without a source."""
    names = [name for name in declared_options(CandidateOptions) if name in arguments]
    if names and "source" not in names:
        useless = ", ".join(f"--{name}" for name in names)
        raise ValueError(
            f"{useless}: no effect without --source, because candidates are chosen only from a source. Pass --source "
            "or remove these options; --concept limits the page to one concept."
        )
    return make_options(CandidateOptions, arguments) if names else None


def _log(line: str) -> None:
    print(line, flush=True)


def _log_timed(line: str) -> None:
    _log(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")
