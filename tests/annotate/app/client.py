"""A program that talks to a served page as its browser does, and as no browser of ours would."""

from __future__ import annotations

import json
import secrets
import struct
import zlib
from typing import Any

import httpx


def png(width: int, height: int, *, is_whole: bool = True) -> bytes:
    """A PNG of transparent pixels, or only its header and an end."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    pixels = zlib.compress((b"\0" + bytes(4 * width)) * height) if is_whole else b""
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


class Client:
    """A program that has a session of the page.

    Args:
        address: of the page.
        headers: of every request.
    """

    def __init__(self, address: str, **headers: str) -> None:
        self.http = httpx.Client(base_url=address, headers=headers, timeout=30)
        self.session = secrets.token_hex(6)

    def config(self) -> dict[str, Any]:
        """Gradio's config of the page."""
        return self.http.get("/config").json()

    def call(self, element: str, event: str, config: dict[str, Any], **values: Any) -> dict[str, Any]:
        """Triggers an event of an element with values of fields by their ids; returns what the server answers."""
        names = {component["id"]: component["props"].get("elem_id") or "" for component in config["components"]}
        (trigger,) = [number for number, name in names.items() if name == element]
        dependency = next(
            dependency for dependency in config["dependencies"] if [trigger, event] in dependency["targets"]
        )
        data = [values.get(names[number].replace("-", "_")) for number in dependency["inputs"]]
        sent = {"data": data, "fn_index": dependency["id"], "session_hash": self.session, "trigger_id": trigger}
        self.http.post("/gradio_api/queue/join", json=sent).raise_for_status()
        with self.http.stream("GET", "/gradio_api/queue/data", params={"session_hash": self.session}) as stream:
            for line in stream.iter_lines():
                message = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
                if message.get("msg") == "process_completed":
                    return message
        raise AssertionError("The server ended before it answered.")

    def upload(self, *contents: bytes, **headers: str) -> httpx.Response:
        """Sends files."""
        files = [("files", (f"{place}.png", content)) for place, content in enumerate(contents)]
        return self.http.post("/gradio_api/upload", files=files, headers=headers)
