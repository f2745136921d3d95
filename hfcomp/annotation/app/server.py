"""The server of the page: on this machine only, or with a password; never behind a public link."""

from __future__ import annotations

import hmac
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import gradio as gr

from hfcomp.annotation.app.page import CSS, SCRIPT, Page
from hfcomp.annotation.app.uploads import MOST_BYTES
from hfcomp.annotation.captions import load_caption_parser
from hfcomp.annotation.studio import Studio
from hfcomp.data.annotations.people import person_name
from hfcomp.data.annotations.project import IMAGES

THREADS = 128
"""Requests at a time. Most wait for a model or the disk."""
SHORTEST_PASSWORD = 8
"""Characters."""
CACHE = "GRADIO_TEMP_DIR"
"""The environment variable that names Gradio's folder of files, which is read with every file."""
LOOPBACK = "127.0.0.1"


def check_port(host: str, port: int | None) -> None:
    """Checks that a port is free; Gradio's own error names settings that are not ours.

    Raises:
        OSError: for a port that is taken or may not be used, or an address that is not of this machine.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        where = f"host {host}" if port is None else f"host {host}, port {port}"
        raise OSError(
            f"{where}: {error.strerror or error}. Choose an address of this machine and a free --port, or omit both."
        ) from error


def check_access(host: str, password: str | None) -> None:
    """Checks who could reach the page.

    Raises:
        ValueError: for another host than this machine's loopback without a password, or a short one.
    """
    if password is not None and len(password) < SHORTEST_PASSWORD:
        raise ValueError(f"The password has {len(password)} characters, expected {SHORTEST_PASSWORD} or more.")
    if password is None and not _is_loopback(host):
        raise ValueError(
            f"host: {host} lets other machines reach the page, which needs a password. Set HFCOMP_ANNOTATE_PASSWORD "
            "or pass --password_file, or omit --host."
        )


@contextmanager
def serving(
    studio: Studio,
    *,
    title: str,
    host: str = LOOPBACK,
    port: int | None = None,
    password: str | None = None,
    lease_seconds: float = 900.0,
) -> Iterator[str]:
    """Serves the page while the context is open.

    Args:
        studio: does the work.
        title: of the page.
        host: address of this machine to listen at.
        port: by default the first free one from 7860.
        password: that every annotator signs in with, under their own name; None on loopback only.
        lease_seconds: of the project.

    Yields:
        The address of the page.

    Raises:
        ValueError: as `check_access`.
        OSError: as `check_port`.
    """
    check_access(host, password)
    check_port(host, port)
    load_caption_parser()
    with _own_cache():
        page = Page(studio, title=title, has_password=password is not None, lease_seconds=lease_seconds)
        try:
            _, address, _ = page.blocks.queue(api_open=False).launch(
                server_name=host,
                server_port=port,
                auth=None if password is None else _signs_in(password),
                auth_message="Sign in with your own name and the password of this project.",
                share=False,
                prevent_thread_lock=True,
                quiet=True,
                max_threads=THREADS,
                max_file_size=MOST_BYTES,
                allowed_paths=[str((studio.project.folder / IMAGES).resolve())],
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
            yield address
        finally:
            page.blocks.close(verbose=False)


@contextmanager
def _own_cache() -> Iterator[None]:
    """Gradio serves all files of its cache: this page has one of its own, which is removed with it."""
    before = os.environ.get(CACHE)
    with TemporaryDirectory(prefix="hfcomp-annotate-", dir=before) as folder:
        os.environ[CACHE] = folder
        try:
            yield
        finally:
            os.environ.pop(CACHE)
            if before is not None:
                os.environ[CACHE] = before


def _signs_in(password: str) -> Callable[[str, str], bool]:
    """Whether a name and a password may sign in; compared in constant time."""

    def check(name: str, given: str) -> bool:
        try:
            person_name(name)
        except ValueError:
            return False
        return hmac.compare_digest(given.encode(), password.encode())

    return check


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
