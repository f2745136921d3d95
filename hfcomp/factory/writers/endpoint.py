"""Client for OpenAI-compatible endpoints (vLLM, `transformers serve`, a paid service), built on the official package.

The server is not trusted. A response body is read only up to a size limit and a deadline, and it counts only if its
fields form a chat completion. There are three kinds of failure:

* Bad request: a status in `_OWN_FAULT`, or a complete body that is never a chat completion on any attempt. If a small
  probe request shows that the endpoint works, only this request is marked with a problem.
* Temporary failure, such as a rate limit: the client waits and lowers its concurrency, so load and rate limits never
  decide which captions end up in the dataset.
* Broken endpoint: the probe fails too, or nothing has been answered for `PATIENCE` seconds. The build stops, and
  finished work is kept.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

from hfcomp.factory.writers.backoff import (
    LONGEST_WAIT,
    Pace,
    is_own,
    may_pass,
    option_without,
    pause_after,
    redirect_target,
    retry_after,
    root_cause,
    status_of,
    unsupported_fields,
)
from hfcomp.factory.writers.requests import (
    MOST_BYTES,
    BadBody,
    BrokenOff,
    Reply,
    Request,
    answer_schema,
    read_completion,
)

_logger = logging.getLogger(__name__)

# Environment variable with the API key. A user's own server needs none.
KEY_VARIABLE = "HFCOMP_LLM_API_KEY"
NO_KEY = "none"
NO_REPLY, HOLDS_KEY = "no reply from the server", "answer holds the key"
_HIDDEN = "[key]"
_SHORTEST_SECRET = 8  # "EMPTY", a common key for private servers, may be a word in a caption
_BEARER = re.compile(r"(?i)\b(bearer\s+)[^\s\"',;<>]+")
# Seconds without any answer, or of a pause requested by a server, after which the build stops. Our choice.
PATIENCE = 1800.0
_LIMITED = (429, 503)  # these apply to all requests
_FRESH = 5.0  # seconds for which a probe's result is reused
# Fields that some servers do not support, with any replacement to use once a server has rejected them.
_LEARNED = {"max_tokens": "max_completion_tokens", "temperature": None, "seed": None}


class EndpointError(OSError):
    """The endpoint does not work: it is unreachable, refuses the key or the model, or sends no chat completions."""


class EndpointWriter:
    """Sends many concurrent requests to an endpoint.

    Args:
        base_url: Address such as `http://127.0.0.1:8000/v1`, without a key or password.
        model: Name of the model on the endpoint.
        concurrency: Maximum number of concurrent requests; lowered while the endpoint does not accept them.
        retries: Retries per request before a probe shows whether the endpoint works.
        timeout: Seconds for one answer.
        thinking: `off` sends vLLM's `chat_template_kwargs`; `as_served` sends no such field.
        plain_answers: Whether to request plain text instead of JSON with a schema.
        request_options: Fields to add to each request or to replace in it; None removes a field.

    Raises:
        ValueError: For an address that is not an HTTP address, or that contains a password or a query.
        ImportError: If the package `openai` is missing.
    """

    # A subclass sends other requests by changing these. Each has its own key, which no other server may receive.
    url_option, model_option, key_variable = "base_url", "llm ", KEY_VARIABLE
    required: tuple[str, ...] = ("model", "messages")
    probe = 'Write {"caption": "a dog"} and nothing else.'
    most_bytes, expected = MOST_BYTES, "chat completion"

    def __init__(
        self,
        base_url: str,
        *,
        model: str,
        concurrency: int = 64,
        retries: int = 5,
        timeout: float = 120.0,
        thinking: str = "off",
        plain_answers: bool = False,
        request_options: Mapping[str, Any] | None = None,
    ) -> None:
        check_base_url(base_url, self.url_option, self.key_variable)
        check_installed()
        import openai

        self._openai, self._base_url, self._model = openai, base_url, model
        self._concurrency, self._retries, self._timeout = concurrency, retries, timeout
        self._thinking, self._plain, self._options = thinking, plain_answers, dict(request_options or {})
        # The package's own variables are meant for OpenAI's service; their key must not go to another server.
        unsent = {"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()}
        self._key = os.environ.get(self.key_variable) or ""
        self._client = openai.AsyncOpenAI(
            api_key=self._key or NO_KEY,
            base_url=base_url,
            timeout=timeout,
            max_retries=0,  # retries inside the client would not slow down other requests
            default_headers=unsent,
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False, mounts=_proxy_bypass(base_url)),
        )
        self._loop = _start_loop()
        # The loop's thread ends with the writer.
        weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)
        self._learned: dict[str, str | None] = {}
        self._pace = Pace(concurrency)
        self._probe_lock, self._probed = threading.Lock(), float("-inf")
        self._failure: EndpointError | None = None
        self._has_warned = False

    def payload(self, request: Request) -> dict[str, Any]:
        """See `Writer`. Attempts differ in their seed, even if the seed is not sent."""
        options = {"request_options": self._options} if self._options else {}
        return self._usual_body(request) | options

    def _usual_body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": "user", "content": request.prompt}],
            "temperature": request.temperature,
            "seed": request.seed,
            "max_tokens": request.max_tokens,
        }
        if not self._plain:
            body["response_format"] = {"type": "json_schema", "json_schema": answer_schema(request.field)}
        if self._thinking == "off":
            body["chat_template_kwargs"] = {"enable_thinking": False}
        return body

    def _body(self, request: Request) -> dict[str, Any]:
        """The body to send, with the options and without fields that the server rejected."""
        body = self._usual_body(request) | self._options
        for name, other in self._learned.items():
            value = body.pop(name, None)
            if other is not None:
                body.setdefault(other, value)
        return {name: value for name, value in body.items() if value is not None}

    def replies(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """See `Writer`.

        Raises:
            EndpointError: If the endpoint does not work.
        """
        if not requests:
            return
        self._pace.restart()
        pool = ThreadPoolExecutor(min(self._concurrency, len(requests)), "endpoint")
        try:
            futures = {pool.submit(self._reply, request): place for place, request in enumerate(requests)}
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            self._pace.halt()
            pool.shutdown(cancel_futures=True)

    def _reply(self, request: Request) -> Reply:
        tries, first, was_own = 0, 0.0, False
        while True:
            with self._pace.turn() as started:
                reply = self._ask(request)
            if isinstance(reply, Reply):
                self._pace.speed_up()
                return reply
            first, own = first or time.monotonic(), is_own(reply)
            # Only consecutive failures of one kind count: a lost connection does not confirm an earlier bad body.
            tries, was_own = (tries + 1 if own == was_own else 1), own
            if self._is_doubtful(reply, tries, time.monotonic() - first):
                # This raises unless the endpoint works. If it works, either the request is at fault or the failure was
                # temporary.
                self._check_works(request)
                if own:
                    what = f"code {status_of(reply)}" if status_of(reply) else f"no {self.expected}"
                    return Reply(problem=f"{NO_REPLY}: {what}", is_final=False)
                tries = 0
            self._wait(reply, tries, started, first)

    def _is_doubtful(self, error: Exception, tries: int, seconds: float) -> bool:
        """Whether to probe the endpoint, after `tries` failures of one kind in `seconds`."""
        if status_of(error) == 429 or not may_pass(error):
            return not may_pass(error)
        is_long = not is_own(error) and seconds > self._timeout * (self._retries + 1)  # includes waiting for a turn
        return tries > self._retries or is_long

    def _wait(self, error: Exception, tries: int, started: float, first: float) -> None:
        """Waits before a request is sent again, or stops the build after `PATIENCE` seconds."""
        seconds, is_limit = retry_after(error), status_of(error) in _LIMITED
        lasting = time.monotonic() - max(first, self._pace.succeeded)
        if lasting + (seconds or 0) > PATIENCE:
            what = (
                f"asks to wait {seconds:,.0f} seconds{' or more' if seconds >= LONGEST_WAIT else ''}"
                if seconds
                else f"has not answered for {lasting:,.0f} seconds"
            )
            self._stop(error, what, "Repeat the command later")
        if is_limit and not self._has_warned:
            self._has_warned = True
            _logger.warning("the endpoint limits requests (code %s): sending fewer, with pauses", status_of(error))
        if not is_own(error):
            self._pace.slow_down(started, is_limit, seconds)
        if not is_limit:  # otherwise all requests wait for a turn
            self._pace.rest(pause_after(tries) if seconds is None else seconds)

    def _check_works(self, request: Request) -> None:
        """Distinguishes a bad request from a broken endpoint with a small probe; one thread probes for all."""
        # One probe answers for all threads that wait here, so a broken endpoint is not flooded.
        with self._probe_lock:
            if self._failure is not None:  # other threads need not probe again
                raise self._failure
            if time.monotonic() - self._probed < _FRESH:
                return
            probe = replace(request, prompt=self.probe, seed=0, max_tokens=16)
            for attempt in range(self._retries + 1):
                reply = self._ask(probe)
                if isinstance(reply, Reply) or (status_of(reply) == 429 and may_pass(reply)):
                    self._probed = time.monotonic()
                    return
                pause = retry_after(reply) or pause_after(attempt + 1)
                if not may_pass(reply) or attempt == self._retries or pause > PATIENCE:
                    optional = [name for name in self._body(probe) if name not in self.required]
                    fields = unsupported_fields(reply, optional)
                    advice = [f"Pass {option_without(name)}" for name in fields]
                    self._stop(reply, "does not work", " and ".join(advice) or "Start it")
                self._pace.rest(pause)

    def _stop(self, error: Exception, what: str, advice: str) -> NoReturn:
        place = urlsplit(self._base_url)
        self._failure = EndpointError(
            f"the endpoint {place.scheme}://{place.netloc}{place.path} {what}: {self._error_text(error)}. "
            f"{advice}, or check --{self.url_option}, --{self.model_option}{self._model} and {self.key_variable}; "
            "answers so far are kept."
        )
        raise self._failure

    def _ask(self, request: Request) -> Reply | Exception:
        """The reply or the error. Errors are returned, because raised ones would carry the server's text along."""
        while True:
            # The loop ends, because each round removes another unsupported field from the body.
            body = self._body(request)
            sent = asyncio.run_coroutine_threadsafe(self._answer(body), self._loop)
            try:
                reply = self._read(sent.result(), request)
            except (self._openai.OpenAIError, BadBody) as error:
                if self._learn(error, body):  # the next body lacks the field
                    continue
                return error
            # Answers are stored on disk and published. If a server repeats the key, the key must not end up there.
            holds_key = len(self._key) >= _SHORTEST_SECRET and any(form in reply.text for form in self._key_forms())
            return Reply(problem=HOLDS_KEY) if holds_key else reply

    def _learn(self, error: Exception, body: Mapping[str, Any]) -> bool:
        """Whether the server does not support an optional field of a body. Later bodies lack this field."""
        possible = [name for name, other in _LEARNED.items() if name in body and (other or name not in self._options)]
        unsupported = unsupported_fields(error, possible)
        for name in unsupported:
            if name not in self._learned:
                self._learned[name] = _LEARNED[name] if (_LEARNED[name] or "") in str(error) else None
                instead = f"sends {self._learned[name]} instead" if self._learned[name] else "leaves it out"
                _logger.warning("the endpoint does not support %s: hfcomp %s", name, instead)
        return bool(unsupported)

    @property
    def _resource(self) -> Any:
        return self._client.chat.completions

    def _read(self, body: bytes | None, request: Request) -> Reply:
        return read_completion(body)

    async def _answer(self, body: dict[str, Any]) -> bytes | None:
        """The bytes of a reply; None above the size limit. The timeout covers the whole exchange."""
        # The client requires these fields. All others are sent unchanged, even those that only some servers support.
        given = {name: body.pop(name) for name in self.required}
        create = self._resource.with_streaming_response.create
        try:
            async with asyncio.timeout(self._timeout), create(**given, extra_body=body) as response:
                return await _read_body(response, self.most_bytes)
        except TimeoutError:
            raise BrokenOff(self._timeout_text()) from None

    def _timeout_text(self) -> str:
        return f"no reply within {self._timeout:g} seconds (--llm_timeout)"

    def _error_text(self, error: Exception) -> str:
        """An error as one line of printable characters without the key; the server's text is truncated."""
        if isinstance(error, BadBody):
            body = self._hide_key(error.body.decode(errors="replace"))[:60]
            return error.reason + (f", found {body!r}" if error.body else "")
        if isinstance(error, self._openai.APITimeoutError):
            return self._timeout_text()
        if (place := redirect_target(error)) is not None:
            where = f" to {self._printable(place)}" if place else ""
            return f"code {status_of(error)}, a redirect{where}, which is not followed"
        is_lost = isinstance(error, self._openai.APIConnectionError)  # its own text is the same for every cause
        line = self._printable(root_cause(error) if is_lost else str(error))
        if is_lost:
            return f"no connection, {line}"
        line, code = line.replace("Error code:", "code", 1), f"code {status_of(error)}"
        return line if code in line or status_of(error) is None else f"{code} - {line}"  # openai 2 has it in some only

    def _printable(self, words: str) -> str:
        plain = "".join(sign if sign.isprintable() else " " for sign in self._hide_key(words))
        return " ".join(plain.split())[:200].rstrip(". ")

    def _key_forms(self) -> set[str]:
        return {self._key, quote(self._key, safe=""), json.dumps(self._key)[1:-1]} - {""}

    def _hide_key(self, words: str) -> str:
        for form in self._key_forms():
            words = words.replace(form, _HIDDEN)
        return _BEARER.sub(rf"\1{_HIDDEN}", words)


def check_installed() -> None:
    """Raises ImportError if the package openai is missing."""
    if find_spec("openai") is None:
        raise ImportError("an endpoint needs the package openai: pip install 'hfcomp[generate]'.")


def check_base_url(base_url: str, option: str = "base_url", key: str = KEY_VARIABLE) -> None:
    """Raises ValueError for a non-HTTP address or one with a password or query, which the error does not repeat."""
    parts = urlsplit(base_url)
    if "?" in base_url or "#" in base_url:
        raise ValueError(f"--{option} contains a query. Remove everything after '?', and put a key into {key}.")
    if parts.username or parts.password or "@" in parts.netloc:
        raise ValueError(f"--{option} contains a user or password. Remove it, and put a key into {key}.")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"--{option}: found {base_url!r}, expected an address such as http://127.0.0.1:8000/v1.")


def _proxy_bypass(base_url: str) -> dict[str, None]:
    """Disables proxies for a server on this machine: variables such as HTTP_PROXY would send the key elsewhere."""
    host = urlsplit(base_url).hostname or ""
    is_here = host in ("localhost", "::1") or host.startswith("127.")
    return {f"all://{f'[{host}]' if ':' in host else host}": None} if is_here else {}


def _start_loop() -> asyncio.AbstractEventLoop:
    """Starts an event loop in a separate thread, which ends with the loop."""
    loop = asyncio.new_event_loop()

    def run() -> None:
        loop.run_forever()
        loop.close()

    threading.Thread(target=run, name="endpoint loop", daemon=True).start()
    return loop


async def _read_body(response: Any, most: int) -> bytes | None:
    """Reads a body; None above the size limit in bytes.

    Raises:
        BrokenOff: If the body breaks off. Within a body, the client passes on any exception of its HTTP library.
    """
    body = bytearray()
    try:
        async for part in response.iter_bytes():
            body += part
            if len(body) > most:
                return None
    except Exception as error:
        raise BrokenOff(f"the reply broke off, {error or type(error).__name__}") from None
    return bytes(body)
