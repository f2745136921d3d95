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
"""First words that are not a project; a folder of such a name is ./draft."""


@dataclass(kw_only=True)
class ProjectOptions(Options):
    """Project."""

    project: Annotated[Path, Spelling("PROJECT", positional=True), "Folder of the project."]


@dataclass(kw_only=True)
class NewProjectOptions(Options):
    """Project."""

    project: Annotated[Path, Spelling("PROJECT", positional=True), "Folder of the project, made if it is missing."]


@dataclass(kw_only=True)
class PersonOptions(Options):
    """Person."""

    name: Annotated[str, Spelling("NAME", positional=True), "Name that the person signs in with."]
    people: Annotated[Path, Spelling("FILE"), "File, created if missing."]


def main(arguments: Sequence[str]) -> None:
    """Serves the page of a project, prints its progress, makes drafts, or adds a person to a file of passwords."""
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
        raise ImportError('the page of hfcomp annotate needs Gradio: pip install "hfcomp[demo]"')
    given = vars(parser().parse_args(arguments))
    folder, candidates = make_options(NewProjectOptions, given).project, _candidate_options(given)
    options = make_options(ServeOptions, given)
    for name in ("segmenter", "inpainter"):  # loaded when the first annotator asks for them
        check_place(getattr(options, name), f"--{name}")
    if candidates is None:
        _check_project(folder)
    from hfcomp.annotate.app.server import check_access, check_port

    passwords = options.passwords()
    # Checked before candidates are added, which may take long.
    check_access(options.host, passwords, options.public_names)
    check_port(options.host, options.port)
    with closing_project(folder, lease_seconds=60 * options.lease_minutes, is_new=candidates is not None) as project:
        if candidates is not None:
            from hfcomp.annotate.candidates import add_candidates

            add_candidates(project, candidates, log=_log, progress=sys.stderr.isatty())
        _check_items(project, options.concept)
        _run(project, options, passwords)


def _check_items(project: Project, concept: str | None) -> None:
    """Raises ValueError for a project that would serve an empty page, as one whose first source failed."""
    if any(project.decisions.counts(concept=concept).values()):
        return
    kind = "item" if concept is None else f"item of the concept {concept}"
    raise ValueError(f"{project.folder} has no {kind}: nothing can be annotated. Add candidates with --source.")


def _run(project: Project, options: ServeOptions, passwords: Passwords | None) -> None:
    from hfcomp.annotate.app.server import serving
    from hfcomp.annotate.models import load_inpainter, load_segmenter
    from hfcomp.annotate.service import AnnotationService

    models = partial(load_segmenter, options), partial(load_inpainter, options)
    service = AnnotationService(project, *models, concept=options.concept)
    settings = {"host": options.host, "port": options.port, "public_names": options.public_names}
    settings |= {"title": project.folder.resolve().name, "lease_seconds": 60 * options.lease_minutes, "log": _timed}
    with closing(service), stopped() as stop:
        with serving(service, passwords=passwords, **settings) as address:
            counts = project.decisions.counts(concept=options.concept)
            _log(f"{counts['open']:,} items are open, {counts['annotated']:,} wait for a review")
            _log(f"page: {address} (Ctrl-C ends it)")
            stop.wait()
        if service.queue.waiting():
            _log("ends when the inpainting under way is done; Ctrl-C again ends it now")


@contextmanager
def stopped() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; after the context they act as before."""
    stop = threading.Event()
    before = {
        one: signal.signal(one, lambda number, frame: _stop(stop, number)) for one in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _stop(stop: threading.Event, number: int) -> None:
    if stop.is_set():  # the second one
        raise SystemExit(128 + number)
    stop.set()


@contextmanager
def closing_project(folder: Path, *, lease_seconds: float = 900.0, is_new: bool = False) -> Iterator[Project]:
    """A project that is closed at the end; ValueError for a folder that is none, unless it may be a new one."""
    from hfcomp.data.annotations.project import Project

    if not is_new:
        _check_project(folder)
    project = Project(folder, lease_seconds=lease_seconds)
    with closing(project.decisions):
        yield project


def _check_project(folder: Path) -> None:
    from hfcomp.data.annotations.project import DATABASE

    if not (folder / DATABASE).is_file():
        raise ValueError(f"{folder} has no {DATABASE}: it is not an annotation project. Begin one with --source.")


def _print_progress(arguments: Sequence[str]) -> None:
    from hfcomp.annotate.progress import progress_report
    from hfcomp.reporting.terminal import render_terminal

    folder = make_options(ProjectOptions, vars(progress_parser().parse_args(arguments))).project
    with closing_project(folder) as project:
        render_terminal(progress_report(project.decisions))


def _draft(arguments: Sequence[str]) -> None:
    given = vars(draft_parser().parse_args(arguments))
    folder, options = make_options(ProjectOptions, given).project, make_options(DraftOptions, given)
    for name in ("segmenter", "inpainter"):
        check_place(getattr(options, name), f"--{name}")
    _check_project(folder)
    from hfcomp.annotate.drafting import draft

    with closing_project(folder) as project:
        draft(project, options, log=_log, progress=sys.stderr.isatty())


def _add_person(arguments: Sequence[str]) -> None:
    from hfcomp.annotate.people_file import add_person, check_password

    given = make_options(PersonOptions, vars(add_person_parser().parse_args(arguments)))
    password = _read_password()
    check_password(password)
    name = add_person(given.people, given.name, password)
    _log(f"{given.people}: {name} has a new password; a page that is served reads it when it starts again")


def _read_password() -> str:
    """A password, typed twice at a terminal, or the first line of the standard input; never an argument.

    Raises:
        ValueError: for two that differ.
    """
    # A password among the arguments would be visible to every user of the machine.
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != password:
        raise ValueError("The two passwords differ. Run the command again.")
    return password


def progress_parser() -> argparse.ArgumentParser:
    """The command line of `hfcomp annotate progress`."""
    description = "Prints the counts, the agreement and the newest decisions of a project."
    return command_parser(f"annotate {PROGRESS}", description, ProjectOptions)


def add_person_parser() -> argparse.ArgumentParser:
    """The command line that writes a file of passwords."""
    return command_parser(
        f"annotate {ADD_PERSON}",
        "Adds a person to a file of passwords for --people, or changes their password, which is read from "
        "the terminal or from standard input.",
        PersonOptions,
    )


def draft_parser() -> argparse.ArgumentParser:
    """The command line of the automatic mode."""
    description = "Makes drafts of open items automatically, for people to review."
    return command_parser(f"annotate {DRAFT}", description, ProjectOptions, DraftOptions)


def parser() -> argparse.ArgumentParser:
    """The command line of the page."""
    return command_parser(
        "annotate",
        "Serves a page where people edit images in a mask, after Rösch et al. 2024, sections 4 and A.3. "
        "With --source its candidates are added first; those that are there stay as they are.",
        NewProjectOptions,
        ServeOptions,
        CandidateOptions,
        optional=("source",),
    )


def _candidate_options(given: dict[str, Any]) -> CandidateOptions | None:
    """The options of the candidates, taken out of those that were given; None without a source."""
    names = [name for name in declared_options(CandidateOptions) if name in given]
    if names and "source" not in names:
        given_names = ", ".join(f"--{name}" for name in names)
        raise ValueError(
            f"{given_names}: candidates are chosen only with --source. Pass it, or leave these options out; --concept "
            "limits the page to one concept."
        )
    return make_options(CandidateOptions, given) if names else None


def _log(line: str) -> None:
    print(line, flush=True)


def _timed(line: str) -> None:
    _log(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")
