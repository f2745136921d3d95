"""Long work of the main process alone, on two processes whose collectives wait for two seconds only."""

from __future__ import annotations

from tests import processes

SCRIPT = """
import datetime, sys, time
import torch.distributed as dist
from hfcomp.distributed import OtherProcessFailed, on_main_process

rank, port = int(sys.argv[1]), sys.argv[2]
wait = datetime.timedelta(seconds=2)
store = dist.TCPStore("127.0.0.1", int(port), 2, is_master=rank == 0)  # which waits longer for both to come
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=wait)

def slow():
    assert rank == 0, "computed on another process"
    time.sleep(4.5)
    return {"rows": [1, 2]}

def broken():
    raise ValueError("row 7 is damaged")

print(on_main_process(slow, every=0.25))
try:
    on_main_process(broken, every=0.25)
except (ValueError, OtherProcessFailed) as error:
    print(type(error).__name__, error)
"""


def test_the_others_wait_longer_than_a_collective_may_and_receive_the_result():
    port = processes.free_port()
    started = [processes.start(["-c", SCRIPT, rank, port]) for rank in "01"]
    said = [process.communicate(timeout=120)[0] for process in started]
    assert all("{'rows': [1, 2]}" in one for one in said), said
    assert "ValueError row 7 is damaged" in said[0]
    assert "OtherProcessFailed process 0 failed: ValueError: row 7 is damaged" in said[1]
