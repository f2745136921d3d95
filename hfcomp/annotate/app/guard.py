"""Request filter in front of Gradio: limits which requests reach it and how large they are, and sets response headers.

Gradio accepts any host name, reflects any origin, takes any number of files, and serves about sixty routes. This layer
rejects everything that the page itself does not send.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from hfcomp.annotate.app.sign_in import Door
from hfcomp.annotate.app.uploads import MOST_BYTES, Uploads

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# Key for the signed-in person in a request's scope.
PERSON = "hfcomp.person"
API, UPLOAD, SIGN_IN = "/gradio_api", "/gradio_api/upload", "/sign-in"
_READ = re.compile(
    rf"/|/(assets|static|svelte)/.+|/(config|theme\.css|favicon\.ico|manifest\.json)/?"
    rf"|{API}/(queue/data|app_id|heartbeat/\w+|file=(?!\w+:).+)"
)
# Gradio routes that the page uses. Others, such as the proxy, calls by name and URLs as files, are not served.
_SENT = re.compile(rf"{UPLOAD}|{API}/(queue/join|cancel|reset)")
# Maximum size in bytes of a request that is not an upload. It holds the values of all fields.
MOST_BYTES_OF_A_CALL = 2**20
# Seconds within which a whole request must arrive.
BODY_SECONDS = 60.0
# Maximum number of concurrent requests, in total and per session. An open page keeps two or three.
MOST_AT_A_TIME, MOST_OF_A_SESSION = 512, 96
# Content-Security-Policy. Gradio's page needs inline scripts, but the browser never contacts another machine.
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; media-src 'none'; object-src 'none'; font-src 'self' data:; "
    "style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "worker-src 'self' blob:; connect-src 'self' data: blob:; frame-src 'none'; frame-ancestors 'none'; "
    "form-action 'self'; base-uri 'self'"
)
# Headers of every response.
ANSWERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer, browsers would send the sign-in form with origin null
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Refused(Exception):
    """A request that is not served."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        # Close the connection: the rest of the request's body is not read.
        self.answer = PlainTextResponse(text + "\n", status, {"connection": "close", **(headers or {})})


class Names:
    """Host names that the page accepts. Rejects other names that point here, which prevents DNS rebinding.

    Args:
        host: Address that the server listens on.
        public: Additional names, such as that of a reverse proxy, with the port unless it is the scheme's default.
    """

    def __init__(self, host: str, public: Collection[str] = ()) -> None:
        self._origins = {name.lower() for name in public}
        self._names = {"localhost", host.lower(), *(_split(name)[0] for name in self._origins)}
        self._is_local = is_loopback(host)

    def has_host(self, host: str) -> bool:
        """Whether a request's `Host` is ours. Any IP address is accepted on a public host: it cannot be rebound."""
        try:
            name, _ = _split(host)
        except ValueError:
            return False
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._is_local

    def has_origin(self, origin: str, host: str) -> bool:
        """Whether a request's `Origin` is this page: its host is the request's own host or a public name."""
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and parts.netloc.lower() in {host.lower(), *self._origins}


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """An ASGI application that forwards only the requests that the page needs.

    Args:
        uploads: Receives the files that browsers send; they never reach Gradio's own upload route.
        door: Sign-in for people. None if the page is open to this machine.
    """

    def __init__(self, app: ASGIApp, names: Names, uploads: Uploads, door: Door | None = None) -> None:
        self._app, self._names, self._uploads, self._door = app, names, uploads, door
        self._under_way: Counter[str] = Counter()
        self._end = asyncio.Event()

    def end(self) -> None:
        """Ends the streams to open pages, because the server would wait for them. Called from another thread."""
        self._loop.call_soon_threadsafe(self._end.set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            self._loop = asyncio.get_running_loop()
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer(send)
        try:
            headers = Headers(scope=scope)
            self._check_sender(scope, headers)
            session = self._session(scope, headers)
            with self._request_slot(session):
                response = await self._answer(scope, headers, receive, answer, session)
        except Refused as error:
            response = error.answer
        if response is not None and not answer.has_started:
            await response(scope, receive, answer)

    def _check_sender(self, scope: Scope, headers: Headers) -> None:
        # With two Host headers, a proxy might read one and Gradio the other.
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self._names.has_host(hosts[0]):
            raise Refused(
                421,
                f"This page is not served under the name {hosts[0] if len(hosts) == 1 else hosts!r}. To allow this "
                "name, start hfcomp annotate with --public_names.",
            )
        if any(not self._names.has_origin(origin, hosts[0]) for origin in origins):
            raise Refused(403, "The request comes from a page of another origin, which is not allowed.")
        # Browsers state where a request comes from. A link on another site may open the page, but nothing else.
        site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode")
        is_link = scope["method"] == "GET" and mode == "navigate" and headers.get("sec-fetch-dest") == "document"
        if site not in ("same-origin", "none") and not (is_link and scope["path"] in ("/", SIGN_IN)):
            raise Refused(403, "The request comes from a page of another site, which is not allowed.")

    def _session(self, scope: Scope, headers: Headers) -> str:
        """Returns what the limits of a request apply to: the token of a signed-in session, or the client's address."""
        signed_in = None if self._door is None else self._door.session(headers.get("cookie", ""))
        if signed_in is None:
            return _client(scope)
        # Handlers take the person from here, never from a field that the page sends.
        scope[PERSON] = signed_in.person
        return signed_in.token

    async def _answer(
        self, scope: Scope, headers: Headers, receive: Receive, send: _Answer, session: str
    ) -> Response | None:
        method, path = scope["method"], scope["path"]
        if self._door is not None and path == SIGN_IN:
            body = await _body(headers, receive, MOST_BYTES_OF_A_CALL)
            return await self._door.answer(method, body, headers, _client(scope))
        if self._door is not None and PERSON not in scope:
            raise Refused(
                *((303, "Sign in first.", {"location": SIGN_IN}) if path == "/" else (401, "Sign in first."))
            )
        allowed = _READ if method in ("GET", "HEAD") else _SENT if method == "POST" else None
        # Use an allow list, so a route added by a later Gradio stays closed until somebody has reviewed it.
        if allowed is None or allowed.fullmatch(path) is None:
            raise Refused(404, "This address does not exist.")
        if path == UPLOAD:
            return await self._receive(headers, receive, session)
        if method == "POST":
            # The body was already read to count its bytes, so Gradio gets it from memory.
            receive = _ReplayedBody(await _body(headers, receive, MOST_BYTES_OF_A_CALL), receive)
        with closing(_EndableReceive(receive, self._end)) as messages:
            await self._app(scope, messages, send)
        await send.complete()
        return None

    async def _receive(self, headers: Headers, receive: Receive, session: str) -> Response:
        # Only a few uploads are in memory at once. Others wait here with their bodies unread.
        async with self._uploads.slots:
            with self._uploads.receiving(session, _length(headers)) as upload:
                if upload.refusal:
                    raise Refused(429, upload.refusal, {"retry-after": "60"})
                return await upload.answer(headers, await _body(headers, receive, MOST_BYTES))

    @contextmanager
    def _request_slot(self, session: str) -> Iterator[None]:
        if self._under_way.total() >= MOST_AT_A_TIME or self._under_way[session] >= MOST_OF_A_SESSION:
            raise Refused(503, "The server has too many open requests. Try again soon.", {"retry-after": "2"})
        self._under_way[session] += 1
        try:
            yield
        finally:
            self._under_way[session] -= 1
            self._under_way += Counter()  # drops zeros


class _Answer:
    """Sends a response with our headers and without Gradio's headers about other origins."""

    def __init__(self, send: Send) -> None:
        self._send, self.has_started, self._is_complete = send, False, False

    async def complete(self) -> None:
        """Ends a response that was cut off."""
        if self.has_started and not self._is_complete:
            await self({"type": "http.response.body", "body": b"", "more_body": False})

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            # Gradio would allow any requesting origin, and browsers would trust its headers.
            headers = MutableHeaders(raw=list(message["headers"]))
            for name in [name for name in headers if name.startswith("access-control-")]:
                del headers[name]
            headers.update(ANSWERS)
            message = {**message, "headers": headers.raw}
        self._is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)


class _EndableReceive:
    """Receives a browser's messages, and reports a disconnect when the browser leaves or the server ends."""

    def __init__(self, receive: Receive, end: asyncio.Event) -> None:
        self._receive = receive
        self._end = asyncio.ensure_future(end.wait())
        self._next: asyncio.Future[MutableMapping[str, Any]] | None = None

    async def __call__(self) -> MutableMapping[str, Any]:
        # Starlette polls for a message with a call that it cancels, so keep the pending message for the next call.
        if self._next is None:
            self._next = asyncio.ensure_future(self._receive())
        if not self._next.done() and not self._end.done():
            await asyncio.wait([self._next, self._end], return_when=asyncio.FIRST_COMPLETED)
        if not self._next.done():
            return {"type": "http.disconnect"}
        message, self._next = self._next.result(), None
        return message

    def close(self) -> None:
        for task in filter(None, (self._next, self._end)):
            task.cancel()


class _ReplayedBody:
    """Replays a request body that has already been read."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> MutableMapping[str, Any]:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _client(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else "unknown"


def _length(headers: Headers) -> int | None:
    """Returns the number of bytes that a request announces, or None if it is sent in chunks."""
    length = headers.get("content-length")
    return int(length) if length is not None and length.isascii() and length.isdecimal() else None


async def _body(headers: Headers, receive: Receive, most: int) -> bytes:
    """Reads a request's body, checking its size before and during reading."""
    too_large = Refused(413, f"The request is larger than {most / 2**20:g} MB.")
    if (_length(headers) or 0) > most:
        raise too_large
    parts = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise Refused(400, "The request ended before its body was complete.")
                parts += message.get("body", b"")
                if len(parts) > most:
                    raise too_large
                if not message.get("more_body", False):
                    return bytes(parts)
    except TimeoutError:
        raise Refused(408, f"The request took more than {BODY_SECONDS:g} seconds to arrive.") from None


def _split(host: str) -> tuple[str, int | None]:
    """Splits a `Host` into its name, in lower case without brackets, and its port.

    Raises:
        ValueError: If the text is not a host.
    """
    parts = urlsplit(f"//{host}")
    if parts.netloc != host or not parts.hostname or parts.username is not None:
        raise ValueError(f"{host!r} is not a host. Use a name with or without a port, such as annotate.example.org.")
    return parts.hostname.rstrip("."), parts.port
