"""Sign-in: a small page of our own, cookie sessions, and password guesses that are throttled and logged."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, RedirectResponse, Response

from hfcomp.annotate.people_file import Passwords
from hfcomp.reporting.pages.page import fill

PAGE = Path(__file__).parent / "templates" / "sign_in.html"
# Number of failures per client without a wait. Each further failure doubles the wait, up to `LONGEST_WAIT` seconds, so
# nobody who mistyped is locked out for long. A client that makes no attempt for `FORGOTTEN` seconds starts over.
FREE_FAILURES, LONGEST_WAIT, FORGOTTEN = 4, 30.0, 900.0
# Password checks for all clients together: average rate per second, and burst size after a quiet period.
CHECKS_A_SECOND, CHECKS_AT_ONCE = 2.0, 10.0
MOST_SESSIONS, SESSION_SECONDS = 1000, 24 * 3600.0


@dataclass(frozen=True)
class SignedIn:
    """A signed-in session.

    Attributes:
        until: Time when the session ends, on the door's clock.
    """

    person: str
    token: str
    until: float


class Throttle:
    """Decides when a client may try the next password."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._checks, self._filled = CHECKS_AT_ONCE, clock()

    def wait(self, client: str) -> float:
        """Returns the seconds until a client may try. 0 means now and uses up one check shared by all clients."""
        now = self._clock()
        number, last = self._failures.get(_group(client), (0, now))
        if number > FREE_FAILURES and now - last < FORGOTTEN:
            # The wait doubles with each failure and is counted from the last one.
            left = last + min(2.0 ** (number - FREE_FAILURES - 1), LONGEST_WAIT) - now
            if left > 0:
                return left
        # All clients share a token bucket, so guesses from many addresses are slowed down as well.
        self._checks = min(CHECKS_AT_ONCE, self._checks + CHECKS_A_SECOND * (now - self._filled))
        self._filled = now
        if self._checks < 1:
            return (1 - self._checks) / CHECKS_A_SECOND
        self._checks -= 1
        return 0.0

    def fail(self, client: str) -> int:
        """Records a failure and returns the client's number of failures."""
        now, name = self._clock(), _group(client)
        number, last = self._failures.pop(name, (0, now))
        self._failures[name] = (number + 1 if now - last < FORGOTTEN else 1, now)
        while len(self._failures) > MOST_SESSIONS:
            self._failures.popitem(last=False)
        return self._failures[name][0]

    def succeed(self, client: str) -> None:
        self._failures.pop(_group(client), None)


class Door:
    """Signs people in and keeps their sessions."""

    def __init__(
        self,
        passwords: Passwords,
        *,
        title: str,
        cookie: str,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._passwords, self._title, self._cookie, self._log, self._clock = passwords, title, cookie, log, clock
        self._throttle = Throttle(clock)
        self._sessions: OrderedDict[str, SignedIn] = OrderedDict()
        self._waiting: set[str] = set()
        self._one_at_a_time = asyncio.Semaphore(1)

    def session(self, cookies: str) -> SignedIn | None:
        session = self._sessions.get(cookie_parser(cookies).get(self._cookie, ""))
        return session if session is not None and self._clock() < session.until else None

    async def answer(self, method: str, body: bytes, headers: Headers, client: str) -> Response:
        """Answers a request with the sign-in page or the result of a sign-in attempt."""
        if method in ("GET", "HEAD"):
            return self._page("", 200)
        if method != "POST":
            return self._page("", 405)
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=8)
        name, password = (fields.get(key, [""])[0] for key in ("name", "password"))
        # Throttle before checking the password, so a guess that is too early costs nothing and reveals nothing.
        wait = self._throttle.wait(client)
        if wait > 0:
            if client not in self._waiting:  # log one line, however many requests arrive
                self._log(f"sign-in: {client} has tried too often and must wait {wait:.0f} s")
                self._waiting.add(client)
            text = f"Too many attempts. Try again in {max(1, round(wait + 0.5))} seconds."
            return self._page(text, 429, {"retry-after": str(int(wait) + 1)})
        self._waiting.discard(client)
        async with self._one_at_a_time:  # a hash deliberately takes memory and time
            person = await asyncio.to_thread(self._passwords.person, name, password)
        if person is None:
            number = self._throttle.fail(client)
            # Use `ascii`, so a name cannot forge lines or colors in the log.
            self._log(f"sign-in refused: {ascii(name[:60])} from {client}, failure {number}")
            return self._page("The name or the password is wrong.", 401)
        self._throttle.succeed(client)
        self._log(f"sign-in: {ascii(person)} from {client}")
        return self._begin(person, is_secure=headers.get("origin", "").startswith("https:"))

    def _begin(self, person: str, *, is_secure: bool) -> Response:
        # End the oldest session, because repeated sign-ins must not fill the memory.
        while len(self._sessions) >= MOST_SESSIONS:
            self._sessions.popitem(last=False)
        session = SignedIn(person, secrets.token_urlsafe(32), self._clock() + SESSION_SECONDS)
        self._sessions[session.token] = session
        response = RedirectResponse("/", 303)
        # "lax": links from another site open the page signed in, but its forms are sent without the cookie.
        response.set_cookie(self._cookie, session.token, httponly=True, samesite="lax", secure=is_secure, path="/")
        return response

    def _page(self, message: str, status: int, headers: dict[str, str] | None = None) -> Response:
        text = fill(PAGE, title=self._title, what=self._passwords.what, message=message)
        return HTMLResponse(text, status, {"cache-control": "no-store", **(headers or {})})


def _group(client: str) -> str:
    """Returns a client's address, or its /64 network for IPv6, because a client owns all addresses of that network."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    return client if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))
