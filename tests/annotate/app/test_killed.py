"""A server that is killed while a person works in a browser."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from playwright.sync_api import Error

from hfcomp.data.annotations.project import Project
from tests.annotate.app import stand_ins
from tests.annotate.app.browser import Visit
from tests.chromium import chromium

ROOT = Path(__file__).parents[3]
KILLS, LATEST, PATIENCE = 20, 3.0, 4000
"""Kills; the last moment of one after the page was opened, in times of a first annotation; and how long the browser
waits, in milliseconds."""


def start(folder, port):
    command = [sys.executable, "-m", "tests.annotate.app.serve", str(folder), str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return process, process.stdout.readline().strip()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.slow
def test_no_decision_that_the_page_showed_is_lost_by_kills(tmp_path):
    stand_ins.project(tmp_path / "boxes", 400).decisions.close()
    moments, port, shown = random.Random(0), free_port(), []
    with chromium() as browser:
        process, address = start(tmp_path / "boxes", port)
        visit, clock = Visit(browser, address), time.monotonic()
        shown.append(visit.sign_in("Ann").annotate())
        seconds = time.monotonic() - clock
        visit.leave()
        process.kill()
        for _ in range(KILLS):
            process.wait(30)
            process, address = start(tmp_path / "boxes", port)
            visit = Visit(browser, address)
            visit.page.set_default_timeout(PATIENCE)
            killer = threading.Timer(moments.uniform(0, LATEST * seconds), process.kill)
            killer.start()
            with pytest.raises(Error):  # of the browser, once the server is gone
                visit.sign_in("Ann")
                while True:
                    shown.append(visit.annotate())
            killer.join()
            assert process.wait(30) == -signal.SIGKILL
            visit.leave()
    decisions = Project(tmp_path / "boxes").decisions
    assert len(shown) == len(set(shown)) > KILLS / 4
    assert {decisions.state(item) for item in shown} == {"annotated"}
    # a kill between a decision and the page's answer leaves one more, never half of one
    assert len(shown) <= decisions.counts()["annotated"] <= len(shown) + KILLS
    log = [decisions.state(entry.item) for entry in decisions.log()]
    assert log == ["annotated"] * len(log)
    decisions.close()
