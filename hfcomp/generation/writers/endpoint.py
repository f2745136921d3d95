"""A client of any OpenAI-compatible endpoint, by the official package: vLLM, `transformers serve`, a paid service.

What the server sends is not trusted: a body is read up to a limit and a deadline, and is a chat completion by its
fields or nothing. Every failure is one of three:

* The request's own (`_OWN_FAULT`, or each time a whole body that is no chat completion): it alone gets a problem, if a
  small request shows that the endpoint works.
* One that may pass, such as a limit of requests: it is waited for with fewer requests at a time, so that load and a
  limit never decide which captions a set has.
* The endpoint's: the small request fails too, or nothing at all was answered for `PATIENCE`. The build stops, with
  what is done kept.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, Field, ValidationError

from hfcomp.generation.writers.pace import Pace, pause_after
from hfcomp.generation.writers.requests import Reply, Request, answer_schema
from hfcomp.reading import parse_json

_logger = logging.getLogger(__name__)

KEY_VARIABLE = "HFCOMP_LLM_API_KEY"
"""The environment variable of the key; a server of one's own needs none."""
NO_KEY = "none"
MOST_BYTES = 1_000_000
"""Of the body of a reply; our choice, a hundred times what the longest caption needs."""
REFUSED, CUT, TOO_LARGE, NO_REPLY = "model refused", "answer cut off", "answer too long", "no reply from the server"
HOLDS_KEY, NO_COMPLETION = "answer holds the key", "no chat completion"
_HIDDEN = "[key]"
_SHORTEST_SECRET = 8  # "EMPTY", which many servers of one's own are given, may be a word of a caption
_BEARER = re.compile(r"(?i)\b(bearer\s+)[^\s\"',;<>]+")
_PROBE = 'Write {"caption": "a dog"} and nothing else.'
PATIENCE = 1800.0
"""Seconds in which nothing is answered, or that a server asks to wait, before the build stops; our choice."""
_OWN_FAULT = (400, 413, 422)  # too long a prompt, a word that the server does not take
_MAY_PASS = (408, 409, 425, 429)  # and 5xx
_LIMITED = (429, 503)  # these concern all requests
_SPENT = "insufficient_quota"  # OpenAI's, which comes as 429
_FRESH = 5.0  # seconds for which a small request stands for others
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


class BrokenOff(BadBody):
    """A body that does not come to its end, or not in time."""


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
        concurrency: requests at a time, less while the endpoint does not take them.
        retries: of one request, before a small one shows whether the endpoint works.
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
            max_retries=0,  # the client would not tell the other requests
            default_headers=unsent,
        )
        self._pace = Pace(concurrency)
        self._probe_lock, self._probed = threading.Lock(), float("-inf")
        self._failure: EndpointError | None = None
        self._has_warned = False

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
            body["response_format"] = {"type": "json_schema", "json_schema": answer_schema(request.field)}
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
                found = self._ask(request)
            if isinstance(found, Reply):
                self._pace.speed_up()
                return found
            first, is_own = first or time.monotonic(), _is_own(found)
            tries, was_own = (tries + 1 if is_own == was_own else 1), is_own
            if self._is_doubtful(found, tries, time.monotonic() - first):
                self._check_works(request)
                if is_own:
                    what = f"code {_status(found)}" if _status(found) else NO_COMPLETION
                    return Reply(problem=f"{NO_REPLY}: {what}", is_final=False)
                tries = 0
            self._wait(found, tries, started, first)

    def _is_doubtful(self, error: Exception, tries: int, seconds: float) -> bool:
        """Whether the endpoint has to show that it works: after `tries` failures of a kind, since `seconds`."""
        if _status(error) == 429 or not _may_pass(error):
            return not _may_pass(error)
        is_long = not _is_own(error) and seconds > self._timeout * (
            self._retries + 1
        )  # it waited for its turn as well
        return tries > self._retries or is_long

    def _wait(self, error: Exception, tries: int, started: float, first: float) -> None:
        """Before a request is sent again.

        Args:
            error: why.
            tries: so far.
            started: when the last one did.
            first: when the first one failed.
        """
        seconds, is_limit = _retry_after(error), _status(error) in _LIMITED
        lasting = time.monotonic() - max(first, self._pace.succeeded)
        if lasting + (seconds or 0) > PATIENCE:
            what = (
                f"asks to wait {seconds:,.0f} seconds"
                if seconds
                else f"has answered nothing for {lasting:,.0f} seconds"
            )
            self._stop(error, what, "Repeat the command later")
        if is_limit and not self._has_warned:
            self._has_warned = True
            _logger.warning("the endpoint limits requests (code %s): fewer at a time, with pauses", _status(error))
        if not _is_own(error):
            self._pace.slow_down(started, is_limit, seconds)
        if not is_limit:  # else all wait for their turn
            self._pace.rest(pause_after(tries) if seconds is None else seconds)

    def _check_works(self, request: Request) -> None:
        """Distinguishes a bad request from a bad endpoint with a small request; one thread does for all."""
        with self._probe_lock:
            if self._failure is not None:  # the others need not wait for it again
                raise self._failure
            if time.monotonic() - self._probed < _FRESH:
                return
            small = replace(request, prompt=_PROBE, seed=0, max_tokens=16)
            for attempt in range(self._retries + 1):
                found = self._ask(small)
                if isinstance(found, Reply) or (_status(found) == 429 and _may_pass(found)):
                    self._probed = time.monotonic()
                    return
                pause = _retry_after(found) or pause_after(attempt + 1)
                if not _may_pass(found) or attempt == self._retries or pause > PATIENCE:
                    self._stop(found, "does not work", "Start it")
                self._pace.rest(pause)

    def _stop(self, error: Exception, what: str, advice: str) -> NoReturn:
        place = urlsplit(self._base_url)
        self._failure = EndpointError(
            f"the endpoint {place.scheme}://{place.netloc}{place.path} {what}: {self._said(error)}. "
            f"{advice}, or check --base_url, --llm {self._model} and {KEY_VARIABLE}; answers so far are kept."
        )
        raise self._failure

    def _ask(self, request: Request) -> Reply | Exception:
        """The reply, or why there is none. It is returned, as no error may carry along what the server said."""
        try:
            reply = _read(self._body(request))
        except (self._openai.OpenAIError, BadBody) as error:
            return error
        holds_key = len(self._key) >= _SHORTEST_SECRET and self._key in reply.text
        return Reply(problem=HOLDS_KEY) if holds_key else reply

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
                    raise BrokenOff(f"the reply took more than {self._timeout:g} seconds (--llm_timeout)")
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
        BrokenOff: where it breaks off. The client hands on what its HTTP library raises within a body, of any class.
    """
    try:
        return next(parts, None)
    except Exception as error:
        raise BrokenOff(f"the reply broke off, {error or type(error).__name__}") from None


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


def _status(error: Exception) -> int | None:
    status: int | None = getattr(error, "status_code", None)
    return status


def _is_own(error: Exception) -> bool:
    """Whether a failure may be the request's own."""
    return _status(error) in _OWN_FAULT or type(error) is BadBody


def _may_pass(error: Exception) -> bool:
    """Whether the same request may be answered later; those without a code are lost connections and bad bodies."""
    status = _status(error)
    if getattr(error, "code", None) == _SPENT:
        return False
    return status is None or status in _MAY_PASS or status >= 500


def _retry_after(error: Exception) -> float | None:
    """Seconds that the server asks to wait; None where it does not say."""
    said = getattr(getattr(error, "response", None), "headers", {}).get("retry-after", "")
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(said).timestamp() - time.time()
        except (ValueError, OverflowError, OSError):
            return None
    return seconds if seconds > 0 else None
