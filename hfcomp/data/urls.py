"""Opens files that a dataset names: local files, and URLs only if allowed, with limits on time and size.

The author of a dataset chooses its texts. If URLs in it were downloaded without permission, a dataset could make this
machine contact any address, including internal ones, or hang on an unresponsive one.
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
"""URL schemes that can be downloaded; `hf` is the Hub, used in the file names of datasets streamed from it."""
LOCAL_SCHEMES = ("zip", "tar")
"""Local archives, whose members `datasets` names like this: `zip://a.jpg::/data/set.zip`."""
DEFAULT_TIMEOUT = 20.0
"""Seconds allowed for one file, from the first name lookup to the last byte."""
MAX_BYTES = 64 * 1024**2
"""Maximum size of one downloaded file."""
_CHUNK = 1 << 16
_FIX = "Remove the row, or download the file and put its path into the row"


@dataclass(frozen=True)
class UrlAccess:
    """Permission to download URLs inside data, with its limits.

    Attributes:
        timeout: Total time per file, in seconds.
        max_bytes: Maximum size of a file.
        repositories: Hub datasets that this process loads. Their own files are read with the user's token.
        others: Whether other URLs may be downloaded too. The token is never sent to them.

    Raises:
        ValueError: If a limit is not a finite number above 0.
    """

    timeout: float = DEFAULT_TIMEOUT
    max_bytes: int = MAX_BYTES
    repositories: frozenset[str] = frozenset()
    others: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.timeout < float("inf") or self.max_bytes < 1:
            raise ValueError(
                f"url_timeout={self.timeout!r}, max_bytes={self.max_bytes!r}: expected finite numbers above 0. "
                "Otherwise, an unresponsive server could block the run forever."
            )

    @classmethod
    def from_settings(cls, allow_urls: bool, url_timeout: float) -> UrlAccess | None:
        """Makes the access that the settings `allow_urls` and `url_timeout` describe; None if URLs are not allowed."""
        return cls(url_timeout) if allow_urls else None

    def is_own(self, url: str) -> bool:
        """Whether a URL names a file in `repositories`, or a member of an archive there."""
        path = url.rpartition("::")[2].removeprefix("hf://datasets/")
        if path == url.rpartition("::")[2] or ".." in re.split("[/@]", unquote(path)):
            return False  # a client may resolve the dots into another repository
        # If a repository has no owner, "name/..." could also refer to a repository whose owner is called "name".
        ends = {name: ("/", "@") if "/" in name else ("@",) for name in self.repositories}
        return any(path.startswith(name + end) for name in ends for end in ends[name])

    def allows(self, url: str) -> bool:
        """Whether a URL may be fetched."""
        return self.others or self.is_own(url)


_current: UrlAccess | None = None
_repositories: frozenset[str] = frozenset()


def set_url_access(access: UrlAccess | None) -> None:
    """Sets the default URL access of `decode_image` in this process; its `urls` argument takes precedence.

    Commands call it with their options `allow_urls` and `url_timeout`.
    """
    global _current
    _current = access


@contextmanager
def url_access(access: UrlAccess | None) -> Iterator[None]:
    """Applies `set_url_access` for the duration of a block."""
    before = _current
    set_url_access(access)
    try:
        yield
    finally:
        set_url_access(before)


def add_repositories(names: Iterable[str]) -> None:
    """Registers Hub datasets that this process loads, so their own files can be read without `allow_urls`.

    In a streamed image folder, every image is named by such a URL: `hf://datasets/x/y@revision/a.png`.
    """
    global _repositories
    _repositories |= frozenset(names)


def current_access(access: UrlAccess | None = None) -> UrlAccess | None:
    """Combines `access`, or that of `set_url_access`, with the loaded repositories; None if nothing is allowed."""
    access = access or _current
    if not _repositories:
        return access
    return replace(access or UrlAccess(others=False), repositories=_repositories)


def is_url(name: str) -> bool:
    """Whether a name refers to anything other than a local file or a member of a local archive."""
    return any("://" in link and link.partition("://")[0] not in LOCAL_SCHEMES for link in name.split("::"))


def redact(name: str) -> str:
    """Removes possible secrets from URLs: user and password, query (as in signed URLs) and fragment."""
    # People paste errors and results into issues, and a signed URL opens the file to everyone who reads it.
    return "::".join(map(_without_secrets, name.split("::")))


def _without_secrets(link: str) -> str:
    scheme, colon, rest = link.partition("://")
    if not colon or scheme in (*LOCAL_SCHEMES, "hf"):  # a file name may contain these characters
        return link
    host, slash, path = re.split("[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def open_named(name: str, where: str, access: UrlAccess | None = None) -> Any:
    """Opens a file, a member of an archive (`zip://member::archive`) or an allowed URL as a binary stream.

    Raises:
        ValueError: If a URL is not allowed, has another scheme or is too large, or the name contains a NUL.
        OSError: If a file does not exist or cannot be read, or a URL fails or takes too long.
    """
    if "\0" in name:
        raise ValueError(f"{where} names the file {name!r}, which contains a NUL character. Correct or remove it.")
    if is_url(name):
        return BytesIO(_fetch(name, where, access))
    if "://" in name:
        import fsspec

        # Read the whole file, because Pillow seeks, which is slow in an archive.
        with fsspec.open(name, "rb") as file:
            return BytesIO(file.read())
    return open(name, "rb")


def _fetch(url: str, where: str, access: UrlAccess | None) -> bytes:
    *members, last = url.split("::")
    scheme, name = last.partition("://")[0].lower(), redact(url)
    if access is None or not access.allows(url):
        raise ValueError(
            f"{where} names the URL {name!r}. URLs in data are not downloaded by default. Embed the images in the "
            "dataset or, if you trust it, pass allow_urls (--allow_urls)."
        )
    is_archive_member = len(members) == 1 and scheme == "hf" and members[0].partition("://")[0] in LOCAL_SCHEMES
    if scheme not in SCHEMES or (members and not is_archive_member):
        raise ValueError(
            f"{where} names the URL {name!r}, but only {', '.join(SCHEMES)} URLs and members of zip and tar archives "
            f"on the Hub can be downloaded. {_FIX}."
        )
    result: dict[str, Any] = {}

    def fetch() -> None:
        try:
            result["content"] = (_from_hub if scheme == "hf" else _from_web)(url, access)
        except Exception as error:  # from any library; raised again below, in the calling thread
            result["error"] = error

    # Download in a thread, because name lookups and servers that send a byte now and then ignore socket timeouts.
    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    thread.join(access.timeout)
    if not result:
        raise TimeoutError(f"{where}: {name!r} took more than {access.timeout:g} s (url_timeout). {_FIX}.")
    if "error" in result:
        error = result["error"]
        # Errors about an invalid URL quote it, including its secrets.
        reason = error if isinstance(error, OSError) or name == url else type(error).__name__
        raise OSError(f"{where}: {name!r} could not be downloaded: {reason}. {_FIX}.") from error
    content: bytes = result["content"]
    if len(content) > access.max_bytes:
        raise ValueError(f"{where}: {name!r} exceeds the download limit of {access.max_bytes:,} bytes. {_FIX}.")
    return content


def _from_web(url: str, access: UrlAccess) -> bytes:
    # An opener with only these handlers, because with the default one a redirect could lead to ftp://. The loop below
    # reads one byte more than allowed, so the caller can detect that the file is too large.
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

    # The user's token is sent only to the loaded repositories, because a stranger's data could name one of the user's
    # private repositories.
    with fsspec.open(url, "rb", hf={} if access.is_own(url) else {"token": False}) as file:
        return bytes(file.read(access.max_bytes + 1))
