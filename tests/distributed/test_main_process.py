"""Long work of the main process alone, on two processes whose collectives wait for two seconds only."""

from __future__ import annotations

from tests import processes

SCRIPT = """
import datetime, sys, time
import torch.distributed as dist
from hfcomp.distributed import OtherProcessFailed, run_on_main_process

rank, port = int(sys.argv[1]), sys.argv[2]
wait = datetime.timedelta(seconds=2)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2, timeout=wait)

def slow():
    assert rank == 0, "computed on another process"
    time.sleep(4)
    return {"rows": [1, 2]}

def broken():
    raise ValueError("row 7 is damaged")

print(run_on_main_process(slow, every=0.5))
try:
    run_on_main_process(broken, every=0.5)
except (ValueError, OtherProcessFailed) as error:
    print(type(error).__name__, error)
"""


def test_the_others_wait_longer_than_a_collective_may_and_receive_the_result():
    port = processes.free_port()
    started = [processes.start(["-c", SCRIPT, rank, port]) for rank in "01"]
    said = processes.outputs(started, 120)
    assert all("{'rows': [1, 2]}" in output for output in said), said
    assert "ValueError row 7 is damaged" in said[0]
    assert "OtherProcessFailed process 0 failed: ValueError: row 7 is damaged" in said[1]
