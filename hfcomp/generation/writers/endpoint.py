"""A client of any OpenAI-compatible endpoint, by the official package: vLLM, `transformers serve`, a paid service.

What the server sends is not trusted: a body is read up to a limit and a deadline, and is a chat completion by its
fields or nothing. Connections that fail, time-outs and the codes 408, 409, 429 and 5xx are tried again with growing
pauses, or after what `Retry-After` says, up to `retries` times; so is a body that is no chat completion. A request
that fails for good is followed by a small one: if that works, the fault is the request's, and it alone gets a problem;
if not, the endpoint is out of order, and the build stops with what is done kept.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, Field, ValidationError

from hfcomp.generation.writers.requests import SCHEMA, Reply, Request
from hfcomp.reading import parse_json

KEY_VARIABLE = "HFCOMP_LLM_API_KEY"
"""The environment variable of the key; a server of one's own needs none."""
NO_KEY = "none"
MOST_BYTES = 1_000_000
"""Of the body of a reply; our choice, a hundred times what the longest caption needs."""
REFUSED, CUT, TOO_LARGE, NO_REPLY = "model refused", "answer cut off", "answer too long", "no reply from the server"
HOLDS_KEY = "answer holds the key"
_HIDDEN = "[key]"
_SHORTEST_SECRET = 8  # "EMPTY", which many servers of one's own are given, may be a word of a caption
_BEARER = re.compile(r"(?i)\b(bearer\s+)[^\s\"',;<>]+")
_PROBE = 'Write {"caption": "a dog"} and nothing else.'
_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_SHOWN = 4096  # bytes of a wrong body that are searched for the key, of which 60 are shown


class EndpointError(OSError):
    """The endpoint does not work: it is out of reach, refuses the key or the model, or sends something else."""


class BadBody(Exception):
    """A body that is no chat completion.

    Args:
        reason: what is wrong.
        body: what came instead; it may repeat the key.
    """

    def __init__(self, reason: str, body: bytes = b"") -> None:
        super().__init__(reason, body)
        self.reason, self.body = reason, body


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Completion(BaseModel):
    """What is read of a chat completion."""

    choices: list[_Choice] = Field(min_length=1)


class EndpointWriter:
    """Asks an endpoint, many requests at a time.

    Args:
        base_url: such as `http://127.0.0.1:8000/v1`, without a key or password in it.
        model: the name under which the endpoint serves it.
        concurrency: requests at a time.
        retries: of one request after a failure that may pass.
        timeout: seconds for one reply.
        thinking: `off` sends vLLM's `chat_template_kwargs`; `as_served` sends nothing of the kind.
        plain_answers: ask for text and not for JSON of a schema.

    Raises:
        ValueError: for an address that is no http one, or that holds a password or a query.
        ImportError: without the package `openai`.
    """

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
    ) -> None:
        check_base_url(base_url)
        check_installed()
        import openai

        self._openai, self._base_url, self._model = openai, base_url, model
        self._concurrency, self._retries, self._timeout = concurrency, retries, timeout
        self._thinking, self._plain = thinking, plain_answers
        # The variables of the package itself are for OpenAI's own service: their key must not go to another.
        unsent = {"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()}
        self._key = os.environ.get(KEY_VARIABLE) or ""
        self._client = openai.OpenAI(
            api_key=self._key or NO_KEY,
            base_url=base_url,
            timeout=timeout,
            max_retries=retries,
            default_headers=unsent,
        )
        self._probe_lock = threading.Lock()
        self._failure: EndpointError | None = None

    def payload(self, request: Request) -> dict[str, Any]:
        """The body of a request."""
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": "user", "content": request.prompt}],
            "temperature": request.temperature,
            "seed": request.seed,
            "max_tokens": request.max_tokens,
        }
        if not self._plain:
            body["response_format"] = {"type": "json_schema", "json_schema": dict(SCHEMA)}
        if self._thinking == "off":
            body["chat_template_kwargs"] = {"enable_thinking": False}
        return body

    def replies(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """See `Writer`.

        Raises:
            EndpointError: for an endpoint that does not work.
        """
        if not requests:
            return
        pool = ThreadPoolExecutor(min(self._concurrency, len(requests)), "endpoint")
        try:
            futures = {pool.submit(self._reply, request): place for place, request in enumerate(requests)}
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _reply(self, request: Request) -> Reply:
        try:
            return self._ask(request)
        except (self._openai.OpenAIError, BadBody) as error:
            self._check_works(request)
            status = getattr(error, "status_code", None)  # what it says may differ from time to time
            return Reply(problem=f"{NO_REPLY}: {f'code {status}' if status else type(error).__name__}", is_final=False)

    def _check_works(self, request: Request) -> None:
        """Distinguishes a bad request from a bad endpoint with a small request; one thread at a time."""
        with self._probe_lock:
            if self._failure is not None:  # the others need not wait for it again
                raise self._failure from None
            try:
                self._ask(replace(request, prompt=_PROBE, seed=0, max_tokens=16))
            except (self._openai.OpenAIError, BadBody) as error:
                place = urlsplit(self._base_url)
                self._failure = EndpointError(
                    f"the endpoint {place.scheme}://{place.netloc}{place.path} does not work: {self._said(error)}. "
                    f"Start it, or check --base_url, --llm {self._model} and {KEY_VARIABLE}; answers so far are kept."
                )
                raise self._failure from None  # what the server said stands in its traceback, the key with it

    def _ask(self, request: Request) -> Reply:
        """The reply, a body that is none being tried again; other failures are the client's to try again."""
        for attempt in range(self._retries + 1):
            try:
                reply = _read(self._body(request))
                holds_key = len(self._key) >= _SHORTEST_SECRET and self._key in reply.text
                return Reply(problem=HOLDS_KEY) if holds_key else reply
            except BadBody:
                if attempt == self._retries:
                    raise
                time.sleep(min(_PAUSE * 2**attempt, _LONGEST_PAUSE))

    def _body(self, request: Request) -> bytes | None:
        """The bytes of a reply; None for one over the limit."""
        body = self.payload(request)
        given = {"model": body.pop("model"), "messages": body.pop("messages")}
        deadline, found = time.monotonic() + self._timeout, bytearray()
        create = self._client.chat.completions.with_streaming_response.create
        with create(**given, extra_body=body) as response:
            parts = response.iter_bytes()
            while (part := _next(parts)) is not None:
                found += part
                if len(found) > MOST_BYTES:
                    return None
                if time.monotonic() > deadline:  # the client's limit is for each read
                    raise BadBody(f"the reply took more than {self._timeout:g} seconds (--llm_timeout)")
        return bytes(found)

    def _said(self, error: Exception) -> str:
        """An error in one line of plain characters without the key; what the server says of itself is cut."""
        if isinstance(error, BadBody):
            found = self._without_key(error.body.decode(errors="replace"))[:60]
            return error.reason + (f", found {found!r}" if error.body else "")
        if isinstance(error, self._openai.APITimeoutError):
            return f"no reply within {self._timeout:g} seconds (--llm_timeout)"
        is_lost = isinstance(error, self._openai.APIConnectionError)  # its own text is the same for every reason
        words = str(error.__cause__ if is_lost and error.__cause__ else error)
        plain = "".join(sign if sign.isprintable() else " " for sign in self._without_key(words))
        line = " ".join(plain.split())[:200].rstrip(". ")
        return f"no connection, {line}" if is_lost else line.replace("Error code:", "code", 1)

    def _without_key(self, words: str) -> str:
        for form in {self._key, quote(self._key, safe=""), json.dumps(self._key)[1:-1]} - {""}:
            words = words.replace(form, _HIDDEN)
        return _BEARER.sub(rf"\1{_HIDDEN}", words)


def check_installed() -> None:
    """Raises ImportError without the package openai."""
    if find_spec("openai") is None:
        raise ImportError("an endpoint needs the package openai: pip install 'hfcomp[generate]'.")


def check_base_url(base_url: str) -> None:
    """Raises ValueError for an address that is no http one or holds a password or a query, which are not repeated."""
    parts = urlsplit(base_url)
    if "?" in base_url or "#" in base_url:
        raise ValueError(f"base_url holds a query. Remove what follows '?', and put a key into {KEY_VARIABLE}.")
    if parts.username or parts.password or "@" in parts.netloc:
        raise ValueError(f"base_url holds a user or password. Remove it, and put a key into {KEY_VARIABLE}.")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"base_url is {base_url!r}; expected an address such as http://127.0.0.1:8000/v1.")


def _next(parts: Iterator[bytes]) -> bytes | None:
    """The next part of a body; None at its end.

    Raises:
        BadBody: where it breaks off. The client hands on what its HTTP library raises within a body, of any class.
    """
    try:
        return next(parts, None)
    except Exception as error:
        raise BadBody(f"the reply broke off, {error or type(error).__name__}") from None


def _read(body: bytes | None) -> Reply:
    if body is None:
        return Reply(problem=TOO_LARGE)
    try:
        choice = _Completion.model_validate(parse_json(body)).choices[0]
    except (ValueError, ValidationError):
        raise BadBody("expected a chat completion", body[:_SHOWN]) from None
    if choice.message.refusal:
        return Reply(problem=REFUSED)
    if choice.finish_reason == "length":
        return Reply(problem=CUT)
    return Reply(choice.message.content or "")
