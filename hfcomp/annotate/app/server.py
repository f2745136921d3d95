"""Server of the page: local only, or protected by a password; never behind a public Gradio link."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import gradio as gr
import uvicorn
from fastapi import FastAPI
from starlette.requests import Request

from hfcomp.annotate.app.guard import PERSON, Guard, Names, is_loopback
from hfcomp.annotate.app.page import CSS, SCRIPT, Page
from hfcomp.annotate.app.sign_in import Door
from hfcomp.annotate.app.uploads import MOST_BYTES, Uploads
from hfcomp.annotate.captions import load_caption_parser
from hfcomp.annotate.people_file import Passwords
from hfcomp.annotate.service import AnnotationService
from hfcomp.data.annotations.project import IMAGES
from hfcomp.platforms import is_own
from hfcomp.writing import LOCK_FILE, try_lock

# Environment variable for Gradio's temporary folder. Gradio reads it for every file.
VARIABLE = "GRADIO_TEMP_DIR"
PREFIX = "hfcomp-annotate-"


@contextmanager
def own_cache() -> Iterator[Path]:
    """Creates a folder in Gradio's or the system's temporary folder, and removes those that killed servers left."""
    before = os.environ.get(VARIABLE)
    parent = Path(before or tempfile.gettempdir())
    parent.mkdir(parents=True, exist_ok=True)
    # A killed server cannot remove its own folder.
    remove_stale_folders(parent)
    folder = parent.resolve() / f"{PREFIX}{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    lock = try_lock(folder)  # the kernel releases it when the process ends, however it ends
    if lock is None or not folder.is_dir():
        raise OSError(f"{folder} was removed by another server that started at the same time. Start this one again.")
    os.environ[VARIABLE] = str(folder)
    try:
        yield folder
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def remove_stale_folders(parent: Path) -> None:
    """Removes this user's folders whose server has ended, which is when their lock is free."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            # If others can write to the parent folder, a link could lead to this user's files.
            if folder.is_symlink() or not is_own(folder) or not (folder / LOCK_FILE).is_file():
                continue
            lock = try_lock(folder)
        except OSError:
            continue
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()


# Maximum number of concurrent requests. Most of them wait for a model or the disk.
THREADS = 128
# Maximum number of open connections, and of events that wait for a thread.
MOST_CONNECTIONS, MOST_EVENTS = 1024, 512
FIRST_PORT, PORTS = 7860, 100
SECONDS_TO_START, SECONDS_TO_END = 30.0, 3
LOOPBACK = "127.0.0.1"
logger = logging.getLogger(__name__)


def bind(host: str, port: int | None) -> socket.socket:
    """Opens a socket that listens on an address of this machine."""
    numbers = range(FIRST_PORT, FIRST_PORT + PORTS) if port is None else [port]
    for number in numbers:
        try:
            family, *_, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
            bound = socket.socket(family, socket.SOCK_STREAM)
            try:
                # Allow using the port of a server that has just ended.
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                bound.bind(address)
                bound.listen()  # Linux lets others bind to the port until somebody listens on it
            except OSError:
                bound.close()
                raise
            return bound
        except OSError as error:
            reason = error
            if error.errno != errno.EADDRINUSE:
                break
    where = f"host {host}" if port is None else f"host {host}, port {port}"
    raise OSError(
        f"{where}: {reason.strerror or reason}. Choose an address of this machine and a free --port, or omit both."
    ) from reason


def check_port(host: str, port: int | None) -> None:
    """Checks that a port is free, before anything is loaded."""
    bind(host, port).close()


def check_access(host: str, passwords: Passwords | None, public_names: Collection[str] = ()) -> None:
    """Raises ValueError if other machines could reach the page without a password."""
    if passwords is not None:
        return
    if not is_loopback(host):
        raise ValueError(
            f"host: {host} lets other machines reach the page, which requires a password. Set "
            "HFCOMP_ANNOTATE_PASSWORD, pass --password_file or --people, or omit --host."
        )
    if public_names:
        raise ValueError(
            f"public_names: {', '.join(public_names)} lets other machines reach the page, which requires a password. "
            "Set HFCOMP_ANNOTATE_PASSWORD, pass --password_file or --people, or omit --public_names."
        )


@contextmanager
def serving(
    service: AnnotationService,
    *,
    title: str,
    host: str = LOOPBACK,
    port: int | None = None,
    passwords: Passwords | None = None,
    public_names: Collection[str] = (),
    lease_seconds: float = 900.0,
    log: Callable[[str], None] = logger.info,
) -> Iterator[str]:
    """Serves the page while the context is open.

    Args:
        host: Address of this machine to listen on.
        port: Port to listen on. Defaults to the first free port from 7860.
        passwords: Passwords that people sign in with. None is allowed only on loopback.
        public_names: Host names that the page accepts in addition to `host`, such as that of a reverse proxy.
        log: Called with a line about each sign-in attempt.

    Yields:
        The address of the page.
    """
    check_access(host, passwords, public_names)
    # Bind before anything slow, so an occupied port is reported at once.
    bound = bind(host, port)
    load_caption_parser()
    with bound, own_cache() as cache:
        number = bound.getsockname()[1]
        door = None
        if passwords is not None:
            door = Door(passwords, title=title, cookie=f"hfcomp-annotate-{number}", log=log)
        uploads = Uploads(cache / "uploads")
        page = Page(service, title=title, has_password=door is not None, lease_seconds=lease_seconds, uploads=uploads)
        app = Guard(_gradio(page, service.project.folder / IMAGES), Names(host, public_names), uploads, door)
        with _running(app, bound):
            try:
                yield f"http://{_browser_host(host)}:{number}/"
            finally:
                # Streams to open pages never end on their own, and the server would wait for them.
                app.end()
                page.blocks.close(verbose=False)


def _gradio(page: Page, images: Path) -> FastAPI:
    """Builds the Gradio application. It gets the signed-in person from the guard."""
    blocks = page.blocks.queue(api_open=False, max_size=MOST_EVENTS)
    blocks.max_threads = THREADS
    app = gr.mount_gradio_app(
        FastAPI(openapi_url=None),
        blocks,
        "/",
        auth_dependency=_person if page.has_password else None,
        max_file_size=MOST_BYTES,
        allowed_paths=[str(images.resolve())],
        show_error=False,
        footer_links=[],
        run_history=False,
        enable_monitoring=False,
        ssr_mode=False,
        mcp_server=False,
        pwa=False,
        theme=gr.themes.Default(
            primary_hue="blue",
            spacing_size="sm",
            font=["system-ui", "sans-serif"],
            font_mono=["ui-monospace", "monospace"],
        ),
        css_paths=[CSS],
        js=SCRIPT.read_text(encoding="utf-8"),
    )
    # Gradio checks requested paths only after its launch, which mounting skips.
    blocks.has_launched = True
    return app


def _person(request: Request) -> str | None:
    return request.scope.get(PERSON)


@contextmanager
def _running(app: Guard, bound: socket.socket) -> Iterator[None]:
    """Runs the server in a thread."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=SECONDS_TO_END,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="annotate-server", daemon=True)
    thread.start()
    try:
        end = time.monotonic() + SECONDS_TO_START
        while not server.started:
            if not thread.is_alive() or time.monotonic() > end:
                raise OSError("The server of the page did not start. See its error above.")
            time.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        thread.join(SECONDS_TO_END + 5)


def _browser_host(host: str) -> str:
    return "localhost" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host
