"""The concreteness ratings on request: downloaded to the user's cache after their licence was shown, never shipped."""

from __future__ import annotations

import hashlib
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from hfcomp.checksums import file_hash
from hfcomp.negatives.concreteness import HOW_TO_GET
from hfcomp.writing import write_bytes

URL = "http://crr.ugent.be/papers/Concreteness_ratings_Brysbaert_et_al_BRM.txt"
"""The authors' page (Center for Reading Research, Ghent University)."""
SHA256 = "0b4082dbd38585b0ee1fd258145b7a50592f8d0d98e5fc6b6844ceef3cd8ecc8"
"""Of the table of 39,954 rows that hfcomp is tested with; the address has no encryption, so the hash decides."""
FILE = "Concreteness_ratings_Brysbaert_et_al_BRM.txt"
LICENSE = (
    "Concreteness ratings: Brysbaert, Warriner, Kuperman 2014, doi:10.3758/s13428-013-0403-5. Their licence is listed "
    "as CC BY-NC-ND 3.0 (https://creativecommons.org/licenses/by-nc-nd/3.0/): name the authors, no commercial use, do "
    "not pass on changed copies. hfcomp writes no rating into a set that it builds."
)
TIMEOUT = 60.0
"""Seconds for the whole file of 1.6 MB."""
_MAX_BYTES = 16 * 1024**2


def download_ratings(
    folder: Path, *, log: Callable[[str], None], url: str = URL, sha256: str = SHA256, timeout: float = TIMEOUT
) -> Path:
    """The table of ratings in a folder, downloaded where it is not there yet. `log` gets the licence first.

    Call it for a user who asked for it, and for no other.

    Args:
        folder: Of the cache.
        log: Receives the licence, and where the file comes from and goes to.
        url: `http` or `https`.
        sha256: Of the file; one that has another is not kept.
        timeout: Seconds for the whole file.

    Returns:
        The path of the file, for `ConcretenessRatings.from_file`.

    Raises:
        OSError: The file could not be downloaded.
        ValueError: It is not the table with this hash.
    """
    path = folder / FILE
    log(LICENSE)
    if path.is_file():
        if file_hash(path) == sha256:
            log(f"the ratings are in {path}")
            return path
        log(f"{path} is damaged: its hash is not {sha256}. It is downloaded again.")
    log(f"downloading {url} to {path}")
    content = _fetch(url, timeout)
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ValueError(
            f"{url}: expected the table with sha256 {sha256}, found {len(content):,} bytes with {found}. It is not "
            f"kept. {HOW_TO_GET} Then name the file as concreteness_ratings."
        )
    write_bytes(path, content)
    return path


def _fetch(url: str, timeout: float) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r}: expected an address that begins with http:// or https://.")
    deadline, content = time.monotonic() + timeout, bytearray()
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            while piece := response.read1(1 << 16):
                content += piece
                if len(content) > _MAX_BYTES:
                    break  # the hash will not be right
                if time.monotonic() > deadline:
                    raise TimeoutError(f"it took more than {timeout:g} s")
    except (OSError, ValueError) as error:
        raise OSError(
            f"{url} could not be downloaded: {error}. {HOW_TO_GET} Then name the file as concreteness_ratings."
        ) from error
    return bytes(content)
