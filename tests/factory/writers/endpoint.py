"""A server that answers chat completions on loopback by a script: rightly, slowly, wrongly or not at all.

As a program, `python -m tests.factory.writers.endpoint --seconds 0.1`, it prints its address and answers each
request after that time.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OTHER = {"dog": "cat", "red": "blue", "under": "beside", "man": "woman", "table": "bed", "street": "beach"}


@dataclass
class Answer:
    """What is sent.

    Attributes:
        body: of the reply; a dictionary becomes JSON.
        status: its code.
        headers: besides type and length.
        seconds: before it is sent.
        piece_seconds: between its halves.
        is_cut: whether the connection ends after the first half.
        drip_seconds: between headers that never end.
    """

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    piece_seconds: float = 0.0
    is_cut: bool = False
    kind: str = "application/json"
    drip_seconds: float = 0.0


def completion(content: str | None, **message: Any) -> dict[str, Any]:
    """A chat completion as vLLM sends it."""
    finish = message.pop("finish_reason", "stop")
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


def caption_of(body: dict[str, Any]) -> tuple[str, str]:
    """Caption and keyword of the paper's prompt."""
    text = body["messages"][0]["content"]
    pairs = re.findall(r"^Input: (.*)\nKeyword: (.*)$", text, re.MULTILINE)
    return pairs[-1] if pairs else ("", "")


def right(body: dict[str, Any]) -> Answer:
    """The caption with another word for its keyword, as the schema wants it."""
    caption, keyword = caption_of(body)
    return Answer(completion(json.dumps({"caption": caption.replace(keyword, OTHER.get(keyword, "robot"), 1)})))


def text(content: str) -> Callable[[dict[str, Any]], Answer]:
    """The same text for all."""
    return lambda body: Answer(completion(content))


class Endpoint:
    """A server in a thread of its own.

    Args:
        answer: of a request's body; a list is worked through request by request, the last one again and again.
    """

    def __init__(self, answer: Callable[[dict[str, Any]], Answer] | list[Callable[[dict[str, Any]], Answer]]) -> None:
        self.answers = answer if isinstance(answer, list) else [answer]
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.most_at_once = 0
        self._at_once, self._lock = 0, threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer._lock:
                    number = len(outer.bodies)
                    outer.bodies.append(body)
                    outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                    outer.times.append(time.monotonic())
                    outer._at_once += 1
                    outer.most_at_once = max(outer.most_at_once, outer._at_once)
                try:
                    self.send(outer.answers[min(number, len(outer.answers) - 1)](body))
                finally:
                    with outer._lock:
                        outer._at_once -= 1

            def send(self, answer: Answer) -> None:
                time.sleep(answer.seconds)
                content = json.dumps(answer.body).encode() if isinstance(answer.body, dict) else answer.body
                try:
                    self.send_response(answer.status)
                    for name, value in {"Content-Type": answer.kind, **answer.headers}.items():
                        self.send_header(name, value)
                    while answer.drip_seconds:
                        self.send_header("X-Drip", "x")
                        self.flush_headers()
                        self.wfile.flush()
                        time.sleep(answer.drip_seconds)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    half = len(content) // 2
                    for piece in (content[:half],) if answer.is_cut else (content[:half], content[half:]):
                        self.wfile.write(piece)
                        self.wfile.flush()
                        time.sleep(answer.piece_seconds)
                    self.close_connection = self.close_connection or answer.is_cut
                except OSError:  # the client has gone
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 512
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def serving(answer: Any) -> Iterator[Endpoint]:
    endpoint = Endpoint(answer)
    try:
        yield endpoint
    finally:
        endpoint.close()


def closed_address() -> str:
    """An address where nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.0)
    seconds = parser.parse_args().seconds

    def answer(body: dict[str, Any]) -> Answer:
        response = right(body)
        response.seconds = seconds
        return response

    print(Endpoint(answer).base_url, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
