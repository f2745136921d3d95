"""Files that a dataset names: on this machine, or, only when asked, fetched with a limit of time and size.

Whoever writes a dataset chooses its texts. A URL in it, read without being asked for, would make this machine call
any address, including internal ones, and would hang on an unresponsive one.
"""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any
from urllib.parse import unquote

from hfcomp import __version__

SCHEMES = ("http", "https", "hf")
"""What is fetched when URLs are allowed; `hf` is the Hub, as sets streamed from it name their files."""
LOCAL_SCHEMES = ("zip", "tar")
"""Archives on this machine, as `datasets` names their members: `zip://a.jpg::/data/set.zip`."""
DEFAULT_TIMEOUT = 20.0
"""Seconds for one file, from the first look-up of the name to the last byte."""
MAX_BYTES = 64 * 1024**2
"""Of one fetched file."""
_CHUNK = 1 << 16
_FIX = "Remove the row, or download the file and name its path"


@dataclass(frozen=True)
class UrlAccess:
    """That URLs inside data are fetched.

    Attributes:
        timeout: seconds for one file, as a whole.
        max_bytes: of one file.
        repositories: datasets of the Hub that are loaded. Their own files are read with the user's token.
        others: whether anything else is fetched, without the token.

    Raises:
        ValueError: for a limit that is not above 0.
    """

    timeout: float = DEFAULT_TIMEOUT
    max_bytes: int = MAX_BYTES
    repositories: frozenset[str] = frozenset()
    others: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.timeout < float("inf") or self.max_bytes < 1:
            raise ValueError(
                f"url_timeout={self.timeout!r}, max_bytes={self.max_bytes!r}: expected numbers above 0. Without a "
                "limit an unresponsive server would block the run."
            )

    @classmethod
    def asked(cls, allow_urls: bool, url_timeout: float) -> UrlAccess | None:
        """The access that settings `allow_urls` and `url_timeout` ask for; None for none."""
        return cls(url_timeout) if allow_urls else None

    def is_own(self, url: str) -> bool:
        """Whether a URL names a file of `repositories`, or a member of an archive there."""
        path = url.rpartition("::")[2].removeprefix("hf://datasets/")
        if path == url.rpartition("::")[2] or ".." in re.split("[/@]", unquote(path)):
            return False  # a client may follow the dots into another repository
        # Without an owner in the repository's name, "name/..." could be a repository of an owner with that name.
        ends = {name: ("/", "@") if "/" in name else ("@",) for name in self.repositories}
        return any(path.startswith(name + end) for name in ends for end in ends[name])

    def allows(self, url: str) -> bool:
        """Whether a URL may be fetched."""
        return self.others or self.is_own(url)


_current: UrlAccess | None = None
_repositories: frozenset[str] = frozenset()


def set_url_access(access: UrlAccess | None) -> None:
    """What `decode_image` may fetch from now on, in this process, where it is not given an access of its own.

    Commands call it with what they were asked for: `allow_urls` and `url_timeout`.
    """
    global _current
    _current = access


@contextmanager
def url_access(access: UrlAccess | None) -> Iterator[None]:
    """`set_url_access` for the length of a block."""
    before = _current
    set_url_access(access)
    try:
        yield
    finally:
        set_url_access(before)


def add_repositories(names: Iterable[str]) -> None:
    """Datasets of the Hub that this process loads: what their files name of their own is read without being asked.

    An image folder that is streamed is nothing but such names: `hf://datasets/x/y@revision/a.png`.
    """
    global _repositories
    _repositories |= frozenset(names)


def current_access(access: UrlAccess | None = None) -> UrlAccess | None:
    """What `access`, or else `set_url_access`, and the repositories that are loaded allow; None if nothing."""
    access = access or _current
    if not _repositories:
        return access
    return replace(access or UrlAccess(others=False), repositories=_repositories)


def is_url(name: str) -> bool:
    """Whether a name is read from another machine, or by any means but this machine's files and their archives."""
    return any("://" in link and link.partition("://")[0] not in LOCAL_SCHEMES for link in name.split("::"))


def shown(name: str) -> str:
    """A name without what may be secret in a URL: user and password, query (as of signed URLs) and fragment."""
    # Errors and results are pasted into issues, and a signed URL opens the file for everybody who reads it.
    return "::".join(map(_without_secrets, name.split("::")))


def _without_secrets(link: str) -> str:
    scheme, colon, rest = link.partition("://")
    if not colon or scheme in (*LOCAL_SCHEMES, "hf"):  # a file's name may hold these signs
        return link
    host, slash, path = re.split("[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def open_named(name: str, where: str, access: UrlAccess | None = None) -> Any:
    """A binary stream of a file by path, of a member of an archive (`zip://member::archive`), or of an allowed URL.

    Raises:
        ValueError: for a URL that is not allowed, has another scheme, or is too large, or a name with a NUL.
        OSError: for a file that is not there or cannot be read, or a URL that fails or takes too long.
    """
    if "\0" in name:
        raise ValueError(f"{where} names the file {name!r}, which contains a NUL character. Correct or remove it.")
    if is_url(name):
        return BytesIO(_fetch(name, where, access))
    if "://" in name:
        import fsspec

        # Read as a whole: Pillow seeks, which is slow in an archive.
        with fsspec.open(name, "rb") as file:
            return BytesIO(file.read())
    return open(name, "rb")


def _fetch(url: str, where: str, access: UrlAccess | None) -> bytes:
    *members, last = url.split("::")
    scheme, name = last.partition("://")[0].lower(), shown(url)
    if access is None or not access.allows(url):
        raise ValueError(
            f"{where} names the URL {name!r}. URLs in data are not fetched by default: embed the images in the set "
            "or, if you trust it, pass allow_urls (--allow_urls)."
        )
    of_archive = len(members) == 1 and scheme == "hf" and members[0].partition("://")[0] in LOCAL_SCHEMES
    if scheme not in SCHEMES or (members and not of_archive):
        raise ValueError(
            f"{where} names the URL {name!r}; only {', '.join(SCHEMES)} are fetched, and members of zip and tar "
            f"archives on the Hub. {_FIX}."
        )
    found: dict[str, Any] = {}

    def fetch() -> None:
        try:
            found["content"] = (_from_hub if scheme == "hf" else _from_web)(url, access)
        except Exception as error:  # of whatever library; raised below in the thread that asked
            found["error"] = error

    # Fetched in a thread: a name look-up, or a server that sends a byte now and then, ignores the timeout of a socket.
    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    thread.join(access.timeout)
    if not found:
        raise TimeoutError(f"{where}: {name!r} took more than {access.timeout:g} s (url_timeout). {_FIX}.")
    if "error" in found:
        error = found["error"]
        # Messages about an invalid URL repeat it.
        reason = error if isinstance(error, OSError) or name == url else type(error).__name__
        raise OSError(f"{where}: {name!r} could not be fetched: {reason}. {_FIX}.") from error
    content: bytes = found["content"]
    if len(content) > access.max_bytes:
        raise ValueError(f"{where}: {name!r} has more than {access.max_bytes:,} bytes, the most fetched. {_FIX}.")
    return content


def _from_web(url: str, access: UrlAccess) -> bytes:
    # This opener has these handlers only. The usual one has more, and a redirect could then lead to ftp://. One byte
    # more than allowed is read, so the caller sees that there is more.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    request = urllib.request.Request(url, headers={"User-Agent": f"hfcomp/{__version__}"})
    deadline = time.monotonic() + access.timeout
    content = bytearray()
    with opener.open(request, timeout=access.timeout) as response:
        while len(content) <= access.max_bytes and time.monotonic() < deadline:
            piece = response.read1(min(_CHUNK, access.max_bytes + 1 - len(content)))
            if not piece:
                break
            content += piece
    return bytes(content)


def _from_hub(url: str, access: UrlAccess) -> bytes:
    import fsspec

    # The user's token goes only to the repositories that are loaded: a stranger's data could name a private repository
    # of the user.
    with fsspec.open(url, "rb", hf={} if access.is_own(url) else {"token": False}) as file:
        return bytes(file.read(access.max_bytes + 1))
