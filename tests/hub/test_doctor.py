"""`hfcomp doctor` against the stand-in Hub: who is logged in, what is refused, and no token in what it prints."""

from __future__ import annotations

import json

import pytest
from huggingface_hub import constants

from hfcomp.cli.environment import find_hub_access
from tests import processes
from tests.hub.repositories import READ_TOKEN, WRITE_TOKEN, WRONG_TOKEN


def test_the_command_names_the_user_and_not_the_token(hub):
    done = processes.run(["-m", "hfcomp.cli", "doctor", "--json"], env=hub.environment(WRONG_TOKEN))
    assert WRONG_TOKEN not in done.stdout + done.stderr
    answer = json.loads(done.stdout)
    broken = [finding for finding in answer["findings"] if finding["state"] == "broken"]
    assert done.returncode == 1 and answer["works"] is False
    assert [finding["name"] for finding in broken] == ["login"] and "refuses the token" in broken[0]["found"]
    assert {finding["area"] for finding in answer["findings"]} == {"packages", "extras", "devices", "storage", "hub"}
    assert any(str(hub.home) in finding["found"] for finding in answer["findings"])


@pytest.fixture
def hub_access(hub, monkeypatch):
    """What is found of the stand-in, by name, with a token or none, and other settings of `huggingface_hub`."""

    def find(token: str | None, **settings):
        for name, value in {"ENDPOINT": hub.address, "HF_HUB_OFFLINE": False, **settings}.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setattr("huggingface_hub.get_token", lambda: token)
        findings = {finding.name: finding for finding in find_hub_access()}
        assert token is None or token not in str(findings)
        return findings

    return find


@pytest.mark.parametrize(("token", "role"), [(WRITE_TOKEN, "write"), (READ_TOKEN, "read")])
def test_the_user_and_the_kind_of_the_token_are_named(hub, hub_access, token, role):
    findings = hub_access(token)
    assert findings[hub.address].found == "reached" and "GET /api/whoami-v2" in hub.requests
    assert (findings["login"].state, findings["login"].found) == ("ok", f"me with a '{role}' token")


def test_no_token_is_a_note_and_a_refused_one_is_broken(hub, hub_access):
    assert hub_access(None)["login"].state == "note"
    refused = hub_access(WRONG_TOKEN)
    assert refused[hub.address].state == "ok" and refused["login"].state == "broken"
    assert refused["login"].fix == "hf auth login, or remove HF_TOKEN"


def test_offline_asks_nobody_and_no_network_is_a_note(hub, hub_access):
    offline = hub_access(WRITE_TOKEN, HF_HUB_OFFLINE=True)
    assert offline[hub.address].found == "not contacted: HF_HUB_OFFLINE is set" and hub.requests == []
    assert offline["login"].found == "a token is set"
    nowhere = hub_access(WRITE_TOKEN, ENDPOINT="http://127.0.0.1:9")["http://127.0.0.1:9"]
    assert nowhere.state == "note" and nowhere.found.startswith("not reached: ")


def test_a_hub_that_fails_is_a_note(hub, hub_access):
    finding = hub_access(None, ENDPOINT=f"{hub.address}/nowhere")[f"{hub.address}/nowhere"]
    assert (finding.state, finding.found) == ("note", "answers with status 404")
