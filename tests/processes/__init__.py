"""Python processes for tests, forked from a server that has imported the libraries already.

A new interpreter imports torch and transformers for eight seconds; a fork has them. It runs a module, code or a
script as `python` does: as `__main__`, with its own arguments, environment, folder and output, and with the same exit.
Tests of what is imported start `sys.executable`.

```python
done = processes.run(["-m", "hfcomp.cli", "doctor"], env=environment)
assert done.returncode == 0, done.stderr
```
"""

from tests.processes.client import Process as Process
from tests.processes.client import free_port as free_port
from tests.processes.client import interpreter as interpreter
from tests.processes.client import launch as launch
from tests.processes.client import outputs as outputs
from tests.processes.client import run as run
from tests.processes.client import share as share
from tests.processes.client import start as start
from tests.processes.workers import forkserver as forkserver
