"""The Hub: whether it is reached, and who is logged in. The token itself is never shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hfcomp.data.publishing import TOKEN
from hfcomp.environment.findings import BROKEN, NOTE, OK, Finding

AREA = "hub"
TIMEOUT = 5.0
"""Seconds for an answer."""
LOGIN = "hf auth login"
UNREACHED = (
    "Check connection, proxy and HF_ENDPOINT. Without the Hub: the sandbox, and models and data in local folders."
)


def find_hub_access() -> Iterator[Finding]:
    """The Hub's address, whether it answers, and the user of the token."""
    from huggingface_hub import constants, get_token

    token, address = get_token(), constants.ENDPOINT
    known = "a token is set" if token else "no token: gated and private repositories, and pushing, need one"
    if constants.HF_HUB_OFFLINE:
        fix = "To download, unset HF_HUB_OFFLINE."
        yield Finding(AREA, address, "not asked: HF_HUB_OFFLINE is set", NOTE, fix)
        yield Finding(AREA, "login", known)
        return
    answer = _ask(address, token)
    if isinstance(answer, str):
        yield Finding(AREA, address, f"not reached: {answer}", NOTE, UNREACHED)
        yield Finding(AREA, "login", known)
        return
    status = int(answer.status_code)
    if status >= 500 or status not in (200, 401, 403):
        yield Finding(AREA, address, f"answers with status {status}", NOTE, UNREACHED)
        return
    yield Finding(AREA, address, "reached")
    yield _login(answer, token)


def _login(answer: Any, token: str | None) -> Finding:
    """Who the token is of; one that is refused makes every download fail, of public repositories too."""
    if token is None:
        return Finding(AREA, "login", "none: gated and private repositories, and pushing, need one", NOTE, LOGIN)
    if answer.status_code != 200:
        found = "the token is refused, and with it downloads of public repositories"
        return Finding(AREA, "login", found, BROKEN, f"{LOGIN}, or remove HF_TOKEN")
    facts = answer.json()
    role = ((facts.get("auth") or {}).get("accessToken") or {}).get("role")
    rights = f" with a token of the kind {role!r}" if role else ""
    return Finding(AREA, "login", f"{facts.get('name', 'unknown')}{rights}", OK)


def _ask(address: str, token: str | None) -> Any:
    """The Hub's answer to who one is, or why there is none."""
    from huggingface_hub.utils import build_hf_headers, get_session

    headers = build_hf_headers(token=token or False, library_name="hfcomp")
    try:
        return get_session().get(f"{address}/api/whoami-v2", headers=headers, timeout=TIMEOUT)
    except Exception as error:  # of the HTTP client that this version of huggingface_hub uses
        return TOKEN.sub("TOKEN", f"{type(error).__name__}: {error}")
